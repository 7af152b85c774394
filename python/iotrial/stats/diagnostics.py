"""Diagnostics of one condition's main response. They help to judge a trial and never gate it.

They use the treatment arms of complete blocks, on the response's scale of comparison (natural logarithms for ratios):

* order effect: the least-squares slope of the response over the slot within each block, after subtracting the arms'
  means, times the number of steps from the first slot to the last; averaged over blocks, with its p-value by the normal
  approximation;
* lag-1 autocorrelation of the contrast (mean over the effects);
* drift: slope of the block mean over time, per hour;
* level changes: points at which the block mean changes and stays changed (``stats.changes``);
* bimodality: Sarle's coefficient (skewness**2 + 1) / kurtosis of the values about their arm's mean, with the
  small-sample correction. 1/3 for a normal distribution, 5/9 for a uniform one, 1 for two points; above 5/9, look at
  the distribution. Strong skewness raises it too;
* block share of the variance: the intraclass correlation of a two-way layout, arms by blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind, Condition, TermKind
from iotrial.stats.change_points import changes
from iotrial.stats.contrast import Responses, Runs, usable
from iotrial.stats.controls import on_scale
from iotrial.stats.model import Diagnostic, LevelChange, ObservedBlock
from iotrial.stats.spec import Spec
from iotrial.study.model import Response, Scale

Floats = npt.NDArray[np.float64]

FEWEST_BLOCKS = 10


def diagnose(spec: Spec, condition: Condition, runs: Runs) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of one condition (empty if its workload has no response). ``runs``: those of its blocks."""
    response = spec.main_response(condition)
    if response is None:
        return ()
    values, slots, times = _layout(runs.blocks, response)
    found = len(values)
    order_effect = order_p = autocorrelation = drift = modes = share = None
    if found >= FEWEST_BLOCKS and values.shape[1] > 1:
        arms = values.mean(axis=0)
        order_effect, order_p = order_of(values - arms, slots)
        table = Responses(runs, response)
        contrasts = [
            table.contrasts(term.weights, whole=True).values
            for term in spec.terms
            if term.kind is TermKind.MAIN
        ]
        autocorrelation = _mean([lag_one(np.array(one)) for one in contrasts if len(one) >= FEWEST_BLOCKS])
        drift = slope(times / 3600.0, values.mean(axis=1))
        modes = sarle((values - arms).ravel())
        share = block_share(values)
    return (
        Diagnostic(
            condition={**condition.levels, "workload": condition.workload},
            response=response.name,
            blocks=found,
            order_effect=order_effect,
            order_p=order_p,
            autocorrelation=autocorrelation,
            drift_per_hour=drift,
            bimodality=modes,
            block_share=share,
            changes=_changes(values.mean(axis=1), times, response) if found >= FEWEST_BLOCKS else (),
        ),
    )


def _changes(levels: Floats, times: Floats, response: Response) -> tuple[LevelChange, ...]:
    by_ratio = response.scale is Scale.LOG
    found = [(float(times[one.place]), one.after - one.before) for one in changes(levels)]
    return tuple(
        LevelChange(at_s, on_scale(size, response) if by_ratio else None, None if by_ratio else size)
        for at_s, size in found
    )


def order_of(values: Floats, slots: Floats) -> tuple[float | None, float | None]:
    """Return the change of the response from the first slot to the last, and its p-value; both arrays are blocks by arms."""
    centred = slots - slots.mean(axis=1, keepdims=True)
    slopes = (values * centred).sum(axis=1) / (centred**2).sum(axis=1)
    steps = float(slots.max() - slots.min())
    error = float(slopes.std(ddof=1)) / math.sqrt(len(slopes))
    effect = float(slopes.mean())
    if error == 0.0:
        return effect * steps, 1.0 if effect == 0.0 else 0.0
    return effect * steps, math.erfc(abs(effect / error) / math.sqrt(2.0))


def lag_one(values: Floats) -> float | None:
    """Return the lag-1 autocorrelation; None for a constant series."""
    centred = values - values.mean()
    total = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / total if total > 0.0 else None


def slope(x: Floats, y: Floats) -> float | None:
    """Return the least-squares slope of y over x; None if x does not vary."""
    centred = x - x.mean()
    total = float((centred**2).sum())
    return float((centred * y).sum()) / total if total > 0.0 else None


def sarle(values: Floats) -> float | None:
    """Return Sarle's bimodality coefficient with the finite-sample correction; None for fewer than 4 or equal values."""
    n = values.size
    centred = values - values.mean()
    variance = float((centred**2).mean())
    if n < 4 or variance == 0.0:
        return None
    skew = float((centred**3).mean()) / variance**1.5 * math.sqrt(n * (n - 1)) / (n - 2)
    excess = float((centred**4).mean()) / variance**2 - 3.0
    excess = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * excess + 6.0)
    return float((skew**2 + 1.0) / (excess + 3.0 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def block_share(values: Floats) -> float | None:
    """Return the block's share of the variance, after removing the arms' means; ``values`` is blocks by arms."""
    blocks, arms = values.shape
    residual = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    within = float((residual**2).sum()) / ((blocks - 1) * (arms - 1))
    between = float(arms * ((values.mean(axis=1) - values.mean()) ** 2).sum()) / (blocks - 1)
    component = max(0.0, (between - within) / arms)
    total = component + within
    return component / total if total > 0.0 else None


def _layout(blocks: Sequence[ObservedBlock], response: Response) -> tuple[Floats, Floats, Floats]:
    """Return values and slots (blocks by arms) and start times in seconds of the blocks in which every arm is usable."""
    arms: list[str] = []
    rows: list[tuple[list[float], list[int], float]] = []
    for block in blocks:
        runs = sorted((r for r in block.observations if r.kind is ArmKind.TREATMENT), key=lambda run: run.arm)
        values = [usable(run, response) for run in runs]
        if block.void is not None or not runs:
            continue
        arms = arms or [run.arm for run in runs]
        if [run.arm for run in runs] != arms or None in values:
            continue
        rows.append(
            (
                [v for v in values if v is not None],
                [run.slot for run in runs],
                min(run.started_s for run in runs),
            )
        )
    return (
        np.array([row[0] for row in rows], dtype=np.float64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] for row in rows], dtype=np.float64),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
