"""Negative and positive controls of a condition: does the copy differ from its original, is the injected slowdown found?

A trial with a copy that differs from its original reports effects that do not exist; one with a positive control that misses
the injected ratio misses effects that do exist. Both are judged at a level shared by all control effects of the trial;
whether the slowdown was detected at all is judged at the study's alpha.

The copy is judged in every response that gets a verdict. The slowdown is judged in the response that it is injected into (one
for most workloads, every primary time of a matrix), and against the requested ratio, not the ratio that the probe reports
for each run. Reported and measured time come from the same clock readings, so dividing one by the other would give the
time of the original work and hide every failure of the injection. The reported ratio only serves to explain a failure.

*Stalls.* Stakes that grow with the size of a contrast follow the few runs that stall. Whether the slowdown was detected is
therefore decided by the mean of two capitals: that of the symmetric bets, and that of bets on the rank of the slowed run
within its block. If the slowdown does nothing, the slowed run is exchangeable with its original and the copy, so both
capitals and their mean are fair in any noise. Where a control's contrasts are skewed, its interval is that of their median,
as for effects (``skew.py``). The copy must not differ from its original in any way: it is always judged by the bets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iotrial.design.model import ArmKind, Condition
from iotrial.stats.betting import Blocks, log_rank_path
from iotrial.stats.contrast import Contrasts, PairedRuns, Responses, Runs
from iotrial.stats.eprocess import Wanted, excluded, intervals
from iotrial.stats.model import Control, Interval
from iotrial.stats.run_statistics import statistic_interval
from iotrial.stats.skew import typical_interval
from iotrial.stats.spec import Spec
from iotrial.study.model import TYPICAL, Response, Scale

#: of the log of a ratio; no clock tells so small a difference
_ROUNDING = 1e-9


def judge_controls(spec: Spec, condition: Condition, runs: Runs) -> tuple[Control, ...]:
    """Judge the negative and positive controls of one condition (empty if the trial has none)."""
    (found,) = judge_all_controls(spec, [(condition, runs)])
    return found


def judge_all_controls(spec: Spec, conditions: Sequence[tuple[Condition, Runs]]) -> list[tuple[Control, ...]]:
    """Judge the controls of several conditions; their intervals are computed in one batch."""
    comparisons = [list(_comparisons(spec, condition, runs)) for condition, runs in conditions]
    # A failing control may differ by any amount, so no stake is spent on a bet aimed at the margin.
    wanted = [Wanted(one.contrasts.values, spec.control_alpha) for own in comparisons for one in own]
    found = iter(intervals(wanted))
    return [tuple(_judge(spec, one, next(found)) for one in own) for own in comparisons]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A control of one condition to judge, with its contrasts."""

    condition: Condition
    response: Response
    kind: ArmKind
    injected: float
    contrasts: Contrasts
    #: the control's runs and its original's; None where either is a mean over several runs
    pairs: PairedRuns | None


def _comparisons(spec: Spec, condition: Condition, runs: Runs) -> Iterator[_Comparison]:
    if not spec.controls:
        return
    for negative in spec.negative_responses(condition):
        weights = spec.control_weights[ArmKind.NEGATIVE]
        responses = Responses(runs, negative)
        contrasts = responses.contrasts(weights, whole=spec.copied_plot)
        neutral = 1.0 if negative.scale is Scale.LOG else 0.0
        pairs = None if spec.copied_plot else _pairs(responses, weights)
        yield _Comparison(condition, negative, ArmKind.NEGATIVE, neutral, contrasts, pairs)
    for positive in spec.positive_responses(condition):
        weights = spec.control_weights[ArmKind.POSITIVE]
        responses = Responses(runs, positive)
        contrasts = responses.contrasts(weights, copy=spec.copy_against(weights, positive))
        injected = spec.injected_ratio(positive)
        pairs = _pairs(responses, weights)
        yield _Comparison(condition, positive, ArmKind.POSITIVE, injected, contrasts, pairs)


def _pairs(responses: Responses, weights: Mapping[str, float]) -> PairedRuns | None:
    """Return the runs of a control and of its original; None if it is compared with several arms."""
    sides = ([arm for arm, weight in weights.items() if sign * weight > 0.0] for sign in (1.0, -1.0))
    controls, originals = sides
    return responses.paired([(controls[0], originals[0])]) if len(controls) == len(originals) == 1 else None


def positive_seen(controls: Sequence[Control], response: str) -> bool:
    """Return whether the positive control of a response (else of its condition) differs detectably from no effect.

    True if controls are off. False if they are on but no response can carry a slowdown: then nothing shows that one would
    be detected.
    """
    positives = [control for control in controls if control.kind == ArmKind.POSITIVE.value]
    vouching = response if any(c.response == response for c in positives) else None
    seen = [c.told_from_zero for c in positives if c.response == (vouching or positives[0].response)]
    return not controls or (bool(seen) and all(seen))


def _judge(spec: Spec, comparison: _Comparison, found: Interval) -> Control:
    condition, response, kind = comparison.condition, comparison.response, comparison.kind
    injected, log = comparison.injected, response.scale is Scale.LOG
    truth = math.log(injected) if log else injected
    contrasts = _without_rounding(comparison.contrasts, truth)
    if log:
        found = typical_interval(
            found, contrasts.values, comparison.pairs, response, spec.control_alpha, margin=0.0
        )
    excludes_zero = _differs(contrasts, spec.alpha, spec.margin_of(response))
    if excludes_zero and kind is ArmKind.POSITIVE and response.statistic != TYPICAL:
        excludes_zero = _seen_in_statistic(spec, comparison)
    if kind is ArmKind.POSITIVE and found.estimate is not None:
        # A control that moves in the wrong direction has not been detected. Unlike the estimate, the median follows no stall.
        excludes_zero = excludes_zero and float(np.median(contrasts.values)) * truth > 0.0
    return Control(
        kind="positive" if kind is ArmKind.POSITIVE else "negative",
        condition={**condition.levels, "workload": condition.workload},
        response=response.name,
        injected=injected,
        ratio=on_scale(found.estimate, response),
        low=on_scale(found.low, response),
        high=on_scale(found.high, response),
        passed=_holds(found, truth)
        if found.skewed and kind is ArmKind.POSITIVE
        else not excluded(contrasts.values, truth, spec.control_alpha),
        told_from_zero=excludes_zero,
        blocks=found.blocks,
    )


def _differs(contrasts: Contrasts, alpha: float, margin: float) -> bool:
    """Return whether the mean of the capitals of the symmetric bets and of those on ranks has excluded no difference."""
    blocks = Blocks.of(contrasts.values, contrasts.copies)
    if blocks.size == 0:
        return False
    symmetric = blocks.against(np.zeros(1), aim=margin)[0]
    together = np.logaddexp(symmetric, log_rank_path(blocks)) - math.log(2.0)
    return float(together.max()) >= -math.log(alpha)


def _without_rounding(contrasts: Contrasts, truth: float) -> Contrasts:
    """Make exactly ``truth`` what differs from it by a rounding error only.

    The time that a program prints can be the same in every run. Multiplied by the injected ratio, it gives that ratio but for
    the last digit, in every block in the same direction: bets would exclude the truth, as they would a value apart from it.
    """
    values = tuple(truth if abs(one - truth) <= _ROUNDING else one for one in contrasts.values)
    return replace(contrasts, values=values)


def _holds(found: Interval, truth: float) -> bool:
    """Return whether an interval holds a value, up to rounding."""
    return not (found.low is not None and truth < found.low - _ROUNDING) and not (
        found.high is not None and truth > found.high + _ROUNDING
    )


def _seen_in_statistic(spec: Spec, comparison: _Comparison) -> bool:
    """Return whether the slowdown is also detected in the compared mean or quantile.

    If it is not, two levels cannot be called equivalent in that statistic. The copy and the size of the slowdown are judged
    by typical runs, which it changes by a constant factor.
    """
    if comparison.pairs is None:
        return False
    found = statistic_interval(comparison.pairs, comparison.response, spec.alpha)
    return found.low is not None and found.low > 0.0


def on_scale(value: float | None, response: Response) -> float | None:
    """Convert a contrast to the reported scale: a ratio for a log scale, else unchanged."""
    if value is None or response.scale is Scale.DIFFERENCE:
        return value
    return math.exp(min(value, 690.0))
