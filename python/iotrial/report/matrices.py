"""Matrices: the effects of a ``matrix`` workload as tables of file size by record size, one for each test.

Effects are taken from the analysis unchanged. Added here are rates, as iozone prints them: KiB/s of the median run of
each treatment. A cell that was not run, or has no valid run, is missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iotrial.design.model import ArmKind
from iotrial.errors import RequestError
from iotrial.knobs.work import FILE_SIZE, RECORD_SIZE
from iotrial.report.blocks import Block, Cell, Drawn, Note, Section, Table, View, Words, table
from iotrial.report.notation import counted, plain
from iotrial.study.model import Study
from iotrial.terminal import escape
from iotrial.units import format_bytes, format_ratio
from iotrial.workloads.matrix import MatrixWork, response_of

if TYPE_CHECKING:
    from iotrial.report.matrix_figures import MatrixFigures, TestFigure
    from iotrial.report.rows import EffectRow
    from iotrial.store.model import TrialData

KIB = 1024
#: marks that are distinguishable without colour
MARKS = {
    "faster": "▼", "slower": "▲", "probably faster": "▽", "probably slower": "△", "equivalent": "=",
    "typical runs equivalent": "≈", "undecided": "·", "not tried": "·",
}  # fmt: skip
LEGEND = "▼ less time, ▲ more time, ▽ △ probably less or more, = the same within the margin, ≈ in typical runs, · undecided"

#: the colour of a mark in the table of a matrix
_MARKED = {mark: words for words, mark in MARKS.items()}
_LEDE = (
    "File sizes by record sizes, a map for each test. Each cell is a separate comparison with its own blocks, "
    "interval and verdict; together they share the study’s alpha."
)

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TestGrid:
    """One test: effects and rates (KiB/s at the reference and at the level) by row and column."""

    test: str
    cells: Mapping[Place, EffectRow]
    rates: Mapping[Place, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One comparison under one workload. ``files`` and ``records`` are sizes in bytes, ascending: rows and columns."""

    title: str
    level: str
    reference: str
    files: tuple[int, ...]
    records: tuple[int, ...]
    tests: tuple[TestGrid, ...]

    @property
    def file_labels(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(format_bytes(size) for size in self.files)

    @property
    def record_labels(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(format_bytes(size) for size in self.records)

    @property
    def cells(self) -> int:
        """The number of combinations of a file and a record size."""
        return len({place for grid in self.tests for place in grid.cells})


@dataclass(frozen=True, slots=True)
class _Found:
    """One effect with the sizes of its cell."""

    row: EffectRow
    sizes: tuple[int, int]
    test: str
    others: tuple[tuple[str, str], ...]


def matrices_of(data: TrialData, rows: Sequence[EffectRow]) -> tuple[Matrix, ...]:
    """Return all matrices of a trial, in the order of its workloads and comparisons; empty if it has no matrix workload."""
    groups: dict[tuple[object, ...], list[_Found]] = {}
    study = data.trial.header.study
    for found in _found(study, rows):
        effect = found.row.effect
        key = (effect.workload, found.others, effect.factor, effect.level, effect.reference)
        groups.setdefault(key, []).append(found)
    medians = _medians(data) if groups else {}
    return tuple(_matrix(study, members, medians, alone=len(groups) == 1) for members in groups.values())


def _found(study: Study, rows: Sequence[EffectRow]) -> Iterator[_Found]:
    works = {w.name: w.work for w in study.workloads if isinstance(w.work, MatrixWork)}
    tests = {name: {response_of(test): test for test in work.tests} for name, work in works.items()}
    varying = _varying(study)
    for row in rows:
        effect = row.effect
        test = tests.get(effect.workload, {}).get(effect.response)
        if test is None or effect.kind != "main" or not effect.primary:
            continue
        try:
            sizes = works[effect.workload].cell_size(study.settings_under(row.condition.levels))
        except (RequestError, KeyError):  # an imported trial may contain anything
            continue
        others = tuple(part for part in row.condition.parts if part[0] not in varying)
        yield _Found(row, sizes, test, others)


def _varying(study: Study) -> frozenset[str]:
    """Return the condition factors that form rows and columns."""
    return frozenset(
        escape(factor.name)
        for factor in study.condition_factors
        if any(s.knob in (FILE_SIZE, RECORD_SIZE) for level in factor.levels for s in level.settings)
    )


def _matrix(
    study: Study,
    members: Sequence[_Found],
    medians: Mapping[tuple[str, str, str, str], float],
    *,
    alone: bool,
) -> Matrix:
    effect = members[0].row.effect
    work = study.workload(effect.workload).work
    assert isinstance(work, MatrixWork)
    files = sorted({found.sizes[0] for found in members})
    records = sorted({found.sizes[1] for found in members})
    grids = []
    for test in work.tests:
        own = [found for found in members if found.test == test]
        if not own:
            continue
        cells: dict[Place, EffectRow] = {}
        rates: dict[Place, tuple[float, float]] = {}
        for found in own:
            place = (files.index(found.sizes[0]), records.index(found.sizes[1]))
            cells[place] = found.row
            kib = work.replicates * found.sizes[0] / KIB
            times = [
                medians.get((found.row.condition.key, effect.factor, label, found.row.effect.response))
                for label in (effect.reference, effect.level)
            ]
            if times[0] and times[1]:
                rates[place] = (kib / times[0], kib / times[1])
        grids.append(TestGrid(test, cells, rates))
    level, reference = escape(effect.level), escape(effect.reference)
    parts = [f"{escape(effect.factor)} {level} against {reference}"]
    parts += [f"{name} {label}" for name, label in members[0].others]
    return Matrix(
        title="" if alone else ", ".join(parts),
        level=level,
        reference=reference,
        files=tuple(files),
        records=tuple(records),
        tests=tuple(grids),
    )


def _medians(data: TrialData) -> dict[tuple[str, str, str, str], float]:
    """Return median times by condition, treatment factor, level and response, over the runs of valid blocks."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for block in data.blocks:
        if block.void is not None:
            continue
        for run in block.observations:
            if run.kind is not ArmKind.TREATMENT or run.failure is not None:
                continue
            for factor, label in run.treatment.items():
                for name, value in run.responses.items():
                    values.setdefault((block.condition, factor, label, name), []).append(value)
    return {key: statistics.median(some) for key, some in values.items()}


def mark(row: EffectRow) -> str:
    """Return the sign of a verdict."""
    return MARKS.get(row.effect.conclusion.words, "·")


def cell_text(row: EffectRow | None, *, valid: bool) -> str:
    """Format the ratio and its mark: "0.82 ▼"; "–" for a missing cell."""
    if row is None:
        return "–"
    value = row.effect.value
    ratio = "?" if value is None else f"{value:.2f}" if 0.005 <= value < 99.995 else plain(value)
    return f"{ratio} {mark(row)}" if valid else ratio


def table_of(matrix: Matrix, grid: TestGrid, *, valid: bool) -> list[list[str]]:
    """Return head and rows of one test's table: file sizes in rows, record sizes in columns."""
    head = [grid.test, *matrix.record_labels]
    rows = [
        [name, *(cell_text(grid.cells.get((i, j)), valid=valid) for j in range(len(matrix.records)))]
        for i, name in enumerate(matrix.file_labels)
    ]
    return [head, *rows]


def matrix_sentence(matrix: Matrix) -> str:
    """Return e.g. "78 comparisons of journal with ordered: 30 faster, 12 slower, 20 equivalent, 16 undecided"."""
    total = sum(len(grid.cells) for grid in matrix.tests)
    return f"{counted(total, 'comparison')} of {matrix.level} with {matrix.reference}: {count_words(matrix.tests)}"


def count_words(grids: Sequence[TestGrid]) -> str:
    """Return e.g. "30 faster, 12 slower, 20 equivalent, 16 undecided"."""
    counts = dict.fromkeys(MARKS, 0)
    for grid in grids:
        for row in grid.cells.values():
            word = row.effect.conclusion.words
            counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


# blocks


def matrix_section(
    matrices: Sequence[Matrix], drawn: Sequence[MatrixFigures], *, valid: bool
) -> Iterator[Section]:
    """Yield a line per test on the first screen, a table per test in text, and figures on the page."""
    if not matrices:
        return
    blocks: list[Block] = [*matrix_counts(matrices), *_blocks(matrices, valid=valid)]
    for figures in drawn:
        blocks.append(Drawn.of(figures.maps, title=figures.title, apart=True))
        blocks += [_test(figures, one, first=one is figures.tests[0]) for one in figures.tests]
    yield Section("Matrix", tuple(blocks), id="matrix", lede=_LEDE)


def matrix_counts(matrices: Sequence[Matrix]) -> Iterator[Table]:
    """Yield a table for each matrix with a line per test."""
    for matrix in matrices:
        rows = [(grid.test, count_words((grid,)), *_extremes(grid.cells.values())) for grid in matrix.tests]
        names = ("test", "~file sizes by record sizes", ">least ratio", ">largest")
        yield table(names, rows, title=_counts(matrix), view=View.SHORT)


def _blocks(matrices: Sequence[Matrix], *, valid: bool) -> Iterator[Block]:
    """Yield a table for each matrix: tests and file sizes in rows, record sizes in columns."""
    for matrix in matrices:
        text = f"{_counts(matrix)} Ratios of times; {LEGEND}. Columns are record sizes."
        yield Note(text, view=View.FULL)
        rows: list[list[Cell]] = []
        for grid in matrix.tests:
            for name, *cells in table_of(matrix, grid, valid=valid)[1:]:
                marked = (Words(cell, _MARKED.get(cell[-1], "")) for cell in cells)
                rows.append([f"{grid.test} {name}", *marked])
        columns = ["test, file size", *(f">{name}" for name in matrix.record_labels)]
        yield replace(table(columns, rows, view=View.FULL), most=len(rows))


def _counts(matrix: Matrix) -> str:
    return f"{matrix.title}: {matrix_sentence(matrix)}." if matrix.title else f"{matrix_sentence(matrix)}."


def _extremes(rows: Iterable[EffectRow]) -> tuple[str, str]:
    values = [row.effect.value for row in rows if row.effect.value is not None]
    return (format_ratio(min(values)), format_ratio(max(values))) if values else ("–", "–")


def _test(figures: MatrixFigures, one: TestFigure, *, first: bool) -> Section:
    columns = (
        "file",
        "record",
        f">{figures.reference}, KiB/s",
        f">{figures.level}, KiB/s",
        ">ratio of times",
        "verdict",
    )
    blocks: list[Block] = []
    if one.surfaces is not None:
        blocks.append(Drawn.of(one.surfaces, apart=True, scenes=one.scenes))
    blocks.append(table(columns, one.rows))
    title = f"{one.test}: {'surfaces and ' if one.surfaces is not None else ''}numbers"
    return Section(title, tuple(blocks), folded=True, open=first, view=View.PAGE)
