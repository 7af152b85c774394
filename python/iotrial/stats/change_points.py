"""Change-point detection in a time series, robust to autocorrelation.

A CUSUM test needs the long-run variance. Autocorrelation makes it hard to estimate, and a change of level biases every
estimate. A self-normalised test instead divides by the variation that the series shows on both sides of the candidate point,
so nothing has to be estimated (X. Shao and X. Zhang, Testing for change points in time series, JASA 105 (2010), pages
1228-1240). With several changes, each point is tested in windows of many lengths around it, so that one change does not
mask another (Z. Zhao, F. Jiang and X. Shao, Segmenting time series via self-normalisation, JRSS B 84 (2022), 1699-1725).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: minimum length of a series, and of a segment between two changes
FEWEST, SHORTEST = 60, 12
#: step in which windows grow, as a share of the series: changes closer to each other or to an end are not searched for
SHARE = 0.2
#: critical value of the largest statistic: without a change it is exceeded with probability 1/100 for 100 values with lag-1
#: correlation .6, and 1/500 for independent values; by simulation (METHOD.md)
CRITICAL = 190.0
MOST_POINTS = 4096
#: relative spread that rounding alone can give a constant series
_FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level before point number ``place`` (from 0), with the means of the segments on both sides."""

    place: int
    before: float
    after: float


def changes(values: Floats) -> tuple[Change, ...]:
    """Return every change of level in a series of equally spaced values, in order.

    Empty for fewer than FEWEST or more than MOST_POINTS values, and for values that are constant or not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not FEWEST <= series.size <= MOST_POINTS or not np.isfinite(series).all():
        return ()
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = float(series.mean()), float(series.std())
    if not 0.0 < spread < np.inf or spread <= _FLAT * abs(centre):
        return ()
    # standardise, so that no sum overflows or underflows
    places = _places((series - centre) / spread, step_of(series.size), CRITICAL)
    means = [float(series[start:end].mean()) for start, end in pairwise((0, *places, series.size))]
    return tuple(Change(place, *levels) for place, levels in zip(places, pairwise(means), strict=True))


def step_of(n: int) -> int:
    """Return the step, in points, by which windows grow in a series of length ``n``."""
    return max(SHORTEST, int(n * SHARE))


def _places(series: Floats, step: int, critical: float) -> list[int]:
    found: list[int] = []
    todo = [(0, series.size)]
    while todo:
        start, end = todo.pop()
        part = series[start:end]
        values = statistic(part, step)
        if values.size == 0 or float(values.max()) < critical:
            continue
        place = start + _sharpened(part, int(values.argmax()) + 1, step)
        found.append(place)
        todo += [(start, place), (place, end)]
    return sorted(found)


def _sharpened(part: Floats, place: int, step: int) -> int:
    """Locate a detected change by least squares within one step on both sides, which is more precise than the test."""
    start, end = max(0, place - step), min(part.size, place + step)
    near = part[start:end] - part[start:end].mean()
    # no segment may be shorter than SHORTEST
    least = max(1, SHORTEST - start)
    most = min(near.size - 1, part.size - SHORTEST - start)
    places = np.arange(least, most + 1)
    sums = np.abs(np.cumsum(near)[places - 1])
    return start + int(places[np.argmax(sums / np.sqrt(places * (near.size - places)))])


def statistic(values: Floats, step: int) -> Floats:
    """Return the largest self-normalised statistic for a change after each of the first n - 1 values.

    The maximum is over all windows that extend a whole number of steps to both sides; 0 where none fits.
    """
    n = values.size
    largest = np.zeros(max(0, n - 1))
    sums = np.concatenate(([0.0], np.cumsum(values)))
    before, behind = _about_lines(sums, step), _about_lines(sums[-1] - sums[::-1], step)
    for left, from_left in enumerate(before, start=1):
        for right, from_right in enumerate(behind, start=1):
            a, b = left * step, right * step
            if a + b > n:
                break
            k = np.arange(a, n - b + 1)
            down = sums[k] - sums[k - a]
            whole = sums[k + b] - sums[k - a]
            contrast = (down - whole * (a / (a + b))) ** 2 / (a + b)
            normal = (from_left[k - a] + from_right[n - k - b]) / (a + b) ** 2
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.where(normal > _FLAT, contrast / normal, np.where(contrast > _FLAT, np.inf, 0.0))
            largest[k - 1] = np.maximum(largest[k - 1], found)
    return largest


def _about_lines(sums: Floats, step: int) -> list[Floats]:
    """Return, for windows of 1, 2 ... steps and each start, the sum of squares of the partial sums about the line between
    their values at the window's ends. ``sums``: sums of the first 0, 1 ... values."""
    n = sums.size - 1
    t = np.arange(n + 1, dtype=np.float64)
    # running sums of S^2, t S, S, t^2 and t
    squares, products, plain, times, ones = (np.cumsum(part) for part in (sums**2, t * sums, sums, t**2, t))
    found = []
    for length in range(step, n + 1, step):
        a = np.arange(n - length + 1)
        b = a + length
        slope = (sums[b] - sums[a]) / length
        base = slope * a - sums[a]
        total = squares[b] - squares[a] + slope**2 * (times[b] - times[a]) + base**2 * length
        total += 2.0 * (
            base * (plain[b] - plain[a])
            - slope * (products[b] - products[a])
            - base * slope * (ones[b] - ones[a])
        )
        found.append(np.maximum(total, 0.0))
    return found
