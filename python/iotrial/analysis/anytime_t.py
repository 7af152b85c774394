"""The anytime-valid t interval: a cross-check of the e-process that assumes normal contrasts.

For a candidate mean, x_i = D_i - mean, S = sum x_i, V = sum x_i**2. The likelihood ratio of the scale-
invariant part of the data, against a standardised mean that is itself normal with variance 1/c2, is

    G_n = sqrt(c2 / (n + c2)) * (V / (V - S**2 / (n + c2)))**(n/2):

integrate sigma out against d sigma / sigma and the standardised mean against its prior. It is a martingale of
mean 1 for normal contrasts, whatever their variance. G_n < 1/alpha solved for the mean gives the interval in
closed form. Source: Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
unknown variance", arXiv 2310.03722.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# The prior's precision. At .05, 3 is within 5 % of the narrowest that any gives from 15 to 500 blocks.
PRIOR_PRECISION = 3.0


def t_interval(
    contrasts: Sequence[float], alpha: float, *, prior_precision: float = PRIOR_PRECISION
) -> tuple[float, float] | None:
    """The interval of the mean after all contrasts, at level ``alpha``; None where it is unbounded."""
    n = len(contrasts)
    if n < 2:
        return None
    values = np.asarray(contrasts, dtype=np.float64)
    mean = float(values.mean())
    spread = float(values.std())
    # V / (V - S**2/(n + c2)) < bound, with V = n (spread**2 + u), S**2 = n**2 u and u = (mean - candidate)**2
    log_bound = (2.0 * math.log(1.0 / alpha) + math.log1p(n / prior_precision)) / n
    if log_bound > 700.0:
        return None
    weight = 1.0 - math.exp(log_bound) * prior_precision / (n + prior_precision)
    if weight <= 0.0:
        return None
    half = spread * math.sqrt(math.expm1(log_bound) / weight)
    return mean - half, mean + half
