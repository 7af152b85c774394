"""The intervals of long trials, kept beside their store: a report that is asked for again finds them there.

Only the result of the search for an interval's ends is taken from the file. The runs are read and checked as ever, and the
contrasts made of them, whose digest an interval is kept under. What is damaged or of another shape is reckoned anew.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress

from iotrial.analysis.model import Interval
from iotrial.analysis.recall import WORTH_KEEPING, as_list, of_list, recalling
from iotrial.report.beside import beside, by, opened
from iotrial.store import Store
from iotrial.store.model import TrialData

_MOST = 50_000  # the oldest go first
_TABLE = """
CREATE TABLE IF NOT EXISTS interval (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, by TEXT NOT NULL, text TEXT NOT NULL
) STRICT
"""


@contextmanager
def kept_beside(store: Store, data: TrialData) -> Iterator[None]:
    """Intervals of this trial's contrasts are kept where it is long: beside the store, where that folder takes a file, and
    until it is analysed in any case."""
    if len(data.ends) < WORTH_KEEPING:
        yield
        return
    connection = opened(beside(store.path), _TABLE) if store.path.is_file() else None
    kept = _Kept(connection)
    with nullcontext() if connection is None else closing(connection), recalling(kept):
        yield
        kept.write()


class _Kept:
    """A recall in one table; what is new is written at the end, in one transaction."""

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._connection = connection
        self._new: dict[bytes, Interval] = {}

    def get(self, key: bytes) -> Interval | None:
        if self._connection is None or key in self._new:
            return self._new.get(key)
        with suppress(sqlite3.Error, ValueError, TypeError, RecursionError):
            row = self._connection.execute(
                "SELECT text FROM interval WHERE key = ? AND by = ?", (key, by())
            ).fetchone()
            return None if row is None else of_list(json.loads(row[0]))
        return None

    def put(self, key: bytes, found: Interval) -> None:
        self._new[key] = found

    def write(self) -> None:
        """Keeps what is new. Lost is what another process is just writing: it is made anew."""
        if self._connection is None or not self._new:
            return
        rows = [(key, by(), json.dumps(as_list(found))) for key, found in self._new.items()]
        with suppress(sqlite3.Error):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR REPLACE INTO interval (key, by, text) VALUES (?, ?, ?)", rows
            )
            self._connection.execute(
                "DELETE FROM interval WHERE number <= (SELECT max(number) FROM interval) - ?", (_MOST,)
            )
            self._connection.execute("COMMIT")
