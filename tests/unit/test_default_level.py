"""``default`` is a level of every knob with a known default, and refused with a reason where none is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import registry
from iotrial.runner.quick_study import Wish, study_text
from iotrial.runner.today import with_today
from iotrial.study.model import Setting, Study
from iotrial.study.reader import read_study


def resolved(setting: str) -> Study:
    text = study_text(Wish(settings=(setting,), parameters=(), commands=(("true",),)))
    return with_today(read_study(text, "the command line", trusted=True), "in-place", "/")


def test_the_default_of_a_sysctl_is_a_level_with_its_value() -> None:
    (factor,) = resolved("vm.swappiness=default,10").factors
    assert [level.settings[0].value for level in factor.levels] == ["60", "10"]
    assert next(level.label for level in factor.levels).startswith("60 (")
    assert factor.reference == factor.levels[0].label


@pytest.mark.parametrize("setting", ["mount.option=default,commit=30", "read_expire=default,100"])
def test_a_knob_with_a_default_of_its_own_keeps_the_word(setting: str) -> None:
    (factor,) = resolved(setting).factors
    assert factor.levels[0].settings[0].value == "default"


@pytest.mark.parametrize(
    "setting", ["memory.huge_pages=default,never", "block.scheduler=default,none", "read_ahead_kb=default,16"]
)
def test_an_unknown_default_is_refused(setting: str) -> None:
    with pytest.raises(RequestError, match=r"no default of .* is known") as found:
        resolved(setting)
    assert found.value.hint is not None
    assert "today" in found.value.hint


def test_every_sysctl_has_a_default_that_is_in_its_range() -> None:
    assert Sysctl.DEFAULTS.keys() == Sysctl.ALLOWED.keys()
    for key, value in Sysctl.DEFAULTS.items():
        low, high = Sysctl.ALLOWED[key]
        assert low <= int(value) <= high or (value == "0" and key in Sysctl.PAIRS)


def test_write_back_of_everybody_cannot_be_stopped() -> None:
    with pytest.raises(RequestError, match="1 to 360000"):
        registry.knob("sysctl").parse(Setting("sysctl", "0", (("key", "vm.dirty_writeback_centisecs"),)))


@pytest.mark.parametrize("key", ["vm.page-cluster", "vm.dirtytime_expire_seconds", "vm.extfrag_threshold"])
def test_what_nobody_tunes_has_the_default_on_this_machine(key: str) -> None:
    assert Path("/proc/sys", key.replace(".", "/")).read_text().strip() == Sysctl.DEFAULTS[key]
