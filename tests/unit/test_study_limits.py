"""A study object may hold anything that a study file may say, and nothing that no file could say."""

from __future__ import annotations

import pytest
from study_examples import whole

from iotrial.errors import RequestError, StudyError
from iotrial.runner.resolve import resolve
from iotrial.study.catalogue import find, names
from iotrial.study.model import Study
from iotrial.study.select import select
from values import check_limits, replace


def _narrowed(study: Study) -> list[Study]:
    """Return the study in the forms in which it may be stored: whole, narrowed, and fitted to a lab."""
    found = [
        study,
        select(study),
        select(study, full=True),
        select(study, time_s=1.5, blocks=7, margin=0.011),
    ]
    for factor in study.treatment_factors:
        last = factor.levels[-1].label
        if last != factor.reference:
            found.append(select(study, sets={factor.name: [last]}))
    for one in tuple(found):
        for lab, root in (("directory", False), ("image", True)):
            try:
                found.append(resolve(one, root=root, lab=lab, trust=True).study)
            except RequestError:  # the lab cannot serve it, or a tool is missing
                continue
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "system/screen")) for name in names()]
)
def test_every_shipped_study_keeps_the_limits_however_it_is_narrowed(name: str) -> None:
    studies = _narrowed(find(name))
    assert len(studies) > 3
    for study in studies:
        check_limits(study, origin="x")


def test_a_study_with_something_of_everything_keeps_the_limits() -> None:
    check_limits(whole(), origin="x")
    check_limits(select(whole(), full=True), origin="x")


def test_numbers_of_work_come_back_exactly() -> None:
    study = whole()
    for timeout_s in (0.1, 1 / 3, 86400.0, 1e-9):
        slow = study.workload("slow")
        changed = replace(slow, work=replace(slow.work, timeout_s=timeout_s))
        others = tuple(changed if w.name == "slow" else w for w in study.workloads)
        check_limits(replace(study, workloads=others), origin="x")


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 86401.0, float("inf"), float("nan")])
def test_numbers_that_no_file_could_hold_are_refused(timeout_s: float) -> None:
    study = whole()
    slow = study.workload("slow")
    changed = replace(slow, work=replace(slow.work, timeout_s=timeout_s))
    others = tuple(changed if w.name == "slow" else w for w in study.workloads)
    with pytest.raises(StudyError, match="slow"):
        check_limits(replace(study, workloads=others), origin="x")
