"""Render blocks for a terminal: one screen, or with ``full`` everything, readable without colour.

Everything is rich's Text, never markup, so that a label such as "[red]" stays a label. Colour only repeats what a word
says. Widths follow the console; 80 columns are enough. On one screen the tables share the lines that all other blocks
leave, and say what they omit.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console
from rich.cells import cell_len
from rich.text import Text

from iotrial.report.blocks import (
    Block,
    Cell,
    Code,
    Column,
    Facts,
    Group,
    Note,
    Report,
    Section,
    Table,
    View,
    parts,
    shown_in,
)
from iotrial.report.notation import counted
from iotrial.report.phrases import VERDICT_STYLES
from iotrial.terminal import escape_lines

SCREEN_LINES = 40
#: the most rows of a table with --full
MOST_ROWS = 60
_LEAST_ROWS = 2
_GAP = "  "
#: a number's percent sign, a ratio behind a number, and a command to copy: not broken where a line has room for it
_TOGETHER = re.compile(r" %|\(× [^()]*\)|`[^`]*`")
#: in place of their blanks while lines are broken; rich breaks at a no-break space
_GLUE = "\ue000"
#: parts of a heading, each with what joins it to the next
_JOINED = re.compile(r".+?(?:[-+=,:/ ]+|$)")
#: of a command: quoted blanks do not end it
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
_NARROWEST = 12
#: a column of text is not narrower than its longest word, up to this, if a row has room for that
_LONGEST_WORD = 20
#: a table with narrower columns is printed in parts
_LEGIBLE = 8
_STYLES = {
    **VERDICT_STYLES,
    "invalid": "bold red",
    "risk": "yellow",
    "alarm": "bold yellow",
    "dim": "dim",
    "mixed": "yellow",
}


class Console(rich.console.Console):
    """rich's Console, with two differences.

    With NO_COLOR text is not bold or dim either. A broken pipe raises BrokenPipeError: rich would end the process, and a
    trial with it before its settings are restored.
    """

    def __init__(self, **options: Any) -> None:
        color = None if os.environ.get("NO_COLOR") else "auto"
        super().__init__(**{"color_system": color, **options})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_blocks(report: Report, console: Console, *, full: bool = False) -> None:
    """Write a report to ``console``."""
    for line in text_lines(report, console, full=full):
        console.print(line, soft_wrap=True)


def plain_lines(report: Report, *, width: int) -> list[str]:
    """Return the full report as lines without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return [line.plain for line in text_lines(report, console, full=True)]


def text_lines(report: Report, console: Console, *, full: bool = False) -> list[Text]:
    """Return the report line by line. Paths may exceed the console's width, and commands in a pipe; all others fit it."""
    return _Printer(console, View.FULL if full else View.SHORT).lines(report)


class _Printer:
    """Lays out the blocks of one view on a console."""

    def __init__(self, console: Console, view: View) -> None:
        self._console = console
        self._width = console.width
        self._view = view

    def lines(self, report: Report) -> list[Text]:
        head = [
            *self._wrapped(Text(report.headline, style="bold red" if report.tone == "invalid" else "bold")),
            Text(""),
        ]
        if self._view is View.FULL:
            return [*head, *_squeezed(self._full(report.blocks))]
        return [*head, *_squeezed(self._screen(report.blocks, SCREEN_LINES - len(head)))]

    def _full(self, blocks: Sequence[Block], *, listed: bool = False) -> Iterator[Text]:
        for block in shown_in(blocks, self._view):
            if isinstance(block, Section):
                yield Text("")
                yield Text(block.title, style="bold")
                yield from self._full(block.blocks, listed=True)
            elif isinstance(block, Table):
                yield from self._apart(block, block.most or MOST_ROWS)
            elif listed and isinstance(block, Note) and not block.label:
                yield from self._two_columns("-", block.text, 1)
            else:
                yield from self._plain(block)

    def _screen(self, blocks: Sequence[Block], room: int) -> Iterator[Text]:
        """Yield one screen: all other blocks are measured first, then tables take the remaining room, in their order."""
        flat = list(self._flat(blocks))
        made = {
            place: list(self._plain(block))
            for place, block in enumerate(flat)
            if not isinstance(block, Table)
        }
        room += bool(flat) and isinstance(flat[0], Table)  # a blank line precedes it already
        room -= sum(self._height(line) for lines in made.values() for line in lines)
        left = 0
        for place, block in enumerate(flat):
            if not isinstance(block, Table):
                if left and not isinstance(flat[place - 1], Note):
                    yield Text(f"and {counted(left, 'more table')} (--full)", style="dim")
                    yield Text("")
                    left = 0
                yield from made[place]
                continue
            others = [isinstance(one, Table) for one in flat]
            reserved = 2 * any(others[place + 1 :])  # "and 4 more tables", and a blank line
            lines = self._fitting(block, room - reserved, needed=not any(others[:place]))
            left += not lines
            room -= len(lines)
            yield from lines

    def _fitting(self, table: Table, room: int, *, needed: bool) -> list[Text]:
        """Return the table with as many rows as fit.

        If none fit, return a few anyway if the table is ``needed``, else none.
        """
        most = min(len(table.rows), max(room, _LEAST_ROWS))
        while True:
            lines = list(self._apart(table, most))
            if len(lines) <= room:
                return lines
            if most <= _LEAST_ROWS:
                return lines if needed else []
            most = max(_LEAST_ROWS, most - max(1, (len(lines) - room) // 2))

    def _flat(self, blocks: Sequence[Block]) -> Iterator[Block]:
        for block in shown_in(blocks, self._view):
            if isinstance(block, Section):
                yield from self._flat(block.blocks)
            else:
                yield block

    def _plain(self, block: Block) -> Iterator[Text]:
        """Yield the lines of a block that is not a table."""
        match block:
            case Note():
                text = Text(block.label, style=_STYLES.get(block.tone, "bold") if block.label else "")
                text.append(
                    f"{'  ' if block.label else ''}{block.text}",
                    style="dim" if block.tone == "dim" else "not bold",
                )
                yield from self._wrapped(text)
            case Facts():
                names = max((cell_len(name) for name, _ in block.rows), default=0)
                names = min(names, self._width // 3)
                for name, value in block.rows:
                    yield from self._two_columns(name, value, names)
            case Code():
                first, *rest = self._command(escape_lines(block.text), len(block.label) + len(": ")).split(
                    "\n"
                )
                yield Text(f"{block.label}: " if block.label else "", style="dim").append(
                    first, style="not dim"
                )
                yield from map(Text, rest)
            case _:
                raise TypeError(f"no text for {type(block).__name__}")

    def _command(self, text: str, column: int) -> str:
        """Continue a command of iotrial that is too long for a terminal after a backslash, as a shell reads it."""
        if not (self._console.is_terminal and text.startswith("iotrial ")):
            return text
        lines, room = [""], self._width - column - len(" \\")
        for word in _WORD.findall(text):
            if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > room:
                lines.append(" " * 3)
                room = self._width - len(" \\")
            lines[-1] += f" {word}" if lines[-1] else word
        return " \\\n".join(lines)

    def _two_columns(self, name: str, value: str, width: int) -> Iterator[Text]:
        names = self._wrapped(Text(name, style="bold"), width)
        values = self._wrapped(Text(value), self._width - width - len(_GAP))
        for place in range(max(len(names), len(values))):
            line = names[place].copy() if place < len(names) else Text("")
            line.pad_right(width - line.cell_len)
            yield line.append(_GAP).append_text(values[place] if place < len(values) else Text(""))

    def _apart(self, table: Table, most: int) -> Iterator[Text]:
        """Yield a table between blank lines."""
        yield Text("")
        yield from self._table(table, most)
        yield Text("")

    def _table(self, table: Table, most: int) -> Iterator[Text]:
        view = self._view
        columns = [place for place, column in enumerate(table.columns) if column.view & view]
        heads = [table.columns[place] for place in columns]
        groups, left = table.cut(most)
        cells = [[row.cells[place] for place in columns] for group in groups for row in group.rows]
        rows = [[_text(cell, view) for cell in row] for row in cells]
        indent = len(_GAP) * any(group.title for group in groups)
        note = table.note
        if table.brief is not None and self._too_wide(heads, rows, indent=indent):
            rows, note = [[_text(cell, view, brief=True) for cell in row] for row in cells], table.brief
        if table.title:
            yield from self._wrapped(Text(table.title, style="bold"))
        for number, part in enumerate(self._parts(heads, rows, indent=indent)):
            if number:
                yield Text("")
            shown = [[row[place] for place in part] for row in rows]
            yield from self._part([heads[place] for place in part], shown, groups, indent=indent)
        if left:
            hint = " (--json)" if view is View.FULL else " (--full)"
            yield from self._wrapped(Text(f"and {left}{hint}", style="dim"))
        if note:
            yield from self._wrapped(Text(note, style="dim"))

    def _part(
        self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], groups: Sequence[Group], *, indent: int
    ) -> Iterator[Text]:
        """Yield the lines of columns that stand side by side."""
        widths = self._widths(heads, rows, indent=indent)
        if any(column.name for column in heads):
            names = (_broken(head.name, width) for head, width in zip(heads, widths, strict=True))
            yield from self._row([Text(name, style="bold") for name in names], heads, widths)
            yield Text("─" * min(self._width, sum(widths) + len(_GAP) * (len(widths) - 1)))
        for titles, own in _alike(groups, rows):
            if titles:
                yield from self._wrapped(Text("; ".join(titles), style="bold"))
            for row in own:
                yield from self._row(row, heads, widths, indent=indent)

    def _parts(
        self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int
    ) -> list[list[int]]:
        """Return the columns of each part of a table: all in one, unless that would make them too narrow to read."""
        widths = self._natural(heads, rows, indent=indent)
        least = [min(width, _LEGIBLE) for width in widths]
        if sum(least) + len(_GAP) * (len(widths) - 1) <= self._width:
            return [list(range(len(widths)))]
        free = self._width - min(widths[0], self._width // 3)
        parts, room = [[0]], free
        for place, width in enumerate(widths[1:], start=1):
            needed = len(_GAP) + min(width, 2 * _LEGIBLE)
            if needed > room and len(parts[-1]) > 1:
                parts.append([0])
                room = free
            parts[-1].append(place)
            room -= needed
        return parts

    def _too_wide(self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int) -> bool:
        """Return whether a row needs several lines even if columns of text are as narrow as they are legible."""
        widths = self._legible(heads, rows, indent=indent)
        return sum(widths) + len(_GAP) * (len(widths) - 1) > self._width

    def _legible(self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int) -> list[int]:
        """Return the least widths in which no number and no word up to ``_LONGEST_WORD`` is broken."""
        widths = self._natural(heads, rows, indent=indent)
        for place, head in enumerate(heads):
            if head.wide:
                words = (word for row in rows for word in row[place].plain.split())
                longest = max(map(cell_len, words), default=0) + indent * (not place)
                least = max(_NARROWEST, _longest_part(head), min(_LONGEST_WORD, longest))
                widths[place] = min(widths[place], least)
        return widths

    def _natural(self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int) -> list[int]:
        """Return the widths of the widest cells."""
        return [
            max([cell_len(column.name), *(row[place].cell_len + indent * (not place) for row in rows)])
            for place, column in enumerate(heads)
        ]

    def _widths(self, heads: Sequence[Column], rows: Sequence[Sequence[Text]], *, indent: int) -> list[int]:
        """Return widths of the widest cells; if the sum is too large, narrow the widest columns of text."""
        widths = self._natural(heads, rows, indent=indent)
        room = self._width - len(_GAP) * (len(widths) - 1)
        if sum(widths) <= room:
            return widths
        words = [_longest_part(head) for head in heads]
        text = [
            min(width, max(_NARROWEST, word)) if head.wide else width
            for head, word, width in zip(heads, words, widths, strict=True)
        ]
        legible = self._legible(heads, rows, indent=indent)
        # which of two columns of text wraps in fewer lines depends on what they hold: each may give way first
        tried = [_narrowed(widths, legible, room)]
        for place in (p for p, head in enumerate(heads) if head.wide):
            one = _narrowed(widths, [*widths[:place], legible[place], *widths[place + 1 :]], room)
            tried.append(_narrowed(one, legible, room))
        widths = min(tried, key=lambda one: _lines(rows, one, indent=indent))
        for least in (text, words, [3] * len(widths)):
            widths = _narrowed(widths, least, room)
        return widths

    def _row(
        self, cells: Sequence[Text], heads: Sequence[Column], widths: Sequence[int], *, indent: int = 0
    ) -> Iterator[Text]:
        wrapped = [
            self._wrapped(cell, width - indent * (not place))
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        if indent:
            wrapped[0] = [Text(" " * indent).append_text(line) for line in wrapped[0]]
        for line in range(max(map(len, wrapped))):
            text = Text("")
            for place, (column, width) in enumerate(zip(heads, widths, strict=True)):
                cell = wrapped[place][line].copy() if line < len(wrapped[place]) else Text("")
                cell.rstrip()
                pad = " " * max(0, width - cell.cell_len)
                text.append(_GAP if place else "")
                text.append_text(Text(pad).append_text(cell) if column.right else cell.append(pad))
            text.rstrip()
            yield text

    def _wrapped(self, text: Text, width: int | None = None) -> list[Text]:
        width = self._width if width is None else width
        if text.cell_len <= width:
            return [text]
        text = text.copy()
        most = width // 2
        text.plain = _TOGETHER.sub(
            lambda found: found[0].replace(" ", _GLUE) if len(found[0]) <= most else found[0], text.plain
        )
        lines = list(text.wrap(self._console, max(1, width)))
        for line in lines:
            line.plain = line.plain.replace(_GLUE, " ")
            line.rstrip()
        return lines

    def _height(self, line: Text) -> int:
        return max(1, -(-line.cell_len // self._width))


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths with the widest columns narrowed, down to ``least``, until all fit into ``room``."""
    widths = list(widths)
    while sum(widths) > room and (narrowed := [p for p, one in enumerate(widths) if one > least[p]]):
        widest = max(narrowed, key=widths.__getitem__)
        widths[widest] = max(least[widest], widths[widest] - max(1, (sum(widths) - room) // 4))
    return widths


def _lines(rows: Sequence[Sequence[Text]], widths: Sequence[int], *, indent: int) -> int:
    """Return about how many lines these rows take."""
    return sum(
        max(
            -(-(cell.cell_len + indent * (not place)) // max(1, width))
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _longest_part(head: Column) -> int:
    return max([3, *map(cell_len, map(str.rstrip, _JOINED.findall(head.name)))])


def _broken(name: str, width: int) -> str:
    """Return a heading in lines: one that is too long is broken where words are joined, also by signs such as + and =."""
    if cell_len(name) <= width:
        return name
    lines = [""]
    for piece in _JOINED.findall(name):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _text(cell: Cell, view: View, *, brief: bool = False) -> Text:
    text = Text("")
    for number, word in enumerate(parts(cell, view)):
        shown = word.brief if brief and word.brief else word.text
        text.append(", " if number else "").append(shown, style=_STYLES.get(word.tone, ""))
    return text


def _alike(
    groups: Sequence[Group], rows: Sequence[Sequence[Text]]
) -> list[tuple[list[str], Sequence[Sequence[Text]]]]:
    """Return the titles and rows of the groups: those with the same rows under a title once, with all their titles."""
    found: dict[object, tuple[list[str], Sequence[Sequence[Text]]]] = {}
    place = 0
    for number, group in enumerate(groups):
        own = rows[place : place + len(group.rows)]
        place += len(group.rows)
        same = tuple(tuple(cell.plain for cell in row) for row in own) if group.title else number
        titles, _ = found.setdefault(same, ([], own))
        titles += [group.title] * bool(group.title)
    return list(found.values())


def _squeezed(lines: Iterator[Text]) -> Iterator[Text]:
    """Drop blank lines at the beginning, at the end, and after another blank line."""
    begun = waiting = False
    for line in lines:
        if line.plain:
            if waiting:
                yield Text("")
            begun, waiting = True, False
            yield line
        else:
            waiting = begun
