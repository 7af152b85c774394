"""Width of the interval, and blocks to equivalence; the tables that planning uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from iotrial.stats.betting import Blocks, Floats, Side, log_paths
from iotrial.stats.confidence_set import blocks_to_bound
from iotrial.stats.power import TABLE_ALPHAS, TABLE_RATIOS, TABLE_SHARES, blocks_to_resolve
from simulated.alarms import normal_blocks
from simulated.noise import Rng

_BLOCKS = (8, 14, 20, 40, 100, 200, 500, 1000, 2000, 4000)
_ALPHAS = (0.05, 0.01, 0.001)
_SHOWN = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
#: candidates at and beyond the margin, in margins: effects farther out are excluded sooner, except in the
#: very first blocks
_OUTWARD = np.array([1.0, 1.1, 1.3, 1.7, 2.5, 4.0, 8.0])
#: margin in block SDs from which equivalence can come in the very first blocks
_FEW_BLOCKS = 0.8
#: blocks within which all series certainly end: 10 times (ln(1/alpha) + 5) times (SD over margin) squared,
#: plus 120
_LONGEST, _MORE = 10.0, 120

#: the block after which each series (first axis) reaches each threshold (second), infinite if never
Passage = Callable[[Rng, float, int, int, list[float]], Floats]


def power_table(rng: Rng) -> str:
    """Return the tables of python/iotrial/stats/power.py, as Python: blocks by alpha, ratio and share."""
    out = []
    for name, passage in (
        ("_EQUIVALENT", to_equivalence),
        ("_EQUIVALENT_COPIED", partial(to_equivalence, copied=True)),
        ("_SEEN", to_see),
    ):
        out.append(f"{name}: Table = (")
        found = [_quantiles(rng, passage, ratio) for ratio in TABLE_RATIOS]
        for i in range(len(TABLE_ALPHAS)):
            groups = [f"({', '.join(f'{n:.4g}' for n in by_alpha[i])})" for by_alpha in found]
            out += [f"    ({', '.join(groups[:4])},", f"     {', '.join(groups[4:])}),"]
        out.append(")")
    return "\n".join(out)


def _quantiles(rng: Rng, passage: Passage, ratio: float) -> Floats:
    """Return blocks by alpha and share."""
    thresholds = [math.log(1.0 / alpha) for alpha in TABLE_ALPHAS]
    series = 4000 if ratio >= 0.4 else 1000
    blocks = int(_LONGEST * (max(thresholds) + 5.0) / ratio**2) + _MORE
    found = passage(rng, ratio, series, blocks, thresholds)
    assert np.isfinite(found).all(), f"ratio {ratio}: a series has not ended within {blocks} blocks"
    quantiles: Floats = np.quantile(found, TABLE_SHARES, axis=0, method="higher").T
    return quantiles


def to_equivalence(
    rng: Rng, ratio: float, series: int, blocks: int, thresholds: list[float], *, copied: bool = False
) -> Floats:
    """Without an effect: blocks until each side's bets exclude every effect beyond the margin, of ``ratio`` block SDs.

    ``copied``: the reference has a copy in the first 24 blocks and then in every second one.
    """
    found = np.zeros((series, len(thresholds)))
    # no interval is finite before, and without one there is no conclusion
    found += [blocks_to_bound(threshold, aimed=True, copied=copied) for threshold in thresholds]
    outward = ratio * (_OUTWARD if ratio >= _FEW_BLOCKS else _OUTWARD[:1])
    for row in range(series):
        d, copies = (one[0] for one in normal_blocks(rng, 1, blocks, 1.0))
        data = Blocks.of(d, copies if copied else ())
        for sign in (1.0, -1.0):
            paths = data.scaled(sign).against(outward, aim=ratio, side=Side.SMALLER)
            found[row] = np.maximum(found[row], _first_reached(paths, thresholds).max(axis=0))
    return found


def to_see(rng: Rng, ratio: float, series: int, blocks: int, thresholds: list[float]) -> Floats:
    """Blocks until an effect of two margins of ``ratio`` block SDs, as in the positive control, is seen."""
    parts = [
        _passages(rng.normal(2.0 * ratio, 1.0, (part.size, blocks)), ratio, Side.BOTH, thresholds)
        for part in np.array_split(np.arange(series), max(1, series * blocks // 1_000_000))
    ]
    return np.concatenate(parts)


def _passages(x: Floats, aim: float, side: Side, thresholds: list[float]) -> Floats:
    """Return the block after which ln M of each row first reaches each threshold."""
    return _first_reached(log_paths(x, aim=aim, side=side), thresholds)


def _first_reached(paths: Floats, thresholds: list[float]) -> Floats:
    log_f = np.maximum.accumulate(paths, axis=1)
    found = np.stack([(log_f < threshold).sum(axis=1) + 1.0 for threshold in thresholds], axis=1)
    return np.where(found <= paths.shape[1], found, np.inf)


def widths(rng: Rng, scale: float) -> str:
    """Tabulate the median half-width of the two-sided interval without a margin, and blocks to equivalence by the tables."""
    trials = max(30, int(300 * scale))
    half = half_widths(rng, trials)
    out = [
        f"**Half-width in block SDs by number of blocks, no margin: median of {trials} normal series**",
        "",
        "| alpha | " + " | ".join(str(n) for n in _BLOCKS) + " |",
        "| --- |" + " --- |" * len(_BLOCKS),
    ]
    for i, alpha in enumerate(_ALPHAS):
        cells = [np.nanquantile(half[:, i, j], 0.5, method="higher") for j in range(len(_BLOCKS))]
        out.append(f"| {alpha} | " + " | ".join("-" if math.isinf(c) else f"{c:.2f}" for c in cells) + " |")
    out += [
        "",
        "**Blocks until no effect is called equivalent, with copies: in half of the trials / in four of five, by margin in "
        "block SDs**",
        "",
        "| alpha | " + " | ".join(f"{ratio:g}" for ratio in _SHOWN) + " |",
        "| --- |" + " --- |" * len(_SHOWN),
    ]
    for alpha in _ALPHAS:
        planned = [
            " / ".join(
                f"{blocks_to_resolve(1.0, math.expm1(ratio), alpha=alpha, share=share, copied=True) or math.inf:,.0f}"
                for share in (0.5, 0.8)
            )
            for ratio in _SHOWN
        ]
        out.append(f"| {alpha} | {' | '.join(planned)} |")
    return "\n".join(out)


def half_widths(rng: Rng, trials: int) -> Floats:
    """Return the half-width in block SDs (trials by alphas by blocks): no effect, no margin, normal contrasts."""
    last = max(_BLOCKS)
    at = np.array(_BLOCKS) - 1
    outward = np.concatenate([np.linspace(0.0, 0.4, 49), np.geomspace(0.4, 60.0, 72)[1:]])
    grid = np.concatenate([-outward[:0:-1], outward])
    near = np.abs(grid) <= 0.9
    half = np.full((trials, len(_ALPHAS), at.size), np.inf)
    for trial in range(trials):
        d = rng.normal(size=last)
        log_f = np.full((grid.size, at.size), np.inf)
        early = at < 400
        first = np.maximum.accumulate(log_paths(d[None, :400] - grid[:, None]), axis=1)
        log_f[:, early] = first[:, at[early]]
        for part in np.array_split(np.flatnonzero(near), 12):
            full = np.maximum.accumulate(log_paths(d[None, :] - grid[part, None]), axis=1)
            log_f[np.ix_(part, np.flatnonzero(~early))] = full[:, at[~early]]
        for i, alpha in enumerate(_ALPHAS):
            for j in range(at.size):
                low, high = crossing(grid, log_f[:, j], math.log(1 / alpha))
                half[trial, i, j] = (high - low) / 2
    return half


def crossing(grid: np.ndarray, log_f: np.ndarray, threshold: float) -> tuple[float, float]:
    """Return the outermost points below the threshold, interpolated."""
    left = np.flatnonzero(log_f < threshold)
    if left.size == 0:
        return math.nan, math.nan
    ends = []
    for inner, step in ((left[0], -1), (left[-1], 1)):
        outer = inner + step
        if not 0 <= outer < grid.size:
            ends.append(step * math.inf)
        elif math.isinf(log_f[outer]):
            ends.append(grid[inner])
        else:
            part = (threshold - log_f[inner]) / (log_f[outer] - log_f[inner])
            ends.append(grid[inner] + part * (grid[outer] - grid[inner]))
    return ends[0], ends[1]
