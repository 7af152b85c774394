"""Numbers by name of many runs, kept as a table, and taken from it by the column.

Nearly all runs of a trial have the same names: one table then holds what else would be a dictionary for each of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]


class Table:
    """Numbers by row and name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = {name: column for column, name in enumerate(names)}
        self.numbers = array("d")
        self.rows = 0

    def add(self, numbers: Sequence[float]) -> NumbersOfRow:
        """Another row."""
        self.numbers.extend(numbers)
        self.rows += 1
        return NumbersOfRow(self, self.rows - 1)


class Tables:
    """A table for each list of names that rows have."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, ...], Table] = {}

    def row(self, numbers: Mapping[str, float]) -> NumbersOfRow:
        """The numbers as a row of the table of their names."""
        names = tuple(numbers)
        table = self._tables.get(names)
        if table is None:
            table = self._tables[names] = Table(names)
        return table.add([*numbers.values()])


class NumbersOfRow(Mapping[str, float]):
    """One row of a table, by name."""

    __slots__ = ("row", "table")

    def __init__(self, table: Table, row: int) -> None:
        self.table = table
        self.row = row

    def __getitem__(self, name: str) -> float:
        return self.table.numbers[self.row * len(self.table.columns) + self.table.columns[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.columns)

    def __len__(self) -> int:
        return len(self.table.columns)

    def __repr__(self) -> str:
        return repr(dict(self))


def shape_of(row: Mapping[str, float]) -> object:
    """What only rows with the same names in the same order share; of rows of a table the table, which needs no look."""
    return row.table if type(row) is NumbersOfRow else tuple(row)


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[Counts, Floats]]:
    """By name, in the order in which names first come up: which of the rows have it, and what."""
    everywhere: Counts = np.arange(len(rows), dtype=np.intp)
    # by type: isinstance asks the abstract base class, once for each of a hundred thousand rows
    kept = [row for row in rows if type(row) is NumbersOfRow]
    table = kept[0].table if kept and len(kept) == len(rows) else None
    if table is not None and all(row.table is table for row in kept):
        numbers = np.frombuffer(table.numbers, dtype=np.float64).reshape(table.rows, len(table.columns))
        own = numbers[[row.row for row in kept]]
        return {name: (everywhere, own[:, column].copy()) for name, column in table.columns.items()}
    names: dict[str, None] = {}
    shapes = {tuple(row): None for row in rows}
    if len(shapes) == 1:
        (same,) = shapes
        numbers = np.fromiter(
            chain.from_iterable(row.values() for row in rows), dtype=np.float64, count=len(rows) * len(same)
        ).reshape(len(rows), len(same))
        return {name: (everywhere, numbers[:, column].copy()) for column, name in enumerate(same)}
    for shape in shapes:
        names.update(dict.fromkeys(shape))
    found: dict[str, tuple[Counts, Floats]] = {}
    for name in names:
        places = [place for place, row in enumerate(rows) if name in row]
        values = [rows[place][name] for place in places]
        found[name] = np.array(places, dtype=np.intp), np.array(values, dtype=np.float64)
    return found
