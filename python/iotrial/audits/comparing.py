"""Compare a group with its reference: ratio, intervals, effect of rounding, size of a sufficient trial, and standing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.audits.intervals import GROUP_OF_ONE, logs, mean, rank, variance, welch
from iotrial.audits.model import TIME_UNITS, AuditedPair, Cell, Interval, Need, Standing
from iotrial.stats.power import blocks_to_resolve

#: block SDs of ln(B/A) for planning if the data show no scatter: a steady device, a typical command, a complete cold
#: process
PLAUSIBLE_SDS = (0.03, 0.1, 0.3)
FEWEST_FOR_SD = 3
LEAST_SD = 1e-4


def compare(
    level: Cell,
    reference: Cell,
    *,
    alpha: float,
    margin: float,
    family: int,
    together: int,
    pooled_sd: float | None,
) -> AuditedPair:
    """Compare two cells.

    ``family``: intervals of the whole table, which share ``alpha``; ``together``: comparisons of this response, which a
    trial of it would have; ``pooled_sd``: SD of one logarithm.
    """
    a, b = logs(level.values), logs(reference.values)
    bounds = rounding(level, reference)
    ratio: float | None
    needs: tuple[Need, ...] = ()
    if a is None or b is None:
        nothing = Interval("", 1.0 - alpha, None, None, "zero and negative values have no ratio")
        intervals, ratio = (nothing, nothing, nothing), None
    else:
        intervals = (welch(a, b, alpha), welch(a, b, alpha / family), rank(a, b, alpha))
        ratio = math.exp(max(-700.0, min(700.0, mean(a) - mean(b))))
    standing = _standing(level, reference, ratio, intervals[1], bounds, margin)
    if a is not None and b is not None and a != b and _is_timed(level.unit):
        size = abs(mean(a) - mean(b))
        # values rounded to a few distinct numbers do not show their true scatter
        hidden = standing in (Standing.COARSE, Standing.EQUAL, Standing.CONSTANT)
        own = ((), (), None) if hidden else (a, b, pooled_sd)
        needs = needed(own[0], own[1], size, alpha, margin, together, own[2])
    return AuditedPair(
        group=level.group,
        reference=reference.group,
        response=level.response,
        unit=level.unit,
        condition=dict(level.condition),
        series=level.series,
        n=len(level.values),
        n_reference=len(reference.values),
        mean=mean(level.values),
        mean_reference=mean(reference.values),
        ratio=ratio,
        rounding=bounds,
        needs=needs,
        standing=standing,
        reasons=(),
        intervals=intervals,
    )


def _is_timed(unit: str) -> bool:
    return unit in TIME_UNITS or unit.endswith("/s") or not unit


def needed(
    level: Sequence[float],
    reference: Sequence[float],
    size: float,
    alpha: float,
    margin: float,
    together: int,
    pooled_sd: float | None,
) -> tuple[Need, ...]:
    """Return the blocks that a randomised trial needs for the observed effect (``size``, log ratio) and for the margin."""
    estimated = True
    if min(len(level), len(reference)) >= FEWEST_FOR_SD:
        sds = [math.sqrt(variance(level) + variance(reference))]
    elif pooled_sd is not None:
        sds = [pooled_sd * math.sqrt(2.0)]
    else:
        sds, estimated = list(PLAUSIBLE_SDS), False
    return tuple(
        Need(
            sd,
            estimated,
            blocks_for(max(sd, LEAST_SD), size, alpha, together),
            blocks_for(max(sd, LEAST_SD), math.log1p(margin), alpha, together),
        )
        for sd in sds
    )


def blocks_for(block_sd: float, size: float, alpha: float, together: int) -> int | None:
    """Return the blocks until the interval's half-width is below ``size`` (log ratio), in 4 of 5 trials; None: never."""
    if size <= 0.0:
        return None
    return blocks_to_resolve(block_sd, math.expm1(min(size, 700.0)), alpha=alpha, effects=together)


def pooled_sd(cells: Sequence[Cell]) -> float | None:
    """Return the within-cell SD of one logarithm, pooled over cells with repeats; None below 3 degrees of freedom."""
    total, degrees = 0.0, 0
    for cell in cells:
        found = logs(cell.values)
        if found is not None and len(found) >= 2:
            total += variance(found) * (len(found) - 1)
            degrees += len(found) - 1
    return math.sqrt(total / degrees) if degrees >= FEWEST_FOR_SD else None


def rounding(level: Cell, reference: Cell) -> tuple[float, float] | None:
    """Return the range of the ratio of means that is compatible with the rounding of the raw values; None: step unknown."""
    a, b = mean(level.values), mean(reference.values)
    half_a, half_b = (_half_step(cell) for cell in (level, reference))
    if half_a is None or half_b is None or b - half_b <= 0.0:
        return None
    return max(0.0, a - half_a) / (b + half_b), (a + half_a) / (b - half_b)


def _half_step(cell: Cell) -> float | None:
    """Return how far rounding can have moved the mean of a cell.

    Half a step for one value. Rounding errors of several values average out only if the values scatter by at least half a
    step: with less scatter all are rounded to the same one or two numbers and may all have moved in the same direction.
    """
    steps = [one.step for one in cell.observations]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    half = max(known) / 2.0
    hidden = len(known) < 2 or math.sqrt(variance(cell.values)) < half
    return half if hidden else half / math.sqrt(len(known))


def _standing(
    level: Cell,
    reference: Cell,
    ratio: float | None,
    shared: Interval,
    bounds: tuple[float, float] | None,
    margin: float,
) -> Standing:
    """Classify what the shared interval shows, and still shows under the worst case of rounding."""
    several = min(len(level.values), len(reference.values)) > 1
    if several and len({*level.values, *reference.values}) == 1:
        return Standing.EQUAL
    if ratio is None:
        return Standing.NO_RATIO
    if shared.why_not == GROUP_OF_ONE:
        return Standing.SINGLE
    if min(len(level.values), len(reference.values)) < FEWEST_FOR_SD:
        return Standing.TOO_FEW
    if shared.low is None or shared.high is None:
        return Standing.CONSTANT
    shown = _shows(shared.low, shared.high, margin)
    if bounds is None or shown is Standing.OPEN:
        return shown
    middle = mean(level.values) / mean(reference.values)
    worst = shared.low * bounds[0] / middle, shared.high * bounds[1] / middle
    return shown if _shows(*worst, margin) is shown else Standing.COARSE


def _shows(low: float, high: float, margin: float) -> Standing:
    if 1 / (1 + margin) < low <= high < 1 + margin:
        return Standing.WITHIN
    return Standing.OPEN if low <= 1.0 <= high else Standing.APART
