"""One figure as a value: what it is called, what is to be seen in it, the numbers behind it, and how it is drawn.

The page, the files of ``report --figures`` and whoever else shows a figure take the same value, so that picture, sentence and
numbers cannot disagree. Nothing is drawn before it is asked for.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from iotrial.report.conditions import EVERYWHERE

if TYPE_CHECKING:
    from iotrial.report.plots.canvas import Drawing
    from iotrial.report.series import Arm

Cell = str | int | float | None
Row = tuple[Cell, ...]

_LONGEST_STEM = 80
_UNFIT = re.compile(r"[^A-Za-z0-9._]+")
#: what a spreadsheet takes for a formula, and the blanks before it that a spreadsheet leaves out
_FORMULA = re.compile(r"^[\s\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    ``stem`` names its files, ``sentence`` says what is to be seen in this one, ``reading`` how figures of its kind are read.
    ``columns`` and ``rows`` are the numbers behind it, unrounded, with all that the picture leaves out. ``parts`` stand side
    by side (most have one), ``narrow`` is for narrow pages; ``key`` are the arms whose colours it uses.
    """

    stem: str
    title: str
    sentence: str
    reading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    parts: tuple[Drawing, ...]
    narrow: Drawing | None = None
    key: tuple[Arm, ...] = ()

    @property
    def drawing(self) -> Drawing:
        """Its first part, which is all of most figures."""
        return self.parts[0]


def stem(kind: str, *texts: str) -> str:
    """A name for files, e.g. "runs-cache-cold-size-4-KiB": letters, digits, dots and dashes, however hostile the texts."""
    parts = (kind, *(text for text in texts if text != EVERYWHERE))
    text = _UNFIT.sub("-", "-".join(parts))[:_LONGEST_STEM]
    return re.sub(r"-+", "-", text).strip(".-")


def headed(what: str, place: str) -> str:
    """A title: what is drawn, and where unless there is one condition only."""
    return what if place == EVERYWHERE else f"{what}: {place}"


def named(figures: Iterable[Figure]) -> Iterator[tuple[str, Figure]]:
    """Each figure with a name that no other has, also where case does not count: its stem, or that with a number."""
    taken: set[str] = set()
    for figure in figures:
        names = chain([figure.stem], (f"{figure.stem}-{number}" for number in count(2)))
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        yield name, figure


def csv_of(figure: Figure) -> str:
    """The numbers behind a figure as CSV (RFC 4180, a head line, UTF-8), numbers with all their digits."""
    return csv_text(figure.columns, figure.rows)


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """A table as CSV; texts that a spreadsheet would calculate are kept from it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_text(column) for column in columns])
    texts: dict[str, str] = {}  # words come again in row after row

    def cell_of(cell: Cell) -> Cell:
        if type(cell) is float:
            return cell if math.isfinite(cell) else ""  # which csv writes with all digits
        if type(cell) is str:
            found = texts.get(cell)
            if found is None:
                found = texts[cell] = _text(cell)
            return found
        return _text(cell)

    writer.writerows([*map(cell_of, row)] for row in rows)
    return out.getvalue()


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        # A lone surrogate, which only a forged trial has, is no character of any file.
        plain = cell.encode("utf-8", "replace").decode()
        return f"'{plain}" if _FORMULA.match(plain) else plain
    if isinstance(cell, int):
        return str(int(cell))
    return repr(float(cell)) if math.isfinite(cell) else ""
