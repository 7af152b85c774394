"""A checksum with each record of a store: what was changed inside its cell, which SQLite cannot see, is found and named.

It is the CRC-32 (zlib) of the JSON text of ``[table, id of the trial, values ...]``: the values of the columns that the
record was stored with, in the order of its INSERT. Records of a store that an older iotrial wrote have none, and
are taken as they are; where a trial's own row has one, each of its records must.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import msgspec

from iotrial.errors import StoreError

Row = tuple[Any, ...]
_encoded = msgspec.json.Encoder().encode
HINT = (
    "no verdict is drawn from it; other trials of this store are not affected: take this one from another copy of the store, "
    "or from a packed copy (`iotrial report FILE.iotrial`)"
)


def checksum(table: str, trial: str, row: Iterable[object]) -> int:
    """Of one record; ``trial``: its id. A number of 32 bits."""
    return crc32(_encoded((table, trial, *row)))


def sealed(table: str, trial: str, number: int, row: Row) -> Row:
    """The values for an INSERT of ``iotrial.store.inserting``: the trial's number, the record, its checksum."""
    return (number, *row, checksum(table, trial, row))


class Seals:
    """The checksums of one trial's records."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self._number = number
        self._column = has_checksums(connection)
        found = connection.execute(
            f"SELECT id, {self._column} FROM trial WHERE number = ?", (number,)
        ).fetchone()
        self._trial: str = found[0] if found is not None else ""
        self._required = found is not None and found[1] is not None

    def columns(self, names: str) -> str:
        """What to select for ``checked``; ``names``: the columns that are stored, in their order."""
        return f"{names}, {self._column}"

    def checked(self, table: str, found: Iterable[Row]) -> Iterator[Row]:
        """The rows without their checksums. StoreError at the first that is not as it was stored."""
        trial, required = self._trial, self._required
        for place, row in enumerate(found, start=1):
            *values, stored = row
            without = stored is None and not required
            if not without and stored != checksum(table, trial, values):
                raise StoreError(
                    f"trial {self._number} is damaged: {_named(table, place, values)} is not as it was stored: its checksum "
                    + ("is missing" if stored is None else "differs"),
                    hint=HINT,
                )
            yield tuple(values)


def has_checksums(connection: sqlite3.Connection) -> str:
    """The column to select: that of the checksums, or NULL in a store of an older iotrial that is only read."""
    names = [name for _, name, *_ in connection.execute("PRAGMA table_info(trial)")]
    return "checksum" if "checksum" in names else "NULL"


def _named(table: str, place: int, values: list[Any]) -> str:
    if table == "trial":
        return "its header"
    if table == "run":
        _, _, condition, block, slot, *_ = values
        return f'run {place} (slot {slot} of block {block} of "{str(condition)[:80]}")'
    if table == "block_end":
        condition, block, *_ = values
        return f'the end of block {block} of "{str(condition)[:80]}"'
    return f"{table} {place}"
