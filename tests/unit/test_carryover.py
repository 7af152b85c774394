"""The carry-over control: exact means over all orders of small blocks, and simulated carry-over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from factorials import factor, reading, study

from iotrial.design.keyed import new_seed
from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.design.plan import Plan
from iotrial.report.conditions import Conditions
from iotrial.report.sentences import _on_carry_over
from iotrial.stats.analyse import analyse, analyse_condition
from iotrial.stats.carryover import Judged, Unit, at_stake, judge_carry_over, levels_tried, paths, withholds
from iotrial.stats.dependence import PATTERNS, Dependence
from iotrial.stats.model import Observation, ObservedBlock, Verdict
from iotrial.stats.spec import Spec
from iotrial.stats.wash_in import judged
from iotrial.study.model import Level, Setting
from values import replace

ARMS = ("A", "B", "copy", "slowed")
STUDY = study(factor("fs", "ext4 xfs"), margin=0.03, workloads=(reading(files=5, pool=5),))
LEVELS = {"A": "A", "B": "B", "copy": "A", "slowed": "A", "C": "C"}


def unit(key: int, order: Sequence[str], values: Sequence[float], *, own: bool = True) -> Unit:
    return Unit(
        key=key,
        arms=tuple(order),
        levels=tuple({"fs": LEVELS[arm]} for arm in order),
        values=tuple(values),
        control=tuple(arm in ("copy", "slowed") for arm in order),
        own=own,
    )


def earlier(rng: np.random.Generator, arms: Sequence[str], count: int) -> list[Unit]:
    found = []
    for key in range(count):
        order = [arms[i] for i in rng.permutation(len(arms))]
        found.append(unit(key, order, rng.normal(size=len(arms)).tolist()))
    return found


@pytest.mark.parametrize("arms", [("A", "B", "C"), ("A", "B", "copy"), ARMS])
@pytest.mark.parametrize("level", ["B", "C", "A"])
def test_the_mean_factor_over_all_orders_of_a_block_is_one_whatever_each_arm_does_in_each_slot(
    arms: tuple[str, ...], level: str
) -> None:
    rng = np.random.default_rng(7)
    before = earlier(rng, arms, 6)
    # each arm has its own result in each slot, with stalls: nothing is additive
    result = {arm: np.exp(rng.normal(0.0, 2.0, size=len(arms))) for arm in arms}
    start = paths(before, [("fs", level)])[0].log_e
    ends = []
    for order in itertools.permutations(arms):
        now = unit(6, order, [float(result[arm][slot]) for slot, arm in enumerate(order)])
        inside, _ = paths([*before, now], [("fs", level)])
        ends.append(float(np.exp(inside.log_e[-1])) if inside.log_e.size else 1.0)
    if level not in {LEVELS[arm] for arm in arms}:
        assert ends == [1.0] * len(ends)
        return
    assert len(set(ends)) > 1
    assert np.mean(ends) == pytest.approx(math.exp(start[-1]) if start.size else 1.0, rel=1e-12)


@pytest.mark.parametrize("arms", [("A", "B"), ("A", "B", "C"), ARMS])
def test_the_mean_factor_between_blocks_over_all_orders_of_the_earlier_block_is_one(
    arms: tuple[str, ...],
) -> None:
    rng = np.random.default_rng(11)
    before = earlier(rng, arms, 6)
    result = {arm: rng.standard_t(2, size=len(arms)) for arm in arms}
    later = unit(7, ("B", "A"), [2.5, -0.5])
    started = paths(before, [("fs", "B")])[1].log_e
    ends = []
    for order in itertools.permutations(arms):
        now = unit(6, order, [float(result[arm][slot]) for slot, arm in enumerate(order)], own=False)
        ends.append(float(np.exp(paths([*before, now, later], [("fs", "B")])[1].log_e[-1])))
    assert len(set(ends)) > 1
    assert np.mean(ends) == pytest.approx(math.exp(started[-1]) if started.size else 1.0, rel=1e-12)


def test_two_pairs_of_blocks_multiplied_have_mean_one_over_the_orders_of_all_four() -> None:
    # The block that was bet with is not bet on: its first arm is known from its results.
    rng = np.random.default_rng(13)
    before = earlier(rng, ("A", "B"), 7)  # the last of them was bet with
    results = [{arm: rng.normal(size=2) for arm in "AB"} for _ in range(4)]
    ends = []
    for orders in itertools.product(itertools.permutations("AB"), repeat=4):
        now = [
            unit(7 + i, order, [float(results[i][arm][slot]) for slot, arm in enumerate(order)])
            for i, order in enumerate(orders)
        ]
        ends.append(float(np.exp(paths([*before, *now], [("fs", "B")])[1].log_e[-1])))
    start = paths(before, [("fs", "B")])[1].log_e
    assert np.mean(ends) == pytest.approx(float(np.exp(start[-1])) if start.size else 1.0, rel=1e-12)


def test_blocks_of_two_runs_give_no_bet_inside() -> None:
    rng = np.random.default_rng(17)
    inside, between = paths(earlier(rng, ("A", "B"), 20), [("fs", "B")])
    assert inside.log_e.size == 0
    assert between.log_e.size > 0


def test_of_two_levels_the_one_that_is_no_reference_is_tried_and_of_three_all() -> None:
    assert levels_tried(Plan(STUDY, new_seed()).terms) == [("fs", "xfs")]
    (factor,) = STUDY.factors
    labels = ("ext4", "xfs", "btrfs")
    levels = tuple(Level(label, (Setting("knob", label),)) for label in labels)
    three = replace(STUDY, factors=(replace(factor, levels=levels, default=labels),))
    assert levels_tried(Plan(three, new_seed()).terms) == [("fs", label) for label in labels]


def trial(
    seed: str,
    *,
    blocks: int,
    carry: float,
    wash_in_from: int | None = None,
    washes: bool = True,
    lags: int = 1,
    switch: float = 0.0,
    after_itself: bool = False,
) -> tuple[Spec, list[ObservedBlock]]:
    """Return a trial with no true effect and block SD .05 in which a run after the other level is slower by ``carry``,
    as are all of the next ``lags`` runs. A run of the other level after the reference is slower by ``switch``."""
    plan = Plan(STUDY, seed, controls_first=24, after_itself=after_itself)
    spec = Spec.from_plan(plan)
    condition = plan.conditions[0]
    factor = plan.study.treatment_factors[0]
    response = next(r for r in plan.study.responses if r.primary)
    rng = np.random.default_rng(int(seed, 16))
    found = []
    at, past = 0.0, [factor.reference] * lags
    for index in range(blocks):
        washed = wash_in_from is not None and index >= wash_in_from
        observations = []
        for run in plan.block(condition, index).runs:
            label = run.arm.treatment[factor.name]
            value = rng.normal(0.0, 0.05 / math.sqrt(2.0))
            value += carry * sum(last != factor.reference for last in past) * (not (washed and washes))
            value += switch * (label != factor.reference and past[-1] == factor.reference)
            value += math.log(spec.injected) * (run.arm.kind is ArmKind.POSITIVE)
            observations.append(
                Observation(
                    run.arm.name,
                    run.arm.kind,
                    run.arm.treatment,
                    run.slot,
                    at,
                    {response.name: math.exp(value)},
                )
            )
            at, past = at + 1.0, [*past[1:], label]
        found.append(
            ObservedBlock(
                condition.key,
                index,
                tuple(observations),
                wash_in=WashIn(runs=1 if washes else 6) if washed else None,
            )
        )
    return spec, found


def test_planted_carry_over_makes_the_trial_invalid_and_says_so_in_plain_words() -> None:
    spec, blocks = trial(f"{1:032x}", blocks=120, carry=math.log(1.1))
    found = analyse(spec, blocks)
    assert not found.valid
    (one,) = found.carry_over
    assert not one.passed
    assert one.value == pytest.approx(1.1, abs=0.03)
    (reason,) = found.invalid_reasons
    assert "runs after fs=xfs take " in reason
    assert reason.endswith("longer than after fs=ext4: settings influence the run that follows")
    (clear,) = [other for other in one.unaffected if other.response == one.response]
    # runs of the reference follow the other level in every second to third block, and are then 10 % slower
    (main,) = [effect for effect in found.effects if effect.primary]
    assert main.value is not None
    assert main.value < 0.98
    assert clear.value == pytest.approx(1.0, abs=0.02)
    assert 40 < clear.blocks < 80


def test_windows_of_a_service_are_advised_a_longer_washout_and_no_unmeasured_runs() -> None:
    spec, blocks = trial(f"{1:032x}", blocks=120, carry=math.log(1.1))
    found = analyse(spec, blocks)
    said = {
        live: " ".join(note.text for note in _on_carry_over(found, Conditions(STUDY), live=live))
        for live in (False, True)
    }
    assert "`--washout`" in said[True]
    assert "`wash_in = true`" not in said[True]
    assert "`wash_in = true`" in said[False]


@pytest.mark.slow
def test_planted_carry_over_is_found_in_every_trial_of_a_hundred_blocks() -> None:
    failed = []
    for number in range(20):
        spec, blocks = trial(f"{100 + number:032x}", blocks=100, carry=math.log(1.1))
        state = analyse_condition(spec, spec.conditions[0].key, blocks)
        assert state.carry_over is not None
        failed.append(not state.carry_over.passed and state.carry_over.suspected)
        assert state.carry_over.upcoming == WashIn(Before.DRAWN)
        assert not state.decided
    assert all(failed)


def test_a_sound_trial_passes() -> None:
    spec, blocks = trial(f"{2:032x}", blocks=100, carry=0.0)
    found = analyse(spec, blocks)
    assert [one.passed for one in found.carry_over] == [True]
    # only one level is tested, inside blocks and between them
    assert [one.alpha for one in found.carry_over] == [pytest.approx(0.001 / 2)]


def test_blocks_with_wash_in_are_judged_alone() -> None:
    spec, blocks = trial(f"{3:032x}", blocks=140, carry=math.log(1.1), wash_in_from=60)
    assert [block.index for block in judged(blocks)] == list(range(60, 140))
    found = analyse(spec, blocks)
    (one,) = found.carry_over
    assert one.passed
    assert one.wash_in == WashIn()
    assert found.valid
    assert all(effect.blocks <= 80 for effect in found.effects)


def test_carry_over_that_the_longest_wash_in_does_not_stop_makes_the_trial_invalid() -> None:
    spec, blocks = trial(f"{4:032x}", blocks=180, carry=math.log(1.1), wash_in_from=60, washes=False)
    state = analyse_condition(spec, spec.conditions[0].key, blocks)
    assert state.control_failed
    assert not analyse(spec, blocks).valid


@pytest.mark.slow
def test_carry_over_over_three_runs_never_gives_a_plain_verdict_before_the_wash_in() -> None:
    # of such trials all were published as "faster" or "probably faster" by the exact control alone
    for number in range(10):
        spec, blocks = trial(f"{300 + number:032x}", blocks=60, carry=math.log(1.1), lags=3)
        found = analyse(spec, blocks)
        (effect,) = [one for one in found.effects if one.primary]
        assert not found.valid or effect.verdict is Verdict.INCONCLUSIVE
        if found.valid:
            assert effect.reason == "carry_over"


def test_no_trial_ends_while_a_cost_of_switching_to_one_level_alone_could_explain_its_verdict() -> None:
    ended, reasons = {True: 0, False: 0}, set[str | None]()
    for number in range(10):
        for after_itself in ended:
            spec, blocks = trial(
                f"{400 + number:032x}", blocks=14, carry=0.0, switch=math.log(1.3), after_itself=after_itself
            )
            states = [
                analyse_condition(spec, spec.conditions[0].key, blocks[:count]) for count in range(4, 15)
            ]
            ended[after_itself] += any(state.decided for state in states)
            effects = [effect for state in states for effect in state.effects if effect.primary]
            if after_itself:
                assert all(effect.verdict is Verdict.INCONCLUSIVE for effect in effects)
                reasons |= {effect.reason for effect in effects}
    # every one ended when the other level never ran just after itself
    assert ended == {True: 0, False: 10}
    assert reasons == {"budget_spent", "carry_over", "switch_cost"}


def test_a_large_effect_is_decided_as_soon_as_runs_just_after_themselves_show_it_too() -> None:
    spec, blocks = trial(f"{6:032x}", blocks=16, carry=0.0, after_itself=True)
    slower = [
        replace(
            block,
            observations=tuple(
                replace(
                    run,
                    responses={
                        "wall": run.responses["wall"] * (1.5 if run.treatment["fs"] == "xfs" else 1.0)
                    },
                )
                for run in block.observations
            ),
        )
        for block in blocks
    ]
    state = analyse_condition(spec, spec.conditions[0].key, slower)
    assert state.carry_over is not None
    assert not state.carry_over.doubtful
    (effect,) = [one for one in state.effects if one.primary]
    assert effect.verdict is Verdict.SLOWER


@pytest.mark.parametrize(
    ("ratios", "stands"),
    [((0.96, 0.93, 0.985), False), ((0.96, 0.93, 0.975), True), ((1.04, 1.005, 1.07), True)],
)
def test_after_a_wash_in_a_direction_needs_what_runs_before_may_still_add_to_be_smaller(
    ratios: tuple[float, float, float], stands: bool
) -> None:
    """Carry-over of .03 with a standard error of .02, of which -.3 reach the effect: -.009 -+ .012, at worst -.021 or +.003.

    ln .985 is -.0151, ln .975 is -.0253, ln 1.005 is +.0050."""
    spec, blocks = trial(f"{5:032x}", blocks=30, carry=0.0, wash_in_from=0, washes=True)
    judged_ = judge_carry_over(spec, spec.conditions[0], blocks)
    assert judged_ is not None
    left = Judged(
        replace(judged_.carry_over, suspected=False),
        [Dependence("fs", "xfs", PATTERNS[0], 0.03, 1.5, exposure=-0.3)],
    )
    (effect,) = [one for one in analyse(spec, blocks).effects if one.primary]
    value, low, high = ratios
    verdict = Verdict.FASTER if value < 1.0 else Verdict.SLOWER
    effect = replace(effect, verdict=verdict, value=value, low=low, high=high)
    found = at_stake(spec, left, [effect])
    assert found.doubtful is not stands
    assert withholds(found, effect) == (None if stands else "carry_over")
    # without a fit there is nothing to say how much may be left
    assert at_stake(spec, replace(left, dependences=[]), [effect]).doubtful


def test_what_a_dependence_adds_to_an_effect_is_found_by_leaving_it_out() -> None:
    """Size times exposure is by how much the level's coefficient changes if the pattern is left out of the fit."""
    spec, blocks = trial(f"{8:032x}", blocks=40, carry=math.log(1.1))
    found = judge_carry_over(spec, spec.conditions[0], blocks)
    assert found is not None
    one = next(one for one in found.dependences if one.pattern.weights == (1.0,) and one.pattern.own is None)
    rows, values = [], []
    before = "ext4"
    for block in blocks:
        for run in sorted(block.observations, key=lambda run: run.slot):
            slowed = run.kind is ArmKind.POSITIVE
            rows.append([run.treatment["fs"] == "xfs", before == "xfs", block.index, slowed])
            values.append(math.log(run.responses["wall"]) - math.log(spec.injected) * slowed)
            before = run.treatment["fs"]
    table = np.array(rows, dtype=float)
    blocks_of = np.eye(len(blocks))[table[:, 2].astype(int)]
    whole = np.linalg.lstsq(np.column_stack([table[:, :2], blocks_of]), np.array(values), rcond=None)[0]
    short = np.linalg.lstsq(np.column_stack([table[:, :1], blocks_of]), np.array(values), rcond=None)[0]
    assert one.exposure == pytest.approx((short[0] - whole[0]) / whole[1], rel=1e-3)
    assert one.size == pytest.approx(whole[1], abs=0.02)


def test_only_a_direction_far_larger_than_what_a_run_does_to_a_later_one_stands() -> None:
    spec, blocks = trial(f"{5:032x}", blocks=60, carry=math.log(1.1), lags=3)
    found = analyse(spec, blocks)
    (effect,) = [one for one in found.effects if one.primary]
    (carried,) = found.carry_over
    suspected = replace(carried, suspected=True, passed=True, value=1.1)
    large, small = (replace(effect, verdict=Verdict.SLOWER, value=value) for value in (2.0, 1.3))
    assert not withholds(suspected, large)
    assert withholds(suspected, small)
    assert withholds(suspected, replace(effect, verdict=Verdict.EQUIVALENT, value=1.0))
    assert withholds(replace(suspected, suspected=False, wash_in=WashIn(Before.DRAWN)), large)
    assert not withholds(replace(suspected, suspected=False), small)
