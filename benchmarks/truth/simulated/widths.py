"""How narrow the interval gets with the number of blocks, in block SDs; the tables that planning uses."""

from __future__ import annotations

import math

import numpy as np

from iotrial.analysis.betting import log_paths
from iotrial.analysis.power import TABLE_ALPHAS, TABLE_BLOCKS
from simulated.noise import Rng


def power_table(rng: Rng) -> str:
    """The tables of python/iotrial/analysis/power.py, as Python."""
    half, far = reaches(rng, 600)
    out = [f"_BLOCKS = {TABLE_BLOCKS}", f"_ALPHAS = {TABLE_ALPHAS}"]
    for name, values in (
        ("_HALF_WIDTH", np.nanquantile(half, 0.5, axis=0, method="higher")),
        ("_REACH", np.nanquantile(far, 0.8, axis=0, method="higher")),
    ):
        out.append(f"{name} = (")
        for row in values:
            out.append("    (" + ", ".join("inf" if math.isinf(v) else f"{v:.4g}" for v in row) + "),")
        out.append(")")
    return "\n".join(out)


def widths(rng: Rng, scale: float) -> str:
    """Median half-width, and the farther end in four trials of five."""
    trials = max(30, int(300 * scale))
    half, far = reaches(rng, trials)
    shown = [TABLE_BLOCKS.index(n) for n in (8, 14, 20, 40, 100, 200, 500, 1000, 2000, 4000)]
    out = [
        f"**Half-width in block SDs by number of blocks: median; 80 %: farther end ({trials} normal series)**",
        "",
        "| alpha | " + " | ".join(str(TABLE_BLOCKS[j]) for j in shown) + " |",
        "| --- |" + " --- |" * len(shown),
    ]
    for label, values, share in (("", half, 0.5), (" (80 %)", far, 0.8)):
        for i in (0, 2, 5):
            cells = [np.nanquantile(values[:, i, j], share, method="higher") for j in shown]
            text = " | ".join("-" if math.isinf(c) else f"{c:.2f}" for c in cells)
            out.append(f"| {TABLE_ALPHAS[i]}{label} | {text} |")
    return "\n".join(out)


def reaches(rng: Rng, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Half-width and farther end, in block SDs (trials by alphas by blocks): no effect, normal contrasts."""
    last = max(TABLE_BLOCKS)
    at = np.array(TABLE_BLOCKS) - 1
    outward = np.concatenate([np.linspace(0.0, 0.4, 49), np.geomspace(0.4, 60.0, 72)[1:]])
    grid = np.concatenate([-outward[:0:-1], outward])
    near = np.abs(grid) <= 0.9
    half = np.full((trials, len(TABLE_ALPHAS), at.size), np.inf)
    far = half.copy()
    for trial in range(trials):
        d = rng.normal(size=last)
        log_f = np.full((grid.size, at.size), np.inf)
        early = at < 400
        first = np.maximum.accumulate(log_paths(d[None, :400] - grid[:, None]), axis=1)
        log_f[:, early] = first[:, at[early]]
        for part in np.array_split(np.flatnonzero(near), 12):
            full = np.maximum.accumulate(log_paths(d[None, :] - grid[part, None]), axis=1)
            log_f[np.ix_(part, np.flatnonzero(~early))] = full[:, at[~early]]
        for i, alpha in enumerate(TABLE_ALPHAS):
            for j in range(at.size):
                low, high = crossing(grid, log_f[:, j], math.log(1 / alpha))
                half[trial, i, j] = (high - low) / 2
                far[trial, i, j] = max(-low, high)
    return half, far


def crossing(grid: np.ndarray, log_f: np.ndarray, threshold: float) -> tuple[float, float]:
    """The outermost points below the threshold, interpolated."""
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
