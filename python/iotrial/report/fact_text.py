"""Tables of facts for a terminal: names that have the same words share a row, so that a table of many fits a screen.

A row is called by its first name; which others are as that one is said once, below the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iotrial.report.facts import FactRow, FactTable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_FADED = {"no": "dim", "–": "dim"}


def facts_lines(tables: Sequence[FactTable]) -> Iterator[Table | Text]:
    """Each table with its conditions above it and how sure it is below; then the names of each row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    alike: dict[tuple[str, ...], None] = {}
    for facts in tables:
        yield Text(facts.title, style="bold")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
        table.add_column("", no_wrap=True)
        for column in facts.columns:
            table.add_column(Text(column), overflow="fold")
        for row in facts.groups:
            alike[row.names] = None
            cells = (Text(cell, style=_FADED.get(cell, "")) for cell in row.cells)
            table.add_row(Text(_called(row)), *cells)
        yield table
        yield Text(f"{facts.said[:1].upper()}{facts.said[1:]}.", style="dim")
        yield Text("")
    for names in alike:
        if len(names) > 1:
            yield Text(f"{names[0]} and {len(names) - 1} more: ", style="bold").append(
                ", ".join(names[1:]), style="not bold"
            )
    if tables:
        yield Text("")


def _called(row: FactRow) -> str:
    more = len(row.names) - 1
    return f"{row.names[0]} and {more} more" if more else row.names[0]
