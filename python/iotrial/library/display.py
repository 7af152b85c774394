"""Display of values: one ``Card`` as text for a terminal, as Markdown, and as HTML for a notebook.

All text in a card is untrusted until a renderer has sanitised it: ``escape`` for control characters, then the
escapes of Markdown or HTML. Only figures are markup; they come from the report's own plots. The HTML inherits
its text and background colours from the surrounding page, so that it is readable in light and dark notebooks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from iotrial.report.markdown import escaped
from iotrial.report.notation import elided
from iotrial.terminal import escape

if TYPE_CHECKING:
    from jinja2 import Template


_WIDEST_CELL, _WIDEST_LAST = 60, 120
_LINE = 88


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a display: title, leading sentence, further lines, figures and a table."""

    title: str
    lead: str = ""
    lines: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0


class Displayed:
    """A value that is shown as a card: as its text on a terminal, as HTML or Markdown in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{text(self._card())}>"

    def _repr_html_(self) -> str:
        return html(self._card())

    def _repr_markdown_(self) -> str:
        return markdown(self._card())

    def _card(self) -> Card:
        raise NotImplementedError


def text(card: Card) -> str:
    """Render for a terminal: aligned columns, no colour, no control characters."""
    return "\n".join(_text(card))


def markdown(card: Card) -> str:
    """Render as GitHub-flavoured Markdown, without figures."""
    return "\n".join(_markdown(card)) + "\n"


def html(card: Card) -> str:
    """Render as one ``div`` for a notebook, with its own style and inline figures."""
    figures = [Markup(figure) for figure in card.figures]
    return _template().render(card=card, figures=figures).strip()


def _text(card: Card) -> Iterator[str]:
    yield escape(card.title)
    for line in (card.lead, *card.lines):
        yield from textwrap.wrap(escape(line), _LINE, break_long_words=False)
    if card.rows:
        last = len(card.heads) - 1
        rows = [
            tuple(
                elided(escape(cell), _WIDEST_LAST if i == last else _WIDEST_CELL)
                for i, cell in enumerate(row)
            )
            for row in (card.heads, *card.rows)
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(card.heads))]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if card.left_out:
        yield f"... and {card.left_out:,} more"


def _markdown(card: Card) -> Iterator[str]:
    yield f"**{escaped(card.title)}**"
    for line in (card.lead, *card.lines):
        if line:
            yield ""
            yield escaped(line)
    if card.rows:
        yield ""
        yield "| " + " | ".join(map(escaped, card.heads)) + " |"
        yield "|" + " --- |" * len(card.heads)
        for row in card.rows:
            yield "| " + " | ".join(escaped(cell) for cell in row) + " |"
    if card.left_out:
        yield ""
        yield f"... and {card.left_out:,} more"


@cache
def _template() -> Template:
    from iotrial.report.html import environment  # charts need numpy, a list of studies does not

    return environment("iotrial.library", shown=escape).get_template("card.html.j2")
