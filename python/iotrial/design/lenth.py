"""Lenth's pseudo standard error: how much effects scatter that are none, judged by the effects themselves.

R. V. Lenth, "Quick and easy analysis of unreplicated factorials", Technometrics 31 (1989), 469-473. It assumes that most
effects are nil. iotrial draws it as a guide to the eye and uses it to rank; verdicts never rest on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist, median


def lenth_pse(effects: Sequence[float]) -> float:
    """1.5 times the median of the sizes below 2.5 times (1.5 times the median of all sizes); 0 for no effects."""
    sizes = [abs(effect) for effect in effects]
    if not sizes:
        return 0.0
    first = 1.5 * median(sizes)
    trimmed = [size for size in sizes if size < 2.5 * first]
    return 1.5 * median(trimmed) if trimmed else first


def half_normal_quantiles(count: int) -> tuple[float, ...]:
    """Where the sizes of ``count`` standard normal numbers are to be expected, in ascending order: the quantiles at
    (i - 1/2) / count of the half-normal distribution."""
    normal = NormalDist()
    return tuple(normal.inv_cdf(0.5 + (i - 0.5) / (2 * count)) for i in range(1, count + 1))
