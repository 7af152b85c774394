"""Where the level of a series in time changes, by a test that does not take neighbours that resemble each other for a change.

A cumulative sum needs the variance of means, which autocorrelation hides and which every estimate of it gets wrong where the
level does change. A self-normalised test divides by what the series shows of itself on both sides of the place in question,
so that nothing has to be estimated (X. Shao and X. Zhang, Testing for change points in time series, JASA 105 (2010), pages
1228-1240). Where there are several changes each is looked at in windows of many lengths around it, so that one does not hide
another (Z. Zhao, F. Jiang and X. Shao, Segmenting time series via self-normalisation, JRSS B 84 (2022), 1699-1725).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: fewer say nothing, and no stretch between two changes is shorter than the second
FEWEST, SHORTEST = 60, 12
#: of the series, the step in which windows grow: changes nearer to each other or to an end are not looked for
SHARE = 0.2
#: what the largest statistic of a series without a change exceeds once in a hundred times where it has 100 values of which
#: neighbours correlate by .6; by simulation (METHOD.md). Independent ones exceed it once in five hundred times.
CRITICAL = 190.0
MOST_POINTS = 4096
#: what rounding alone makes of a series whose numbers are all the same
_FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class Change:
    """The level changes before the point number ``place`` (from 0): means of the stretches on both sides of it."""

    place: int
    before: float
    after: float


def changes(values: Floats) -> tuple[Change, ...]:
    """Every change of level in a series of equally spaced values, in order; none in fewer than FEWEST."""
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not FEWEST <= series.size <= MOST_POINTS or not np.isfinite(series).all():
        return ()
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = float(series.mean()), float(series.std())
    if not 0.0 < spread < np.inf or spread <= _FLAT * abs(centre):
        return ()
    # so that no sum is of very large or very small numbers
    places = _places((series - centre) / spread, step_of(series.size), CRITICAL)
    means = [float(series[start:end].mean()) for start, end in pairwise((0, *places, series.size))]
    return tuple(Change(place, *levels) for place, levels in zip(places, pairwise(means), strict=True))


def step_of(n: int) -> int:
    """By how many points windows grow in a series of so many."""
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
    """The statistic says whether; where, least squares says better, within a step on both sides."""
    start, end = max(0, place - step), min(part.size, place + step)
    near = part[start:end] - part[start:end].mean()
    # no stretch may come out shorter than the shortest
    least = max(1, SHORTEST - start)
    most = min(near.size - 1, part.size - SHORTEST - start)
    places = np.arange(least, most + 1)
    sums = np.abs(np.cumsum(near)[places - 1])
    return start + int(places[np.argmax(sums / np.sqrt(places * (near.size - places)))])


def statistic(values: Floats, step: int) -> Floats:
    """The largest self-normalised statistic for a change behind each of the first n - 1 values, over all windows that reach a
    whole number of steps to both sides; 0 where none fits."""
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
    """For windows of one step, of two ...: for each start the sum of squares of the sums in it about the line between its
    ends. ``sums``: of the first 0, 1 ... values."""
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
