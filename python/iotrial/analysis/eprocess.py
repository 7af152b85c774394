"""The randomisation e-process: test, estimate and interval of one contrast, valid at every look.

For a candidate effect d, with D_b the contrast of block b in time order: x_b = D_b - d,
s_b = sqrt(mean of x_i**2 over i <= b), and M_n(d) is the mean over five bets theta and both signs of
prod_{b <= n} (1 +- tanh(theta * x_b / s_b)); a block with x_b = s_b = 0 has factor 1.

If d is the effect, the sign of x_b is a fair coin given all magnitudes (the order was drawn so), hence M_n(d)
is a martingale of mean 1 and, by Ville's inequality, P(M_n(d) >= 1/alpha for any n) <= alpha. What is left
after n blocks are the d whose f(d) = max over n of M_n(d) stayed below 1/alpha; the interval is the hull of
those.

Sources: Vovk and Wang, arXiv 2208.08925; Ramdas et al., arXiv 2210.01948; Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting" (2024). The mixture is ours; METHOD.md shows its
calibration. The products are in ``betting.py``; how the hull is found is in ``hull.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.analysis.betting import Floats, log_process
from iotrial.analysis.hull import estimate, hull
from iotrial.analysis.model import Interval
from iotrial.analysis.recall import recalled

# exp(690) is still finite; an e-value beyond it says no more.
_LOG_LARGEST = 690.0


def interval(contrasts: Sequence[float] | Floats, alpha: float) -> Interval:
    """Interval, estimate and p-value of the contrasts ``D_1 .. D_n`` (time order) at level ``alpha``.

    The ends are those of the hull of all candidates left, to a millionth of its width. The estimate is the
    candidate of the hull that M_n speaks least against. ValueError for contrasts that are not finite.
    """
    values = _checked(contrasts, alpha)
    if values.size == 0:
        return Interval(None, None, None, 1.0, 1.0, 0)
    return recalled(values, alpha, lambda: _interval(values, alpha))


def _interval(values: Floats, alpha: float) -> Interval:
    left = hull(values, math.log(1.0 / alpha))
    log_largest, log_last = log_process(values, 0.0)
    return Interval(
        estimate=estimate(values, left),
        low=None if left is None or math.isinf(left[0]) else left[0],
        high=None if left is None or math.isinf(left[1]) else left[1],
        p_anytime=min(1.0, math.exp(-log_largest)),
        e_value=math.exp(min(log_last, _LOG_LARGEST)),
        blocks=int(values.size),
        empty=left is None,
    )


def excluded(contrasts: Sequence[float] | Floats, candidate: float, alpha: float) -> bool:
    """Whether the effect ``candidate`` is excluded at level ``alpha``: f(candidate) >= 1/alpha."""
    values = _checked(contrasts, alpha)
    return values.size > 0 and log_process(values, candidate)[0] >= math.log(1.0 / alpha)


def _checked(contrasts: Sequence[float] | Floats, alpha: float) -> Floats:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    values: Floats = np.asarray(contrasts, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("contrasts must be one finite number a block")
    return values
