"""The products that the e-process bets with, of many candidate effects at once, in logarithms.

For a candidate d: x_b = D_b - d, s_b = sqrt(mean of x_i**2 over i <= b), and the ten products over b of 1 +-
tanh(theta * x_b / s_b), theta one of five bets. ``eprocess.py`` says what they are for. Sums of logarithms
neither overflow nor lose the small products, at any number of blocks. ``chunked.py`` asks less of many candidates,
faster.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BETS = (0.15, 0.3, 0.6, 1.0, 1.6)

_LN2 = math.log(2.0)
_COMPONENTS = 2 * len(BETS)


def log_process(contrasts: Floats, candidate: float) -> tuple[float, float]:
    """ln f and ln M_n at one candidate: the largest value of the process so far, and its last."""
    log_m = log_paths((contrasts - candidate)[None, :])[0]
    return float(max(log_m.max(), 0.0)), float(log_m[-1])


def log_paths(x: Floats) -> Floats:
    """ln M after every block, for each row of ``x`` (x_b = D_b - d of one series, in time order)."""
    x = np.atleast_2d(x)
    ratio = _ratios(x)
    logs = np.empty((x.shape[0], _COMPONENTS, x.shape[1]))
    for k, theta in enumerate(BETS):
        # ln(1 + tanh z) = ln 2 - ln(1 + exp(-2z)), and ln(1 - tanh z) is less by 2z: exact also where
        # tanh z is 1.
        doubled = (2.0 * theta) * ratio
        gain = _LN2 - np.log1p(np.exp(-np.abs(doubled)))
        logs[:, 2 * k, :] = gain + np.minimum(doubled, 0.0)
        logs[:, 2 * k + 1, :] = gain - np.maximum(doubled, 0.0)
    return _log_mean(np.cumsum(logs, axis=2, out=logs))


def log_largest(contrasts: Floats, candidates: Floats) -> Floats:
    """ln f, the largest ln M_i over i <= n, of each candidate."""
    return np.array([log_process(contrasts, candidate)[0] for candidate in candidates.tolist()])


def log_agreeing(blocks: int, share: float) -> float:
    """A lower bound of ln M_n where all x_b have one sign and |x_b| / s_b >= ``share``."""
    logs = [blocks * math.log1p(math.tanh(theta * share)) for theta in BETS]
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs)) - math.log(_COMPONENTS)


def _ratios(x: Floats) -> Floats:
    """x_b / s_b, 0 where both are 0."""
    rms = np.sqrt(np.cumsum(x * x, axis=1) / np.arange(1, x.shape[1] + 1))
    ratio: Floats = np.divide(x, rms, out=np.zeros_like(x), where=rms > 0.0)
    return ratio


def _log_mean(logs: Floats) -> Floats:
    top: Floats = logs.max(axis=1)
    mean: Floats = top + np.log(np.exp(logs - top[:, None, :]).mean(axis=1))
    return mean
