"""Stored analyses: what a trial that has ended says is computed once, and read by reports, comparisons, lists and web pages.

They lie beside the store (``trials.analysed`` for ``trials.db``), not in it: a store is never changed by its readers, and a
running trial never waits for one. The file may be deleted at any time.

Each analysis is stored under a digest of all that decides it: the version of the method, every row of the trial, and the
level (``Key``). It comes back only with a digest of its own, so a damaged one is computed again. A packed file holds no
analysis: whoever made the file could have written anything there.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import numpy as np

import iotrial
from iotrial.analysis.analyse import METHOD
from iotrial.analysis.model import Analysis
from iotrial.report.analysed import Analysed

T = TypeVar("T")

#: bytes of one analysis, and of all of them compressed: the oldest go first
_LARGEST = 256 << 20
_ROOM = 256 << 20
_DIGEST_SIZE = hashlib.sha256().digest_size
#: of what is stored: numbers are the method's, sentences this release's
VERSION = f"{METHOD} {iotrial.__version__}"
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS analysis (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, method TEXT NOT NULL, trial TEXT NOT NULL, share INTEGER NOT NULL,
    mark TEXT NOT NULL, summary BLOB NOT NULL, analysis BLOB NOT NULL
) STRICT
""",
    "CREATE INDEX IF NOT EXISTS analysis_of_trial ON analysis (trial, share, number)",
    # of earlier versions
    "DROP TABLE IF EXISTS report",
    "DROP TABLE IF EXISTS interval",
    "DROP TABLE IF EXISTS analysed",
    "DROP TABLE IF EXISTS summed_up",
)
_INSERT = """
INSERT OR REPLACE INTO analysis (key, method, trial, share, mark, summary, analysis) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_KEEP_NEWEST = """
DELETE FROM analysis WHERE number IN (
    SELECT number FROM (
        SELECT number, sum(length(summary) + length(analysis)) OVER (ORDER BY number DESC) AS held FROM analysis
    ) WHERE held > ?
)
"""


@dataclass(frozen=True, slots=True)
class Key:
    """Which trial, as it was when it was read: ``rows`` is a digest of all that is stored of it, ``mark`` changes when
    something is added to it (``Store.mark``; empty for a packed trial)."""

    trial: str
    rows: bytes
    mark: str = ""

    def at(self, share: int) -> bytes:
        """The digest for an analysis at the trial's level over ``share``."""
        return hashlib.sha256(repr((VERSION, self.trial, self.rows, self.mark, share)).encode()).digest()


def beside(store: Path) -> Path:
    """The file of analyses of this store."""
    return store.with_suffix(".analysed")


class Analyses:
    """The stored analyses of the trials of a store, and of packed trials reported beside it. Use it as a context.

    Where there is no store, or the file cannot be made, nothing is found or stored.
    """

    def __init__(self, store: Path) -> None:
        self._connection = opened(store, _TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def analysis(self, key: Key) -> Analysis | None:
        """The analysis of exactly these rows at the trial's own level."""
        return self._found(_ANALYSES, "analysis", "key = ?", key.at(1))

    def summary(self, key: Key, *, share: int = 1) -> Analysed | None:
        """The summary of exactly these rows at this level."""
        return self._found(_SUMMARIES, "summary", "key = ?", key.at(share))

    def newest_summary(self, trial: str, mark: str, *, share: int = 1) -> Analysed | None:
        """The summary of a trial to which nothing was added since. Its rows are not read: for pages with many trials."""
        where = "trial = ? AND share = ? AND mark = ? ORDER BY number DESC LIMIT 1"
        return self._found(_SUMMARIES, "summary", where, trial, share, mark)

    def store(self, key: Key, analysis: Analysis, summary: Analysed, *, share: int = 1) -> None:
        """Store both. Lost, to be computed again, where another process is writing just now."""
        if self._connection is None:
            return
        place = (key.at(share), VERSION, key.trial, share, key.mark)
        contents = [sealed(place, name, one) for name, one in (("summary", summary), ("analysis", analysis))]
        with suppress(sqlite3.Error):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_INSERT, (*place, *contents))
            self._connection.execute(_KEEP_NEWEST, (_ROOM,))
            self._connection.execute("COMMIT")

    def _found(self, decoder: msgspec.msgpack.Decoder[T], name: str, where: str, *values: object) -> T | None:
        if self._connection is None:
            return None
        with suppress(sqlite3.Error, ValueError, TypeError, zlib.error, RecursionError):
            query = f"SELECT {name}, key, method, trial, share, mark FROM analysis WHERE {where}"
            row = self._connection.execute(query, values).fetchone()
            if row is not None and row[2] == VERSION:
                return unsealed(decoder, row[1:], name, row[0])
        return None


def sealed(place: tuple[object, ...], name: str, value: object) -> bytes:
    """A value as it is stored: a digest of it and of its row, then the value compressed."""
    plain = _encoder.encode(value)
    return _digest(place, name, plain) + zlib.compress(plain, 1)


def unsealed(
    decoder: msgspec.msgpack.Decoder[T], place: tuple[object, ...], name: str, content: bytes
) -> T | None:
    plain = zlib.decompressobj().decompress(content[_DIGEST_SIZE:], _LARGEST)
    if _digest(place, name, plain) != content[:_DIGEST_SIZE]:
        return None
    return decoder.decode(plain)


def _digest(place: tuple[object, ...], name: str, plain: bytes) -> bytes:
    return hashlib.sha256(repr((place, name)).encode() + plain).digest()


def _plain(value: object) -> object:
    """What msgspec does not know: numpy's numbers, and mappings that are no dictionaries."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


# MessagePack and not JSON, which has no infinity
_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_ANALYSES = msgspec.msgpack.Decoder(Analysis)
_SUMMARIES = msgspec.msgpack.Decoder(Analysed)


def opened(store: Path, statements: Sequence[str]) -> sqlite3.Connection | None:
    """The file of analyses of this store, with these tables; None where there is no store, or the file cannot be made."""
    if not store.is_file():
        return None
    path = beside(store)
    with suppress(sqlite3.Error, OSError):
        # for its owner's eyes, as the store is
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # lost is computed again
            for statement in statements:
                connection.execute(statement)
        except sqlite3.Error:
            connection.close()
            return None
        return connection
    return None
