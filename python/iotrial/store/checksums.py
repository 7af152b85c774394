"""Checksums of a store's records: they detect a value changed inside its cell, which SQLite cannot detect.

A checksum is the CRC-32 (zlib) of the JSON text of ``[table, id of the trial, values ...]``, with the values
of the columns that the record was stored with in the order of its INSERT, followed by the decimal digits of
the record's own number (``sequence``; of a trial ``number``), which the database assigns. Records written by
an older iotrial have none and are accepted as they are. If a trial's own row has one, each of its records
must.

The statements that add rows are here too, since SQL calls the checksum function where it assigns the record's
number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol
from zlib import crc32

import msgspec

from iotrial.errors import StoreError
from iotrial.store import records
from iotrial.store.model import TrialHeader

Row = tuple[Any, ...]
_encoded = msgspec.json.Encoder().encode
HINT = (
    "no verdict is given; other trials of this store are not affected: restore this one from a backup of the "
    "store, or from a packed copy (`iotrial report FILE.iotrial`)"
)


def checksum(table: str, trial: str, row: Iterable[object]) -> int:
    """Return the 32-bit checksum of a record without its number; ``trial``: the trial's ID."""
    return crc32(_encoded((table, trial, *row)))


def numbered(unnumbered: int, sequence: int) -> int:
    """Return the checksum to store: of the record and its number. SQL calls it where it assigns the number."""
    return crc32(b"%d" % sequence, unnumbered)


def sealed(table: str, trial: str, number: int, row: Row) -> Row:
    """Return the values for an INSERT of ``iotrial.store.checksums``: the trial's number, the record, its
    unnumbered checksum.
    """
    return (number, *row, checksum(table, trial, row))


class Digest(Protocol):
    """A hash of ``hashlib``."""

    def update(self, data: bytes, /) -> None:
        """Add these bytes."""


class Seals:
    """Verifies the checksums of one trial's records. ``digest`` is updated with every record that is read."""

    def __init__(self, connection: sqlite3.Connection, number: int, digest: Digest | None = None) -> None:
        self._number = number
        self._digest = digest
        self._connection = connection
        self._column = has_checksums(connection)
        found = connection.execute(
            f"SELECT id, {self._column} FROM trial WHERE number = ?", (number,)
        ).fetchone()
        self._trial: str = found[0] if found is not None else ""
        self._required = found is not None and found[1] is not None

    def columns(self, names: str, own: str = "sequence") -> str:
        """Return the columns to select for ``checked``.

        ``names``: the stored columns, in order; ``own``: the column of the record's number.
        """
        return f"{names}, {own}, {self._column}"

    def checked(self, table: str, found: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows without numbers and checksums. StoreError at the first that is not as it was stored."""
        trial, required, digest = self._trial, self._required, self._digest
        for place, row in enumerate(found, start=1):
            *values, sequence, stored = row
            without = stored is None and not required
            encoded = b"" if without and digest is None else _encoded((table, trial, *values))
            if not without and stored != numbered(crc32(encoded), sequence):
                raise StoreError(
                    f"trial {self._number} is damaged: {_named(table, place, values)} has changed: its checksum "
                    + ("is missing" if stored is None else "differs"),
                    hint=HINT,
                )
            if digest is not None:
                digest.update(b"%s %d\n" % (encoded, sequence))
            yield tuple(values)

    def refuse_lost(self, tables: Iterable[str] = ("state", "run", "block_end", "event")) -> None:
        """Raise StoreError if a record of this trial cannot be found by the trial's number.

        Then the number in the record, or the one in the index, has changed. Scans the numbers of all records
        without the indexes.
        """
        for table in tables:
            with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                # A damaged page makes the scan fail. The check on opening finds that, and readers do without
                # a damaged index.
                self._refuse_lost(table)

    def _refuse_lost(self, table: str) -> None:
        connection = self._connection
        found, through_index = (
            connection.execute(
                f"SELECT count(*) FROM {table}{how} WHERE trial = ?", (self._number,)
            ).fetchone()[0]
            for how in (" NOT INDEXED", "")
        )
        if found != through_index:
            raise StoreError(
                f"trial {self._number} is damaged: {table}: its index finds {through_index} of {found} records",
                hint=HINT,
            )
        strays = connection.execute(
            f"SELECT {self.columns(_OF_A_TRIAL[table])} FROM {table} NOT INDEXED "
            "WHERE trial NOT IN (SELECT number FROM trial)"
        )
        for *values, sequence, stored in strays:
            if stored is not None and stored == numbered(checksum(table, self._trial, values), sequence):
                raise StoreError(
                    f"trial {self._number} is damaged: {_named(table, 0, values)} "
                    "is stored under the number of another trial",
                    hint=HINT,
                )


_OF_A_TRIAL = {
    "state": records.STATE_COLUMNS,
    "run": records.STORED_RUN_COLUMNS,
    "block_end": records.END_COLUMNS,
    "event": records.EVENT_COLUMNS,
}


def all_as_stored(connection: sqlite3.Connection) -> bool:
    """Return whether every trial's own row and states match their stored checksums. Runs are not read."""
    column = has_checksums(connection)
    if column == "NULL":
        return True
    required: dict[object, str] = {}
    for number, stored, *row in connection.execute(
        f"SELECT number, checksum, {records.HEADER_COLUMNS} FROM trial"
    ):
        if stored is not None:
            required[number] = row[0]
            if stored != numbered(checksum("trial", row[0], row), number):
                return False
    for number, sequence, stored, *row in connection.execute(
        f"SELECT trial, sequence, checksum, {records.STATE_COLUMNS} FROM state"
    ):
        if stored is None and number not in required:
            continue
        if stored != numbered(checksum("state", required.get(number, ""), row), sequence):
            return False
    return True


def has_checksums(connection: sqlite3.Connection) -> str:
    """Return the checksum column to select; NULL in an older iotrial's store that is opened read-only."""
    names = [name for _, name, *_ in connection.execute("PRAGMA table_info(trial)")]
    return "checksum" if "checksum" in names else "NULL"


def _named(table: str, place: int, values: list[Any]) -> str:
    if table == "trial":
        return "its header"
    if table == "run":
        _, _, condition, block, slot, *_ = values
        return f'{f"run {place}" if place else "a run"} (slot {slot} of block {block} of "{str(condition)[:80]}")'
    if table == "block_end":
        condition, block, *_ = values
        return f'the end of block {block} of "{str(condition)[:80]}"'
    return f"{table} {place}" if place else f"a record of {table}"


def _insert(table: str, columns: str, own: str = "sequence") -> str:
    """Return an INSERT that takes ``columns`` and the unnumbered checksum; the row's number is the highest plus one."""
    marks = ", ".join("?" for _ in columns.split(","))
    return (
        f"INSERT INTO {table} ({own}, {columns}, checksum) SELECT next, {marks}, numbered(?, next) "
        f"FROM (SELECT coalesce(max({own}), 0) + 1 AS next FROM {table})"
    )


INSERT_RUN = _insert("run", f"trial, {records.STORED_RUN_COLUMNS}")
INSERT_END = _insert("block_end", f"trial, {records.END_COLUMNS}")
INSERT_EVENT = _insert("event", f"trial, {records.EVENT_COLUMNS}")
INSERT_STATE = _insert("state", f"trial, {records.STATE_COLUMNS}")
_INSERT_TRIAL = _insert("trial", records.HEADER_COLUMNS, own="number")


def prepare(connection: sqlite3.Connection) -> None:
    """Register the SQL function that these statements call."""
    connection.create_function("numbered", 2, numbered, deterministic=True)


def insert_trial(connection: sqlite3.Connection, header: TrialHeader) -> int:
    """Insert a row into ``trial``; return its number."""
    row = records.header_row(header)
    cursor = connection.execute(_INSERT_TRIAL, (*row, checksum("trial", header.id, row)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def now() -> str:
    """Return the current time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
