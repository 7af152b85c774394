"""The betting products of the e-process, as logarithms.

For a candidate effect d: x_b = D_b - d, s_b = sqrt(mean of x_i**2 over i <= b), and for each bet the two products over b of
1 +- tanh(z_b), one for a larger and one for a smaller effect than d. Five bets have z_b = theta x_b / s_b. If the response
has a margin m, a sixth, *aimed* bet has z_b = m x_b / s_b**2: for normal contrasts this bet gains most when the effect is
a margin away from d. Like those of the others, its stake depends on magnitudes only, so each product has mean 1.

``eprocess.py`` explains their use. Sums of logarithms neither overflow nor underflow, for any number of blocks.
``chunked.py`` is a faster implementation of fewer queries, for many candidates.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BETS = (0.15, 0.3, 0.6, 1.0, 1.6)
#: a root mean square not above this counts as 0: squares of smaller numbers lose precision
SMALLEST = 1e-150


class Side(IntEnum):
    """Which bets take part: on an effect larger than the candidate, on a smaller one, or both with half the stake each."""

    SMALLER = -1
    BOTH = 0
    LARGER = 1


def log_weights(aim: float) -> Floats:
    """Return ln of the share of each bet. The shares are equal: the five of ``BETS``, then the aimed bet if ``aim`` > 0."""
    bets = len(BETS) + (aim > 0.0)
    return np.full(bets, -math.log(bets))


def log_process(
    contrasts: Floats, candidate: float, *, aim: float = 0.0, side: Side = Side.BOTH
) -> tuple[float, float]:
    """Return ln f and ln M_n at one candidate: the largest value of the process so far (at least 0), and its last value."""
    log_m = log_paths((contrasts - candidate)[None, :], aim=aim, side=side)[0]
    return float(max(log_m.max(), 0.0)), float(log_m[-1])


def log_paths(x: Floats, *, aim: float = 0.0, side: Side = Side.BOTH) -> Floats:
    """Return ln M after every block, for each row of ``x`` (x_b = D_b - d of one series, in time order).

    ``aim`` is the margin on the contrasts' own scale (0 if there is none).
    """
    x = np.atleast_2d(x)
    rms = np.sqrt(np.cumsum(x * x, axis=1) / np.arange(1, x.shape[1] + 1))
    ratio = _divided(x, rms)
    weights = log_weights(aim)
    logs = np.empty((weights.size, x.shape[0], x.shape[1]))
    for k in range(weights.size):
        stake = BETS[k] * ratio if k < len(BETS) else _divided(aim * ratio, rms)
        # ln(1 + tanh z) = z - ln cosh z, and ln cosh z = |z| + ln(1 + exp(-2|z|)) - ln 2: precise even if tanh z rounds to 1
        size = np.abs(stake)
        against = np.cumsum(size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0), axis=1)
        logs[k] = log_side(np.cumsum(stake, axis=1), against, side)
    return log_sum(logs + weights[:, None, None])


def _divided(x: Floats, rms: Floats) -> Floats:
    """Return x / rms, or 0 where all x so far are 0."""
    ratio: Floats = np.divide(x, rms, out=np.zeros_like(x), where=rms > SMALLEST)
    return ratio


def log_side(towards: Floats, against: Floats, side: Side) -> Floats:
    """Return ln of exp(+-S - C) of the bets on one side, or of the mean of both sides."""
    if side is not Side.BOTH:
        return side * towards - against
    size = np.abs(towards)
    mean: Floats = size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0) - against
    return mean


def log_sum(logs: Floats) -> Floats:
    """Return ln of the sum of exponentials over the first axis."""
    top: Floats = logs.max(axis=0)
    total: Floats = top + np.log(np.exp(logs - top).sum(axis=0))
    return total


def log_largest(contrasts: Floats, candidates: Floats, *, aim: float, side: Side) -> Floats:
    """Return ln f of each candidate: the largest ln M_i over i <= n (at least 0)."""
    return np.array([log_process(contrasts, one, aim=aim, side=side)[0] for one in candidates.tolist()])


def log_agreeing(blocks: int, share: float, *, aimed: bool, side: Side) -> float:
    """Return a lower bound of ln M_n if all x_b have the sign that ``side`` bets on, and all |x_b| / s_b >= ``share``."""
    weight = log_weights(1.0 if aimed else 0.0)[0] - (math.log(2.0) if side is Side.BOTH else 0.0)
    logs = np.array([blocks * math.log1p(math.tanh(theta * share)) for theta in BETS])
    return float(log_sum(logs)) + float(weight)
