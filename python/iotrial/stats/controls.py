"""Negative and positive controls of a condition: does the copy differ from its original, is the injected slowdown found?

A trial whose copy differs from its original reports effects that do not exist; a trial whose positive control misses the
injected ratio misses effects that do exist. Both are judged at a level shared by all control effects of the trial; whether
the slowdown was detected at all is judged at the study's alpha.

The copy is judged in every response that gets a verdict. The slowdown is judged in the response that it is injected into (one
for most workloads, every primary time of a matrix), and against the requested ratio, not the ratio that the probe reports
for each run. Reported and measured time come from the same clock readings, so dividing one by the other would give the
time of the original work and hide every failure of the injection. The reported ratio only serves to explain a failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.design.model import ArmKind, Condition
from iotrial.stats.contrast import Contrasts, Responses, Runs
from iotrial.stats.eprocess import Wanted, excluded, intervals
from iotrial.stats.model import Control, Interval
from iotrial.stats.run_statistics import statistic_interval
from iotrial.stats.spec import Spec
from iotrial.study.model import TYPICAL, Response, Scale


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
    runs: Runs
    response: Response
    kind: ArmKind
    injected: float
    contrasts: Contrasts


def _comparisons(spec: Spec, condition: Condition, runs: Runs) -> Iterator[_Comparison]:
    if not spec.controls:
        return
    for negative in spec.negative_responses(condition):
        weights = spec.control_weights[ArmKind.NEGATIVE]
        contrasts = Responses(runs, negative).contrasts(weights, whole=spec.copied_stretch)
        neutral = 1.0 if negative.scale is Scale.LOG else 0.0
        yield _Comparison(condition, runs, negative, ArmKind.NEGATIVE, neutral, contrasts)
    for positive in spec.positive_responses(condition):
        weights = spec.control_weights[ArmKind.POSITIVE]
        contrasts = Responses(runs, positive).contrasts(weights, copy=spec.copy_against(weights, positive))
        yield _Comparison(
            condition, runs, positive, ArmKind.POSITIVE, spec.injected_ratio(positive), contrasts
        )


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
    contrasts, injected = comparison.contrasts, comparison.injected
    log = response.scale is Scale.LOG
    truth = math.log(injected) if log else injected
    excludes_zero = excluded(
        contrasts.values, 0.0, spec.alpha, margin=spec.margin_of(response), copies=contrasts.copies
    )
    if excludes_zero and kind is ArmKind.POSITIVE and response.statistic != TYPICAL:
        excludes_zero = _seen_in_statistic(spec, comparison.runs, response)
    if kind is ArmKind.POSITIVE and found.estimate is not None:
        # A control that moves in the wrong direction has not been detected.
        excludes_zero = excludes_zero and found.estimate * truth > 0.0
    return Control(
        kind=kind.value,
        condition={**condition.levels, "workload": condition.workload},
        response=response.name,
        injected=injected,
        ratio=on_scale(found.estimate, response),
        low=on_scale(found.low, response),
        high=on_scale(found.high, response),
        passed=not excluded(contrasts.values, truth, spec.control_alpha),
        told_from_zero=excludes_zero,
        blocks=found.blocks,
    )


def _seen_in_statistic(spec: Spec, runs: Runs, response: Response) -> bool:
    """Return whether the slowdown is also detected in the compared mean or quantile.

    If it is not, two levels cannot be called equivalent in that statistic. The copy and the size of the slowdown are judged
    by typical runs, which it changes by a constant factor.
    """
    weights = spec.control_weights[ArmKind.POSITIVE]
    sides = ([arm for arm, weight in weights.items() if sign * weight > 0.0] for sign in (1.0, -1.0))
    stretched, originals = sides
    if len(stretched) != 1 or len(originals) != 1:
        return False
    pairs = Responses(runs, response).paired([(stretched[0], originals[0])])
    found = statistic_interval(pairs, response, spec.alpha)
    return found.low is not None and found.low > 0.0


def on_scale(value: float | None, response: Response) -> float | None:
    """Convert a contrast to the reported scale: a ratio for a log scale, else unchanged."""
    if value is None or response.scale is Scale.DIFFERENCE:
        return value
    return math.exp(min(value, 690.0))
