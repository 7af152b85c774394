"""Stopping rules and their wording: four rules on the same simulated trials."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.design.plan import CONTROLS_FIRST
from iotrial.stats.betting import Blocks, Side
from simulated.noise import Floats, Rng

MARGIN, BLOCKS = 0.03, 1000
EFFECTS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.1, 0.3)
WORDS = ("slower or faster", "equivalent, but detectably so", "equivalent", "inconclusive")
PRODUCT, PRECISE = "iotrial", "to the width (`--precise`)"
RULES = ("once 0 is excluded", PRODUCT, PRECISE, "a third of it inside the margin")
_CELLS = 40_000  # candidates by blocks at once


@dataclass(frozen=True, slots=True)
class Ends:
    """The candidates left after every block: the ends of the interval, and the bounds by each side's bets alone.

    ``floor`` is the smallest effect left by the bets on a larger one, ``ceiling`` the largest left by the bets on a
    smaller one, both at the interval's alpha.
    """

    low: Floats
    high: Floats
    floor: Floats
    ceiling: Floats

    def of(self, sd: float, effect: float) -> Ends:
        """Return the ends for the same series with this SD about this effect."""
        return Ends(*(one * sd + effect for one in (self.low, self.high, self.floor, self.ceiling)))

    def mirrored(self) -> Ends:
        """Return the ends for the series with its signs flipped."""
        return Ends(-self.high, -self.low, -self.ceiling, -self.floor)

    def inside(self, limit: float) -> npt.NDArray[np.bool_]:
        """Return whether ``eprocess.interval`` would exclude every effect beyond the margin (``limit``, log scale)."""
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        return ((-limit <= self.low) & (self.high <= limit)) | (
            bounded & (-limit <= self.floor) & (self.ceiling <= limit)
        )


def ends(rng: Rng, blocks: int, *, aim: float, alpha: float, reach: float = 3.0, points: int = 601) -> Ends:
    """Return the ends for one normal series of SD 1 and effect 0, to a grid of candidates within +-``reach``.

    ``aim`` is the margin of the aimed bet in SDs.
    """
    level, reference, copy = rng.normal(0.0, math.sqrt(0.5), (3, blocks))
    at = np.arange(blocks)
    copied = (at < CONTROLS_FIRST) | (at % 2 == 0)
    data = Blocks.of(level - reference, np.where(copied, copy - reference, math.nan))
    grid = np.linspace(-reach, reach, points)
    parts = np.array_split(grid, max(1, points * blocks // _CELLS))

    def log_m(side: Side) -> Floats:
        return np.concatenate([data.against(part, aim=aim, side=side) for part in parts])

    low, high = hulls(grid, log_m(Side.BOTH), alpha)
    floor, _ = hulls(grid, log_m(Side.LARGER), alpha)
    _, ceiling = hulls(grid, log_m(Side.SMALLER), alpha)
    return Ends(low, high, floor, ceiling)


def hulls(grid: Floats, log_m: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the lowest and highest candidate left after every block (infinite at the grid's ends), to the grid's step."""
    left = np.maximum.accumulate(log_m, axis=1) < math.log(1 / alpha)
    low = grid[np.argmax(left, axis=0)]
    high = grid[grid.size - 1 - np.argmax(left[::-1], axis=0)]
    return np.where(left[0], -np.inf, low), np.where(left[-1], np.inf, high)


def stopping(rng: Rng, scale: float) -> str:
    """Tabulate wording and blocks by true effect, at block SDs of 8 % and 3 %."""
    trials = max(30, int(400 * scale))
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
        series = [ends(rng, BLOCKS, aim=math.log1p(MARGIN) / sd, alpha=0.05) for _ in range(trials)]
        for effect in EFFECTS:
            rows = [outcomes(one.of(sd, math.log1p(effect))) for one in series]
            cells = [_cell([row[rule] for row in rows]) for rule in range(len(RULES))]
            out.append(f"| {sd:.0%} | {effect:.1%} | {' | '.join(cells)} |")
    return "\n".join(out)


def outcomes(found: Ends) -> list[tuple[str, int]]:
    """Return the word and block at which each rule stops a trial with these ends after every block."""
    limit = math.log1p(MARGIN)
    low, high = found.low, found.high
    inside = found.inside(limit)
    out = (low > 0) | (high < 0)
    beyond = (low > limit) | (high < -limit)
    with np.errstate(invalid="ignore"):
        estimate, half = np.abs(low + high) / 2, (high - low) / 2
    width = half <= np.maximum(limit, estimate / 4)
    third = beyond | (width & ((estimate > limit) | (half <= limit / 3)))
    words = []
    for enough in (np.True_, beyond | width, width, third):
        # inside the margin is final under every rule, because more blocks cannot revert it
        stop = inside | (out & enough)
        n = int(np.argmax(stop)) if stop.any() else low.size - 1
        words.append((_word(bool(inside[n]), float(low[n]), float(high[n])), n + 1))
    return words


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
