"""Selection of what runs: by default, in full, and on request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_examples import whole

from iotrial.errors import RequestError, UnknownName
from iotrial.study.model import Study
from iotrial.study.select import select


def _labels(study: Study, factor: str) -> list[str]:
    return [level.label for level in study.factor(factor).levels]


def test_by_default_the_defaults_run() -> None:
    study = select(whole())
    assert _labels(study, "atime") == ["relatime", "noatime"]
    assert _labels(study, "size") == ["10 KiB"]
    assert _labels(study, "threads") == ["1", "2", "many"]
    assert [workload.name for workload in study.workloads] == ["probe", "sort"]
    assert {response.workload for response in study.responses} == {"probe", "sort"}
    assert study.workload("sort").only == {"size": ("10 KiB",)}


def test_full_runs_everything() -> None:
    study = select(whole(), full=True)
    assert _labels(study, "atime") == ["strictatime", "relatime", "noatime"]
    assert _labels(study, "size") == ["64 B", "10 KiB", "1 MiB"]
    assert [workload.name for workload in study.workloads] == ["probe", "sort", "slow"]
    assert len(study.claims) == 2


def test_labels_are_known_without_regard_to_blanks_and_case() -> None:
    study = select(whole(), sets={"atime": ["NOATIME"]}, conditions={"size": ["1mib", "10KiB"]})
    assert _labels(study, "atime") == ["relatime", "noatime"]
    assert _labels(study, "size") == ["10 KiB", "1 MiB"]


def test_all_means_every_level_and_every_workload() -> None:
    study = select(whole(), conditions={"size": ["all"], "workload": ["ALL"]}, sets={"atime": ["all"]})
    assert len(_labels(study, "size")) == 3
    assert len(_labels(study, "atime")) == 3
    assert len(study.workloads) == 3


def test_what_is_asked_for_counts_also_in_full() -> None:
    study = select(whole(), conditions={"size": ["64 B"], "workload": ["slow"]}, full=True)
    assert _labels(study, "size") == ["64 B"]
    assert [workload.name for workload in study.workloads] == ["slow"]


def test_the_reference_is_always_kept() -> None:
    assert _labels(select(whole(), sets={"atime": ["strictatime"]}), "atime") == ["strictatime", "relatime"]
    assert select(whole(), sets={"atime": ["strictatime"]}).factor("atime").reference == "relatime"


def test_another_reference_takes_the_place_of_the_study_s() -> None:
    study = select(whole(), sets={"atime": ["NoAtime"]}, references={"atime": "strictatime"})
    assert _labels(study, "atime") == ["strictatime", "noatime"]
    assert study.factor("atime").reference == "strictatime"
    study = select(whole(), references={"atime": "noatime"})
    assert _labels(study, "atime") == ["relatime", "noatime"]
    assert study.factor("atime").reference == "noatime"


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ({"size": "64 B"}, 'no factor with a reference is called "size"'),
        ({"atme": "noatime"}, 'no factor with a reference is called "atme"'),
        ({"atime": "noatme"}, 'no level is called "noatme"'),
        ({"atime": "all"}, "its reference is one level"),
        ({"atime": "noatime, relatime"}, "no level is called"),
    ],
)
def test_a_reference_that_cannot_be_is_refused(references: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        select(whole(), references=references)
    assert message in caught.value.message


def test_a_treatment_with_its_reference_alone_is_refused_and_says_so() -> None:
    with pytest.raises(RequestError, match='left with only "relatime"') as caught:
        select(whole(), sets={"atime": ["relatime"]})
    assert "strictatime, noatime" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("sets", "conditions", "message", "hint"),
    [
        ({"atme": ["noatime"]}, {}, 'no factor is called "atme"', '"atime"'),
        ({"atime": ["noatme"]}, {}, 'no level is called "noatme"', '"noatime"'),
        ({}, {"workload": ["prob"]}, 'no workload is called "prob"', '"probe"'),
        ({"size": ["64 B"]}, {"size": ["64 B"]}, "given twice", ""),
        ({"atime": []}, {}, "no level", '"all"'),
        ({}, {"size": ["64 B"], "workload": ["sort"]}, 'other levels of "size"', ""),
    ],
)
def test_requests_that_cannot_be_met_are_refused(
    sets: dict[str, list[str]], conditions: dict[str, list[str]], message: str, hint: str
) -> None:
    with pytest.raises(RequestError) as caught:
        select(whole(), sets=sets, conditions=conditions)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert isinstance(caught.value, UnknownName) == ("is called" in message)


def test_a_workload_that_has_no_level_left_does_not_run() -> None:
    study = select(whole(), conditions={"size": ["64 B"]})
    assert [workload.name for workload in study.workloads] == ["probe"]
    with pytest.raises(RequestError, match="no selected workload runs"):
        select(whole(), conditions={"size": ["64 B", "1 MiB"], "workload": ["sort"]})


def test_a_condition_level_without_a_workload_is_left_out() -> None:
    study = select(whole(), conditions={"workload": ["sort"]}, full=True)
    assert _labels(study, "size") == ["10 KiB", "1 MiB"]
    assert study.factor("size").reference == "10 KiB"


def test_claims_stay_only_with_the_effect_that_they_speak_of() -> None:
    assert [claim.source for claim in select(whole()).claims] == ["a web page, 2009"]
    assert [claim.source for claim in select(whole(), conditions={"workload": ["sort"]}).claims] == []
    assert [claim.source for claim in select(whole(), sets={"atime": ["all"]}).claims] == [
        "a web page, 2009",
        "another",
    ]
    assert not select(whole(), sets={"atime": ["strictatime"]}).claims


def test_margin_alpha_and_budget_can_be_overridden() -> None:
    study = select(whole(), margin=0.1, alpha=0.2, time_s=5.0, blocks=7)
    assert (study.margin, study.alpha, study.budget.time_s, study.budget.blocks) == (0.1, 0.2, 5.0, 7)
    assert select(whole()).budget == whole().budget
    for wrong in (
        {"margin": 0.0},
        {"margin": 1.5},
        {"margin": float("nan")},
        {"alpha": 0.6},
        {"time_s": float("inf")},
        {"blocks": 0},
    ):
        with pytest.raises(RequestError):
            select(whole(), **wrong)  # type: ignore[arg-type]


_wanted = st.fixed_dictionaries(
    {},
    optional={
        "atime": st.lists(st.sampled_from(["strictatime", "relatime", "noatime", "all"]), min_size=1),
        "size": st.lists(st.sampled_from(["64 B", "10 KiB", "1 MiB"]), min_size=1),
        "threads": st.lists(st.sampled_from(["1", "2", "many"]), min_size=1),
        "workload": st.lists(st.sampled_from(["probe", "sort", "slow"]), min_size=1),
    },
)


@pytest.mark.slow
@settings(deadline=None)
@given(_wanted, st.booleans())
def test_a_selection_is_a_study_in_which_everything_fits_together(
    wanted: dict[str, list[str]], full: bool
) -> None:
    try:
        study = select(whole(), conditions=wanted, full=full)
    except RequestError:
        return
    names = {workload.name for workload in study.workloads}
    assert names
    assert {response.workload for response in study.responses} == names
    for factor in study.factors:
        labels = [level.label for level in factor.levels]
        assert tuple(labels) == factor.default
        assert factor.reference in labels
    for workload in study.workloads:
        for factor_name, labels in workload.only.items():
            assert labels
            assert set(labels) <= set(_labels(study, factor_name))
    assert select(study, full=True) == study
    assert select(study) == study
