"""The figures of matrices, with a sentence on what each shows and the tables behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.report.axes import Axis
from iotrial.report.chart import (
    BAND,
    INK,
    LINE,
    MUTED,
    NARROW,
    PAPER,
    RULE,
    VERDICT_INKS,
    WIDE,
    Chart,
    Curve,
    Mark,
    Pane,
    Points,
    Rect,
    Text,
    distinct,
    sheet,
    text_width,
)
from iotrial.report.document import Document
from iotrial.report.figure import Figure, Row, stem
from iotrial.report.findings import strength
from iotrial.report.matrices import LEGEND, Matrix, TestGrid, count_words, mark, matrix_sentence
from iotrial.report.notation import percent, plain
from iotrial.report.phrases import interval
from iotrial.report.scene import Scene, can_be_drawn, named, quads, scenes
from iotrial.stats.model import QUIET

MOST_MATRICES = 6
MOST_SURFACES = 30
COLUMNS = (
    "test", "file [bytes]", "record [bytes]", "reference", "level", "reference [KiB/s]", "level [KiB/s]",
    "ratio of times", "low", "high", "verdict",
)  # fmt: skip
_NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class TestFigure:
    """One test: surfaces of both treatments' rates and of their ratio (None if not drawn), and all numbers.

    ``scenes`` describe the surfaces to the page's script, one per part of the figure.
    """

    test: str
    surfaces: Figure | None
    scenes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class MatrixFigures:
    """One matrix: heat maps of all tests, then each test separately."""

    title: str
    maps: Figure
    level: str
    reference: str
    tests: tuple[TestFigure, ...]

    def every(self) -> Iterator[Figure]:
        """Yield each figure, in the order of the page."""
        yield self.maps
        yield from (one.surfaces for one in self.tests if one.surfaces is not None)


def matrix_figures(document: Document) -> tuple[MatrixFigures, ...]:
    """Return the figures of every matrix of the trial, at most ``MOST_MATRICES``."""
    return tuple(
        _figures(document, number, matrix) for number, matrix in enumerate(document.matrices[:MOST_MATRICES])
    )


def _figures(document: Document, number: int, matrix: Matrix) -> MatrixFigures:
    margin = document.trial.header.margin
    sentence = _seen(matrix.tests, matrix, matrix_sentence(matrix), valid=document.valid)
    reading = (
        f"Each cell is the ratio of times, {matrix.level} over {matrix.reference}: {LEGEND}. Colours saturate "
        f"at a factor of two; the margin is {percent(margin)}."
    )
    wide, narrow = (
        heat_maps(
            f"matrix-{number}{end}",
            matrix,
            valid=document.valid,
            description=f"{sentence} {reading}",
            narrow=bool(end),
        )
        for end in ("", "-narrow")
    )
    maps = Figure(
        stem=stem("matrix", matrix.title),
        title=_question(matrix, "at each size"),
        sentence=sentence,
        reading=reading,
        columns=COLUMNS,
        rows=tuple(row for grid in matrix.tests for row in _data(matrix, grid, valid=document.valid)),
        parts=(wide,),
        narrow=narrow,
    )
    return MatrixFigures(
        title=matrix.title,
        maps=maps,
        level=matrix.level,
        reference=matrix.reference,
        tests=tuple(
            _test(
                document,
                f"surface-{number}-{at}",
                matrix,
                grid,
                drawn=number * len(matrix.tests) + at < MOST_SURFACES,
            )
            for at, grid in enumerate(matrix.tests)
        ),
    )


def _question(matrix: Matrix, where: str) -> str:
    question = f"How does {matrix.level} compare with {matrix.reference} {where}?"
    return f"{question} ({matrix.title})" if matrix.title else question


def _test(document: Document, name: str, matrix: Matrix, grid: TestGrid, *, drawn: bool) -> TestFigure:
    rows = tuple(_rows(document, matrix, grid))
    if not drawn or not can_be_drawn(matrix):
        return TestFigure(grid.test, None, (), rows)
    made = scenes(matrix, grid, margin=document.trial.header.margin, valid=document.valid)
    sentence = _seen((grid,), matrix, f"{grid.test}: {count_words((grid,))}", valid=document.valid)
    reading = (
        f"The rate of {matrix.reference}, that of {matrix.level} on the same scale, and the ratio of their "
        f"times. Bars are intervals, the dashed plane is no difference; a triangle down is {matrix.level} faster, up slower, "
        "a square the same within the margin, a hollow dot undecided."
    )
    figure = Figure(
        stem=stem("surface", grid.test, matrix.title),
        title=_question(matrix, f"in {grid.test}"),
        sentence=sentence,
        reading=reading,
        columns=COLUMNS,
        rows=_data(matrix, grid, valid=document.valid),
        parts=tuple(
            surface(f"{name}-{part}", scene, description=f"{sentence} {reading}")
            for part, scene in enumerate(made)
        ),
    )
    return TestFigure(grid.test, figure, tuple(scene.json() for scene in made), rows)


def _seen(grids: Sequence[TestGrid], matrix: Matrix, counts: str, *, valid: bool) -> str:
    """Return the counts of verdicts, and the cell farthest from 1 among those with a verdict of an effect."""
    if not valid:
        return "The trial is invalid: these ratios have no verdict."
    loud = [
        (grid, place, row)
        for grid in grids
        for place, row in grid.cells.items()
        if row.effect.verdict not in QUIET and row.effect.value
    ]
    if not loud:
        return f"{counts}."
    grid, (i, j), row = max(loud, key=lambda found: strength(found[2].effect))
    test = "" if len(grids) == 1 else f"{grid.test}, "
    return (
        f"{counts}. Farthest from 1 is {test}file {matrix.file_labels[i]}, record {matrix.record_labels[j]}: "
        f"{interval(row.effect)} ({row.verdict})."
    )


def _data(matrix: Matrix, grid: TestGrid, *, valid: bool) -> tuple[Row, ...]:
    return tuple(
        (
            grid.test, matrix.files[i], matrix.records[j], matrix.reference, matrix.level,
            *grid.rates.get((i, j), (None, None)), row.effect.value, row.effect.low, row.effect.high,
            row.verdict if valid else "no verdict",
        )
        for (i, j), row in sorted(grid.cells.items())
    )  # fmt: skip


def _rows(document: Document, matrix: Matrix, grid: TestGrid) -> list[tuple[str, ...]]:
    """Return rows of file, record, both rates, ratio with interval, verdict."""
    found = []
    for (i, j), row in sorted(grid.cells.items()):
        rates = [_whole(rate) for rate in grid.rates.get((i, j), ())] or ["–", "–"]
        verdict = row.verdict if document.valid else "no verdict"
        sizes = (matrix.file_labels[i], matrix.record_labels[j])
        names = (size.replace(" ", _NO_BREAK) for size in sizes)
        found.append((*names, *rates, interval(row.effect), verdict))
    return found


def _whole(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else plain(rate)


# charts

_CELL_HIGH = 24
_FAINTEST, _STRONGEST = 0.10, 0.55
#: a ratio of two (or a half) has the full colour
_FULL = math.log(2.0)


def heat_maps(name: str, matrix: Matrix, *, valid: bool, description: str, narrow: bool = False) -> Chart:
    """Draw all tests of a matrix side by side: rows are file sizes (the smallest at the bottom), columns record sizes."""
    width = NARROW if narrow else WIDE
    left, gap = max(map(text_width, matrix.file_labels)) + 8, 14
    records, files = matrix.record_labels, matrix.file_labels
    cell = max(58.0, *(text_width(label) + 6 for label in records))
    columns = max(1, min(len(matrix.tests), int((width - left + gap) / (cell * len(records) + gap))))
    cell = min(cell * 1.6, (width - left + gap) / columns / len(records) - gap / len(records))
    shown = max(1, math.ceil((max(map(text_width, records)) + 6) / cell))  # every n-th record is named
    tall, line = _CELL_HIGH * len(files), _CELL_HIGH * len(files) + 2 * LINE + 22
    panes: list[Pane] = []
    titles: list[Mark] = []
    for number, grid in enumerate(matrix.tests):
        row, column = divmod(number, columns)
        x, y = left + column * (cell * len(records) + gap), row * line + LINE + 8
        titles.append(Text(x, y - LINE / 2 - 2, grid.test, bold=True))
        across = Axis(
            0, len(records), ticks=tuple((j + 0.5, text) for j, text in enumerate(records) if j % shown == 0), grid=False
        )  # fmt: skip
        up = Axis(
            0, len(files), ticks=tuple((i + 0.5, text) for i, text in enumerate(files)), grid=False, labelled=column == 0
        )  # fmt: skip
        marks = tuple(_cells(grid, valid=valid, room=cell - 4))
        panes.append(Pane(x, y, cell * len(records), tall, across, up, marks))
    height = math.ceil(len(matrix.tests) / columns) * line
    kind = "narrow" if narrow else "wide"
    return Chart(name, width, height, (*panes, sheet(width, height, titles)), description, kind)


def _cells(grid: TestGrid, *, valid: bool, room: float) -> Iterator[Mark]:
    for (i, j), row in sorted(grid.cells.items()):
        verdict = row.effect.conclusion.words if valid and not row.effect.conclusion.open else "undecided"
        ink = VERDICT_INKS.get(verdict, MUTED)
        equal = valid and row.effect.conclusion.equivalent
        quiet = equal or verdict == "undecided"
        fill = "" if quiet and not equal else ink
        edge = ink if verdict != "undecided" else RULE
        yield Rect(j, j + 1, i, i + 1, fill, cell_opacity(row.effect.value, quiet=quiet), edge, shrink=1)
        text = _text(row.effect.value, mark(row) if valid else "", room)
        yield Text(j + 0.5, i + 0.5, text, MUTED if verdict == "undecided" else INK, "middle")


def cell_opacity(ratio: float | None, *, quiet: bool) -> float:
    """Return the opacity of a cell: by the logarithm of its ratio, full at a factor of two; quiet ones are faint."""
    if quiet or ratio is None or ratio <= 0:
        return _FAINTEST
    share = min(1.0, abs(math.log(ratio)) / _FULL)
    return _FAINTEST + (_STRONGEST - _FAINTEST) * share


def _text(ratio: float | None, sign: str, room: float) -> str:
    """Return the ratio and the sign of its verdict, with as many digits as fit; the sign alone if none do."""
    if ratio is None:
        return f"? {sign}".rstrip()
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    texts = [f"{ratio:.{n}f} {sign}".rstrip() for n in range(digits, -1, -1) if n or ratio >= 10]
    return next((text for text in texts if text_width(text) <= room), sign or "·")


#: the page's script draws with the same numbers (templates/turning.js)
SURFACE = (300, 214)
_PER_UNIT, _LEFT, _BASE = 112.0, 0.5, 134.0


def surface(name: str, scene: Scene, *, description: str) -> Chart:
    """Draw the scene from its initial angle: what lies behind is drawn first and covered by what is in front of it."""
    box, matrix = scene.box, scene.matrix

    def at(row: float, column: float, height: float) -> tuple[float, float]:
        right, up = box.at(row, column, height)
        return _PER_UNIT * (right + _LEFT), _BASE - _PER_UNIT * up

    def line(places: Sequence[tuple[float, float]], ink: str, width: float, dash: str = "") -> Curve:
        return Curve([x for x, _ in places], [y for _, y in places], ink, width, dash)

    def area(places: Sequence[tuple[float, float]], fill: str, opacity: float, edge: str = "") -> Curve:
        return Curve([x for x, _ in places], [y for _, y in places], edge, 0.9, opacity=opacity, fill=fill)

    last, end = box.rows - 1, box.columns - 1
    floor = ((0, 0), (0, end), (last, end), (last, 0))
    (title,) = distinct([scene.title], SURFACE[0])
    marks: list[Mark] = [Text(0, 12, title), area([at(i, j, box.low) for i, j in floor], BAND, 0.5)]
    for height, text in scene.ticks:
        wall = [at(0, 0, height), at(last, 0, height), at(last, end, height)]
        marks.append(line(wall, RULE, 0.8))
        marks.append(Text(*wall[0], text, MUTED, "end", dx=-5))
    marks += [
        line([at(i, j, box.low), at(i, j, box.high)], RULE, 0.8) for i, j in ((0, 0), (last, 0), (last, end))
    ]
    for j in named(box.columns):
        marks.append(Text(*at(0, j, box.low), matrix.record_labels[j], MUTED, "end", dx=3, dy=10))
    for i in named(box.rows):
        marks.append(Text(*at(i, end, box.low), matrix.file_labels[i], MUTED, dx=7, dy=3))
    marks.append(Text(*at(0, end / 2, box.low), "record", MUTED, "middle", italic=True, dx=-16, dy=32))
    marks.append(Text(*at(last / 2, end, box.low), "file", MUTED, italic=True, dx=22, dy=24))
    if scene.plane is not None:
        around = [at(i, j, scene.plane) for i, j in floor]
        marks.append(line([*around, around[0]], MUTED, 1.1, "4 3"))
    for quad in quads(matrix, set(scene.heights)):
        corners = [at(*place, scene.heights[place]) for place in quad]
        marks += [area(corners, PAPER, 0.7), area(corners, scene.ink, scene.opacity, scene.ink)]
    dots = [at(*place, height) for place, height in scene.heights.items()]
    if dots:
        marks.append(Points([x for x, _ in dots], [y for _, y in dots], scene.ink, "o", 1.7))
    for bar in scene.bars:
        marks.append(line([at(*bar.place, bar.low), at(*bar.place, bar.high)], bar.ink, 2.0))
        x, y = at(*bar.place, scene.heights[bar.place])
        marks.append(Points([x], [y], bar.ink, bar.shape, 3.0, bar.hollow))
    width, height = SURFACE
    return Chart(name, width, height, (sheet(width, height, marks),), f"{scene.title}: {description}")
