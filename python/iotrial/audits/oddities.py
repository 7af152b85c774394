"""Outliers, odd first runs, unusable values, and trends of single groups along a condition."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from iotrial.audits.intervals import mean
from iotrial.audits.model import Cell, Condition, FirstRuns, Observation, OutlyingValue, Trend, Unusable
from iotrial.stats.student import two_sided
from iotrial.units import measured

FIRST_RUN_CHANCE = 0.01
FEWEST_RUNS = 4
FEWEST_FOR_TREND = 5
EXACT_TREND = 7
FAR = 3.0  # an outlier differs from the typical value by more than this factor


def first_run(cells: Sequence[Cell]) -> FirstRuns | None:
    """Detect that the first run is the largest value of every group, or the smallest of every group, beyond chance."""
    usable = [
        cell
        for cell in cells
        if len(cell.values) >= FEWEST_RUNS
        and all(one.run is not None for one in cell.observations)
        and all(value > 0.0 for value in cell.values)
    ]
    if not usable or len(usable) < len(cells):
        return None
    ratios = {cell.group: cell.values[0] / median(cell.values[1:]) for cell in usable}
    highest = all(cell.values[0] > max(cell.values[1:]) for cell in usable)
    lowest = all(cell.values[0] < min(cell.values[1:]) for cell in usable)
    chance = 2.0 * math.prod(1.0 / len(cell.values) for cell in usable)
    if not (highest or lowest) or chance > FIRST_RUN_CHANCE:
        return None
    first = usable[0]
    return FirstRuns(first.response, dict(first.condition), first.series, len(usable), ratios, chance)


def outliers(cells: Sequence[Cell]) -> list[OutlyingValue]:
    """Find values off by more than a factor ``FAR`` from the median of their group and response (six conditions or more)."""
    found = []
    by_group = defaultdict(list)
    for cell in cells:
        if len(cell.values) == 1 and cell.values[0] > 0.0 and _is_ladder(cell.condition):
            by_group[cell.group, cell.response].append(cell)
    for row in by_group.values():
        if len(row) < 6:
            continue
        typical = median(cell.values[0] for cell in row)
        for cell in row:
            if not typical / FAR <= cell.values[0] <= typical * FAR:
                condition = dict(cell.condition)
                found.append(
                    OutlyingValue(cell.group, cell.response, cell.unit, condition, cell.values[0], typical)
                )
    return found


def _is_ladder(condition: Condition) -> bool:
    """Return whether the condition consists of numbers only (such as sizes), so that its cells are comparable steps."""
    return bool(condition) and all(text.replace(".", "", 1).isdigit() for _, text in condition)


def unusable(cells: Sequence[Cell]) -> list[Unusable]:
    """Collect zero and negative values by group and response."""
    by_group: dict[tuple[str, str, str], list[Observation]] = defaultdict(list)
    for cell in cells:
        by_group[cell.group, cell.response, cell.unit].extend(cell.observations)
    found = []
    for (group, response, unit), observations in by_group.items():
        if all(one.value > 0.0 for one in observations):
            continue
        rows = all(one.row is not None for one in observations)
        placed = [
            (one.value, i if one.row is None else one.row) for i, one in enumerate(observations, start=1)
        ]
        zeros = tuple(at for value, at in placed if value == 0.0)
        negatives = tuple(at for value, at in placed if value < 0.0)
        found.append(Unusable(group, response, unit, len(observations), zeros, negatives, rows))
    return found


def trends(cells: Sequence[Cell]) -> list[Trend]:
    """Compute Spearman's correlation of each group's cell means with each numeric condition, all others fixed."""
    rows: dict[tuple[str, str, str, int], list[tuple[float, float, str]]] = defaultdict(list)
    for cell in cells:
        # Of the other conditions a sum of hashes: with hundreds of columns, copies of them would take most of the time.
        every, value = sum(map(hash, cell.condition)), mean(cell.values)
        for pair in cell.condition:
            at = measured(pair[1])
            if at is not None:
                rows[cell.group, cell.response, pair[0], every - hash(pair)].append((at, value, cell.unit))
    found = []
    for (group, response, name, _), points in rows.items():
        if len({at for at, _, _ in points}) < FEWEST_FOR_TREND:
            continue
        points.sort()
        xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
        correlation, p = spearman(xs, ys)
        found.append(Trend(group, response, points[0][2], name, len(points), ys[0], ys[-1], correlation, p))
    return found


def spearman(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return rank correlation and two-sided p-value: exact over all permutations up to seven values, else by Student's t.

    By Student's t, p is at least 2 / n!, the probability of one permutation and its mirror image.
    """
    a, b = _ranks(xs), _ranks(ys)
    found = _correlation(a, b)
    n = len(a)
    if n <= EXACT_TREND:
        hits = sum(abs(_correlation(a, other)) >= abs(found) - 1e-12 for other in itertools.permutations(b))
        return found, hits / math.factorial(n)
    t = found * math.sqrt((n - 2) / max(1e-12, 1.0 - found**2))
    return found, max(two_sided(t, n - 2), math.exp(math.log(2.0) - math.lgamma(n + 1)))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in range(at, end + 1):
            ranks[order[i]] = (at + end) / 2.0
        at = end + 1
    return ranks


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    centre_a, centre_b = mean(a), mean(b)
    square = math.fsum((x - centre_a) ** 2 for x in a) * math.fsum((y - centre_b) ** 2 for y in b)
    if square == 0.0:
        return 0.0
    return math.fsum((x - centre_a) * (y - centre_b) for x, y in zip(a, b, strict=True)) / math.sqrt(square)
