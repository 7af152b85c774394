"""The share of drawn cases in which something happened, with the interval of Clopper and Pearson (Biometrika 26, 1934).

The interval is exact for cases drawn independently from one population, and holds for the share in that population
only. Where nothing happened, what can be said is an upper limit: the one-sided one, 1 - alpha^(1/n).
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.stats.student import incomplete_beta

#: error level of every interval here
ALPHA = 0.05
_HALVINGS = 200


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``total`` drawn cases. Raises ValueError unless 0 <= count <= total and total >= 1."""

    count: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.total or self.total < 1:
            raise ValueError(f"expected 0 to {max(self.total, 1)} of at least one case, found {self.count}")

    @property
    def share(self) -> float:
        """The share of the cases, 0 to 1."""
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The two-sided interval of 95 %; for none of all cases, 0 and the one-sided upper limit of 95 %."""
        if self.count == 0:
            return 0.0, 1.0 - ALPHA ** (1.0 / self.total)
        low = _quantile(ALPHA / 2.0, self.count, self.total - self.count + 1)
        if self.count == self.total:
            return low, 1.0
        return low, _quantile(1.0 - ALPHA / 2.0, self.count + 1, self.total - self.count)


def _quantile(probability: float, a: int, b: int) -> float:
    """Return the quantile of the beta distribution, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if incomplete_beta(middle, a, b) < probability else (low, middle)
    return high
