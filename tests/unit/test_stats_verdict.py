"""Verdicts from intervals, by hand. The margin is 3 %: ln 1.03 = .02956."""

from __future__ import annotations

import math

import pytest

from iotrial.stats.model import Interval, Verdict
from iotrial.stats.verdict import Judgement, direction_of, judge
from iotrial.study.model import Better, Response, Scale
from values import replace

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
RATE = replace(TIME, unit="bytes/s", better=Better.HIGHER)
SIZE = replace(TIME, unit="bytes")
NEUTRAL = replace(TIME, better=Better.NONE)
COUNT = replace(TIME, unit="1", scale=Scale.DIFFERENCE)


def of(low: float | None, high: float | None, *, blocks: int = 50, empty: bool = False) -> Interval:
    middle = 0.0 if low is None or high is None else (low + high) / 2
    return Interval(middle, low, high, 1.0, 1.0, blocks, empty)


def verdict(low: float, high: float, response: Response = TIME, *, control_seen: bool = True) -> Judgement:
    return judge(of(low, high), response, margin=0.03, control_seen=control_seen)


def test_an_interval_inside_the_margin_is_equivalent() -> None:
    assert verdict(-0.02, 0.025) == Judgement(Verdict.EQUIVALENT, decided=True)
    assert verdict(-0.0295, 0.0295).verdict is Verdict.EQUIVALENT
    assert verdict(-0.02, 0.0297).verdict is Verdict.INCONCLUSIVE


def test_equivalent_but_detectably_slower_or_faster() -> None:
    assert verdict(0.001, 0.02) == Judgement(Verdict.EQUIVALENT, "slower", decided=True)
    assert verdict(-0.02, -0.001) == Judgement(Verdict.EQUIVALENT, "faster", decided=True)


def test_who_has_not_seen_the_control_cannot_exclude_the_margin() -> None:
    found = verdict(-0.02, 0.025, control_seen=False)
    assert (found.verdict, found.reason, found.decided) == (Verdict.INCONCLUSIVE, "control_not_seen", False)
    assert found.detectable == pytest.approx(math.expm1(0.025))
    # a difference needs no sensitivity check
    assert verdict(0.05, 0.06, control_seen=False).verdict is Verdict.SLOWER


def test_an_interval_beyond_zero_is_slower_or_faster() -> None:
    assert verdict(0.01, 0.06).verdict is Verdict.SLOWER
    assert verdict(-0.06, -0.01).verdict is Verdict.FASTER
    assert verdict(-0.01, 0.06).verdict is Verdict.INCONCLUSIVE
    assert verdict(0.0, 0.06).verdict is Verdict.INCONCLUSIVE


def test_excluding_zero_is_not_enough_to_stop() -> None:
    wide = verdict(0.01, 0.2)
    assert (wide.verdict, wide.decided, wide.reason) == (Verdict.SLOWER, False, None)
    # half-width .0295 is within ln 1.03, .03 is not
    assert verdict(0.001, 0.060).decided
    assert not verdict(0.001, 0.061).decided


def test_an_effect_beyond_the_margin_as_a_whole_is_decided_however_wide_its_interval() -> None:
    assert verdict(0.03, 0.5).decided
    assert verdict(-0.5, -0.03).decided
    assert not verdict(0.0295, 0.5).decided  # ln 1.03 = .02956


def test_a_precise_trial_goes_on_to_a_quarter_of_a_large_effect() -> None:
    def decided(low: float, high: float) -> bool:
        return judge(of(low, high), TIME, margin=0.03, precise=True).decided

    assert decided(0.3, 0.5)  # half-width .1 around .4
    assert not decided(0.29, 0.5)
    assert not decided(0.03, 0.5)


def test_one_sided_bounds_inside_the_margin_are_equivalence_though_the_interval_is_wider() -> None:
    found = replace(of(-0.033, 0.02), bounds=(-0.028, 0.018))
    assert judge(found, TIME, margin=0.03) == Judgement(Verdict.EQUIVALENT, decided=True)
    unseen = judge(found, TIME, margin=0.03, control_seen=False)
    assert (unseen.verdict, unseen.reason) == (Verdict.INCONCLUSIVE, "control_not_seen")
    assert judge(of(-0.033, 0.02), TIME, margin=0.03).verdict is Verdict.INCONCLUSIVE


def test_an_open_question_names_the_smallest_effect_that_is_excluded() -> None:
    found = verdict(-0.10, 0.05)
    assert (found.verdict, found.reason, found.decided) == (Verdict.INCONCLUSIVE, "budget_spent", False)
    assert found.detectable == pytest.approx(math.expm1(0.10))
    assert judge(of(None, 0.5), TIME, margin=0.03).detectable is None


def test_no_blocks_and_an_effect_that_moved_have_reasons_of_their_own() -> None:
    none = judge(Interval(None, None, None, 1.0, 1.0, 0), TIME, margin=0.03)
    assert (none.verdict, none.reason, none.decided) == (Verdict.INCONCLUSIVE, "no_blocks", False)
    moved = judge(of(None, None, empty=True), TIME, margin=0.03)
    assert (moved.verdict, moved.reason) == (Verdict.INCONCLUSIVE, "effect_not_constant")
    # no later block can restore a candidate
    assert moved.decided


def test_failures_cap_the_verdict_and_many_end_the_search() -> None:
    capped = judge(of(0.1, 0.12), TIME, margin=0.03, failures=1)
    assert (capped.verdict, capped.reason, capped.decided) == (Verdict.INCONCLUSIVE, "failures", True)
    open_still = judge(of(-0.1, 0.12), TIME, margin=0.03, failures=1)
    assert (open_still.reason, open_still.decided) == ("failures", False)
    assert not judge(of(-0.1, 0.12), TIME, margin=0.03, failures=7).decided
    assert judge(of(-0.1, 0.12), TIME, margin=0.03, failures=8).decided
    assert judge(of(None, None, blocks=0), TIME, margin=0.03, failures=3).reason == "failures"


@pytest.mark.parametrize(
    ("response", "rising", "falling"),
    [
        (TIME, Verdict.SLOWER, Verdict.FASTER),
        (RATE, Verdict.FASTER, Verdict.SLOWER),
        (SIZE, Verdict.WORSE, Verdict.BETTER),
        (replace(SIZE, better=Better.HIGHER), Verdict.BETTER, Verdict.WORSE),
        (NEUTRAL, Verdict.HIGHER, Verdict.LOWER),
        (replace(TIME, better=Better.HIGHER), Verdict.BETTER, Verdict.WORSE),
    ],
)
def test_faster_and_slower_are_said_of_times_and_rates_only(
    response: Response, rising: Verdict, falling: Verdict
) -> None:
    assert direction_of(response, rising=True) is rising
    assert direction_of(response, rising=False) is falling


def test_a_difference_is_equivalent_only_where_every_block_agrees() -> None:
    assert verdict(0.0, 0.0, COUNT) == Judgement(Verdict.EQUIVALENT, decided=True)
    assert verdict(-0.001, 0.001, COUNT).verdict is Verdict.INCONCLUSIVE
    assert verdict(-3.0, 2.0, COUNT).detectable == 3.0
    assert verdict(8.0, 12.0, COUNT) == Judgement(Verdict.WORSE, decided=True)
    assert not verdict(1.0, 12.0, COUNT).decided
    assert verdict(5.0, 5.0, COUNT) == Judgement(Verdict.WORSE, decided=True)
