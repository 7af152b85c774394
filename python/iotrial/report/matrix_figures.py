"""The figures of matrices, with a sentence on what each shows and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.report.document import Document
from iotrial.report.figure import Figure, Row, stem
from iotrial.report.findings import strength
from iotrial.report.matrices import LEGEND, Matrix, TestGrid, count_words, matrix_sentence
from iotrial.report.notation import percent, plain
from iotrial.report.phrases import interval
from iotrial.report.plots.heat import heat_maps
from iotrial.report.plots.scene import can_be_drawn, scenes
from iotrial.report.plots.surface import surface
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
