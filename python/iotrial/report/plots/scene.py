"""What a surface over file size and record size shows: heights, names, intervals, in a box; and where that lies on a page.

The projection is orthographic and our own. Heights are logarithmic: a step up is the same factor everywhere. A scene also
tells itself as JSON: with it the page's script draws the same from other sides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iotrial.report.matrices import KIB, Matrix, Place, TestGrid
from iotrial.report.notation import plain
from iotrial.report.plots.canvas import MUTED, VERDICT_INKS, arm_ink, log_ticks, ratio_ticks, variable

#: the view: how far the box is turned, and from how high above it is seen
AZIMUTH, ELEVATION = math.radians(33), math.radians(28)
#: the box is 1 wide; how deep and how high it is, and how large on the page
DEPTH, HIGH, SIZE = 1.043, 0.497, 1.14
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
        y = row / max(1, self.rows - 1) * DEPTH
        z = self.share(height) * HIGH
        right = x * math.cos(AZIMUTH) + y * math.sin(AZIMUTH)
        back = y * math.cos(AZIMUTH) - x * math.sin(AZIMUTH)
        return SIZE * right, SIZE * (back * math.sin(ELEVATION) + z * math.cos(ELEVATION))

    def share(self, height: float) -> float:
        """0 at the floor of the box, 1 at its top."""
        return (height - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval, within the box, and the mark of its estimate: ``shape`` as matplotlib calls it."""

    place: Place
    low: float
    high: float
    ink: str
    shape: str
    hollow: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """One surface: ``heights`` (logarithms) by row and column, over a grid with names; ``plane`` is where nothing differs."""

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
        """For the page's script: everything between 0 and 1 along its edge of the box."""
        rows, columns = max(1, self.box.rows - 1), max(1, self.box.columns - 1)

        def share(height: float) -> float:
            return round(self.box.share(height), 4)

        told = {
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
        return json.dumps(told, separators=(",", ":"))


def can_be_drawn(matrix: Matrix) -> bool:
    """Whether there is a surface at all: two file sizes by two record sizes at least, all four there."""
    return any(quads(matrix, set(grid.cells)) for grid in matrix.tests)


def scenes(matrix: Matrix, grid: TestGrid, *, margin: float, valid: bool) -> tuple[Scene, Scene, Scene]:
    """Of one test: the rate of the reference, that of the level at the same scale, and the ratio of their times, whose marks
    tell no verdict where the trial is not ``valid``."""
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
    """The ratio of times, with its intervals as bars, over a plane at 1."""
    known = {p: row.effect for p, row in grid.cells.items() if row.effect.value and row.effect.value > 0}
    ends = [end for e in known.values() for end in (e.value, e.low, e.high) if end is not None and end > 0]
    low, high = _bounds([*ends, 1 / (1 + 2 * margin), 1 + 2 * margin])
    bars = []
    for place, effect in sorted(known.items(), reverse=True):
        verdict = effect.conclusion.words if valid else "undecided"
        least = math.log(effect.low) if effect.low is not None and effect.low > 0 else low
        most = math.log(effect.high) if effect.high is not None else high
        shape = {"faster": "v", "slower": "^", "equivalent": "s"}.get(verdict, "o")
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
    """Logarithms of the ends of an axis that holds all values and is nowhere flat."""
    low, high = min(values, default=1.0), max(values, default=2.0)
    return math.log(low / _PAD), math.log(high * _PAD)


def named(count: int) -> list[int]:
    """Of so many places along an edge those whose names have room: both ends, and some between at even steps."""
    if count < 2:
        return [0]
    steps = next(n for n in range(min(count, _MOST_NAMED) - 1, 0, -1) if (count - 1) % n == 0)
    return list(range(0, count, (count - 1) // steps))


def quads(matrix: Matrix, there: set[Place]) -> list[tuple[Place, Place, Place, Place]]:
    """The squares of which all four corners are there, from the back to the front and from the left to the right."""
    found = []
    for i in reversed(range(len(matrix.files) - 1)):
        for j in range(len(matrix.records) - 1):
            corners = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
            if all(corner in there for corner in corners):
                found.append(corners)
    return found
