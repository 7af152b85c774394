"""Surfaces over file size and record size, seen from above one corner: rates of both treatments, their ratio with intervals.

Drawn flat, by an axonometric projection of our own, so that a page needs neither script nor library to show them. What lies
behind is drawn first and covered by what stands before it. Heights are logarithmic: a step up is the same factor everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.report.matrices import KIB, Matrix, Place, TestGrid
from iotrial.report.notation import plain
from iotrial.report.plots.axis import log_ticks, ratio_ticks
from iotrial.report.plots.canvas import BAND, FONT_PT, INK, LINE, MUTED, PAPER, VERDICT_INKS, arm_ink, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (2.6, 1.95)
#: the view: to the right go the records, to the back the files; angles of both on the page
_RIGHT, _BACK = math.radians(-17), math.radians(36)
_DEPTH = 0.8
_HIGH = 0.5
_PAD = 1.12
_MOST_NAMED = 4
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Where heights between ``low`` and ``high`` (logarithms) over a grid of rows and columns lie on the page."""

    rows: int
    columns: int
    low: float
    high: float

    def at(self, row: float, column: float, height: float) -> Point:
        """The point of a place and a height. Row 0 is at the front, column 0 at the left."""
        x = column / max(1, self.columns - 1)
        y = row / max(1, self.rows - 1) * _DEPTH
        z = (height - self.low) / (self.high - self.low) * _HIGH
        return (
            x * math.cos(_RIGHT) + y * math.cos(_BACK),
            x * math.sin(_RIGHT) + y * math.sin(_BACK) + z,
        )


def can_be_drawn(matrix: Matrix) -> bool:
    """Whether there is a surface at all: two file sizes by two record sizes at least, all four there."""
    return any(_quads(matrix, set(grid.cells)) for grid in matrix.tests)


def rates(name: str, matrix: Matrix, grid: TestGrid, *, description: str) -> tuple[str, str]:
    """Two surfaces of one test at the same scale: the rate of the reference, and that of the level."""
    sides = [{place: pair[side] / KIB for place, pair in grid.rates.items()} for side in (0, 1)]
    low, high = _bounds([rate for side in sides for rate in side.values()])
    box = Box(len(matrix.files), len(matrix.records), low, high)

    def drawn(number: int, title: str) -> str:
        def paint(figure: Figure) -> None:
            axes = _panel(figure, f"{title}, MiB/s")
            _frame(axes, matrix, box, log_ticks(math.exp(low), math.exp(high)), plain)
            heights = {place: math.log(rate) for place, rate in sides[number].items()}
            _surface(axes, matrix, box, heights, arm_ink(number))

        return draw(f"{name}-{number}", SIZE_IN, paint, description=f"{title}: {description}")

    return drawn(0, matrix.reference), drawn(1, matrix.level)


def ratios(name: str, matrix: Matrix, grid: TestGrid, *, margin: float, description: str) -> str:
    """The ratio of times as a surface, with its intervals as bars, over a plane at 1."""
    title = f"time of {matrix.level} / {matrix.reference}"

    def paint(figure: Figure) -> None:
        _ratios(_panel(figure, title), matrix, grid, margin=margin)

    return draw(name, SIZE_IN, paint, description=f"{title}: {description}")


def _panel(figure: Figure, title: str) -> Axes:
    axes = figure.add_axes((0.0, 0.0, 1.0, 0.9))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-0.34, 1.95)
    axes.set_ylim(-0.5, 1.0)
    axes.set_title(title, fontsize=FONT_PT, color=INK, loc="left", y=1.0, pad=2)
    return axes


def _ratios(axes: Axes, matrix: Matrix, grid: TestGrid, *, margin: float) -> None:
    known = {p: row.effect for p, row in grid.cells.items() if row.effect.value and row.effect.value > 0}
    ends = [end for e in known.values() for end in (e.value, e.low, e.high) if end is not None and end > 0]
    low, high = _bounds([*ends, 1 / (1 + 2 * margin), 1 + 2 * margin])
    box = Box(len(matrix.files), len(matrix.records), low, high)
    _frame(axes, matrix, box, ratio_ticks(math.exp(low), math.exp(high)), lambda ratio: f"{ratio:g}")
    _plane(axes, matrix, box, 0.0)
    heights = {place: math.log(effect.value or 1.0) for place, effect in known.items()}
    _surface(axes, matrix, box, heights, VERDICT_INKS["equivalent"], opacity=0.16)
    for place, effect in sorted(known.items(), reverse=True):
        ink = VERDICT_INKS.get(effect.verdict.value, MUTED)
        least = math.log(effect.low) if effect.low is not None and effect.low > 0 else low
        most = math.log(effect.high) if effect.high is not None else high
        foot, top = box.at(*place, max(low, least)), box.at(*place, min(high, most))
        axes.plot(
            [foot[0], top[0]], [foot[1], top[1]], color=ink, linewidth=1.5, solid_capstyle="butt", zorder=30
        )
        dot = box.at(*place, heights[place])
        hollow = effect.verdict.value == "inconclusive"
        shape = {"faster": "v", "slower": "^", "equivalent": "s"}.get(effect.verdict.value, "o")
        axes.plot(
            [dot[0]], [dot[1]], marker=shape, markersize=3.6, color=ink, linewidth=0, markeredgewidth=0.9,
            markerfacecolor=PAPER if hollow else ink, zorder=31,
        )  # fmt: skip


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of an axis that holds all values and is nowhere flat."""
    low, high = min(values, default=1.0), max(values, default=2.0)
    return math.log(low / _PAD), math.log(high * _PAD)


def _frame(axes: Axes, matrix: Matrix, box: Box, ticks: Sequence[float], say: Callable[[float], str]) -> None:
    """The floor with its names, and the two walls behind with their lines of equal height."""
    last_row, last_column = box.rows - 1, box.columns - 1
    small = FONT_PT - 2
    floor = [(0, 0), (0, last_column), (last_row, last_column), (last_row, 0)]
    _polygon(axes, [box.at(i, j, box.low) for i, j in floor], fill=BAND, opacity=0.5, zorder=1)
    for tick in ticks:
        height = math.log(tick)
        wall = [box.at(0, 0, height), box.at(last_row, 0, height), box.at(last_row, last_column, height)]
        axes.plot([x for x, _ in wall], [y for _, y in wall], color=LINE, linewidth=0.6, zorder=2)
        x, y = wall[0]
        axes.text(x - 0.03, y, say(tick), fontsize=small, color=MUTED, ha="right", va="center")
    for i, j in ((0, 0), (last_row, 0), (last_row, last_column)):
        foot, top = box.at(i, j, box.low), box.at(i, j, box.high)
        axes.plot([foot[0], top[0]], [foot[1], top[1]], color=LINE, linewidth=0.6, zorder=2)
    for j in named(box.columns):
        x, y = box.at(0, j, box.low)
        label = matrix.record_labels[j]
        axes.text(x + 0.02, y - 0.03, label, fontsize=small, color=MUTED, ha="right", va="top")
    for i in named(box.rows):
        x, y = box.at(i, last_column, box.low)
        label = matrix.file_labels[i]
        axes.text(x + 0.05, y - 0.01, label, fontsize=small, color=MUTED, ha="left", va="center")
    x, y = box.at(0, last_column / 2, box.low)
    axes.text(
        x - 0.12, y - 0.17, "record", fontsize=small, color=MUTED, ha="center", va="top", style="italic"
    )
    x, y = box.at(last_row / 2, last_column, box.low)
    axes.text(x + 0.12, y - 0.16, "file", fontsize=small, color=MUTED, ha="left", va="center", style="italic")


def named(count: int) -> list[int]:
    """Of so many places along an edge those whose names have room: both ends, and some between at even steps."""
    if count < 2:
        return [0]
    steps = next(n for n in range(min(count, _MOST_NAMED) - 1, 0, -1) if (count - 1) % n == 0)
    return list(range(0, count, (count - 1) // steps))


def _surface(
    axes: Axes, matrix: Matrix, box: Box, heights: Mapping[Place, float], ink: str, *, opacity: float = 0.28
) -> None:
    """Its squares, those at the back first; and every place as a small dot on the lines."""
    depth = 10.0
    for quad in _quads(matrix, set(heights)):
        corners = [box.at(*place, heights[place]) for place in quad]
        _polygon(axes, corners, fill=PAPER, opacity=0.7, zorder=depth)
        _polygon(axes, corners, fill=ink, opacity=opacity, zorder=depth + 0.001, edge=ink)
        depth += 0.01
    for place, height in heights.items():
        x, y = box.at(*place, height)
        axes.plot([x], [y], marker="o", markersize=2.0, color=ink, linewidth=0, zorder=20)


def _plane(axes: Axes, matrix: Matrix, box: Box, height: float) -> None:
    """Where there is no difference."""
    rows, columns = len(matrix.files) - 1, len(matrix.records) - 1
    corners = [box.at(i, j, height) for i, j in ((0, 0), (0, columns), (rows, columns), (rows, 0))]
    around = [*corners, corners[0]]
    axes.plot(
        [x for x, _ in around],
        [y for _, y in around],
        color=MUTED,
        linewidth=0.8,
        linestyle=(0, (3, 2)),
        zorder=5,
    )


def _quads(matrix: Matrix, there: set[Place]) -> list[tuple[Place, Place, Place, Place]]:
    """The squares of which all four corners are there, from the back to the front and from the left to the right."""
    found = []
    for i in reversed(range(len(matrix.files) - 1)):
        for j in range(len(matrix.records) - 1):
            corners = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
            if all(corner in there for corner in corners):
                found.append(corners)
    return found


def _polygon(
    axes: Axes, corners: Sequence[Point], *, fill: str, opacity: float, zorder: float, edge: str | None = None
) -> None:
    from matplotlib.patches import Polygon

    axes.add_patch(
        Polygon(
            list(corners), closed=True, facecolor=(fill, opacity), edgecolor=edge or "none",
            linewidth=0.7 if edge else 0.0, zorder=zorder,
        )
    )  # fmt: skip
