"""A comparison of trials as Markdown, short enough for a pull request; what is long folds away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iotrial.legible import shown
from iotrial.report.comparison import Comparison, LevelRow, Row
from iotrial.report.comparison_text import folded as shown_rows
from iotrial.report.comparison_words import (
    agreement_words,
    cell_numbers,
    cell_verdict,
    details,
    headline,
    title,
    verdict_words,
)
from iotrial.report.markdown import brief, escaped, table_head, table_row
from iotrial.report.moments import day_and_time
from iotrial.report.notation import quantity
from iotrial.report.phrases import spoken

#: of columns, beyond which every trial has a row instead
MOST_COLUMNS = 12
_MOST_ROWS = 40


def comparison_markdown(comparison: Comparison) -> str:
    """GitHub-flavoured Markdown, ending in a newline."""
    return "\n".join(_lines(comparison)).rstrip() + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield "### Trials compared"
    yield ""
    yield f"**{escaped(headline(comparison))}**"
    yield ""
    yield from table_head(("", "trial", "study", "began (UTC)", "verdict"))
    for column in comparison.columns:
        one = column.trial
        yield table_row(
            column.mark, column.name, shown(one.study), day_and_time(one.started), shown(one.headline)
        )
    yield ""
    rows, more = shown_rows(comparison, _MOST_ROWS)
    if rows:
        yield from _effects(comparison, rows)
        yield ""
    if more:
        yield escaped(f"{more}.")
        yield ""
    if comparison.differences:
        yield from brief("What differs between the trials", list(_differences(comparison)))
    if levels := [row for row in comparison.levels if sum(m is not None for m in row.medians) > 1]:
        yield from brief("Medians by arm (observational: no verdict)", list(_levels(comparison, levels)))
    yield from brief("What this says", [f"- {escaped(detail)}" for detail in details(comparison)])


def _effects(comparison: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    marks = [column.mark for column in comparison.columns]
    several = len({row.response for row in rows}) > 1
    wide = len(marks) <= MOST_COLUMNS
    yield from table_head(
        ("condition", "comparison", *(marks if wide else ("trial", "effect")), "between trials")
    )
    for row in rows:
        where = comparison.place(row) + (f": {spoken(row.response)}" if several else "")
        agreement = _between(comparison, row)
        cells = ["–" if cell is None else f"{cell_numbers(cell)}, {cell_verdict(cell)}" for cell in row.cells]
        if wide:
            yield table_row(where, title(row), *cells, agreement)
        else:
            for mark, cell in zip(marks, cells, strict=True):
                yield table_row(where, title(row), mark, cell, agreement)


def _between(comparison: Comparison, row: Row) -> str:
    return "; ".join(filter(None, (agreement_words(comparison, row), verdict_words(row))))


def _differences(comparison: Comparison) -> Iterator[str]:
    yield from _by_trial(
        comparison,
        ("what",),
        [
            ((f"{one.group}: {shown(one.name)}",), [shown(value or "–") for value in one.values])
            for one in comparison.differences
        ],
    )


def _levels(comparison: Comparison, levels: Sequence[LevelRow]) -> Iterator[str]:
    rows = [
        (
            (comparison.place(row), shown(row.arm), spoken(row.response)),
            [quantity(median, row.unit) for median in row.medians],
        )
        for row in levels
    ]
    yield from _by_trial(comparison, ("condition", "arm", "response"), rows)


def _by_trial(
    comparison: Comparison, names: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], list[str]]]
) -> Iterator[str]:
    """A column a trial, or where they are too many a row a trial."""
    marks = [column.mark for column in comparison.columns]
    wide = len(marks) <= MOST_COLUMNS
    yield from table_head((*names, *(marks if wide else ("trial", ""))))
    for first, values in rows:
        if wide:
            yield table_row(*first, *values)
        else:
            for mark, value in zip(marks, values, strict=True):
                yield table_row(*first, mark, value)
