"""The run order: is the group confounded with time, does the series drift, and how does that affect a test?

Under AR(1) noise with lag-1 correlation r, the variance of a difference of two means is c' R c with R_ij = r^|i-j|,
while Welch's test expects the variance of independent values of the same scatter. The ratio of the two shows how
overconfident the test is; its false-alarm rate follows with the normal approximation of the numerator. Runs in random
order have a ratio near 1; all of A before all of B has the largest. METHOD.md confirms this by simulation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

from iotrial.audits.intervals import mean
from iotrial.audits.model import Cell, RunOrder
from iotrial.stats.student import quantile, two_sided

FEWEST = 8
LARGEST = 150  # runs used per group: more do not change the rate


def order_fact(level: Cell, reference: Cell) -> RunOrder | None:
    """Return the facts on the order of one comparison; None if the file does not record it."""
    placed = _places(level, reference)
    if placed is None:
        return _within_only(level, reference)
    level_at, reference_at = placed
    separate = max(level_at) < min(reference_at) or max(reference_at) < min(level_at)
    few = min(len(level_at), len(reference_at)) < 2
    correlation = lag_one([_centred(level), _centred(reference)])
    drift = None if few else _drift(level, reference, level_at, reference_at)
    alarm = None
    if correlation is not None and correlation > 0.0 and not few:
        ranks = {at: i for i, at in enumerate(sorted([*level_at, *reference_at]))}
        alarm = false_alarm(
            [ranks[at] for at in level_at][:LARGEST],
            [ranks[at] for at in reference_at][:LARGEST],
            correlation,
        )
    return _fact(level, reference, "separate" if separate else "mixed", correlation, drift, alarm)


def lag_one(series: Sequence[Sequence[float]]) -> float | None:
    """Return the lag-1 autocorrelation pooled over series centred at their means; None for too few values.

    Centring n independent values makes it -1/n on average; this is corrected. For dependent values the bias is larger
    (about -(1 + 3 r)/n, Marriott and Pope, Biometrika 41, 1954), so the result tends to be too small.
    """
    kept = [one for one in series if len(one) > 2]
    count = sum(len(one) for one in kept)
    total = math.fsum(value**2 for one in kept for value in one)
    if count < FEWEST or total == 0.0:
        return None
    raw = math.fsum(a * b for one in kept for a, b in itertools.pairwise(one)) / total
    n = count / len(kept)
    return max(-0.99, min(0.99, raw + 1.0 / n))


def false_alarm(level_at: Sequence[int], reference_at: Sequence[int], correlation: float) -> float:
    """Return the false-alarm rate of Welch's test at 5 %, for identical arms with runs at these places in time."""
    within = [_covariance(at, at, correlation) for at in (level_at, reference_at)]
    across = _covariance(level_at, reference_at, correlation)
    m, n = len(level_at), len(reference_at)
    true = within[0] / m**2 + within[1] / n**2 - 2.0 * across / (m * n)
    seen = sum((k - total / k) / (k - 1) / k for k, total in zip((m, n), within, strict=True))
    if seen <= 0.0:
        return 1.0
    df = m + n - 2
    return two_sided(quantile(0.05, df) / math.sqrt(max(true, 1e-12) / seen), df)


def _covariance(a: Sequence[int], b: Sequence[int], correlation: float) -> float:
    return math.fsum(correlation ** abs(i - j) for i in a for j in b)


def _places(level: Cell, reference: Cell) -> tuple[list[float], list[float]] | None:
    level_at = [one.place for one in level.observations]
    reference_at = [one.place for one in reference.observations]
    known = [at for at in (*level_at, *reference_at) if at is not None]
    if len(known) < len(level_at) + len(reference_at) or len(set(known)) < len(known):
        return None
    return [at for at in level_at if at is not None], [at for at in reference_at if at is not None]


def _within_only(level: Cell, reference: Cell) -> RunOrder | None:
    """Return the facts if the order is known within each group but not between them (assumed: one after the other)."""
    if any(one.run is None for cell in (level, reference) for one in cell.observations):
        return None
    correlation = lag_one([_centred(level), _centred(reference)])
    if correlation is None:
        return None
    alarm = None
    if correlation > 0.0 and min(len(level.values), len(reference.values)) > 1:
        m, n = min(len(level.values), LARGEST), min(len(reference.values), LARGEST)
        alarm = false_alarm(range(m), range(m, m + n), correlation)
    return _fact(level, reference, "unknown", correlation, None, alarm)


def _fact(
    level: Cell,
    reference: Cell,
    arrangement: Literal["separate", "mixed", "unknown"],
    correlation: float | None,
    drift: float | None,
    alarm: float | None,
) -> RunOrder:
    return RunOrder(
        group=level.group,
        reference=reference.group,
        response=level.response,
        condition=dict(level.condition),
        series=level.series,
        arrangement=arrangement,
        autocorrelation=correlation,
        drift=drift,
        false_alarm=alarm,
        values=len(level.values) + len(reference.values),
    )


def _centred(cell: Cell) -> list[float]:
    if not all(value > 0.0 for value in cell.values):
        return []
    found = [math.log(value) for value in cell.values]
    centre = mean(found)
    return [value - centre for value in found]


def _drift(
    level: Cell, reference: Cell, level_at: Sequence[float], reference_at: Sequence[float]
) -> float | None:
    """Extrapolate the common trend within the groups over the distance between their mean places; returned as a ratio."""
    pairs: list[tuple[float, float]] = []
    for cell, at in ((level, level_at), (reference, reference_at)):
        centre = mean(at)
        pairs.extend(zip((place - centre for place in at), _centred(cell), strict=False))
    spread = math.fsum(x * x for x, _ in pairs)
    if len(pairs) < FEWEST or spread == 0.0:
        return None
    slope = math.fsum(x * y for x, y in pairs) / spread
    carried = slope * (mean(level_at) - mean(reference_at))
    return math.exp(max(-700.0, min(700.0, carried)))
