"""Confidence intervals for the ratio of two groups of values, with their assumptions.

*Welch t on logarithms* assumes independent values that are roughly normal in the logarithm; each group has its own
variance (Welch, Biometrika 34, 1947). *Rank interval*: the shift of Hodges and Lehmann (Annals of Mathematical
Statistics 34, 1963), with its ends at order statistics of the pairwise ratios, chosen by the exact null distribution
of Mann and Whitney. It assumes independent values and equal shapes, but not normality. Neither is valid for
autocorrelated values: see ``order``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from iotrial.audits.model import Interval
from iotrial.stats.student import quantile

WELCH = "Welch t on logarithms"
RANK = "Hodges-Lehmann, exact ranks"
RANK_NORMAL = "Hodges-Lehmann, ranks by the normal approximation"
EXACT_UP_TO = 40
LARGEST_PAIRS = 250_000
GROUP_OF_ONE = "a group of one has no scatter"


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the sample variance (n - 1 in the denominator); NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    if min(values) == max(values):  # exactly, without the rounding of a mean
        return 0.0
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def logs(values: Sequence[float]) -> list[float] | None:
    """Return natural logarithms; None unless all values are positive."""
    return [math.log(value) for value in values] if all(value > 0.0 for value in values) else None


def welch(level: Sequence[float], reference: Sequence[float], alpha: float) -> Interval:
    """Return the interval of exp(mean log level - mean log reference); both arguments are logarithms."""
    if min(len(level), len(reference)) < 2:
        return Interval(WELCH, 1.0 - alpha, None, None, GROUP_OF_ONE)
    parts = [variance(level) / len(level), variance(reference) / len(reference)]
    error = math.fsum(parts)
    centre = mean(level) - mean(reference)
    if error <= 0.0:
        return Interval(WELCH, 1.0 - alpha, None, None, "no scatter at all in either group")
    df = error**2 / (parts[0] ** 2 / (len(level) - 1) + parts[1] ** 2 / (len(reference) - 1))
    half = quantile(alpha, df) * math.sqrt(error)
    return Interval(WELCH, 1.0 - alpha, _exp(centre - half), _exp(centre + half))


def rank(level: Sequence[float], reference: Sequence[float], alpha: float) -> Interval:
    """Return the rank interval of the same ratio; without ends if there are too few values for the level, or too many."""
    m, n = len(level), len(reference)
    if m * n > LARGEST_PAIRS:
        return Interval(RANK_NORMAL, 1.0 - alpha, None, None, "too many values for pairwise ratios")
    exact = m <= EXACT_UP_TO and n <= EXACT_UP_TO
    cut = _cut(m, n, alpha) if exact else _normal_cut(m, n, alpha)
    method = RANK if exact else RANK_NORMAL
    if cut < 1:
        return Interval(method, 1.0 - alpha, None, None, f"{m} and {n} values cannot reach this level")
    shifts = sorted(a - b for a in level for b in reference)
    return Interval(method, 1.0 - alpha, _exp(shifts[cut - 1]), _exp(shifts[m * n - cut]))


def _cut(m: int, n: int, alpha: float) -> int:
    """Return the largest k with P(U <= k - 1) <= alpha / 2 under the null; the ends are the k-th outermost shifts."""
    counts = mann_whitney_counts(m, n)
    total, below, k = math.comb(m + n, m), 0, 0
    for count in counts:
        below += count
        if below > alpha / 2.0 * total:
            break
        k += 1
    return k


@lru_cache(maxsize=64)
def mann_whitney_counts(m: int, n: int) -> tuple[int, ...]:
    """Return how many arrangements of m and n distinct values have U = 0, 1, ... m n (Mann and Whitney 1947)."""
    # Gaussian binomial coefficient [m+n choose m]: multiply by (1 - q^(n+i)) and divide by (1 - q^i).
    size = m * n + 1
    poly = [1] + [0] * (size - 1)
    for i in range(1, m + 1):
        for u in range(size - 1, n + i - 1, -1):
            poly[u] -= poly[u - n - i]
        for u in range(i, size):
            poly[u] += poly[u - i]
    return tuple(poly)


def _normal_cut(m: int, n: int, alpha: float) -> int:
    z = quantile(alpha, 1e9)
    return math.floor(m * n / 2.0 - z * math.sqrt(m * n * (m + n + 1) / 12.0))


def _exp(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))
