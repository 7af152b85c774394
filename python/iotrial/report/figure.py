"""One figure as a value: title, sentence, numbers and charts.

The page, the files of ``report --figures`` and other users of a figure share the same value, so that picture, sentence
and numbers cannot disagree. A chart becomes SVG only where it is shown.
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

from iotrial.report.chart import Chart, arm_entries, standalone
from iotrial.report.conditions import EVERYWHERE

if TYPE_CHECKING:
    from iotrial.report.series import Arm

Cell = str | int | float | None
Row = tuple[Cell, ...]

_LONGEST_STEM = 80
_UNFIT = re.compile(r"[^A-Za-z0-9._]+")
#: what a spreadsheet takes for a formula, after leading blanks, which spreadsheets ignore
_FORMULA = re.compile(r"^[\s\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    ``stem`` names its files, ``sentence`` says what this figure shows, ``reading`` how to read figures of its kind.
    ``columns`` and ``rows`` are the numbers behind it, unrounded, including all that the picture omits. ``parts`` are
    placed side by side (most figures have one); ``narrow`` is for narrow pages; ``key`` lists the arms that
    its colours stand for.
    """

    stem: str
    title: str
    sentence: str
    reading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    parts: tuple[Chart, ...]
    narrow: Chart | None = None
    key: tuple[Arm, ...] = ()

    @property
    def drawing(self) -> Chart:
        """The first part; most figures have only this one."""
        return self.parts[0]


def svg_of(figure: Figure) -> bytes:
    """Return the figure as an SVG file: with title and key, in light colours, without any reference to something else."""
    about = f"{figure.sentence} {figure.reading}".strip()
    return standalone(figure.title, about, figure.parts, arm_entries(figure.key))


def stem(kind: str, *texts: str) -> str:
    """Return a safe file name, e.g. "runs-cache-cold-size-4-KiB": only letters, digits, dots and dashes, for any input."""
    parts = (kind, *(text for text in texts if text != EVERYWHERE))
    text = _UNFIT.sub("-", "-".join(parts))[:_LONGEST_STEM]
    return re.sub(r"-+", "-", text).strip(".-")


def headed(what: str, place: str) -> str:
    """Return a title: the question that the figure answers, and the condition unless there is only one."""
    return what if place == EVERYWHERE else f"{what} ({place})"


def named(figures: Iterable[Figure]) -> Iterator[tuple[str, Figure]]:
    """Yield each figure with a unique name (also if case is ignored): its stem, with a number appended if needed."""
    taken: set[str] = set()
    for figure in figures:
        names = chain([figure.stem], (f"{figure.stem}-{number}" for number in count(2)))
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        yield name, figure


def csv_of(figure: Figure) -> str:
    """Return the numbers behind a figure as CSV (RFC 4180, with header, UTF-8), with all their digits."""
    return csv_text(figure.columns, figure.rows)


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """Format a table as CSV, with texts that a spreadsheet would evaluate made safe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_text(column) for column in columns])
    texts: dict[str, str] = {}  # cache: the same texts occur in many rows

    def cell_of(cell: Cell) -> Cell:
        if type(cell) is float:
            return cell if math.isfinite(cell) else ""  # csv writes floats with all digits
        if type(cell) is str:
            found = texts.get(cell)
            if found is None:
                found = texts[cell] = _text(cell)
            return found
        return _text(cell)

    writer.writerows([*map(cell_of, row)] for row in rows)
    return out.getvalue()


def no_formula(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        # Only a forged trial has lone surrogates; no file can encode them.
        return no_formula(cell.encode("utf-8", "replace").decode())
    if isinstance(cell, int):
        return str(int(cell))
    return repr(float(cell)) if math.isfinite(cell) else ""
