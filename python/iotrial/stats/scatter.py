"""Estimate the scatter of a contrast from block to block, from blocks in which all arms have the same treatment.

All arms of such a block are copies, so every pair of them is a contrast without an effect. The pairs give two
figures: their root mean square (the plain SD), and 1.4826 times the median of their magnitudes, which is the SD
of normal contrasts and ignores rare stalls. Planning uses the geometric mean of both. Stalls inflate the plain
SD, and with it the number of blocks that the tables of ``power`` require, but they delay the test itself far
less, because it limits the influence of a single block. The median alone is too optimistic. The geometric mean
came closest to the blocks that four of five simulated trials needed, for normal, heavy-tailed and stalling noise
(``tests/unit/test_stats_forecast.py`` runs some of these simulations).

The range is the wider of two 90 % intervals: that of the variance of normal contrasts (chi-squared, by Wilson
and Hilferty's approximation, 1931), and a bootstrap over blocks, which accounts for heavy tails but is too narrow
with few blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from iotrial.stats.model import RANGE_LEVEL, Scatter

_TO_SD = 1.4826  # SD over median magnitude of a centred normal variable: 1 / Phi^-1(3/4)
_RESAMPLES = 200
FEWEST_BLOCKS = 3


def scatter_of(blocks: Sequence[Sequence[float]]) -> Scatter | None:
    """Estimate the scatter from blocks with the values of two or more identical arms (logarithms, for ratios).

    None with fewer than three such blocks.
    """
    usable = [np.asarray(block, dtype=float) for block in blocks if len(block) > 1]
    return _scatter([_pairs(block) for block in usable], sum(block.size - 1 for block in usable))


def scatter_of_contrasts(blocks: Sequence[Sequence[float]]) -> Scatter | None:
    """Estimate the scatter from contrasts without an effect, grouped by block; ``sd`` is then that of one contrast."""
    usable = [np.abs(np.asarray(block, dtype=float)) for block in blocks if len(block)]
    # contrasts of one block share arms, so each block is one degree of freedom
    return _scatter(usable, len(usable))


def _scatter(pairs: Sequence[np.ndarray], freedom: int) -> Scatter | None:
    if len(pairs) < FEWEST_BLOCKS:
        return None
    plain, robust = _figures(pairs)
    sd = _combined(plain, robust)
    narrow, wide = _chi_squared_range(freedom)
    low, high = _bootstrap_range(pairs)
    return Scatter(sd, min(low, sd * narrow), max(high, sd * wide), plain, blocks=len(pairs))


def _pairs(block: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray:
    first, second = np.triu_indices(block.size, 1)
    return np.asarray(np.abs(block[first] - block[second]))


def _figures(pairs: Sequence[np.ndarray]) -> tuple[float, float]:
    every = np.concatenate(pairs)
    return math.sqrt(float(np.mean(every**2))), _TO_SD * float(np.median(every))


def _combined(plain: float, robust: float) -> float:
    # With short times and a coarse clock more than half of the pairs can be equal; then the median is useless.
    return math.sqrt(plain * robust) if robust > 0.0 else plain


def _chi_squared_range(freedom: int) -> tuple[float, float]:
    """Return the ends of the interval of an SD, as multiples of the SD."""
    tail = (1.0 - RANGE_LEVEL) / 2.0
    part = 2.0 / (9.0 * freedom)
    ends = []
    for probability in (1.0 - tail, tail):
        root = 1.0 - part + NormalDist().inv_cdf(probability) * math.sqrt(part)
        ends.append(1.0 / math.sqrt(max(root, 0.05) ** 3))
    return ends[0], ends[1]


def _bootstrap_range(pairs: Sequence[np.ndarray]) -> tuple[float, float]:
    rng = np.random.default_rng(len(pairs))  # fixed seed: the same data give the same range
    found = []
    for _ in range(_RESAMPLES):
        drawn = rng.integers(len(pairs), size=len(pairs))
        found.append(_combined(*_figures([pairs[i] for i in drawn])))
    tail = (1.0 - RANGE_LEVEL) / 2.0
    return float(np.quantile(found, tail)), float(np.quantile(found, 1.0 - tail))
