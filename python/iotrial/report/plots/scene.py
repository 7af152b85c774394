"""A surface over file size and record size: heights, names, intervals, in a box, and their projection on the page.

The projection is orthographic and implemented here. Heights are logarithmic: equal steps are equal factors. A scene can
also be serialised as JSON, from which the page's script draws the same surface from other angles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iotrial.report.matrices import KIB, Matrix, Place, TestGrid
from iotrial.report.notation import plain
from iotrial.report.plots.canvas import MUTED, VERDICT_INKS, arm_ink, log_ticks, ratio_ticks, variable

#: the view: rotation of the box, and elevation of the viewer
AZIMUTH, ELEVATION = math.radians(33), math.radians(28)
#: depth and height of the box relative to its width of 1, and its size on the page
DEPTH, HIGH, SIZE = 1.043, 0.497, 1.14
_PAD = 1.12
_MOST_NAMED = 4
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Projection of heights between ``low`` and ``high`` (logarithms) over a grid of rows and columns onto the page."""

    rows: int
    columns: int
    low: float
    high: float

    def at(self, row: float, column: float, height: float) -> Point:
        """Project a place and a height. Row 0 is at the front, column 0 at the left."""
        x = column / max(1, self.columns - 1)
        y = row / max(1, self.rows - 1) * DEPTH
        z = self.share(height) * HIGH
        right = x * math.cos(AZIMUTH) + y * math.sin(AZIMUTH)
        back = y * math.cos(AZIMUTH) - x * math.sin(AZIMUTH)
        return SIZE * right, SIZE * (back * math.sin(ELEVATION) + z * math.cos(ELEVATION))

    def share(self, height: float) -> float:
        """Return 0 at the floor of the box, 1 at its top."""
        return (height - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval within the box, and the mark of its estimate: ``shape`` is a matplotlib marker."""

    place: Place
    low: float
    high: float
    ink: str
    shape: str
    hollow: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """One surface: ``heights`` (logarithms) by row and column, over a labelled grid; ``plane``: height of no difference."""

    title: str
    matrix: Matrix
    box: Box
    ticks: tuple[tuple[float, str], ...]
    heights: Mapping[Place, float]
    ink: str
    opacity: float = 0.28
    plane: float | None = None
    bars: tuple[Bar, ...] = ()

    def json(self) -> str:
        """Serialise for the page's script, with all coordinates as fractions of the box's edges."""
        rows, columns = max(1, self.box.rows - 1), max(1, self.box.columns - 1)

        def share(height: float) -> float:
            return round(self.box.share(height), 4)

        scene = {
            "view": [AZIMUTH, ELEVATION, DEPTH, HIGH, SIZE],
            "title": self.title,
            "ticks": [[share(height), text] for height, text in self.ticks],
            "records": [
                [round(j / columns, 4), self.matrix.record_labels[j]] for j in named(self.box.columns)
            ],
            "files": [[round(i / rows, 4), self.matrix.file_labels[i]] for i in named(self.box.rows)],
            "cells": [
                [i, j, round(j / columns, 4), round(i / rows, 4), share(height)]
                for (i, j), height in sorted(self.heights.items())
            ],
            "ink": variable(self.ink),
            "opacity": self.opacity,
            "plane": None if self.plane is None else share(self.plane),
            "bars": [
                [*bar.place, share(bar.low), share(bar.high), variable(bar.ink), bar.shape, bar.hollow]
                for bar in self.bars
            ],
        }
        return json.dumps(scene, separators=(",", ":"))


def can_be_drawn(matrix: Matrix) -> bool:
    """Return whether there is a surface: at least two file sizes by two record sizes with all four cells."""
    return any(quads(matrix, set(grid.cells)) for grid in matrix.tests)


def scenes(matrix: Matrix, grid: TestGrid, *, margin: float, valid: bool) -> tuple[Scene, Scene, Scene]:
    """Return the scenes of one test: both rates at the same scale, reference first, and the ratio of the times.

    The marks of the ratio show no verdict if the trial is not ``valid``.
    """
    return (*_rates(matrix, grid), _ratios(matrix, grid, margin=margin, valid=valid))


def _rates(matrix: Matrix, grid: TestGrid) -> tuple[Scene, Scene]:
    sides = [{place: pair[side] / KIB for place, pair in grid.rates.items()} for side in (0, 1)]
    low, high = _bounds([rate for side in sides for rate in side.values()])
    box = Box(len(matrix.files), len(matrix.records), low, high)
    ticks = _named_ticks(log_ticks(math.exp(low), math.exp(high)), plain)
    first, second = (
        Scene(
            f"{title}, MiB/s", matrix, box, ticks, {place: math.log(rate) for place, rate in side.items()}, arm_ink(n)
        )
        for n, (title, side) in enumerate(zip((matrix.reference, matrix.level), sides, strict=True))
    )  # fmt: skip
    return first, second


def _ratios(matrix: Matrix, grid: TestGrid, *, margin: float, valid: bool) -> Scene:
    """Return the ratio of times, with its intervals as bars, over a plane at 1."""
    known = {p: row.effect for p, row in grid.cells.items() if row.effect.value and row.effect.value > 0}
    ends = [end for e in known.values() for end in (e.value, e.low, e.high) if end is not None and end > 0]
    low, high = _bounds([*ends, 1 / (1 + 2 * margin), 1 + 2 * margin])
    bars = []
    for place, effect in sorted(known.items(), reverse=True):
        verdict = effect.conclusion.words if valid and not effect.conclusion.open else "undecided"
        least = math.log(effect.low) if effect.low is not None and effect.low > 0 else low
        most = math.log(effect.high) if effect.high is not None else high
        shape = {"faster": "v", "slower": "^", "equivalent": "s", "typical runs equivalent": "s"}.get(
            verdict, "o"
        )
        ink = VERDICT_INKS.get(verdict, MUTED)
        bars.append(Bar(place, max(low, least), min(high, most), ink, shape, verdict == "undecided"))
    return Scene(
        title=f"time of {matrix.level} / {matrix.reference}",
        matrix=matrix,
        box=Box(len(matrix.files), len(matrix.records), low, high),
        ticks=_named_ticks(ratio_ticks(math.exp(low), math.exp(high)), lambda ratio: f"{ratio:g}"),
        heights={place: math.log(effect.value or 1.0) for place, effect in known.items()},
        ink=VERDICT_INKS["equivalent"],
        opacity=0.16,
        plane=0.0,
        bars=tuple(bars),
    )


def _named_ticks(ticks: Sequence[float], say: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    return tuple((math.log(tick), say(tick)) for tick in ticks)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the logarithms of the ends of an axis that contains all values and has a non-zero length."""
    low, high = min(values, default=1.0), max(values, default=2.0)
    return math.log(low / _PAD), math.log(high * _PAD)


def named(count: int) -> list[int]:
    """Return which of ``count`` places along an edge get a label: both ends, and some between at even steps."""
    if count < 2:
        return [0]
    steps = next(n for n in range(min(count, _MOST_NAMED) - 1, 0, -1) if (count - 1) % n == 0)
    return list(range(0, count, (count - 1) // steps))


def quads(matrix: Matrix, there: set[Place]) -> list[tuple[Place, Place, Place, Place]]:
    """Return the squares with all four corners, from back to front and left to right."""
    found = []
    for i in reversed(range(len(matrix.files) - 1)):
        for j in range(len(matrix.records) - 1):
            corners = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
            if all(corner in there for corner in corners):
                found.append(corners)
    return found
