"""The share of drawn cases in which something happened, with the interval of Clopper and Pearson (Biometrika 26, 1934).

The interval is exact for cases drawn independently from one population, and holds for the share in that population
only. Where nothing happened, what can be said is an upper limit: the one-sided one, 1 - alpha^(1/n).

Cases of one run share its luck. Over several runs the interval is that of Korn and Graubard (Survey Methodology 24, 1998):
Clopper and Pearson's with the number of independent cases that scatter as the runs do, at most that of all cases. Two groups
of runs are compared by the exact permutation test of the sum of ranks, with the run as the unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from iotrial.stats.student import incomplete_beta, quantile

#: error level of every interval here
ALPHA = 0.05
#: runs of each group from which on groups are compared by their ranks
FEWEST_RUNS = 4
MOST_RUNS = 20
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


def over_runs(runs: Sequence[Proportion]) -> tuple[float, float]:
    """Return the two-sided interval of 95 % for the share in further runs like these, as far as their scatter tells.

    If all or none of the cases are counted there is no scatter, and the interval is that of one run with all cases.
    """
    cases = sum(one.total for one in runs)
    whole = Proportion(sum(one.count for one in runs), cases)
    if len(runs) < 2 or whole.count in (0, cases):
        return whole.interval
    share = whole.share
    # the variance of a ratio estimate over clusters (Cochran 1977, 11.8)
    parts = math.fsum((one.count - share * one.total) ** 2 for one in runs)
    variance = len(runs) / (len(runs) - 1) * parts / cases**2
    effective = cases if variance == 0.0 else share * (1.0 - share) / variance
    effective *= (quantile(ALPHA, cases - 1) / quantile(ALPHA, len(runs) - 1)) ** 2
    effective = min(effective, float(cases))
    count = share * effective
    return (
        _quantile(ALPHA / 2.0, count, effective - count + 1.0),
        _quantile(1.0 - ALPHA / 2.0, count + 1.0, effective - count),
    )


def p_of_more(runs: Sequence[Proportion], others: Sequence[Proportion]) -> float:
    """Return the one-sided p-value of "these runs have larger shares than the others", exact also with ties.

    If both are alike, every division of the runs into groups of these sizes is equally likely; p is the share of divisions
    with a sum of ranks at least as large. At most the first ``MOST_RUNS`` runs of a group count.
    """
    runs, others = runs[:MOST_RUNS], others[:MOST_RUNS]
    shares = [Fraction(one.count, one.total) for one in (*runs, *others)]
    # twice the mean rank, which is a whole number
    ranks = [sum((one < own) * 2 + (one == own) for one in shares) + 1 for own in shares]
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in runs)]
    for rank in ranks:
        for size in range(len(runs), 0, -1):
            for total, count in ways[size - 1].items():
                ways[size][total + rank] += count
    observed = sum(ranks[: len(runs)])
    extreme = sum(count for total, count in ways[-1].items() if total >= observed)
    return extreme / math.comb(len(shares), len(runs))


def _quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of the beta distribution, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if incomplete_beta(middle, a, b) < probability else (low, middle)
    return high
