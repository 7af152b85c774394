"""Exact bounds on a rate, and their format."""

from __future__ import annotations

from scipy import stats


def bounds(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return two-sided Clopper-Pearson bounds (Biometrika 26, 1934) on the probability behind ``hits`` of ``trials``."""
    tail = (1.0 - level) / 2.0
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(stats.beta.ppf(1.0 - tail, hits + 1, trials - hits))
    return low, high


def rate(hits: int, trials: int, digits: int = 3) -> str:
    """Format a rate as ``.042 [.025, .066]``; "-" if there was no trial."""
    if trials == 0:
        return "-"
    low, high = bounds(hits, trials)
    return f"{hits / trials:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
