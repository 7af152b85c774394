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
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

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


# Energy of time intervals, from power readings.


Floats = npt.NDArray[np.float64]

# Two readings further apart than this multiple of the usual distance have a gap between them.
GAP = 5.0


@dataclass(frozen=True, slots=True)
class Readings:
    """Power in watts at increasing Unix times; at least two readings."""

    at_s: Floats
    watts: Floats

    @property
    def period_s(self) -> float:
        """The median distance between two readings, in seconds."""
        return float(np.median(np.diff(self.at_s)))


def energies_j(readings: Readings, spans: Sequence[tuple[float, float]]) -> tuple[float | None, ...]:
    """Return the joules of each interval (start and end in Unix time); None if the readings do not cover it."""
    at_s, watts = readings.at_s, readings.watts
    steps = np.diff(at_s)
    # Times relative to the first reading: in seconds since 1970 a double is not precise enough for small areas.
    total = np.concatenate([[0.0], np.cumsum(steps * (watts[:-1] + watts[1:]) / 2.0)])
    gaps = steps > GAP * readings.period_s
    found: list[float | None] = []
    for start, end in spans:
        if not at_s[0] <= start <= end <= at_s[-1]:
            found.append(None)
            continue
        first = max(0, int(np.searchsorted(at_s, start, side="right")) - 1)
        last = min(steps.size - 1, int(np.searchsorted(at_s, end, side="left")))
        if gaps[first : max(first + 1, last)].any():
            found.append(None)
            continue
        found.append(_area(readings, total, end) - _area(readings, total, start))
    return tuple(found)


def _area(readings: Readings, total: Floats, moment: float) -> float:
    """Return the joules from the first reading to a moment within the readings."""
    at_s, watts = readings.at_s, readings.watts
    i = min(max(0, int(np.searchsorted(at_s, moment, side="right")) - 1), at_s.size - 2)
    width, into = float(at_s[i + 1] - at_s[i]), float(moment - at_s[i])
    here = float(watts[i]) + (float(watts[i + 1]) - float(watts[i])) * into / width
    return float(total[i]) + into * (float(watts[i]) + here) / 2.0
