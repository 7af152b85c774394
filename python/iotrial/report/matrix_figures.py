"""The figures of matrices, with captions and the tables behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.report.document import Document
from iotrial.report.matrices import LEGEND, Matrix, TestGrid, said, table_of
from iotrial.report.notation import percent, plain
from iotrial.report.phrases import interval

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_MATRICES = 6
MOST_SURFACES = 30
_NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class SurfaceFigure:
    """One test: rates of both treatments and their ratio as surfaces (none where there are none), and all numbers."""

    test: str
    surfaces: tuple[Markup, ...]
    caption: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class MatrixFigures:
    """One matrix: heat maps of all tests, then each test by itself."""

    title: str
    wide: Markup
    narrow: Markup
    caption: str
    level: str
    reference: str
    tests: tuple[SurfaceFigure, ...]


def matrix_figures(document: Document) -> tuple[MatrixFigures, ...]:
    """The figures of every matrix of the trial, at most ``MOST_MATRICES``."""
    return tuple(
        _figures(document, number, matrix) for number, matrix in enumerate(document.matrices[:MOST_MATRICES])
    )


def _figures(document: Document, number: int, matrix: Matrix) -> MatrixFigures:
    from markupsafe import Markup

    from iotrial.report.plots.heat import heat_maps

    margin = document.trial.header.margin
    caption = (
        f"{said(matrix)}. Each cell is the ratio of times, {matrix.level} over {matrix.reference}: {LEGEND}. The colour "
        f"grows stronger up to a factor of two; the margin is {percent(margin)}."
    )
    if not document.valid:
        caption = f"The trial is invalid: these are ratios without a verdict. {caption}"
    maps = [
        Markup(
            heat_maps(
                f"matrix-{number}{end}", matrix, valid=document.valid, description=caption, narrow=bool(end)
            )
        )
        for end in ("", "-narrow")
    ]
    return MatrixFigures(
        title=matrix.title,
        wide=maps[0],
        narrow=maps[1],
        caption=caption,
        level=matrix.level,
        reference=matrix.reference,
        tests=tuple(
            _surfaces(
                document,
                f"surface-{number}-{at}",
                matrix,
                grid,
                drawn=number * len(matrix.tests) + at < MOST_SURFACES,
            )
            for at, grid in enumerate(matrix.tests)
        ),
    )


def _surfaces(document: Document, name: str, matrix: Matrix, grid: TestGrid, *, drawn: bool) -> SurfaceFigure:
    from markupsafe import Markup

    from iotrial.report.plots.surface import can_be_drawn, rates, ratios

    caption = (
        f"{grid.test}: the rate of {matrix.reference}, that of {matrix.level} at the same scale, and the ratio of their "
        f"times. Bars are intervals, the dashed plane is no difference; a triangle down is {matrix.level} faster, up slower, "
        "a square the same within the margin, a hollow dot not settled."
    )
    figures: tuple[str, ...] = ()
    if drawn and can_be_drawn(matrix):
        margin = document.trial.header.margin
        figures = (
            *rates(name, matrix, grid, description=caption),
            ratios(f"{name}-ratio", matrix, grid, margin=margin, description=caption),
        )
    return SurfaceFigure(
        grid.test, tuple(map(Markup, figures)), caption, tuple(_rows(document, matrix, grid))
    )


def _rows(document: Document, matrix: Matrix, grid: TestGrid) -> list[tuple[str, ...]]:
    """File, record, both rates, ratio with interval, verdict."""
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


def tables(document: Document, matrix: Matrix) -> list[list[list[str]]]:
    """The compact tables of a matrix, one a test, for reports of text."""
    return [table_of(matrix, grid, valid=document.valid) for grid in matrix.tests]
