"""A comparison of trials for a terminal: what it comes to, then every comparison with a line a trial; 80 columns do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iotrial.legible import shown
from iotrial.report.comparison import Agreement, Cell, Column, Comparison, LevelRow, Row
from iotrial.report.comparison_words import (
    agreement_words,
    cell_verdict,
    details,
    headline,
    least_words,
    title,
    verdict_words,
)
from iotrial.report.gains import NO_INTERVAL
from iotrial.report.moments import day_and_time
from iotrial.report.notation import elided, joined, quantity
from iotrial.report.phrases import VERDICT_STYLES, interval, spoken
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: beyond these, rows in which all agree are counted only
MOST_ROWS = 24
_MOST_LEVELS = 40
_MOST_FACTS = 30


def print_comparison(comparison: Comparison, console: Console, *, html_path: str | None = None) -> None:
    """Write it to ``console``; ``html_path`` is named at the end where a page was written."""
    from rich.text import Text

    console.print(Text(headline(comparison), style="bold"))
    console.print()
    for detail in details(comparison):
        console.print(Text(detail))
    console.print()
    for line in _trials(comparison.columns):
        console.print(line)
    if comparison.differences:
        console.print(_differences(comparison))
    rows, more = folded(comparison)
    for line in _effects(comparison, rows) if rows else ():
        console.print(line)
    if more:
        console.print(Text(more, style="dim"))
    for part in _levels(comparison):
        console.print(part)
    if html_path is not None:
        console.print(
            Text("Figures and everything else: ", style="dim").append(shown(html_path)), soft_wrap=True
        )


def folded(comparison: Comparison, most: int = MOST_ROWS) -> tuple[tuple[Row, ...], str]:
    """The rows that are shown, those in one trial only left to JSON; where too many are left, those that differ, or whose
    verdicts do. And in words how many others there are."""
    shared = tuple(row for row in comparison.rows if row.shared)
    rows = shared
    if len(rows) > most:
        rows = tuple(row for row in rows if row.agreement is Agreement.DIFFERS or row.verdict is None)
    rows = rows[:most]
    left = len(comparison.rows) - len(rows)
    alone = len(comparison.rows) - len(shared)
    if not left:
        return rows, ""
    said = [f"{alone} in one trial only"] if alone else []
    said += [f"{left - alone} others"] if left > alone else []
    return rows, f"and {joined(said)}, in the JSON report"


def _trials(columns: Sequence[Column]) -> Iterator[Text]:
    """A line a trial; what all are of is in the first."""
    from rich.text import Text

    studies = list(dict.fromkeys(shown(column.trial.study) for column in columns))
    if len(studies) == 1:
        yield Text(f"The trials, of {studies[0]}:")
    for column in columns:
        one = column.trial
        state = one.state if one.valid or one.state == "invalid" else f"{one.state}, invalid"
        study = "" if len(studies) == 1 else f"{shown(one.study)}, "
        yield Text(
            f"  {column.mark}  {column.name}: {study}{day_and_time(one.started)} UTC, "
            f"{format_duration(one.duration_s)}, {shown(state)}"
        )
    yield Text("")


def _differences(comparison: Comparison) -> Table | Text:
    """A column a trial where they fit, else a line a fact."""
    from rich.text import Text

    found = comparison.differences[:_MOST_FACTS]
    width = 46 // len(comparison.columns)
    if width < 11:
        lines = []
        for one in found:
            pairs = zip(comparison.columns, one.values, strict=True)
            said = ", ".join(f"{c.mark} {elided(shown(v or '–'), 24)}" for c, v in pairs)
            lines.append(f"  {one.group}, {elided(shown(one.name), 32)}: {said}")
        return Text("\n".join(["What differs between the trials:", *lines, ""]))
    table = _table(("what differs", *(column.mark for column in comparison.columns)))
    for one in found:
        values = (elided(shown(value or "–"), 60) for value in one.values)
        table.add_row(*_texts(f"{one.group}: {elided(shown(one.name), 44)}", *values))
    return table


def _effects(comparison: Comparison, rows: Sequence[Row]) -> Iterator[Text]:
    """A heading for every comparison, and under it a line a trial."""
    from rich.text import Text

    several = len({row.response for row in rows}) > 1
    cells = [cell for row in rows for cell in row.cells if cell is not None]
    widths = max(len(interval(cell.effect)) for cell in cells), max(len(_gain(cell)) for cell in cells)
    place = None
    for row in rows:
        where = comparison.place(row) + (f": {spoken(row.response)}" if several else "")
        if where != place:
            yield Text("")
            yield Text(f"{where[:1].upper()}{where[1:]}", style="bold")
            place = where
        told = Text(f"  {title(row)}: ")
        told.append(agreement_words(comparison, row), style="bold yellow" if row.apart else "dim")
        beside = ", ".join(filter(None, (least_words(row), verdict_words(row))))
        yield told.append(f"; {beside}" if beside else "", style="dim")
        for column, cell in zip(comparison.columns, row.cells, strict=True):
            if cell is not None:
                yield _cell(column, cell, widths)
    yield Text("")


def _gain(cell: Cell) -> str:
    return cell.gain.said.removesuffix(NO_INTERVAL) if cell.gain is not None else ""


def _cell(column: Column, cell: Cell, widths: tuple[int, int]) -> Text:
    from rich.text import Text

    line = Text(f"    {column.mark:<2} {interval(cell.effect):<{widths[0]}}  {_gain(cell):<{widths[1]}}  ")
    return line.append(cell_verdict(cell), style=_style(cell))


def _style(cell: Cell) -> str:
    if not cell.valid:
        return VERDICT_STYLES.get("no verdict", "")
    return "yellow" if cell.risk else VERDICT_STYLES.get(cell.effect.conclusion.words, "")


def _levels(comparison: Comparison) -> Iterator[Table | Text]:
    """Medians by arm; nothing where columns do not fit."""
    from rich.text import Text

    rows = [row for row in comparison.levels if sum(m is not None for m in row.medians) > 1]
    if not rows or len(comparison.columns) > 4:
        return
    several = len({row.response for row in rows}) > 1
    table = _table(
        ("medians, observational", *(column.mark for column in comparison.columns)),
        right=range(1, len(comparison.columns) + 1),
    )
    place = None
    for row in rows[:_MOST_LEVELS]:
        where = comparison.place(row) + (f": {spoken(row.response)}" if several else "")
        if where != place:
            table.add_row(Text(elided(where, 44), style="bold"), *("" for _ in comparison.columns))
            place = where
        table.add_row(*_texts(f"  {elided(shown(row.arm), 40)}", *_medians(row)))
    yield table
    if len(rows) > _MOST_LEVELS:
        yield Text(f"and {len(rows) - _MOST_LEVELS} more medians, in the JSON report", style="dim")


def _medians(row: LevelRow) -> Iterator[str]:
    for median in row.medians:
        yield quantity(median, row.unit)


def _table(names: Sequence[str], *, right: Sequence[int] = ()) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for place, name in enumerate(names):
        table.add_column(Text(name), justify="right" if place in right else "left", overflow="fold")
    return table


def _texts(*cells: str) -> Iterator[Text]:
    from rich.text import Text

    return (Text(cell) for cell in cells)
