"""The chi-square distribution in pure Python: tail probability and quantile, to about 1e-10.

The tail is the regularised upper incomplete gamma function Q(df/2, x/2), computed by its series below the mean and its
continued fraction above (Press et al., Numerical Recipes, section 6.2); the quantile by bisection of the tail.
"""

from __future__ import annotations

import math
from functools import lru_cache

from iotrial.stats.student import TINY, away_from_zero, exceeded_with


def tail(x: float, df: float) -> float:
    """Return P(X >= x) for ``df`` > 0 degrees of freedom."""
    if x <= 0.0:
        return 1.0
    a, half = df / 2.0, x / 2.0
    front = math.exp(a * math.log(half) - half - math.lgamma(a))
    if half < a + 1.0:
        return 1.0 - front * _series(a, half)
    return front * _fraction(a, half)


@lru_cache(maxsize=1024)
def quantile(probability: float, df: float) -> float:
    """Return the x that is exceeded with ``probability`` (between 0 and 1, exclusive)."""
    return exceeded_with(probability, lambda x: tail(x, df), max(1.0, df))


def _series(a: float, x: float) -> float:
    term = total = 1.0 / a
    n = a
    while abs(term) > 1e-17 * abs(total):
        n += 1.0
        term *= x / n
        total += term
    return total


def _fraction(a: float, x: float) -> float:
    b = x + 1.0 - a
    c, d = 1.0 / TINY, 1.0 / b
    value = d
    for i in range(1, 100_000):
        step = -i * (i - a)
        b += 2.0
        d = 1.0 / away_from_zero(step * d + b)
        c = away_from_zero(b + step / c)
        value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value
