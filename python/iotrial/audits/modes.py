"""Detect bimodal values, and whether the modes alternate in time.

The best cut of the sorted logarithms into two parts has the largest sum of squares between the parts. Its ratio to the sum
within them is compared with that of normal samples of the same size (Engelman and Hartigan, Journal of the American
Statistical Association 64, 1969; here by 2,000 samples from a generator with a fixed seed, so that an audit is
reproducible). A part with a single value is an outlier, not a mode.

False alarms, simulated in tests/unit/test_audit_modes.py: at most 1 % of conditions with normal values in groups of three
runs. Groups of six and more are also checked one by one, which makes it 3 % for three groups of ten. A treatment's effect
adds none (see `beyond_treatment`). Skewed values do: twelve exponential ones split as clearly in 5 % of samples. With few
values only wide gaps show: three groups of three runs in modes six standard deviations apart are found in one case of three,
ten apart in four of five. So "no modes found" is weak evidence.

Rounded values are first spread evenly over their possible range, so that rounding cannot create modes: four values of 1 s
and two of 2 s may be anything from 0.5 to 2.5 s. If the order is known, the number of switches between the modes is compared
with random arrangements (runs test of Wald and Wolfowitz, 1940): alternating modes come from something that alternates, such
as the two disks of a mirror.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from iotrial.audits.intervals import mean
from iotrial.audits.model import Cell, ModeCounts, Observation, TwoModes

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEWEST = 6
LEAST_SHARE = 0.15
LARGEST = 200
SAMPLES = 2000
P = 0.01
#: a group that met one mode only is excused if that happens by chance more often than this
P_MISSED = 0.05


def find_modes(cells: Sequence[Cell]) -> TwoModes | None:
    """Find the two modes of the pooled values of cells that share a condition; None if they are not bimodal."""
    pooled = [(one, cell.group) for cell in cells for one in cell.observations]
    if len(pooled) < FEWEST or any(one.value <= 0.0 for one, _ in pooled):
        return None
    values = sorted(math.log(value) for value in unrounded([one for one, _ in pooled]))
    thinned = (
        values if len(values) <= LARGEST else [values[i * len(values) // LARGEST] for i in range(LARGEST)]
    )
    split = best_split(thinned)
    if split is None:
        return None
    ratio, cut = split
    chance = split_p(len(thinned), ratio)
    if chance > P:
        return None
    border = math.exp((thinned[cut - 1] + thinned[cut]) / 2.0)
    heaps = [[one.value for one, _ in pooled if (one.value > border) is upper] for upper in (False, True)]
    if not all(heaps):  # the cut is between equal values
        return None
    switches, switches_p = _switches([(cell, border) for cell in cells])
    first = cells[0]
    return TwoModes(
        response=first.response,
        condition=dict(first.condition),
        series=first.series,
        groups=tuple(cell.group for cell in cells),
        low=math.exp(mean([math.log(value) for value in heaps[0]])),
        high=math.exp(mean([math.log(value) for value in heaps[1]])),
        low_count=len(heaps[0]),
        high_count=len(heaps[1]),
        p=chance,
        unit=first.unit,
        by_group={
            cell.group: ModeCounts(
                low=sum(value <= border for value in cell.values),
                high=sum(value > border for value in cell.values),
            )
            for cell in cells
        },
        switches=switches,
        switches_p=switches_p,
    )


def beyond_treatment(modes: TwoModes) -> bool:
    """Return whether the split cannot be the difference between the groups.

    Most groups must have met both modes. The others must be so small that they miss a mode by chance: three runs do so in one
    case of four if the modes are equally frequent, so without this allowance three groups of three would hide modes in six
    rows of ten.
    """
    share = modes.high_count / (modes.low_count + modes.high_count)
    both = 0
    for one in modes.by_group.values():
        runs = one.low + one.high
        if one.low and one.high:
            both += 1
        elif share**runs + (1.0 - share) ** runs <= P_MISSED:
            return False
    return 2 * both > len(modes.by_group)


def unrounded(observations: Sequence[Observation]) -> list[float]:
    """Return the values, with equal ones spread evenly over their rounding step, if it is known."""
    steps: dict[float, list[float]] = defaultdict(list)
    for one in observations:
        steps[one.value].append(one.step or 0.0)
    return [
        max(value + step * ((i + 0.5) / count - 0.5), value / 10.0)
        for value, step, count in ((value, max(row), len(row)) for value, row in steps.items())
        for i in range(count)
    ]


def best_split(values: Sequence[float]) -> tuple[float, int] | None:
    """Return the largest ratio of between to within sum of squares over all cuts of sorted values, and the cut."""
    n = len(values)
    least = _least(n)
    total = math.fsum(values)
    squares = math.fsum((value - total / n) ** 2 for value in values)
    best: tuple[float, int] | None = None
    below = math.fsum(values[: least - 1])
    for cut in range(least, n - least + 1):
        below += values[cut - 1]
        between = (below - total * cut / n) ** 2 * n / (cut * (n - cut))
        within = max(squares - between, 1e-15 * squares)
        if squares > 0.0 and (best is None or between / within > best[0]):
            best = (between / within, cut)
    return best


def split_p(n: int, ratio: float) -> float:
    """Return the simulated probability (1 / 2001 to 1) that n normal values split at least as clearly."""
    null = _null(n)
    return (1 + sum(one >= ratio for one in null)) / (len(null) + 1)


@lru_cache(maxsize=32)
def _null(n: int) -> tuple[float, ...]:
    least = _least(n)
    draws: Floats = np.sort(np.random.default_rng(20240229).standard_normal((SAMPLES, n)), axis=1)
    draws -= draws.mean(axis=1, keepdims=True)
    squares = (draws**2).sum(axis=1, keepdims=True)
    cuts = np.arange(least, n - least + 1)
    below = np.cumsum(draws, axis=1)[:, cuts - 1]
    between = below**2 * n / (cuts * (n - cuts))
    return tuple((between / (squares - between)).max(axis=1).tolist())


def _least(n: int) -> int:
    return max(2, math.ceil(LEAST_SHARE * n))


def _switches(cells: Sequence[tuple[Cell, float]]) -> tuple[int | None, float | None]:
    """Count switches between the modes, with their probability, in time order or, if only run numbers are known, by cell."""
    observations = [(one, border) for cell, border in cells for one in cell.observations]
    if all(one.place is not None for one, _ in observations):
        observations.sort(key=lambda pair: pair[0].place or 0.0)
    elif any(one.run is None for one, _ in observations):
        return None, None
    upper = [one.value > border for one, border in observations]
    switches = sum(a != b for a, b in itertools.pairwise(upper))
    return switches, switches_at_least(sum(upper), len(upper) - sum(upper), switches)


def switches_at_least(a: int, b: int, switches: int) -> float:
    """Return P(a random arrangement of a and b items of two kinds has at least this many switches)."""
    if a == 0 or b == 0:
        return 1.0
    count = 0
    for runs in range(max(switches + 1, 2), a + b + 1):
        half, odd = divmod(runs, 2)
        if odd:
            count += math.comb(a - 1, half) * math.comb(b - 1, half - 1)
            count += math.comb(a - 1, half - 1) * math.comb(b - 1, half)
        else:
            count += 2 * math.comb(a - 1, half - 1) * math.comb(b - 1, half - 1)
    return count / math.comb(a + b, a)
