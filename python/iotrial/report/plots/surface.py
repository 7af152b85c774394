"""Surfaces over file size and record size, drawn flat, so that a page needs neither script nor library to show them.

Painter's algorithm: what lies behind is drawn first and covered by what is in front of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from iotrial.report.matrices import Matrix, Place
from iotrial.report.plots.canvas import BAND, FONT_PT, INK, LINE, MUTED, PAPER, Drawing, draw
from iotrial.report.plots.scene import Bar, Box, Point, Scene, named, quads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (2.6, 1.95)


def surface(name: str, scene: Scene, *, description: str) -> Drawing:
    """Draw the scene from its initial angle."""

    def paint(figure: Figure) -> None:
        axes = _panel(figure, scene.title)
        _frame(axes, scene.matrix, scene.box, scene.ticks)
        if scene.plane is not None:
            _plane(axes, scene.matrix, scene.box, scene.plane)
        _surface(axes, scene.matrix, scene.box, scene.heights, scene.ink, opacity=scene.opacity)
        for bar in scene.bars:
            _bar(axes, scene.box, bar, scene.heights[bar.place])

    return draw(name, SIZE_IN, paint, description=f"{scene.title}: {description}")


def _panel(figure: Figure, title: str) -> Axes:
    axes = figure.add_axes((0.0, 0.0, 1.0, 0.9))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-0.34, 1.95)
    axes.set_ylim(-0.5, 1.0)
    axes.set_title(title, fontsize=FONT_PT, color=INK, loc="left", y=1.0, pad=2)
    return axes


def _bar(axes: Axes, box: Box, bar: Bar, height: float) -> None:
    foot, top = box.at(*bar.place, bar.low), box.at(*bar.place, bar.high)
    axes.plot(
        [foot[0], top[0]], [foot[1], top[1]], color=bar.ink, linewidth=1.5, solid_capstyle="butt", zorder=30
    )
    dot = box.at(*bar.place, height)
    axes.plot(
        [dot[0]], [dot[1]], marker=bar.shape, markersize=3.6, color=bar.ink, linewidth=0, markeredgewidth=0.9,
        markerfacecolor=PAPER if bar.hollow else bar.ink, zorder=31,
    )  # fmt: skip


def _frame(axes: Axes, matrix: Matrix, box: Box, ticks: Sequence[tuple[float, str]]) -> None:
    """Draw the floor with its labels, and the two walls behind with lines of equal height."""
    last_row, last_column = box.rows - 1, box.columns - 1
    small = FONT_PT - 2
    floor = [(0, 0), (0, last_column), (last_row, last_column), (last_row, 0)]
    _polygon(axes, [box.at(i, j, box.low) for i, j in floor], fill=BAND, opacity=0.5, zorder=1)
    for height, text in ticks:
        wall = [box.at(0, 0, height), box.at(last_row, 0, height), box.at(last_row, last_column, height)]
        axes.plot([x for x, _ in wall], [y for _, y in wall], color=LINE, linewidth=0.6, zorder=2)
        x, y = wall[0]
        axes.text(x - 0.03, y, text, fontsize=small, color=MUTED, ha="right", va="center")
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


def _surface(
    axes: Axes, matrix: Matrix, box: Box, heights: Mapping[Place, float], ink: str, *, opacity: float = 0.28
) -> None:
    """Draw the surface's squares, those at the back first, and every place as a small dot."""
    depth = 10.0
    for quad in quads(matrix, set(heights)):
        corners = [box.at(*place, heights[place]) for place in quad]
        _polygon(axes, corners, fill=PAPER, opacity=0.7, zorder=depth)
        _polygon(axes, corners, fill=ink, opacity=opacity, zorder=depth + 0.001, edge=ink)
        depth += 0.01
    for place, height in heights.items():
        x, y = box.at(*place, height)
        axes.plot([x], [y], marker="o", markersize=2.0, color=ink, linewidth=0, zorder=20)


def _plane(axes: Axes, matrix: Matrix, box: Box, height: float) -> None:
    """Draw the plane of no difference."""
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
