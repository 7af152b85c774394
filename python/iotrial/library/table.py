"""Base class of the library's lists: a sequence with a data frame and a display.

Every list that the library returns (effects, runs, trials ...) is a ``Table``: immutable, slices have the
same type, with ``frame()`` for pandas and a display for terminals and notebooks. A subclass only defines its
columns and cells.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from iotrial.errors import RequestError
from iotrial.library.display import Card, Displayed, text
from iotrial.report.notation import counted

if TYPE_CHECKING:
    from pandas import DataFrame


# Columns of values as a pandas data frame. pandas is an optional extra and is imported only here.


INSTALL = "pip install 'iotrial[frames]'"


def pandas() -> Any:
    """Return the pandas module. Raises RequestError with the install command if it is missing."""
    try:
        import pandas as found
    except ImportError as error:
        raise RequestError("a data frame needs pandas, which is not installed here", hint=INSTALL) from error
    return found


def frame_of(columns: Sequence[Column[Row]], rows: Sequence[Row], facts: Mapping[str, object]) -> DataFrame:
    """Build a data frame, one row per value; ``facts`` and the columns' units become ``attrs``, JSON-compatible."""
    pd = pandas()
    found = {_text(column.name): _values(pd, column, [column.of(row) for row in rows]) for column in columns}
    frame = pd.DataFrame(found, columns=list(found))
    units = {_text(column.name): _text(column.unit) for column in columns if column.unit}
    frame.attrs = {**{name: _text(value) for name, value in facts.items()}, "units": units}
    made: DataFrame = frame
    return made


def _values(pd: Any, column: Column[Row], values: Sequence[Any]) -> Any:
    if column.kind in ("label", "text"):
        values = [_text(value) for value in values]
    if column.kind == "label":
        occurring = dict.fromkeys(value for value in values if value is not None)
        known = [label for label in map(_text, column.order) if label in occurring]
        return pd.Categorical(values, categories=list(dict.fromkeys((*known, *occurring))))
    if column.kind == "number":
        return pd.array([math.nan if value is None else float(value) for value in values], dtype="float64")
    if column.kind == "count":
        return pd.array(values, dtype="int64")
    if column.kind == "flag":
        return pd.array(values, dtype="bool")
    if column.kind == "time":
        return pd.to_datetime(list(values), utc=True)
    return pd.array(values, dtype="string")


def _text(value: Any) -> Any:
    """Escape lone surrogates in text: an imported trial may contain them and Arrow rejects them."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Row = TypeVar("Row")
Kind = Literal["label", "number", "count", "flag", "text", "time"]


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a data frame.

    ``kind`` determines its dtype (``frames.py``); ``order`` lists the categories of a label, of which only
    those that occur are used.
    """

    name: str
    kind: Kind
    of: Callable[[Row], object]
    unit: str | None = None
    order: Sequence[str] = ()


def fields(kind: Kind, *names: str) -> list[Column[Any]]:
    """Return columns of one kind, without unit, with the attributes of these names."""
    return [Column(name, kind, attrgetter(name)) for name in names]


def copied(kind: Callable[..., Row], source: object, /, **more: object) -> Row:
    """Return a value of this dataclass: fields as in ``more``, all others as the attributes of the source."""
    rest = (field.name for field in dataclasses.fields(kind) if field.name not in more)  # type: ignore[arg-type]
    return kind(**more, **{name: getattr(source, name) for name in rest})


class Table(Sequence[Row], Displayed):
    """An immutable sequence of values of one kind."""

    noun: ClassVar[str] = "value"
    heads: ClassVar[tuple[str, ...]] = ()
    #: maximum rows in a display; a data frame has all
    most_shown: ClassVar[int] = 40

    def __init__(
        self,
        rows: Iterable[Row],
        facts: Mapping[str, object] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Create a table. ``facts`` become ``attrs`` of the data frame; ``orders``: the order of each factor's labels."""
        self._rows = tuple(rows)
        self._facts = dict(facts or {})
        self._orders = dict(orders or {})

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        return self._of(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]  # rows hold mappings

    def where(self, test: Callable[[Row], bool]) -> Self:
        """Return the rows for which ``test`` is true, as the same kind of table."""
        return self._of(row for row in self._rows if test(row))

    def frame(self) -> DataFrame:
        """Return a pandas data frame, one row per value.

        Labels are categorical, numbers float64 (NaN: unknown), counts int64. ``attrs["units"]`` has the unit
        of each column that has one; ``attrs`` also identifies the trial. Raises RequestError if pandas is
        missing.
        """
        return frame_of(self._columns(), self._rows, self._facts)

    def __repr__(self) -> str:
        return text(self._card())

    # -- defined by subclasses

    def _columns(self) -> list[Column[Row]]:
        raise NotImplementedError

    def _cells(self, row: Row) -> tuple[str, ...]:
        raise NotImplementedError

    def _with_conditions(
        self, fixed: Sequence[Column[Row]], at: int, of: str = "condition"
    ) -> list[Column[Row]]:
        """Return these columns, with one for each factor in the rows' attribute ``of`` inserted at position ``at``."""
        levels_of: Callable[[Any], Mapping[str, str]] = attrgetter(of)
        taken = {column.name for column in fixed}
        levels = levels_columns("condition", names_in(map(levels_of, self)), taken, levels_of, self._orders)
        return [*fixed[:at], *levels, *fixed[at:]]

    def _of(self, rows: Iterable[Row]) -> Self:
        return type(self)(rows, self._facts, self._orders)

    def _card(self) -> Card:
        shown = self._rows[: self.most_shown]
        return Card(
            title=counted(len(self), self.noun),
            heads=self.heads,
            rows=tuple(self._cells(row) for row in shown),
            left_out=len(self) - len(shown),
        )


def levels_columns(
    prefix: str,
    names: Sequence[str],
    taken: set[str],
    of: Callable[[Any], Mapping[str, str]],
    orders: Mapping[str, Sequence[str]],
) -> list[Column[Any]]:
    """Return one label column per factor, named after it, or ``prefix:name`` if that name is taken."""
    columns: list[Column[Any]] = []
    for name in names:
        title = name if name not in taken else f"{prefix}:{name}"
        taken.add(title)

        def label(row: Any, name: str = name) -> str | None:
            return of(row).get(name)

        columns.append(Column(title, "label", label, order=orders.get(name, ())))
    return columns


def names_in(levels: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the names of all factors that occur, in order of first occurrence."""
    return list(dict.fromkeys(name for one in levels for name in one))
