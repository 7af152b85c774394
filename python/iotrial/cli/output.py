"""The one way from a verb to the terminal for text: labels and messages from outside cannot steer it."""

from __future__ import annotations

import sys

from iotrial.legible import shown_lines

#: a column narrower than this is worse than none
_LEAST = 30


def tell(text: str, *, err: bool = False, fold: int | None = None) -> None:
    """Print text, line breaks kept, with whatever else steers a terminal made visible.

    ``fold``: on a terminal, lines longer than it is wide are broken between words, and go on at this column. Not for what
    somebody may want to copy, such as a command.
    """
    if fold is not None and (sys.stderr if err else sys.stdout).isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        text = "\n".join(folded(line, width, fold) for line in shown_lines(text).split("\n"))
    print(shown_lines(text), file=sys.stderr if err else sys.stdout, flush=True)


def folded(line: str, width: int, column: int) -> str:
    """One line as several of at most ``width`` columns, broken between words; those after the first begin at ``column``,
    where that leaves them room."""
    if len(line) <= width:
        return line
    import textwrap

    indent = " " * (column if width - column >= _LEAST else 4)
    return textwrap.fill(
        line, max(width, _LEAST), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
