"""The blocks that every report consists of.

A builder turns a trial, a comparison, a fleet or an audit into a ``Report``: a headline and a list of blocks. A
renderer (terminal, Markdown, HTML) knows blocks but not trials. Each block names the views that show it: the first
screen of a terminal, the full text (``--full`` and Markdown), the page (HTML).

Control characters in the text of blocks are escaped (``iotrial.terminal.escape``). Escaping for a format is the
renderer's task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING

from iotrial.report.notation import counted, joined

if TYPE_CHECKING:
    from iotrial.report.chart import Chart
    from iotrial.report.figure import Figure
    from iotrial.report.series import Arm

#: ranks of table rows: a table that must be cut loses the highest ranks first
DECISIVE, UNDECIDED, EQUIVALENT = range(3)


class View(Flag):
    """The views in which a block is shown."""

    SHORT = auto()  # the terminal's first screen
    FULL = auto()  # the terminal with --full, and Markdown
    PAGE = auto()  # the HTML page
    TEXT = SHORT | FULL
    LONG = FULL | PAGE
    ALL = SHORT | FULL | PAGE


@dataclass(frozen=True, slots=True)
class Words:
    """Text with a role.

    ``tone`` names a colour ("faster", "invalid", "risk", "dim" ...). HTML puts a frame around a ``badge`` and puts
    ``small`` text on its own line. ``view`` says where the text is shown. ``brief`` takes its place in a terminal where the
    rows of a table are too long.
    """

    text: str
    tone: str = ""
    badge: bool = False
    small: bool = False
    view: View = View.ALL
    brief: str = ""


#: the content of one table cell
Cell = str | Words | tuple[Words, ...]


def parts(cell: Cell, view: View) -> tuple[Words, ...]:
    """Return the words of a cell that a view shows."""
    words = (Words(cell),) if isinstance(cell, str) else (cell,) if isinstance(cell, Words) else cell
    return tuple(one for one in words if one.view & view)


def plain(cell: Cell, view: View) -> str:
    """Return the cell as plain text: its parts separated by commas."""
    return ", ".join(one.text for one in parts(cell, view))


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``right``: numbers, aligned to the right; ``wide``: text that may wrap.

    A table that is too wide for a terminal is printed in parts, each with the first column.
    """

    name: str
    right: bool = False
    wide: bool = False
    view: View = View.ALL


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``kind`` is the name under which omitted rows are counted ("14 equivalent")."""

    cells: tuple[Cell, ...]
    rank: int = DECISIVE
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under a heading, or without one if there is no title."""

    rows: tuple[Row, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """One or more sentences. ``label`` is printed before them in bold."""

    text: str
    label: str = ""
    tone: str = ""
    view: View = View.ALL


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with ``note`` below it, or ``brief`` where its cells are shown briefly.

    ``noun`` is the name of its rows when some are omitted. ``whole``: a group is kept or omitted as a unit, and
    ``noun`` counts groups. ``most`` is the most rows in text (0: as the renderer allows).
    """

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    title: str = ""
    note: str = ""
    noun: str = "row"
    whole: bool = False
    most: int = 0
    view: View = View.ALL
    brief: str | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows."""
        return tuple(row for group in self.groups for row in group.rows)

    def cut(self, most: int) -> tuple[tuple[Group, ...], str]:
        """Return the most decisive rows in their order, at most ``most`` but at least one, and a description of the rest."""
        rows = self.rows
        if len(rows) <= most:
            return self.groups, ""
        if self.whole:
            return self._cut_groups(most)
        ranked = sorted(range(len(rows)), key=lambda place: (rows[place].rank, place))
        kept = {id(rows[place]) for place in ranked[: max(1, most)]}
        left = [row for row in rows if id(row) not in kept]
        groups = (
            Group(tuple(row for row in group.rows if id(row) in kept), group.title) for group in self.groups
        )
        return tuple(group for group in groups if group.rows), self._left_out(left)

    def _cut_groups(self, most: int) -> tuple[tuple[Group, ...], str]:
        ranked = sorted(
            range(len(self.groups)), key=lambda place: (min(r.rank for r in self.groups[place].rows), place)
        )
        kept: set[int] = set()
        for place in ranked:
            most -= len(self.groups[place].rows)
            if kept and most < 0:
                break
            kept.add(place)
        left = [group.rows[0] for place, group in enumerate(self.groups) if place not in kept]
        return tuple(self.groups[place] for place in sorted(kept)), self._left_out(left)

    def _left_out(self, rows: list[Row]) -> str:
        kinds = Counter(row.kind for row in rows)
        what = counted(len(rows), f"more {self.noun}")
        if "" in kinds:
            return what
        if len(kinds) == 1:
            return f"{what}, {'all ' if len(rows) > 1 else ''}{next(iter(kinds))}"
        return f"{what}: {joined(f'{number:,} {kind}' for kind, number in kinds.most_common())}"


def table(
    columns: Iterable[str | Column],
    rows: Iterable[Iterable[Cell] | Row],
    *,
    title: str = "",
    note: str = "",
    view: View = View.ALL,
) -> Table:
    """Build a table without groups. A column given as text is aligned to the right if it begins with ">"."""
    made = tuple(row if isinstance(row, Row) else Row(tuple(row)) for row in rows)
    return Table(heads(*columns), (Group(made),), title, note, view=view)


def heads(*columns: str | Column) -> tuple[Column, ...]:
    """Build columns from names: ">blocks" is aligned to the right, "~condition" may wrap."""
    return tuple(
        column
        if isinstance(column, Column)
        else Column(column.lstrip(">~"), right=column.startswith(">"), wide=column.startswith("~"))
        for column in columns
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    rows: tuple[tuple[str, str], ...]
    view: View = View.LONG


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy. Control characters in it are escaped, line breaks are kept."""

    text: str
    label: str = ""
    view: View = View.ALL


@dataclass(frozen=True, slots=True)
class Claim:
    """A published claim, for a page.

    ``here`` holds the findings: numbers, condition, and the outcome if it differs by condition.
    """

    text: str
    source: str
    outcome: str
    tone: str
    published: str
    here: tuple[tuple[str, str, Words | None], ...]
    why: str = ""
    note: str = ""
    view: View = View.PAGE


@dataclass(frozen=True, slots=True)
class Drawn:
    """One figure on the page, with its caption and the numbers behind it (none if ``figure`` is None)."""

    drawings: tuple[Chart, ...]
    narrow: Chart | None = None
    title: str = ""
    seen: str = ""
    caption: str = ""
    figure: Figure | None = None
    apart: bool = False
    #: for each drawing, the data that the page's script needs to rotate it
    scenes: tuple[str, ...] = ()
    view: View = View.PAGE

    @classmethod
    def of(
        cls,
        figure: Figure,
        *,
        title: str = "",
        more: str = "",
        reading: bool = True,
        apart: bool = False,
        scenes: tuple[str, ...] = (),
    ) -> Drawn:
        """Place a figure on a page. ``more`` begins its caption, and ``reading`` says how to read it."""
        caption = " ".join(filter(None, (more, figure.reading if reading else "")))
        return cls(figure.parts, figure.narrow, title, figure.sentence, caption, figure, apart, scenes)

    @classmethod
    def all_of(cls, figures: Iterable[Figure]) -> tuple[Drawn, ...]:
        """Place figures of one kind under their titles; the text above them says how to read them all."""
        return tuple(cls.of(one, title=one.title, reading=False) for one in figures)


@dataclass(frozen=True, slots=True)
class Panels:
    """Figures in a grid, below the colour key of their arms."""

    figures: tuple[Drawn, ...]
    key: tuple[Arm, ...] = ()
    view: View = View.PAGE


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading. ``id`` makes it a section of the page; ``folded`` makes it collapsible there."""

    title: str
    blocks: tuple[Block, ...]
    id: str = ""
    lede: str = ""
    folded: bool = False
    open: bool = False
    view: View = View.ALL


Block = Note | Table | Facts | Code | Claim | Drawn | Panels | Section


#: the footer of a page that is no trial's
SELF_CONTAINED = "Made by iotrial. The page is self-contained: it loads nothing and runs no scripts."


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report.

    ``tone`` colours the headline; ``badges`` are shown below it on the page. ``kind`` ends the title of the page,
    ``top`` is its first line, and ``files`` is the prefix of the names of files saved from it. ``rest`` is the command
    that prints what was omitted for lack of space.
    """

    title: str
    headline: str
    tone: str
    blocks: tuple[Block, ...]
    question: str = ""
    badges: tuple[Words, ...] = ()
    kind: str = "iotrial report"
    top: tuple[str, ...] = ()
    footer: str = ""
    files: str = ""
    rest: str = ""


def shown_in(blocks: Iterable[Block], view: View) -> tuple[Block, ...]:
    """Return the blocks that a view shows, without empty sections."""
    found = []
    for block in blocks:
        if block.view & view and not (isinstance(block, Section) and not shown_in(block.blocks, view)):
            found.append(block)
    return tuple(found)


def figures_in(blocks: Iterable[Block]) -> Iterator[Drawn]:
    """Yield every figure, in the order of the page."""
    for block in blocks:
        if isinstance(block, Drawn):
            yield block
        elif isinstance(block, Panels):
            yield from block.figures
        elif isinstance(block, Section):
            yield from figures_in(block.blocks)
