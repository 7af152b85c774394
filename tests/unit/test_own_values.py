"""Values of one's own where a study has levels: a new level, the level with the same value, or a clear refusal."""

from __future__ import annotations

import pytest

from iotrial.errors import RequestError, UnknownName
from iotrial.knobs.own_values import with_own_values
from iotrial.study.catalogue import find, names
from iotrial.study.model import Study
from iotrial.study.select import select
from values import check_limits


def chosen(name: str, **sets: list[str]) -> Study:
    study, (named, _) = with_own_values(find(name), sets, {})
    found = select(study, sets=named)
    check_limits(found, origin="x")
    return found


def values(study: Study, factor: str) -> dict[str, str]:
    return {level.label: level.settings[0].value for level in study.factor(factor).levels}


def test_a_new_value_is_a_level_of_its_own() -> None:
    found = chosen("nas/attribute-cache", attribute_cache=["+2", "+600"])
    assert values(found, "attribute_cache") == {"3 to 60 s": "default", "2": "2", "600": "600"}
    # and so in conditions, with the options that address the knob
    study, (_, conditions) = with_own_values(find("nas/iscsi"), {}, {"rate": ["+500 Mbit/s"]})
    assert values(select(study, conditions=conditions), "rate") == {"500 Mbit/s": "500 Mbit/s"}
    level = chosen("filesystem/writeback", age=["+700"]).factor("age").level("700").settings[0]
    assert dict(level.options) == {"key": "vm.dirty_expire_centisecs"}
    assert "core.fsmonitor=true" in values(
        chosen("application/git", setting=["+core.fsmonitor=true"]), "setting"
    )


def test_a_value_that_a_level_has_is_that_level() -> None:
    for word in ("60 s", "60", "060", "+60"):
        found = chosen("nas/attribute-cache", attribute_cache=["default", word])
        assert values(found, "attribute_cache") == {"3 to 60 s": "default", "60 s": "60"}
    assert values(chosen("nas/nfs-client", read_ahead=["1024KiB"]), "read_ahead").keys() == {
        "128 KiB",
        "1 MiB",
    }


def test_a_new_value_may_be_the_reference() -> None:
    study, (named, _) = with_own_values(find("nas/attribute-cache"), {"attribute_cache": ["+2", "60"]}, {})
    found = select(study, sets=named, references={"attribute_cache": "2"})
    assert found.factor("attribute_cache").reference == "2"
    assert set(values(found, "attribute_cache")) == {"60 s", "2"}


@pytest.mark.parametrize(
    ("name", "sets", "hint"),
    [
        ("files/permissions", {"mode": ["0445"]}, 'did you mean "0444"?'),
        ("files/permissions", {"mode": ["0445"]}, 'or "+0445", as a value of file.mode'),
        ("nas/attribute-cache", {"attribute_cache": ["noac"]}, "known: 3 to 60 s, 60 s, all"),
        ("nas/attribute-cache", {"close_to_open": ["0"]}, "known: all, off, on"),
        ("block/scheduler", {"scheduler": ["bqf"]}, 'did you mean "bfq"?'),
        ("filesystem/big-copy", {"limits": ["64 MiB"]}, "known: "),
    ],
)
def test_what_may_be_mistyped_is_an_unknown_level(name: str, sets: dict[str, list[str]], hint: str) -> None:
    with pytest.raises(UnknownName, match="no level is called") as caught:
        chosen(name, **sets)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "sets", "message"),
    [
        ("nas/attribute-cache", {"attribute_cache": ["+noac"]}, '"noac" is out of range'),
        ("nas/attribute-cache", {"attribute_cache": ["+3601"]}, '"3601" is out of range'),
        ("nas/nfs-client", {"read_ahead": ["+5 KiB"]}, "5 KiB"),
        # a bundle of settings is no single value
        ("filesystem/big-copy", {"limits": ["+64 MiB"]}, "is no single knob"),
        ("application/compile", {"jobs": ["+1+1"]}, "cannot contain"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name: str, sets: dict[str, list[str]], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        chosen(name, **sets)
    assert message in caught.value.message


def test_nothing_changes_where_levels_are_named() -> None:
    for name in names():
        study = find(name)
        sets = {factor.name: [level.label for level in factor.levels] for factor in study.factors}
        assert with_own_values(study, sets, {"workload": ["all"]}) == (study, [sets, {"workload": ["all"]}])
