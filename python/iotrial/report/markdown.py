"""Render blocks as GitHub-flavoured Markdown, short enough for a pull request: details are folded.

Labels from a study are escaped so that they cannot produce markup, tables, links or @-mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from iotrial.report.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Note,
    Report,
    Section,
    Table,
    View,
    parts,
    shown_in,
)
from iotrial.report.notation import counted
from iotrial.terminal import escape

_SPECIAL = frozenset("\\`*_[]|~$")
# The comment splits "@name" and "#12", which code hosts look for after rendering, escaped or not.
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "@<!-- -->", "#": "#<!-- -->"}
# Text that becomes a link without brackets, and text that would begin a list, a heading or a quotation.
_LINKED = re.compile(r"(\bwww|\b(?:https?|ftp|xmpp|mailto)|\bGH)([.:-])", re.IGNORECASE)
_STARTS = re.compile(r"^([0-9]{1,9}(?=[.)]\s)|)([-+=.)])")
#: characters of a folded part; a comment on GitHub holds 65,536 in all
_MOST_FOLDED = 5_000
_MOST_ROWS = 60
ELSEWHERE = "in the JSON and HTML reports"


def markdown(report: Report, *, heading: str = "###") -> str:
    """Format the whole report, ending in a newline."""
    lines = [f"{heading} {escaped(report.title)}", ""]
    lines += [f"**{escaped(report.headline)}**", ""]
    if report.question:
        lines += [f"> {escaped(report.question)}", ""]
    lines += block_lines(report.blocks, heading=f"{heading}#")
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    """Escape text so that Markdown shows it literally."""
    plain = "".join(_REPLACED.get(c, f"\\{c}" if c in _SPECIAL else c) for c in escape(text).strip())
    plain = _LINKED.sub(lambda found: f"{found[1]}<!-- -->{found[2]}", plain)
    return _STARTS.sub(lambda found: f"{found[1]}\\{found[2]}", plain)


def block_lines(blocks: Sequence[Block], *, heading: str = "####") -> Iterator[str]:
    """Yield blocks as lines, each followed by a blank line. What is not on a terminal's first screen is folded."""
    waiting: list[Note] = []
    for block in (*shown_in(blocks, View.FULL), None):
        if isinstance(block, Note):
            waiting.append(block)
            continue
        yield from _notes(waiting)
        waiting = []
        match block:
            case Section() if block.folded or not block.view & View.SHORT:
                yield from folded(block.title, list(block_lines(block.blocks, heading=heading)))
            case Section():
                yield from (f"{heading} {escaped(block.title)}", "")
                yield from block_lines(block.blocks, heading=f"{heading}#")
            case Table():
                yield from table_lines(block)
            case Facts():
                yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in block.rows)
                yield ""
            case Code():
                yield from (f"{block.label}: {code(block.text)}" if block.label else code(block.text), "")


def _notes(notes: Sequence[Note]) -> Iterator[str]:
    first = [_note(note) for note in notes if note.view & View.SHORT]
    rest = [_note(note) for note in notes if not note.view & View.SHORT]
    if first:
        yield from (*first, "")
    if rest:
        yield from folded("Details", rest)


def _note(note: Note) -> str:
    label = f"{'⚠ ' if note.tone == 'alarm' else ''}**{escaped(note.label)}**: " if note.label else ""
    return f"- {label}{escaped(note.text)}"


def table_lines(table: Table, view: View = View.FULL) -> Iterator[str]:
    """Yield a table as lines, followed by a blank line and what was omitted."""
    columns = [place for place, column in enumerate(table.columns) if column.view & view]
    if table.title:
        yield from (f"**{escaped(table.title)}**", "")
    yield table_row(*(table.columns[place].name for place in columns))
    yield "|" + "".join("---:|" if table.columns[place].right else "---|" for place in columns)
    groups, left = table.cut(table.most or _MOST_ROWS)
    for group in groups:
        if group.title:
            yield f"| **{escaped(group.title)}** |" + " |" * (len(columns) - 1)
        for row in group.rows:
            yield table_row(*(_cell(row.cells[place], view) for place in columns))
    yield ""
    for text in (f"and {left}, {ELSEWHERE}" if left else "", table.note):
        if text:
            yield from (escaped(text), "")


def _cell(cell: Cell, view: View) -> str:
    return ", ".join(f"{'⚠ ' if one.tone == 'risk' else ''}{one.text}" for one in parts(cell, view))


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield lines in a collapsed section, limited so that a comment has room for them."""
    yield from (f"<details><summary>{escaped(title)}</summary>", "")
    room, open_parts = _MOST_FOLDED, 0
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 and number:
            more = counted(len(lines) - number, "more line")
            yield from ("", f"and {more}, {ELSEWHERE}", "", *["</details>", ""] * open_parts)
            break
        open_parts += line.startswith("<details>") - line.startswith("</details>")
        yield line
    if lines and lines[-1]:
        yield ""
    yield from ("</details>", "")


def table_row(*cells: str) -> str:
    """Format a line of a table; the cells are escaped here."""
    return "| " + " | ".join(map(escaped, cells)) + " |"


def code(text: str) -> str:
    """Format a code span that its content cannot close."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"
