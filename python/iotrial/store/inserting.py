"""The statements that add rows to a store."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from iotrial.store import records
from iotrial.store.model import TrialHeader

INSERT_RUN = (
    f"INSERT INTO run (trial, attempt, at, {records.RUN_COLUMNS}) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_END = f"INSERT INTO block_end (trial, {records.END_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_EVENT = "INSERT INTO event (trial, at, kind, text) VALUES (?, ?, ?, ?)"
INSERT_STATE = "INSERT INTO state (trial, at, state, reason, pid, pid_started) VALUES (?, ?, ?, ?, ?, ?)"


def insert_trial(connection: sqlite3.Connection, header: TrialHeader) -> int:
    """A row in ``trial``; gives its number."""
    columns = records.HEADER_COLUMNS
    marks = ", ".join("?" * len(columns.split(",")))
    cursor = connection.execute(f"INSERT INTO trial ({columns}) VALUES ({marks})", records.header_row(header))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
