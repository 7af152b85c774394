"""The products that the e-process bets with, of many candidate effects at once, in logarithms.

For a candidate d: x_b = D_b - d, s_b = sqrt(mean of x_i**2 over i <= b), and the ten products over b of 1 +-
tanh(theta * x_b / s_b), theta one of five bets. ``eprocess.py`` says what they are for. Sums of logarithms
neither overflow nor lose the small products, at any number of blocks.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BETS = (0.15, 0.3, 0.6, 1.0, 1.6)

_LN2 = math.log(2.0)
_COMPONENTS = 2 * len(BETS)
# Blocks are taken in stretches, so that a candidate that is out stops costing, and arrays stay in the cache.
_STRETCH = 256
_CELLS = 1 << 14


def log_process(contrasts: Floats, candidate: float) -> tuple[float, float]:
    """ln f and ln M_n at one candidate: the largest value of the process so far, and its last."""
    log_m = log_paths((contrasts - candidate)[None, :])[0]
    return float(max(log_m.max(), 0.0)), float(log_m[-1])


def log_paths(x: Floats) -> Floats:
    """ln M after every block, for each row of ``x`` (x_b = D_b - d of one series, in time order)."""
    return _log_mean(_Bets(x.shape[0]).advance(x))


def log_last(contrasts: Floats, candidates: Floats) -> Floats:
    """ln M_n, at the last block, of each candidate."""
    out = np.empty(candidates.size)
    rows = max(1, _CELLS // max(contrasts.size, 1))
    for start in range(0, candidates.size, rows):
        x = contrasts[None, :] - candidates[start : start + rows, None]
        ratio = _ratios(x, np.zeros((x.shape[0], 1)), 0)[0]
        logs = np.empty((x.shape[0], _COMPONENTS, 1))
        for k, theta in enumerate(BETS):
            doubled = (2.0 * theta) * ratio
            agree = (_LN2 - np.log1p(np.exp(-np.abs(doubled)))).sum(axis=1)
            logs[:, 2 * k, 0] = agree + np.minimum(doubled, 0.0).sum(axis=1)
            logs[:, 2 * k + 1, 0] = agree - np.maximum(doubled, 0.0).sum(axis=1)
        out[start : start + rows] = _log_mean(logs)[:, 0]
    return out


def log_largest(contrasts: Floats, candidates: Floats) -> Floats:
    """ln f, the largest ln M_i over i <= n, of each candidate."""
    return np.array([log_process(contrasts, candidate)[0] for candidate in candidates.tolist()])


def survives(contrasts: Floats, candidates: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Of each candidate whether ln f stays below ``threshold`` (= ln 1/alpha) through all contrasts."""
    alive = np.ones(candidates.size, dtype=bool)
    rows = max(1, _CELLS // min(_STRETCH, max(contrasts.size, 1)))
    for start in range(0, candidates.size, rows):
        index = np.arange(start, min(start + rows, candidates.size))
        bets = _Bets(index.size)
        for first in range(0, contrasts.size, _STRETCH):
            logs = bets.advance(contrasts[None, first : first + _STRETCH] - candidates[index, None])
            out = _reaches(logs, threshold)
            alive[index[out]] = False
            index = index[~out]
            if index.size == 0:
                break
            bets.keep(~out)
    return alive


def log_agreeing(blocks: int, share: float) -> float:
    """A lower bound of ln M_n where all x_b have one sign and |x_b| / s_b >= ``share``."""
    logs = [blocks * math.log1p(math.tanh(theta * share)) for theta in BETS]
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs)) - math.log(_COMPONENTS)


class _Bets:
    """The logarithms of the ten products, of several candidates, carried from stretch to stretch."""

    def __init__(self, candidates: int) -> None:
        self.last: Floats = np.zeros((candidates, _COMPONENTS))
        self._squares: Floats = np.zeros((candidates, 1))
        self._blocks = 0

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Carry on with some of the candidates only."""
        if not which.all():
            self.last, self._squares = self.last[which], self._squares[which]

    def advance(self, x: Floats) -> Floats:
        """Take the x_b of the next blocks (candidates by blocks); returns logs, candidates by products by
        blocks."""
        x = np.atleast_2d(x)
        count = x.shape[1]
        ratio, self._squares = _ratios(x, self._squares, self._blocks)
        logs = np.empty((x.shape[0], _COMPONENTS, count))
        for k, theta in enumerate(BETS):
            # ln(1 + tanh z) = ln 2 - ln(1 + exp(-2z)), and ln(1 - tanh z) is less by 2z: exact also where
            # tanh z is 1.
            doubled = (2.0 * theta) * ratio
            gain = _LN2 - np.log1p(np.exp(-np.abs(doubled)))
            logs[:, 2 * k, :] = gain + np.minimum(doubled, 0.0)
            logs[:, 2 * k + 1, :] = gain - np.maximum(doubled, 0.0)
        np.cumsum(logs, axis=2, out=logs)
        logs += self.last[:, :, None]
        self.last = logs[:, :, -1].copy()
        self._blocks += count
        return logs


def _ratios(x: Floats, squares: Floats, blocks: int) -> tuple[Floats, Floats]:
    """x_b / s_b (0 where both are 0) given the sum of squares over ``blocks`` earlier blocks, and the new
    sum."""
    running = squares + np.cumsum(x * x, axis=1)
    rms = np.sqrt(running / np.arange(blocks + 1, blocks + x.shape[1] + 1))
    ratio = np.divide(x, rms, out=np.zeros_like(x), where=rms > 0.0)
    return ratio, running[:, -1:].copy()


def _log_mean(logs: Floats) -> Floats:
    top: Floats = logs.max(axis=1)
    mean: Floats = top + np.log(np.exp(logs - top[:, None, :]).mean(axis=1))
    return mean


def _reaches(logs: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether the mean of the ten products reaches exp(threshold) at any block; exact where it must be."""
    top = logs.max(axis=(1, 2))
    reached: npt.NDArray[np.bool_] = top - math.log(_COMPONENTS) >= threshold
    near = np.flatnonzero(~reached & (top >= threshold))
    if near.size:
        reached[near] = _log_mean(logs[near]).max(axis=1) >= threshold
    return reached
