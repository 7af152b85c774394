"""The guard of a live trial: has a setting been shown to be worse than today's by more than a limit?

A one-sided test of "the effect is at most the limit", valid at every look: with x_b the contrast of block b minus the limit,
the capital is the mean of the bets of ``betting.py`` on a larger effect and of one bold bet, which risks almost all of its
capital on every block. Randomisation makes each factor a fair bet at the limit, and a losing one below it, so by Ville's
inequality the capital ever reaches 1/alpha with probability at most alpha. The bold bet is for speed: it nearly doubles with
each block that agrees, so that five or six such blocks are enough at alpha = .05, where the others need eight. Fewer than
five could not be: five fair coins agree once in 32 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.stats.betting import SMALLEST, Floats, Side, log_paths, log_sum

_BOLD = 3.0


def log_harm(contrasts: Sequence[float] | Floats, limit: float) -> float:
    """Return ln of the largest capital so far (at least 0) against "the effect is at most ``limit``".

    ``contrasts``: of each block, the setting against today's, in time order, larger is worse (log ratios, as ``limit``).
    """
    return max(0.0, float(log_capital(contrasts, limit).max(initial=0.0)))


def log_capital(contrasts: Sequence[float] | Floats, limit: float) -> Floats:
    """Return ln of the capital after every block."""
    x: Floats = np.asarray(contrasts, dtype=np.float64) - limit
    if x.size == 0:
        return x
    rms = np.sqrt(np.cumsum(x * x) / np.arange(1, x.size + 1))
    share = np.divide(x, rms, out=np.zeros_like(x), where=rms > SMALLEST)
    # ln(1 + tanh z) = ln 2 - ln(1 + exp(-2z)), which does not lose its digits where tanh is close to -1
    bold = np.cumsum(math.log(2.0) - np.log1p(np.exp(-2.0 * _BOLD * share)))
    both: Floats = np.stack([log_paths(x, side=Side.LARGER)[0], bold]) - math.log(2.0)
    return log_sum(both)
