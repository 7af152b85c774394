"""Where the page of a report is, said on a terminal. Apart from the text of a report, which a kept one does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.legible import shown

if TYPE_CHECKING:
    from rich.console import Console


def print_place(console: Console, html_path: str) -> None:
    """The last line of a report that has a page."""
    from rich.text import Text

    console.print(Text("Figures and everything else: ", style="dim").append(shown(html_path)), soft_wrap=True)
