"""An interval as a few characters: where it lies about "no difference" and the margin, and how far it has narrowed.

    ┊  ──━│━●━──  ┊      the margins, no difference between them, the interval now and at half as many blocks

Ratios are drawn on a logarithmic scale of three margins to each side, more while all intervals are wider; what lies beyond is
an arrow at the edge. Differences have no margin, so each is drawn on a scale of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iotrial.report.progress import EffectLine

REACHES = (3.0, 6.0, 12.0, 24.0)  # margins from the middle to an edge


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a bar."""

    now: str = "━"
    before: str = "─"
    estimate: str = "●"
    none: str = "│"
    margin: str = "┊"
    left: str = "◂"
    right: str = "▸"


PLAIN_MARKS = Marks("=", "-", "o", "|", ":", "<", ">")


def reach_of(lines: Iterable[EffectLine], margin: float) -> float:
    """How many margins the bars of these ratios reach to each side: enough for half of those that are not decided."""
    ends = sorted(
        max(abs(math.log(line.low)), abs(math.log(line.high))) / math.log1p(margin)
        for line in lines
        if line.null and line.verdict is None and line.low and line.high and margin > 0.0
    )
    middle = ends[(len(ends) - 1) // 2] if ends else 0.0
    return next((reach for reach in REACHES if reach >= middle), REACHES[-1])


def interval_bar(
    line: EffectLine, *, width: int, margin: float, reach: float = REACHES[0], marks: Marks | None = None
) -> str:
    """The bar, ``width`` characters (odd, so that there is a middle), of ``reach`` margins to each side."""
    marks = marks or Marks()
    ratio = line.null != 0.0
    edge = reach * math.log1p(margin) if ratio and margin > 0.0 else _own_reach(line)
    middle = width // 2

    def column(value: float) -> int:
        """Of a value; -1 and ``width`` stand for all that lies beyond."""
        if ratio and value <= 0.0:
            return -1
        place = (math.log(value) if ratio else value) / edge if edge > 0.0 else 0.0
        return middle + round(max(-1.0 - 1 / max(1, middle), min(1.0 + 1 / max(1, middle), place)) * middle)

    cells = [" "] * width
    bounded = line.low is not None or line.high is not None
    if bounded and line.before_blocks:
        _fill(cells, line.before_low, line.before_high, column, marks, marks.before)
    if ratio and margin > 0.0:
        for end in (1.0 / (1.0 + margin), 1.0 + margin):
            cells[column(end)] = marks.margin
    if bounded:
        _fill(cells, line.low, line.high, column, marks, marks.now)
    cells[middle] = marks.none
    if line.value is not None and math.isfinite(line.value):
        at = column(line.value)
        if 0 <= at < width:
            cells[at] = marks.estimate
        else:
            cells[max(0, min(width - 1, at))] = marks.left if at < 0 else marks.right
    return "".join(cells)


def _fill(
    cells: list[str],
    low: float | None,
    high: float | None,
    column: Callable[[float], int],
    marks: Marks,
    mark: str,
) -> None:
    last = len(cells) - 1
    first = -1 if low is None else column(low)
    end = last + 1 if high is None else column(high)
    for place in range(max(0, first), min(last, end) + 1):
        cells[place] = mark
    if first < 0:
        cells[0] = marks.left
    if end > last:
        cells[last] = marks.right


def _own_reach(line: EffectLine) -> float:
    ends = (line.low, line.high, line.value, line.before_low, line.before_high)
    if line.null != 0.0:
        return max((abs(math.log(end)) for end in ends if end is not None and end > 0.0), default=1.0)
    return max((abs(end) for end in ends if end is not None and math.isfinite(end)), default=1.0)
