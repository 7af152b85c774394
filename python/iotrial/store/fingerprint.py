"""One digest of all that a store holds of a trial: what was made of it before is still right where this is still the same.

Every row of every table is in it as it is stored, so that a value changed by whatever means gives another one. Rows are
serialised by ``marshal`` in its second version, which has neither references nor anything else that depends on the process.
"""

from __future__ import annotations

import hashlib
import marshal
import sqlite3
from collections.abc import Iterator

from iotrial.store.retrieval import runs_in_order

_MARSHAL = 2
_TOGETHER = 64
_OTHERS = ("state", "block_end", "event")


def fingerprint(connection: sqlite3.Connection, number: int) -> bytes:
    """32 bytes of the trial of this number. sqlite3.Error where it cannot be read.

    All rows are read: BENCHMARKS.md has what that takes.
    """
    digest = hashlib.sha256()
    as_before = connection.text_factory
    connection.text_factory = bytes  # as it is stored, be it text or not
    try:
        digest.update(_serialised(connection.execute("SELECT * FROM trial WHERE number = ?", (number,))))
        for table in _OTHERS:
            query = f"SELECT * FROM {table} WHERE trial = ? ORDER BY sequence"
            digest.update(_serialised(connection.execute(query, (number,))))
        found = runs_in_order(connection, "*", number)
        while some := [row for _, row in zip(range(_TOGETHER), found, strict=False)]:
            digest.update(_serialised(iter(some)))
    finally:
        connection.text_factory = as_before
    return digest.digest()


def changes_seen(connection: sqlite3.Connection) -> int:
    """A number that is another one once another connection has written to the file (SQLite, ``PRAGMA data_version``)."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _serialised(found: Iterator[tuple[object, ...]]) -> bytes:
    return marshal.dumps([*found], _MARSHAL)
