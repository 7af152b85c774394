"""The statements that add rows to a store; their values come from ``iotrial.store.checksums.sealed``."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from iotrial.store import records
from iotrial.store.checksums import checksum
from iotrial.store.model import TrialHeader

INSERT_RUN = (
    f"INSERT INTO run (trial, {records.STORED_RUN_COLUMNS}, checksum) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_END = (
    f"INSERT INTO block_end (trial, {records.END_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_EVENT = "INSERT INTO event (trial, at, kind, text, checksum) VALUES (?, ?, ?, ?, ?)"
INSERT_STATE = f"INSERT INTO state (trial, {records.STATE_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"


def insert_trial(connection: sqlite3.Connection, header: TrialHeader) -> int:
    """A row in ``trial``; gives its number."""
    columns = records.HEADER_COLUMNS
    row = records.header_row(header)
    marks = ", ".join("?" * (len(row) + 1))
    cursor = connection.execute(
        f"INSERT INTO trial ({columns}, checksum) VALUES ({marks})",
        (*row, checksum("trial", header.id, row)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
