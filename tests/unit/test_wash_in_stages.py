"""The stages of the wash-in: what is drawn tells carry-over from a cost of switching; what the store keeps of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_carryover import STUDY

from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.design.plan import Plan
from iotrial.errors import StoreError
from iotrial.stats.carryover import Ran, _before_stages
from iotrial.stats.dependence import AFTER_ITSELF, PATTERNS, SWITCHED, Dependence
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.spec import Spec
from iotrial.stats.wash_in import MOST, RUNS, Switching, is_longest, judge_switching, judged, upcoming
from iotrial.store.model import WASH_IN, RunRecord
from iotrial.store.records import observation_of, wash_in_check, washed_in
from iotrial.study.model import Level, Setting, Study
from values import replace

SEED = "3" * 32
THREE = replace(
    STUDY,
    factors=(
        replace(
            STUDY.factors[0],
            levels=tuple(Level(label, (Setting("knob", label),)) for label in ("ext4", "xfs", "btrfs")),
            default=("ext4", "xfs", "btrfs"),
        ),
    ),
)
DRAWN = WashIn(Before.DRAWN)


def drawn_blocks(
    count: int,
    *,
    after_b: float,
    switch: float,
    one_way: bool = False,
    to: str = "xfs",
    next_but_one: float = 0.0,
    study: Study = STUDY,
) -> tuple[Spec, list[ObservedBlock]]:
    """Return blocks with drawn levels in which a run is longer by ``after_b`` after the other level than the reference, by
    ``next_but_one`` if the measured run before had it, and by ``switch`` after a level that is not its own (``one_way``: only
    if its own is ``to``)."""
    plan = Plan(study, SEED, controls_first=24)
    condition, rng, found, last = plan.conditions[0], np.random.default_rng(1), [], ""
    for index in range(count):
        runs = []
        for run in plan.block(condition, index).runs:
            lead, other = plan.wash_in(DRAWN, condition, index, run)
            before, own = lead.arm.treatment["fs"], run.arm.treatment["fs"]
            switched = before != own and (own == to or not one_way)
            value = rng.normal(0.0, 0.03) + after_b * (before == "xfs") + switch * switched
            value += next_but_one * (last == "xfs")
            last = own
            responses = {"wall": 0.05 * math.exp(value)}
            runs.append(
                Observation(
                    run.arm.name, run.arm.kind, run.arm.treatment, run.slot, 0.0, responses, None, other
                )
            )
        found.append(ObservedBlock(condition.key, index, tuple(runs), wash_in=DRAWN))
    return Spec.from_plan(plan), found


def switching(spec: Spec, blocks: list[ObservedBlock]) -> Switching | None:
    response = spec.responses[0]
    return judge_switching(response, blocks, _before_stages(spec, response, blocks, Ran(spec, blocks)))


def test_a_cost_of_switching_is_told_from_carry_over_with_its_size() -> None:
    spec, blocks = drawn_blocks(20, after_b=0.0, switch=math.log(1.2))
    found = switching(spec, blocks)
    assert found is not None
    assert found.decided
    assert found.costs
    cost = found.in_units(spec.responses[0])
    assert cost is not None
    assert cost.size == pytest.approx(1.2, abs=0.04)
    assert cost.typical == pytest.approx(0.05, rel=0.04)


def test_carry_over_is_not_taken_for_a_cost_of_switching() -> None:
    spec, blocks = drawn_blocks(20, after_b=math.log(1.2), switch=0.0)
    found = switching(spec, blocks)
    assert found is not None
    assert found.decided
    assert not found.costs
    assert not found.lasts
    assert found.carried is not None
    assert found.carried.size == pytest.approx(math.log(1.2), abs=0.03)
    assert found.in_units(spec.responses[0]) is None


def test_a_switch_that_costs_in_one_direction_is_not_taken_for_carry_over() -> None:
    """Runs of the other level are slower after the reference: half of what carry-over would show, but only half."""
    spec, blocks = drawn_blocks(30, after_b=0.0, switch=math.log(1.2), one_way=True)
    found = switching(spec, blocks)
    assert found is not None
    assert found.decided
    assert found.costs


def test_what_the_run_after_next_takes_is_neither_a_cost_of_switching_nor_of_the_last_run() -> None:
    """The drawn runs change nothing, and the measured runs before them do: one neutral run would not be enough."""
    spec, blocks = drawn_blocks(20, after_b=0.0, switch=0.0, next_but_one=math.log(1.15))
    found = switching(spec, blocks)
    assert found is not None
    assert found.decided
    assert not found.costs
    assert found.lasts
    assert found.carried is not None
    assert found.carried.pattern.name == "last but one"


@pytest.mark.parametrize("level", ["xfs", "btrfs"])
def test_of_more_levels_the_one_whose_switch_costs_is_found(level: str) -> None:
    """Three levels, and a cost of 10 % of switching to one of them alone."""
    spec, blocks = drawn_blocks(40, after_b=0.0, switch=math.log(1.1), one_way=True, to=level, study=THREE)
    found = switching(spec, blocks)
    assert found is not None
    assert found.costs
    assert found.switched is not None
    assert found.switched.level == level
    cost = found.in_units(spec.responses[0])
    assert cost is not None
    assert cost.size == pytest.approx(1.1, abs=0.03)
    assert cost.score > 0.0


def test_a_cost_in_both_directions_is_one_pattern() -> None:
    spec, blocks = drawn_blocks(20, after_b=0.0, switch=math.log(1.2))
    found = switching(spec, blocks)
    assert found is not None
    assert found.switched is not None
    assert found.switched.pattern is SWITCHED


@pytest.mark.parametrize("blocks", [8, 48, 500])
def test_while_two_causes_fit_about_as_well_the_drawing_goes_on(blocks: int) -> None:
    """Scores of 4 and 3.5 differ by 3.75 in chi-square: odds of 6.5 at best, whatever the number of blocks."""
    spec, _ = drawn_blocks(1, after_b=0.0, switch=0.0)
    switched = Dependence("fs", "xfs", AFTER_ITSELF, -0.02, -4.0)
    found = Switching(switched, Dependence("fs", "xfs", PATTERNS[0], 0.02, 3.5), 0.0, blocks)
    assert not found.decided
    assert upcoming(spec, DRAWN, found) == DRAWN
    # of two that are both within chance, a neutral run does no harm
    nothing = Switching(replace(switched, score=-2.0), None, 0.0, blocks)
    assert nothing.decided is (blocks >= MOST)
    assert upcoming(spec, DRAWN, nothing) == (WashIn(Before.REFERENCE) if blocks >= MOST else DRAWN)


def test_few_blocks_with_drawn_levels_decide_nothing() -> None:
    spec, blocks = drawn_blocks(5, after_b=0.0, switch=0.5)
    assert switching(spec, blocks) is None
    assert upcoming(spec, DRAWN, None) == DRAWN


def test_each_stage_has_more_runs_until_the_last() -> None:
    spec, _ = drawn_blocks(1, after_b=0.0, switch=0.0)
    assert upcoming(spec, None, None) == DRAWN
    for before in (Before.REFERENCE, Before.SAME):
        stages = [WashIn(before)]
        while not is_longest(stages[-1]):
            stages.append(upcoming(spec, stages[-1], None))
        assert tuple(stage.runs for stage in stages) == RUNS
        assert upcoming(spec, stages[-1], None) == stages[-1]


def test_only_blocks_of_the_newest_stage_are_judged() -> None:
    stages = [None, None, DRAWN, WashIn(), WashIn(), WashIn(runs=3), WashIn(runs=3)]
    blocks = [ObservedBlock("c", index, (), wash_in=stage) for index, stage in enumerate(stages)]
    assert [block.index for block in judged(blocks)] == [5, 6]
    assert [block.index for block in judged(blocks[:2])] == [0, 1]
    assert judged([]) == []


def record(check: object) -> RunRecord:
    return RunRecord(
        condition="c", block=0, slot=0, arm="A", kind=ArmKind.TREATMENT.value, treatment={}, started_s=0.0,
        checks={} if check is None else {WASH_IN: check},
    )  # fmt: skip


@pytest.mark.parametrize("before", [Before.REFERENCE, Before.SAME])
@pytest.mark.parametrize("runs", RUNS)
def test_a_stored_wash_in_is_read_as_it_was(before: Before, runs: int) -> None:
    wash_in = WashIn(before, runs)
    assert washed_in([record(wash_in_check(wash_in, other=False))]) == wash_in


def test_a_run_with_a_drawn_wash_in_keeps_whether_the_level_was_another() -> None:
    for other in (False, True):
        stored = record(wash_in_check(DRAWN, other=other))
        assert washed_in([stored]) == DRAWN
        assert observation_of(stored).after_other is other


def test_trials_of_earlier_versions_had_one_neutral_run_or_none() -> None:
    assert washed_in([record(None), record(True)]) == WashIn(Before.REFERENCE, 1)
    assert washed_in([record(None)]) is None
    assert wash_in_check(WashIn(), other=False) is True


@pytest.mark.parametrize("check", ["other 3", "same", "same x", "same 1000", 3])
def test_a_wash_in_of_an_unknown_kind_is_refused(check: object) -> None:
    with pytest.raises(StoreError):
        washed_in([record(check)])
