"""The intervals of long trials, kept beside their store: a report that is asked for again finds them there.

Only the result of the search for an interval's ends is taken from the file. The runs are read and checked as ever, and the
contrasts made of them, whose digest an interval is kept under. What is damaged or of another shape is reckoned anew.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress

from iotrial.analysis.model import Interval
from iotrial.analysis.recall import WORTH_KEEPING, recalling
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
    """Intervals of this trial's contrasts are kept, where it is long and the folder takes a file."""
    long = len(data.ends) >= WORTH_KEEPING and store.path.is_file()
    connection = opened(beside(store.path), _TABLE) if long else None
    kept = None if connection is None else _Kept(connection)
    with nullcontext() if connection is None else closing(connection), recalling(kept):
        yield
        if kept is not None:
            kept.write()


class _Kept:
    """A recall in one table; what is new is written at the end, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._new: dict[bytes, Interval] = {}

    def get(self, key: bytes) -> Interval | None:
        with suppress(sqlite3.Error, ValueError, TypeError, RecursionError):
            row = self._connection.execute(
                "SELECT text FROM interval WHERE key = ? AND by = ?", (key, by())
            ).fetchone()
            return None if row is None else _sound(json.loads(row[0]))
        return None

    def put(self, key: bytes, found: Interval) -> None:
        self._new[key] = found

    def write(self) -> None:
        """Keeps what is new. Lost is what another process is just writing: it is made anew."""
        if not self._new:
            return
        rows = [
            (key, by(), json.dumps([i.estimate, i.low, i.high, i.p_anytime, i.e_value, i.blocks, i.empty]))
            for key, i in self._new.items()
        ]
        with suppress(sqlite3.Error):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR REPLACE INTO interval (key, by, text) VALUES (?, ?, ?)", rows
            )
            self._connection.execute(
                "DELETE FROM interval WHERE number <= (SELECT max(number) FROM interval) - ?", (_MOST,)
            )
            self._connection.execute("COMMIT")


def _sound(found: object) -> Interval | None:
    """An interval as it can come out of a search, or None."""
    if not isinstance(found, list) or len(found) != 7:
        return None
    estimate, low, high, p_anytime, e_value, blocks, empty = found
    if type(blocks) is not int or type(empty) is not bool or type(estimate) is not float:
        return None
    ends = [end for end in (low, high) if end is not None]
    if not all(type(one) is float and math.isfinite(one) for one in (estimate, p_anytime, e_value, *ends)):
        return None
    if not 0.0 <= p_anytime <= 1.0 or e_value < 0.0 or (len(ends) == 2 and low > high) or (empty and ends):
        return None
    return Interval(estimate, low, high, p_anytime, e_value, blocks, empty)
