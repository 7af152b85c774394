"""The pages that gain most and least, as small tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iotrial.report.notation import elided
from iotrial.report.page_figures import extremes, row_of
from iotrial.report.pages import PagesPanel

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_MOST_PANELS = 4
_MOST_ROWS = 3


def pages_text(panels: Sequence[PagesPanel]) -> Iterator[Table | Text]:
    """A table for each level and condition, as long as these are few."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for panel in panels[:_MOST_PANELS]:
        where = f", {panel.condition.text}" if panel.condition.parts else ""
        gains, losses = extremes(panel, _MOST_ROWS)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
        table.add_column(Text(f"page{elided(where, 40)}"), overflow="fold", max_width=44)
        for name in (elided(panel.reference, 16), elided(panel.level, 16), "ratio"):
            table.add_column(Text(name), justify="right", no_wrap=True)
        for page in gains:
            table.add_row(*map(Text, row_of(page)))
        if losses:
            table.add_row(Text("…", style="dim"), "", "", "")
        for page in reversed(losses):
            table.add_row(*map(Text, row_of(page)))
        yield table
    if len(panels) > _MOST_PANELS:
        yield Text(f"and {len(panels) - _MOST_PANELS} more tables of pages, in the HTML report", style="dim")
