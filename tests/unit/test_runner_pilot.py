"""A pilot is blind: whatever an arm is called, its knobs stay at the reference."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.runner.pilot import arms_of, blinded, copies_of, line_of, rules_of
from iotrial.runner.resolve import resolve
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.spec import Spec
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
        wanted = resolved.settings_of(condition, plan.reference)
        assert any(resolved.settings_of(condition, arm) != wanted for arm in plan.treatments)
        for arm in plan.arms(controls=True):
            assert blind.settings_of(condition, arm) == wanted
    for factor in resolved.study.factors:
        if factor.role is Role.CONDITION:
            for level in factor.levels:
                assert blind.settings[factor.name, level.label] == resolved.settings[factor.name, level.label]


def test_a_level_is_the_mean_of_the_arms_that_share_it() -> None:
    plan = Plan(read_study(TWO, "two", trusted=True), "0" * 32)
    by_factor = {term.factor: arms_of(term.weights) for term in plan.terms if term.primary}
    assert by_factor["mode"] == pytest.approx(3)  # six arms, three at each mode
    assert by_factor["link"] == pytest.approx(2)


def test_the_control_of_blocks_is_an_arm_in_every_second_one() -> None:
    rules = rules_of(
        Spec.from_plan(Plan(read_study(TWO, "two", trusted=True), "0" * 32)), budget_s=1, budget_blocks=1
    )
    assert (rules.control_every, rules.control_arms) == (2, pytest.approx(1))


def run(kind: ArmKind, wall: float, failure: str | None = None) -> Observation:
    return Observation(kind.value, kind, {}, 0, 0.0, {"wall": wall}, failure)


def test_the_stretched_arm_is_no_copy_and_a_failed_run_takes_its_block_with_it() -> None:
    whole = (run(ArmKind.TREATMENT, 1.0), run(ArmKind.NEGATIVE, 1.0), run(ArmKind.POSITIVE, 9.0))
    failed = (run(ArmKind.TREATMENT, 1.0), run(ArmKind.NEGATIVE, 1.0, "died"))
    blocks = [ObservedBlock("c", 0, whole), ObservedBlock("c", 1, failed)]
    assert copies_of(blocks, Spec.from_plan(Plan(read_study(TWO, "two", trusted=True), "0" * 32)), WALL) == [
        [0.0, 0.0]
    ]


PLOTS = """
[study]
name = "plots"
question = "?"
[design]
repeats = 3
[lab]
kind = "image"
[[factor]]
name = "filesystem"
knob = "filesystem.type"
levels = ["ext4", "xfs"]
plot = "whole"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "w"
kind = "files"
files = 1
operations = ["open", "close"]
"""


def test_what_a_stretch_has_in_common_scatters_between_stretches_only() -> None:
    """Stretches differ by .5 at random, runs within them by .01. Neither stratum may take on the other's scatter."""
    rng = np.random.default_rng(5)
    plan = Plan(read_study(PLOTS, "plots", trusted=True), "0" * 32)
    (condition,) = plan.conditions
    blocks = []
    for index in range(200):
        common: dict[int | None, float] = {}
        runs = []
        for planned in plan.block(condition, index).runs:
            level = common.setdefault(planned.plot, float(rng.normal(scale=0.5)))
            wall = math.exp(level + float(rng.normal(scale=0.01)))
            runs.append(
                Observation(
                    planned.arm.name,
                    planned.arm.kind,
                    planned.arm.treatment,
                    planned.slot,
                    0.0,
                    {"wall": wall},
                )
            )
        blocks.append(ObservedBlock(condition.key, index, tuple(runs)))
    pilot = SimpleNamespace(
        data=SimpleNamespace(blocks=tuple(blocks)), block_s={condition.key: 1.0}, first_s={}
    )
    spec = Spec.from_plan(plan)
    line = line_of(pilot, spec, condition)  # type: ignore[arg-type]
    between, within = [one for one in line.comparisons if one.response == "wall"]
    assert (between.stratum, within.stratum) == ("whole plots", "within")
    assert between.per_block == 1
    assert within.per_block == 3
    assert between.scatter is not None
    assert within.scatter is not None
    assert between.scatter.sd == pytest.approx(0.5 * math.sqrt(2), rel=0.2)
    # a mean over two stretches of the difference of two runs: .01 * sqrt(2) / sqrt(2)
    assert within.scatter.sd == pytest.approx(0.01, rel=0.2)
