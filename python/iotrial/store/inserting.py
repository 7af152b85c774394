"""The statements that add rows to a store; their values come from ``iotrial.store.checksums.sealed``."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from iotrial.store import records
from iotrial.store.checksums import checksum, numbered
from iotrial.store.model import TrialHeader


def _insert(table: str, columns: str, own: str = "sequence") -> str:
    """Takes the values of ``columns`` and the checksum without number; the new row's number is one more than the highest."""
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
    """Make known to a connection what these statements call."""
    connection.create_function("numbered", 2, numbered, deterministic=True)


def insert_trial(connection: sqlite3.Connection, header: TrialHeader) -> int:
    """A row in ``trial``; gives its number."""
    row = records.header_row(header)
    cursor = connection.execute(_INSERT_TRIAL, (*row, checksum("trial", header.id, row)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
