"""Lenth's pseudo standard error: the scatter of null effects, estimated from all effects.

R. V. Lenth, "Quick and easy analysis of unreplicated factorials", Technometrics 31 (1989), 469-473. It assumes that most
effects are null. iotrial shows it in plots as a guide and ranks by it; verdicts never depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist, median


def lenth_pse(effects: Sequence[float]) -> float:
    """Return the pseudo standard error; 0 if there are no effects.

    It is 1.5 times the median of those absolute effects that are below 2.5 times (1.5 times the median of all).
    """
    sizes = [abs(effect) for effect in effects]
    if not sizes:
        return 0.0
    first = 1.5 * median(sizes)
    trimmed = [size for size in sizes if size < 2.5 * first]
    return 1.5 * median(trimmed) if trimmed else first


def half_normal_quantiles(count: int) -> tuple[float, ...]:
    """Return the expected absolute values of ``count`` standard normal numbers, ascending: the quantiles of the
    half-normal distribution at (i - 1/2) / count."""
    normal = NormalDist()
    return tuple(normal.inv_cdf(0.5 + (i - 0.5) / (2 * count)) for i in range(1, count + 1))
