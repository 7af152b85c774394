"""When to stop, and what is said then: three rules on the same simulated trials."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from iotrial.analysis.betting import log_paths
from simulated.noise import Floats, Rng

MARGIN, BLOCKS = 0.03, 1000
EFFECTS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.1, 0.3)
WORDS = ("slower or faster", "equivalent, but detectably so", "equivalent", "inconclusive")
RULES = ("once 0 is excluded", "to the width (iotrial)", "a third of it inside the margin")


def paths(rng: Rng, blocks: int, reach: float, points: int) -> tuple[Floats, Floats]:
    """Candidates d and ln f_n(d), candidates by blocks, for one normal series of SD 1 and effect 0."""
    d = rng.normal(size=blocks)
    grid = np.linspace(-reach, reach, points)
    parts = [
        log_paths(d[None, :] - part[:, None])
        for part in np.array_split(grid, max(1, points * blocks // 40000))
    ]
    return grid, np.maximum.accumulate(np.concatenate(parts), axis=1)


def hulls(grid: Floats, log_f: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Low and high after every block (infinite where the grid ends), to the grid's step."""
    left = log_f < math.log(1 / alpha)
    low = grid[np.argmax(left, axis=0)]
    high = grid[grid.size - 1 - np.argmax(left[::-1], axis=0)]
    return np.where(left[0], -np.inf, low), np.where(left[-1], np.inf, high)


def stopping(rng: Rng, scale: float) -> str:
    """Wording and blocks by true effect, at block SDs of 8 % and 3 %."""
    trials = max(30, int(500 * scale))
    ends = [hulls(*paths(rng, BLOCKS, 3.0, 601), 0.05) for _ in range(trials)]
    out = [
        f"**What is said at a margin of 3 %: {trials} trials of at most {BLOCKS} blocks, alpha .05, normal noise**",
        "",
        f"Each cell: {' / '.join(WORDS)}; median and 90 % of blocks. The half-way point of the interval stands for the "
        "estimate.",
        "",
        f"| block SD | true effect | {' | '.join(RULES)} |",
        "| --- | --- |" + " --- |" * len(RULES),
    ]
    for sd in (0.08, 0.03):
        for effect in EFFECTS:
            rows = [
                outcomes(low * sd + math.log1p(effect), high * sd + math.log1p(effect)) for low, high in ends
            ]
            cells = [_cell([row[rule] for row in rows]) for rule in range(len(RULES))]
            out.append(f"| {sd:.0%} | {effect:.1%} | {' | '.join(cells)} |")
    return "\n".join(out)


def outcomes(low: Floats, high: Floats) -> list[tuple[str, int]]:
    """Word and block at which each rule stops a trial with these ends after every block."""
    limit = math.log1p(MARGIN)
    inside = (low >= -limit) & (high <= limit)
    out = (low > 0) | (high < 0)
    with np.errstate(invalid="ignore"):
        estimate, half = np.abs(low + high) / 2, (high - low) / 2
    width = half <= np.maximum(limit, estimate / 4)
    third = width & ((estimate > limit) | (half <= limit / 3))
    found = []
    for enough in (np.True_, width, third):
        # inside the margin is final under every rule: more blocks cannot take it back
        stop = inside | (out & enough)
        n = int(np.argmax(stop)) if stop.any() else low.size - 1
        found.append((_word(bool(inside[n]), float(low[n]), float(high[n])), n + 1))
    return found


def _word(inside: bool, low: float, high: float) -> str:
    excluded = low > 0 or high < 0
    if inside:
        return WORDS[1] if excluded else WORDS[2]
    return WORDS[0] if excluded else WORDS[3]


def _cell(rows: list[tuple[str, int]]) -> str:
    words = Counter(word for word, _ in rows)
    shares = " / ".join(f"{words[word] / len(rows):.2f}" for word in WORDS)
    blocks = [n for _, n in rows]
    return f"{shares}; {np.median(blocks):.0f}, {np.quantile(blocks, 0.9):.0f}"
