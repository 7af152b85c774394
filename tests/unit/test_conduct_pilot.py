"""A pilot is blind: whatever an arm is called, its knobs stand at the reference."""

from __future__ import annotations

import pytest

from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.conduct.pilot import arms_at_a_level, blinded, copies_of
from iotrial.conduct.resolve import resolve
from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.study.catalogue import find
from iotrial.study.model import Better, Response, Role, Scale
from iotrial.study.reader import read_study
from iotrial.study.select import select

WALL = Response("w", "wall", "s", Scale.LOG, Better.LOWER, True)
TWO = """
[study]
name = "two"
question = "?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[factor]]
name = "link"
knob = "environment.variable"
variable = "X"
levels = ["a", "b", "c"]
[[workload]]
name = "w"
kind = "command"
files = 1
argv = ["cat", "{file}"]
"""


@pytest.mark.parametrize("study", ["files/permissions", "mount/atime", "files/links"])
def test_every_arm_of_a_pilot_is_the_reference_and_conditions_stay(study: str) -> None:
    resolved = resolve(select(find(study)), root=True, lab="image")
    plan = Plan(resolved.study, "0" * 32)
    blind = blinded(resolved)
    for condition in plan.conditions:
        wanted = resolved.turns_of(condition, plan.reference)
        assert any(resolved.turns_of(condition, arm) != wanted for arm in plan.treatments)
        for arm in plan.arms(controls=True):
            assert blind.turns_of(condition, arm) == wanted
    for factor in resolved.study.factors:
        if factor.role is Role.CONDITION:
            for level in factor.levels:
                assert blind.turns[factor.name, level.label] == resolved.turns[factor.name, level.label]


def test_a_level_is_the_mean_of_the_arms_that_share_it() -> None:
    plan = Plan(read_study(TWO, "two", trusted=True), "0" * 32)
    mode, link = plan.study.treatment_factors
    assert (arms_at_a_level(plan, mode), arms_at_a_level(plan, link)) == (3, 2)


def run(kind: ArmKind, wall: float, failure: str | None = None) -> Observation:
    return Observation(kind.value, kind, {}, 0, 0.0, {"wall": wall}, failure)


def test_the_stretched_arm_is_no_copy_and_a_failed_run_takes_its_block_with_it() -> None:
    whole = (run(ArmKind.TREATMENT, 1.0), run(ArmKind.NEGATIVE, 1.0), run(ArmKind.POSITIVE, 9.0))
    failed = (run(ArmKind.TREATMENT, 1.0), run(ArmKind.NEGATIVE, 1.0, "died"))
    blocks = [ObservedBlock("c", 0, whole), ObservedBlock("c", 1, failed)]
    assert copies_of(blocks, WALL) == [[0.0, 0.0]]
