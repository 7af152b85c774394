"""The hull of the confidence set of an e-process (the candidates it does not exclude), and the point estimate in it.

f(d), the largest M_n(d) so far, is not monotone on either side of its minimum, so bisection can miss parts of the set
further out. The search therefore goes from the outside inwards. Two facts make that safe and cheap:

* f only grows with blocks, so the set after n blocks is inside the set after n/2. The search starts with the first few
  blocks and narrows its grid stage by stage, to the scale of the data at that stage;
* beyond the contrasts by k times their range, all of the level's distances from the other runs of its block are at least
  k/(k+1) of the largest. That bounds f from below and gives an outer limit that contains the whole set. Contrasts here
  include those against the reference's copy.

The same grids answer further questions: which candidates the bets of one side do not exclude (``upper_bound``), which ones
M_n at the last block alone does not exclude (``hull_at_last``), and which ones of a hull the budget bet does not exclude
either (``hull_within_budget``).

All searches are generators: they yield ``Question``s and are sent the answers, so that many can run in one batch
(``chunked.run``).

f jumps only at D_1 (where s_b is 0) and is steep near the contrasts after it, so every grid is dense around the first few
contrasts: the set may be the point D_1 alone, or a sliver on one side of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from iotrial.stats.betting import Blocks, Flags, Floats, Mixture, Side, log_agreeing
from iotrial.stats.budget_bet import Budget, MixedSeries
from iotrial.stats.chunked import Question, Search, Series

_POINTS = 33
_BATCH = 8
_INNER = 3
#: of an end, relative to the width of the hull
PRECISION = 1e-5
_ROUNDS = 24
# Number of first contrasts around which a grid is dense.
_STEEP = 4

Hull = tuple[float, float]
#: (outside, inside) of the low end and (inside, outside) of the high one
Ends = tuple[Hull, Hull]
UNBOUNDED: Hull = (-math.inf, math.inf)


def hull(blocks: Blocks, threshold: float, *, aim: float = 0.0) -> Search[Hull | None]:
    """Return the outermost d with ln f(d) < ``threshold``: infinite if unbounded, None if there is no such d."""
    enough = log_agreeing(blocks.copied, 1.0, aimed=aim > 0.0, side=Side.BOTH) >= threshold
    if not enough.any():
        return UNBOUNDED
    stage = int(enough.argmax()) + 1
    values, scale, centre = _scaled(blocks)
    grid = _first_grid(values.first(stage), threshold, aimed=aim > 0.0)
    while True:
        series = Series(values.first(stage), aim=aim / scale)
        found = yield from _outermost(series, grid, threshold)
        if found is None:
            return None
        if stage == values.size:
            break
        stage = min(2 * stage, int(values.size))
        (outer_low, _), (_, outer_high) = found
        grid = _narrower_grid(values, outer_low, outer_high)
    low, high = yield from _refined(lambda points: Question(series, points, threshold), found)
    return low * scale + centre, high * scale + centre


def hull_at_last(blocks: Blocks, left: Hull, threshold: float, *, aim: float = 0.0) -> Search[Hull]:
    """Return the outermost d with ln M_n(d) < ``threshold`` at the last block; ``left``, the hull of f, is inside."""
    values, scale, centre = _scaled(blocks)
    series = Series(values, aim=aim / scale)
    low, high = ((end - centre) / scale for end in left)
    points = values.points
    beyond = float(np.ptp(points)) * _reach(values, threshold, aimed=aim > 0.0)
    outer = min(low, float(points.min()) - beyond), max(high, float(points.max()) + beyond)
    grid = np.unique(
        np.concatenate(
            [
                np.linspace(*outer, 2 * _POINTS - 1),
                low - np.append(0.0, np.geomspace(1e-6, 1.0, _POINTS)) * (low - outer[0]),
                high + np.append(0.0, np.geomspace(1e-6, 1.0, _POINTS)) * (outer[1] - high),
            ]
        )
    )
    left_at_last = yield Question(series, grid, threshold, at_last=True)
    places = np.flatnonzero(left_at_last)
    first, last = (int(places[0]), int(places[-1])) if places.size else _both_at(grid, low)
    low, high = yield from _refined(
        lambda points: Question(series, points, threshold, at_last=True), _with_outside(grid, first, last)
    )
    return low * scale + centre, high * scale + centre


def hull_within_budget(
    blocks: Blocks, left: Hull, threshold: float, budget: Budget, *, aim: float = 0.0
) -> Search[Hull | None]:
    """Return the outermost d of ``left`` that are not excluded with the budget bet included; None if the grid finds none.

    ``left``: the finite hull of the other bets at ``threshold``, which is the one for their share of the stake.
    """
    values, scale, centre = _scaled(blocks)
    series = MixedSeries(values, budget, aim=aim / scale)
    low, high = ((end - centre) / scale for end in left)
    grid = _narrower_grid(values, low, high)
    found = yield from _first_left(series, grid, threshold)
    if found is None:
        return None
    low, high = yield from _refined(
        lambda points: Question(series, points, threshold), _with_outside(grid, *found)
    )
    return low * scale + centre, high * scale + centre


def upper_bound(
    blocks: Blocks, threshold: float, limit: float, *, aim: float = 0.0, budget: Budget | None = None
) -> Search[float | None]:
    """Return the largest d that the bets on a smaller effect do not exclude; None unless they exclude all d >= ``limit``.

    ``threshold`` is ln 1/alpha for these bets alone, so the effect is above the bound with probability at most alpha. With
    a ``budget`` it is the threshold for their share of the stake.
    """
    values, scale, centre = _scaled(blocks)
    if budget is None:
        series = Series(values, aim=aim / scale, side=Side.SMALLER)
    else:
        series = MixedSeries(values, budget, aim=aim / scale, side=Side.SMALLER)
    if values.size == 0:
        return None
    end, least, most = (limit - centre) / scale, float(values.points.min()), float(values.points.max())
    if most == least or end <= least:
        return None
    if (yield Question(series, np.array([end]), threshold))[0]:
        return None
    reach = (most - least) * _reach(values, threshold, aimed=aim > 0.0, side=Side.SMALLER)
    far = max(most + reach, end)
    if (yield Question(series, _beyond(values, end, far), threshold)).any():
        return None
    grid = _narrower_grid(values, least, end)
    found = yield from _first_left(series, grid, threshold)
    if found is None:
        return least * scale + centre
    _, last = found
    at = _with_outside(grid, last, last)[1]
    _, bound = yield from _refined(lambda points: Question(series, points, threshold), ((at[0], at[0]), at))
    return bound * scale + centre


def least_beyond(blocks: Blocks, limit: float, *, aim: float = 0.0, bets: Mixture | None = None) -> Floats:
    """Return ln of the smallest capital of the bets on a smaller effect against any d >= ``limit``, after every block.

    ``bets``: None for those of ``betting.mixture``.
    """
    values, scale, centre = _scaled(blocks)
    if not values.size:
        return np.zeros(0)
    end, least, most = (limit - centre) / scale, float(values.points.min()), float(values.points.max())
    # farther away all contrasts are on the same side, and the capital is nearly the largest possible
    candidates = _beyond(values, end, max(most, end) + 10.0 * max(most - least, abs(end)))
    smallest: Floats = values.against(candidates, aim=aim / scale, side=Side.SMALLER, bets=bets).min(axis=0)
    return smallest


def _beyond(blocks: Blocks, end: float, far: float) -> Floats:
    """Return candidates from ``end`` to ``far``: the bets on a smaller effect win more and more, but for a step at D_1."""
    few = blocks.contrasts[:_STEEP]
    steps = few[0] - (far - end) * np.array([1e-9, 1e-4, 1e-2])
    return np.unique(
        np.concatenate(
            [
                end + (far - end) * np.append(0.0, np.geomspace(1e-3, 1.0, _BATCH)),
                np.linspace(end, far, _BATCH),
                _within(np.concatenate([few, steps]), end, far),
            ]
        )
    )


def estimate(blocks: Blocks, left: Hull | None, *, aim: float = 0.0) -> Search[float]:
    """Return the candidate within ``left`` (None: anywhere) with the smallest M_n at the last block."""
    values, scale, centre = _scaled(blocks)
    low, high = UNBOUNDED if left is None else ((left[0] - centre) / scale, (left[1] - centre) / scale)
    points = values.points
    low, high = max(low, float(points.min())), min(high, float(points.max()))
    if low >= high:
        return float(min(max(0.0, min(low, high)), max(low, high))) * scale + centre
    grid = np.union1d(np.linspace(low, high, _POINTS // 2 + 1), _within(values.points[:_BATCH], low, high))
    series = Series(values, aim=aim / scale)
    known: dict[float, float] = {}
    for _ in range(_ROUNDS):
        new = np.array([one for one in grid.tolist() if one not in known])
        if new.size:
            known.update(zip(new.tolist(), (yield Question(series, new)).tolist(), strict=True))
        against = np.array([known[one] for one in grid.tolist()])
        ties = np.flatnonzero(against <= against.min() + 1e-12)
        best = int(ties[np.argmin(np.abs(grid[ties]))])
        before, after = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        if after - before <= 2e-4 * (high - low):
            break
        grid = np.union1d(np.linspace(before, after, _BATCH + 1), grid[best])
    return float(grid[best]) * scale + centre


@lru_cache(1024)
def blocks_to_bound(threshold: float, *, aimed: bool = False, copied: bool = False) -> int:
    """Return the minimum number of blocks for a finite interval at ln(1/alpha) = ``threshold``.

    ``copied``: each of these blocks has a copy of the reference.
    """
    blocks = 16
    while True:
        won = log_agreeing(np.full(blocks, copied), 1.0, aimed=aimed, side=Side.BOTH)
        if won[-1] >= threshold:
            return int((won >= threshold).argmax()) + 1
        blocks *= 2


def _scaled(blocks: Blocks) -> tuple[Blocks, float, float]:
    """Centre the contrasts at their median and divide by a power of two near their largest magnitude.

    Returns the scaled blocks, the power of two and the median.
    """
    centre = float(np.median(blocks.contrasts)) if blocks.size else 0.0
    largest = float(np.abs(blocks.points - centre).max(initial=0.0))
    # dividing by a power of two is exact; this one keeps squares in range
    scale = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0
    return blocks.scaled(scale, centre), scale, centre


def _first_grid(blocks: Blocks, threshold: float, *, aimed: bool) -> Floats:
    """Return candidates at the scales of the first few contrasts, out to the limit of the confidence set."""
    values = blocks.points
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([low])
    spread = high - low
    reach = spread * _reach(blocks, threshold, aimed=aimed)
    beyond = (
        np.append(spread * np.geomspace(1e-4, reach / spread, 48), reach)
        if reach > 1e-4 * spread
        else np.array([reach])
    )
    gaps = np.abs(values - values[0])
    nearest = float(gaps[gaps > 0.0].min())
    around = np.geomspace(1e-3 * nearest, spread, max(24, int(6 * math.log(1e3 * spread / nearest))))
    ordered = np.unique(values)
    return np.unique(
        np.concatenate(
            [
                low - beyond,
                high + beyond,
                np.linspace(low, high, 2 * _POINTS - 1),
                ordered,
                (ordered[1:] + ordered[:-1]) / 2,
                _within(np.concatenate([values[0] - around, values[0] + around]), low, high),
            ]
        )
    )


def _narrower_grid(blocks: Blocks, low: float, high: float) -> Floats:
    """Return candidates between two ends, dense around the first few contrasts."""
    width = high - low
    around = [width * np.geomspace(1e-9, 0.1, 16), *[width * np.geomspace(1e-4, 0.1, 8)] * (_STEEP - 1)]
    dense = [
        _within(np.concatenate([[at], at - near, at + near]), low, high)
        for at, near in zip(blocks.contrasts[:_STEEP], around, strict=False)
    ]
    return np.unique(np.concatenate([np.linspace(low, high, _POINTS), *dense]))


def _reach(blocks: Blocks, threshold: float, *, aimed: bool, side: Side = Side.BOTH) -> float:
    """Return k such that no candidate beyond the contrasts by k times their range is left.

    k/(k+1) is the smallest share of the largest distance that suffices to exclude it.
    """
    return _reached(blocks.copied.tobytes(), threshold, aimed, side)


@lru_cache(1024)
def _reached(copied: bytes, threshold: float, aimed: bool, side: Side) -> float:
    flags = np.frombuffer(copied, dtype=bool)
    low, high = 0.0, 1.0
    for _ in range(30):
        share = (low + high) / 2
        excluded = log_agreeing(flags, share, aimed=aimed, side=side)[-1] >= threshold
        low, high = (low, share) if excluded else (share, high)
    return min(high / (1.0 - high), 1e9) if high < 1.0 else 1e9


def _outermost(series: Series, grid: Floats, threshold: float) -> Search[Ends | None]:
    """Find the lowest and the highest grid point left, each with its neighbour outside."""
    left = yield from _first_left(series, grid, threshold)
    if left is None:
        point = _lowest_point(series, grid, threshold)
        if point is None:
            return None
        grid = np.union1d(grid, point)
        left = _both_at(grid, point)
    return _with_outside(grid, *left)


def _both_at(grid: Floats, point: float) -> tuple[int, int]:
    at = int(np.searchsorted(grid, point))
    return at, at


def _with_outside(grid: Floats, lowest: int, highest: int) -> Ends:
    """Return two grid positions as (outside, inside) and (inside, outside)."""
    return (
        (float(grid[max(lowest - 1, 0)]), float(grid[lowest])),
        (float(grid[highest]), float(grid[min(highest + 1, grid.size - 1)])),
    )


def _first_left(series: Series, grid: Floats, threshold: float) -> Search[tuple[int, int] | None]:
    """Find the indices of the lowest and the highest grid point left, or None.

    The search goes from both ends at once, a batch of points at a time, until each end has found one.
    """
    alive: list[bool | None] = [None] * grid.size
    lowest = highest = None
    for start in range(0, grid.size, _BATCH):
        below = range(start, min(start + _BATCH, grid.size)) if lowest is None else range(0)
        above = range(grid.size - 1 - start, max(grid.size - 1 - start - _BATCH, -1), -1)
        queries = {*below, *(above if highest is None else ())}
        places = [place for place in queries if alive[place] is None]
        answer = yield Question(series, grid[places], threshold)
        for place, left in zip(places, answer.tolist(), strict=True):
            alive[place] = left
        if lowest is None:
            lowest = next((place for place in below if alive[place]), None)
        if highest is None:
            highest = next((place for place in above if alive[place]), None)
        if lowest is not None and highest is not None:
            return lowest, highest
    return None


def _lowest_point(series: Series, grid: Floats, threshold: float) -> float | None:
    """Find a point of the set that the grid missed: follow f down from its three lowest grid points."""
    heights = _log_largest(series, grid)
    for start in np.argsort(heights)[:3].tolist():
        points, at = grid, start
        for _ in range(_ROUNDS):
            before, after = float(points[max(at - 1, 0)]), float(points[min(at + 1, points.size - 1)])
            points = np.union1d(np.linspace(before, after, _BATCH + 1), points[at])
            levels = _log_largest(series, points)
            at = int(np.argmin(levels))
            if levels[at] < threshold:
                return float(points[at])
            if after - before <= 1e-9 * float(grid[-1] - grid[0]):
                break
    return None


def _log_largest(series: Series, candidates: Floats) -> Floats:
    """Return ln f of each candidate: the largest ln M so far (at least 0)."""
    heights = [
        series.blocks.against(candidates[[place]], aim=series.aim, side=series.side).max(initial=0.0)
        for place in range(candidates.size)
    ]
    return np.array(heights)


def _refined(ask: Callable[[Floats], Question], ends: Ends) -> Search[Hull]:
    """Refine both ends of the hull, each between a point left and its neighbour outside, to ``PRECISION``.

    ``ask`` builds the question which of some candidates are left.
    """
    (out_low, low), (high, out_high) = ends
    steps = np.arange(1, _INNER + 1) / (_INNER + 1)
    for _ in range(_ROUNDS):
        enough = PRECISION * max(high - low, 1e-9 * (out_high - out_low))
        below = out_low + steps * (low - out_low) if low - out_low > enough else np.empty(0)
        above = out_high - steps * (out_high - high) if out_high - high > enough else np.empty(0)
        if below.size + above.size == 0:
            break
        alive = yield ask(np.concatenate([below, above]))
        if below.size:
            out_low, low = _closer(np.concatenate([[out_low], below, [low]]), alive[: below.size])
        if above.size:
            out_high, high = _closer(np.concatenate([[out_high], above, [high]]), alive[below.size :])
    return low, high


def _closer(points: Floats, alive: Flags) -> Hull:
    """Return the first point left and its outer neighbour before it; ``points`` go inwards and the last one is left."""
    first = int(np.argmax(np.append(alive, True)))
    return float(points[first]), float(points[first + 1])


def _within(points: Floats, low: float, high: float) -> Floats:
    kept: Floats = points[(points >= low) & (points <= high)]
    return kept
