"""The verdict on one effect from its interval, and whether more blocks could change it.

With margin m, M = ln(1+m) and the interval [L, U] of the log ratio, the verdict is

* equivalent if every effect beyond +-M is excluded, by the interval or by the bets of each side (``Interval.bounds``);
  "but detectably" slower or faster if the interval also excludes 0. It requires that the positive control was detected: a
  trial that cannot detect 2m cannot exclude m;
* otherwise slower or faster if the interval excludes 0, and the arms' medians and means do not say otherwise
  (``skew.py``);
* otherwise inconclusive.

*Equivalent* is about typical runs; whether it holds for the mean run too is ``Effect.means``.

``decided`` is the stopping rule: equivalence; or an interval that is entirely beyond the margin (beyond the injected slowdown
if that was not seen: what shows no 6 % cannot vouch for 5 %); or, for effects in between,
0 excluded and a half-width of at most max(M, |estimate|/4), since otherwise chance would decide whether a true 1 % at a
margin of 3 % is called slower or equivalent. A ``precise`` trial continues to that width for every effect. If the budget
ends first, the verdict is what the interval allows.

A difference (such as a count) has no margin. It is higher or lower if 0 is excluded, and equivalent only if the interval is
exactly the point 0, which means the same count in every block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iotrial.stats.model import Interval, Means, Verdict
from iotrial.study.model import MEAN, Better, Response, Scale

BUDGET_SPENT = "budget_spent"
FAILURES = "failures"
UNUSABLE = "unusable_values"
EFFECT_NOT_CONSTANT = "effect_not_constant"
NO_BLOCKS = "no_blocks"
CONTROL_NOT_SEEN = "control_not_seen"
CARRY_OVER = "carry_over"
SWITCH_COST = "switch_cost"
TYPICAL_AND_MEAN_DIFFER = "typical_and_mean_differ"
CAPPED_RUNS = "capped_runs"
STILL_CHANGING = "still_changing"

#: the positive control slows the reference by this many margins
INJECTED = 2.0
# With this many failed runs the level will not reach a verdict, so further blocks are wasted.
HOPELESS_FAILURES = 8
_TIMES = frozenset({"s", "ms", "us", "µs", "ns", "min", "h"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its qualifications; fields as in ``Effect``."""

    verdict: Verdict
    detectably: str | None = None
    reason: str | None = None
    detectable: float | None = None
    decided: bool = False


def judge(
    interval: Interval,
    response: Response,
    *,
    margin: float,
    failures: int = 0,
    unusable: int = 0,
    control_seen: bool = True,
    precise: bool = False,
    contradicted: bool = False,
    means: Means | None = None,
) -> Judgement:
    """Return the verdict on an effect of ``response`` with this interval.

    ``control_seen``: whether the positive control of the condition was detected (true also without controls). ``margin`` is
    relative (.03 for 3 %). ``precise``: continue to the required interval width, however large the effect. ``contradicted``:
    the arms' medians or means differ in another direction. ``means``: the mean run; skewed typical runs that are equivalent
    need more blocks as long as the mean looks different.
    """
    if failures or unusable:
        hopeless = failures + unusable >= HOPELESS_FAILURES
        calm = judge(interval, response, margin=margin, control_seen=control_seen, precise=precise)
        reason = FAILURES if failures else UNUSABLE
        return _inconclusive(interval, response, reason, decided=calm.decided or hopeless)
    if interval.blocks == 0:
        return _inconclusive(interval, response, NO_BLOCKS)
    if interval.empty:
        # The confidence set only shrinks: no later block can restore a candidate.
        return _inconclusive(interval, response, EFFECT_NOT_CONSTANT, decided=True)
    low, high = _ends(interval)
    direction = direction_of(response, rising=low > 0.0) if low > 0.0 or high < 0.0 else None
    if interval.bounds is not None or _inside_margin(low, high, response, margin):
        if not control_seen:
            detectably = None if direction is None else direction.value
            return _inconclusive(interval, response, CONTROL_NOT_SEEN, detectably=detectably)
        if response.statistic == MEAN and means is not None and not means.equivalent:
            return _inconclusive(interval, response, CAPPED_RUNS)
        decided = not (interval.skewed and means is not None and _open(means, margin))
        return Judgement(Verdict.EQUIVALENT, None if direction is None else direction.value, decided=decided)
    if direction is not None:
        if contradicted:
            return _inconclusive(interval, response, TYPICAL_AND_MEAN_DIFFER)
        needed = plain_beyond(margin, control_seen=control_seen)
        beyond = not precise and response.scale is Scale.LOG and _beyond_margin(low, high, needed)
        return Judgement(direction, decided=beyond or _narrow(interval, low, high, response, margin))
    return _inconclusive(interval, response, BUDGET_SPENT)


def plain_beyond(margin: float, *, control_seen: bool) -> float:
    """Return the relative effect beyond which the whole interval must lie for a plain word.

    A trial that has not seen the injected slowdown of twice the margin may still claim an effect larger than that.
    """
    return margin if control_seen else INJECTED * margin


def direction_of(response: Response, *, rising: bool) -> Verdict:
    """Return the verdict for a response that is larger (``rising``) or smaller at the level than at the reference."""
    if response.better is Better.NONE:
        return Verdict.HIGHER if rising else Verdict.LOWER
    good = rising is (response.better is Better.HIGHER)
    if (is_time(response) and response.better is Better.LOWER) or (
        is_rate(response) and response.better is Better.HIGHER
    ):
        return Verdict.FASTER if good else Verdict.SLOWER
    return Verdict.BETTER if good else Verdict.WORSE


def is_time(response: Response) -> bool:
    """Return whether the unit is a unit of time."""
    return response.unit in _TIMES


def is_rate(response: Response) -> bool:
    """Return whether the unit is a rate per second."""
    return response.unit.endswith("/s")


def _open(means: Means, margin: float) -> bool:
    """Return whether the mean run looks different by more than the margin, without having been shown to differ."""
    apart = means.ratio is not None and abs(math.log(means.ratio)) > math.log1p(margin)
    return apart and not means.differ


def _ends(interval: Interval) -> tuple[float, float]:
    return (
        -math.inf if interval.low is None else interval.low,
        math.inf if interval.high is None else interval.high,
    )


def _inside_margin(low: float, high: float, response: Response, margin: float) -> bool:
    if response.scale is Scale.DIFFERENCE:
        return low == high == 0.0
    return -math.log1p(margin) <= low and high <= math.log1p(margin)


def _beyond_margin(low: float, high: float, margin: float) -> bool:
    return low > math.log1p(margin) or high < -math.log1p(margin)


def _narrow(interval: Interval, low: float, high: float, response: Response, margin: float) -> bool:
    wanted = abs(interval.estimate or 0.0) / 4.0
    if response.scale is Scale.LOG:
        wanted = max(wanted, math.log1p(margin))
    return (high - low) / 2.0 <= wanted


def _inconclusive(
    interval: Interval,
    response: Response,
    reason: str,
    *,
    detectably: str | None = None,
    decided: bool = False,
) -> Judgement:
    """Return an inconclusive judgement with the smallest excluded effect: all effects beyond the farther end are excluded."""
    detectable = None
    if not interval.empty and interval.low is not None and interval.high is not None:
        farther = max(abs(interval.low), abs(interval.high))
        detectable = farther if response.scale is Scale.DIFFERENCE else math.expm1(min(farther, 690.0))
    return Judgement(Verdict.INCONCLUSIVE, detectably, reason, detectable, decided)
