"""Stored races: which arms a block may have, given those of the block before."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from store_examples import header, run

from iotrial.design.plan import Plan
from iotrial.runner.quick_study import Wish, study_text
from iotrial.store.model import BlockEnd, TrialHeader, TrialState
from iotrial.store.packed.consistency import Consistency
from iotrial.store.packed.records import PackedRun, PackedState
from iotrial.study.model import TODAY, Level, Setting
from iotrial.study.reader import read_study
from iotrial.tune.space import Dimension, Space
from iotrial.tune.stages import race_stage
from values import replace

LEVELS = tuple(
    Level(value, (Setting("environment.variable", value, (("variable", "a"),)),)) for value in "123"
)
SPACE = Space((Dimension("a", LEVELS),))
ALL = {TODAY, "a 2", "a 3"}
KEPT = {TODAY, "a 2"}


def _header() -> TrialHeader:
    stage = race_stage(SPACE, list(SPACE.choices()))
    wish = Wish(settings=(), parameters=(), commands=(("true",),), bundles=stage.levels, design=stage.design)
    return replace(header(), study=read_study(study_text(wish), "the command line", trusted=True))


def _check(*blocks: tuple[Collection[str], bool]) -> None:
    """Check a race whose blocks have these arms, and a wash-in or none."""
    of = _header()
    plan = Plan(of.study, of.seed)
    (condition,) = plan.conditions
    checked = Consistency(of)
    checked.add_state(PackedState(0.0, TrialState.RUNNING, None))
    for index, (inside, wash_in) in enumerate(blocks):
        block = plan.block(condition, index, inside)
        for planned in block.runs:
            found = replace(
                run(index, planned.slot, condition=condition.key, arm=planned.arm.name),
                kind=planned.arm.kind.value,
                treatment=dict(planned.arm.treatment),
                responses={"wall": 1.0},
                checks={"wash_in": True} if wash_in else {},
                files=planned.files,
            )
            checked.add_run(PackedRun(found, 1, 0.0))
        checked.add_end(BlockEnd(condition.key, index, index, controls=block.controls))


def test_an_arm_that_left_does_not_come_back() -> None:
    _check((ALL, False), (KEPT, False), (KEPT, False))
    with pytest.raises(ValueError, match="the end of block 2 does not match"):
        _check((ALL, False), (KEPT, False), (ALL, False))


def test_all_arms_run_again_when_a_wash_in_begins() -> None:
    _check((ALL, False), (KEPT, False), (ALL, True), (KEPT, True))
    with pytest.raises(ValueError, match="the end of block 3 does not match"):
        _check((ALL, False), (ALL, True), (KEPT, True), (ALL, True))


def test_the_reference_is_in_every_block() -> None:
    with pytest.raises(ValueError, match="the end of block 1 does not match"):
        _check((ALL, False), ({"a 2", "a 3"}, False))
