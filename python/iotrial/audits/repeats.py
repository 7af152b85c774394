"""Treatments measured more than once: accidental A/A comparisons that show how much identical arms differ."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from iotrial.audits.intervals import mean
from iotrial.audits.model import AuditedPair, Cell, RepeatedGroup

MOST = 200


def find_repeats(
    cells: Sequence[Cell], comparisons: Sequence[AuditedPair], same: Sequence[Sequence[str]]
) -> list[RepeatedGroup]:
    """Find repeats: in separate series, in cells with more values than is usual, and declared ones."""
    found = [*_across_series(cells), *_doubled(cells), *_declared(cells, same)]
    effects: dict[str, list[float]] = defaultdict(list)
    for one in comparisons:
        if one.ratio is not None:
            effects[one.response].append(abs(math.log(one.ratio)))
    return [_held(one, effects[one.response]) for one in found[:MOST]]


def _held(one: RepeatedGroup, effects: Sequence[float]) -> RepeatedGroup:
    size = abs(math.log(one.ratio))
    return replace(one, effects=len(effects), smaller=sum(effect < size for effect in effects))


def _across_series(cells: Sequence[Cell]) -> list[RepeatedGroup]:
    rows = defaultdict(list)
    for cell in cells:
        rows[cell.group, cell.response, cell.unit, cell.condition].append(cell)
    found = []
    for row in rows.values():
        for first, second in itertools.pairwise(row):
            found += _pair(first, second, first.group, first.series, second.series)
    return found


def _doubled(cells: Sequence[Cell]) -> list[RepeatedGroup]:
    """Find cells with several values in a file that usually has one per cell: the row was measured again."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for cell in cells:
        sizes[cell.response].append(len(cell.values))
    mostly_one = {response: row.count(1) * 2 > len(row) for response, row in sizes.items()}
    found = []
    for cell in cells:
        if (
            not mostly_one[cell.response]
            or len(cell.values) < 2
            or not all(value > 0.0 for value in cell.values)
        ):
            continue
        for a, b in itertools.pairwise(cell.values):
            found.append(
                RepeatedGroup(
                    cell.group,
                    cell.group,
                    cell.response,
                    cell.unit,
                    dict(cell.condition),
                    dict(cell.condition),
                    a,
                    b,
                    b / a,
                )
            )
    return found


def _declared(cells: Sequence[Cell], same: Sequence[Sequence[str]]) -> list[RepeatedGroup]:
    by_group: dict[str, list[Cell]] = defaultdict(list)
    by_key: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        by_group[cell.group].append(cell)
        by_key[cell.group, cell.response, cell.unit, cell.condition, cell.series] = cell
    found = []
    for label, other in dict.fromkeys(pair for labels in same for pair in itertools.pairwise(labels)):
        for first in by_group.get(label, ()) if other in by_group else ():
            second = by_key.get((other, first.response, first.unit, first.condition, first.series))
            if second is not None:
                found += _pair(first, second, other, "", "")
    return found


def _pair(first: Cell, second: Cell, other: str, where: str, where_other: str) -> list[RepeatedGroup]:
    if not all(value > 0.0 for value in (*first.values, *second.values)):
        return []
    a, b = (math.exp(mean([math.log(value) for value in cell.values])) for cell in (first, second))
    marks = [{"series": series} if series else {} for series in (where, where_other)]
    return [
        RepeatedGroup(
            first.group,
            other,
            first.response,
            first.unit,
            dict(first.condition) | marks[0],
            dict(second.condition) | marks[1],
            a,
            b,
            b / a,
        )
    ]
