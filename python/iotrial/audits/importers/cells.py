"""One cell of a table: a number, its unit, and the precision it was written with.

``1.25``, ``1,25 s``, ``1200 ms``, ``1.234,5``, ``12 %``, ``12.3 ± 0.4``, ``0m1.25s`` (the shell's ``time``). Whether a comma
or a point is the decimal mark is decided for each column, from its unambiguous cells: ``1,25`` has a decimal
comma, ``1,234.5`` a decimal point, ``1,234`` may be either. A column without unambiguous cells follows the
table's other columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iotrial.errors import RequestError
from iotrial.units import measured, scale_of

#: usual spellings of a missing number
MISSING = frozenset(
    {"-", "–", "—", "na", "n/a", "n.a.", "nan", "null", "inf", "+inf", "-inf", "infinity", "-infinity"}
    | {"#n/a", "#na", "#div/0!", "#value!", "#num!", "#ref!", "#name?", "#null!"}
)
_LONGEST = 80
#: units of counts and powers
_COUNTS = frozenset(
    {"iops", "ops", "op/s", "calls", "w", "watt", "watts", "j", "c", "°c", "1/s", "files", "inodes"}
)
#: what follows a mean: its spread
_SPREAD = re.compile(r"\s*(?:±|\+/-|\+-)\s*[0-9][0-9.,]*")
_GROUPING = " \u00a0\u2009\u202f'’"  # thousands: spaces of several widths, the Swiss apostrophe
_CELL = re.compile(rf"([+-]?[0-9.,{_GROUPING}]*[0-9][.,]?(?:[eE][+-]?[0-9]{{1,3}})?)(\s*)([^\d\s]{{0,20}})")
_MINUTES = re.compile(r"([0-9]{1,9})m\s?([0-9]{1,2}(?:[.,][0-9]{1,9})?)s")
_THREES = re.compile(r"[1-9][0-9]{0,2}(?:([.,])[0-9]{3})(?:\1[0-9]{3}){0,5}")
_NUMBERS = {
    mark: re.compile(
        rf"[+-]?(?:[0-9]{{1,18}}|[1-9][0-9]{{0,2}}(?:[{other}{_GROUPING}][0-9]{{3}}){{1,5}})?"
        rf"(?:{re.escape(mark)}(?:[0-9]{{1,40}}|(?![eE])))?(?:[eE][+-]?[0-9]{{1,3}})?"
    )
    for mark, other in ((".", ","), (",", "."))
}


class Mark(StrEnum):
    """A decimal mark. UNCLEAR: the column's cells are ambiguous or contradict each other."""

    POINT = "."
    COMMA = ","
    UNCLEAR = "?"


#: the words of ``--decimal`` and ``#: decimal =``
DECIMALS = {"point": Mark.POINT, "comma": Mark.COMMA}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it was written: in ``unit`` ("" if none is given), with ``decimals`` (None: an exponent)."""

    value: float
    unit: str
    decimals: int | None

    @property
    def measurable(self) -> bool:
        """Whether its magnitude is in the range of measurable values, or 0."""
        return measured(self.value) is not None


def is_missing(text: str) -> bool:
    """Return whether a cell is empty or a usual word for a missing number."""
    return not text or text.casefold() in MISSING


def parse_cell(text: str, mark: Mark = Mark.POINT) -> Quantity | None:
    """Parse the number in a cell; None for other text. Text with leading zeros (a mode, 0444) is a label.

    With an unclear mark, return a number if either reading gives one; its value is then meaningless.
    """
    if mark is Mark.UNCLEAR:
        return parse_cell(text, Mark.COMMA) or parse_cell(text, Mark.POINT)
    parts = _split(text)
    if parts is None:
        return None
    number, unit = parts
    if not _NUMBERS[mark].fullmatch(number) or re.match(r"[+-]?0[0-9]", number):
        return None
    for grouping in (Mark.COMMA if mark is Mark.POINT else Mark.POINT, *_GROUPING):
        number = number.replace(grouping, "")
    number = number.replace(",", ".")
    decimals = None if "e" in number.casefold() else len(number.partition(".")[2])
    minutes = 0
    if unit == "m:s":
        minutes, unit = int(text.partition("m")[0]), "s"
    return Quantity(60.0 * minutes + float(number), unit, decimals)


def _split(text: str) -> tuple[str, str] | None:
    """Split number and unit as they are written; the unit "m:s" marks the minutes of a shell's ``time``."""
    text = _SPREAD.sub(" ", text.strip()[: _LONGEST + 1]).strip()
    if len(text) > _LONGEST:
        return None
    if minutes := _MINUTES.fullmatch(text):
        return re.sub("^0(?=[0-9])", "", minutes[2]), "m:s"
    match = _CELL.fullmatch(text)
    if match is None:
        return None
    number, unit = match[1], match[3]
    return (number, unit) if is_unit(unit) else None  # else a label, such as 4k, 2x or "1 Client"


def is_unit(text: str) -> bool:
    """Return whether text after a number is a unit: none at all, one of time, size or rate, or a usual count."""
    return (
        not text
        or text.endswith("%")
        or scale_of(text) is not None
        or text.casefold() in _COUNTS
        or (text.endswith(("/s", "/sec", "/op", "ps")) and len(text) > 2 and any(map(str.isalpha, text[:-2])))
    )


def marks_of(columns: Mapping[str, Sequence[str]], *, semicolons: bool = False) -> dict[str, Mark]:
    """Return the decimal mark of each column. ``semicolons`` separate them, as where commas are decimal marks."""
    if not semicolons and not any(
        "," in cell or cell.count(".") > 1 for cells in columns.values() for cell in cells
    ):
        return dict.fromkeys(columns, Mark.POINT)
    marks = {name: _marks_in(cells) for name, cells in columns.items()}
    sure = {next(iter(found)) for found in marks.values() if len(found) == 1}
    return {name: _mark(marks[name], cells, sure, semicolons) for name, cells in columns.items()}


def _mark(marks: set[Mark], cells: Sequence[str], sure: set[Mark], semicolons: bool) -> Mark:
    if len(marks) == 1:
        return next(iter(marks))
    if len(marks) > 1:
        return Mark.UNCLEAR
    unclear = {mark for cell in cells if (mark := _in_threes(cell)) is not None}
    if not unclear:
        return Mark.POINT
    if unclear == {
        Mark.POINT
    }:  # 1.234 is a number with three decimals, unless commas may be the decimal marks
        return Mark.UNCLEAR if Mark.COMMA in sure or (semicolons and Mark.POINT not in sure) else Mark.POINT
    return next(iter(sure)) if len(sure) == 1 else Mark.UNCLEAR


def _marks_in(cells: Sequence[str]) -> set[Mark]:
    """Return the decimal marks that the cells of a column require."""
    return {mark for cell in cells if (mark := required_mark(cell)) is not None}


def required_mark(text: str) -> Mark | None:
    """Return the decimal mark that a cell must have; None if it is not determined."""
    parts = _split(text)
    if parts is None or not ("," in parts[0] or "." in parts[0]):
        return None
    number = parts[0]
    ways = [mark for mark in (Mark.POINT, Mark.COMMA) if _NUMBERS[mark].fullmatch(number)]
    return ways[0] if len(ways) == 1 else None


def _in_threes(text: str) -> Mark | None:
    """Return the mark in a number such as 1,234 or 1.234, which may be a decimal or thousands mark."""
    parts = _split(text)
    if parts is None or required_mark(text) is not None:
        return None
    match = _THREES.fullmatch(parts[0].lstrip("+-"))
    return Mark(match[1]) if match else None


def unclear(column: str, cells: Sequence[str], where: str) -> RequestError:
    """Return an error that names the cells which leave the decimal mark of a column ambiguous."""
    rows: dict[Mark | None, str] = {}
    for row, cell in enumerate(cells, start=1):
        if (mark := required_mark(cell)) is not None:
            rows.setdefault(mark, f'row {row} "{cell[:40]}"')
        elif _in_threes(cell) is not None:
            rows.setdefault(None, f'row {row} "{cell[:40]}"')
    if Mark.COMMA in rows and Mark.POINT in rows:
        why = f"{rows[Mark.COMMA]} has a decimal comma, {rows[Mark.POINT]} a decimal point"
    else:
        why = f"{rows.get(None, 'a cell')} is ambiguous: decimal mark or thousands separator?"
    return RequestError(
        f"{where}: column {column}: {why}",
        hint='say which it is: --decimal comma or --decimal point (in the file: "#: decimal = comma")',
    )
