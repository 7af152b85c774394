"""Student's t distribution in pure Python: tail probability and quantile, to about 1e-10.

The tail is half the regularised incomplete beta function I_x(v/2, 1/2) at x = v/(v + t^2), computed by its continued
fraction (Press et al., Numerical Recipes, section 6.4, modified Lentz); the quantile by bisection of the tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

TINY = 1e-300


def two_sided(t: float, df: float) -> float:
    """Return P(|T| >= |t|) for ``df`` > 0 degrees of freedom (not necessarily an integer)."""
    if math.isinf(t):
        return 0.0
    return incomplete_beta(df / (df + t * t), df / 2.0, 0.5)


@lru_cache(maxsize=1024)
def quantile(alpha: float, df: float) -> float:
    """Return the t that is exceeded in absolute value with probability ``alpha`` (0 < alpha < 1)."""
    return exceeded_with(alpha, lambda t: two_sided(t, df), 1.0)


def exceeded_with(probability: float, tail: Callable[[float], float], high: float) -> float:
    """Return the positive value at which a decreasing tail has this probability. ``high``: a first guess above 0."""
    low = 0.0
    while tail(high) > probability and high < 1e150:
        low, high = high, high * 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return high


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 / away_from_zero(1.0 + term * d)
            c = away_from_zero(1.0 + term / c)
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def away_from_zero(value: float) -> float:
    """Return the value, or a tiny one in place of 0, to divide by (modified Lentz)."""
    return value if abs(value) > TINY else TINY
