"""Cache of analyses: a finished trial is analysed once, for reports, comparisons, lists and web pages.

The cache is a file next to the store (``trials.analysed`` for ``trials.db``), not part of it: readers never change a
store, and a running trial never waits for one. The file may be deleted at any time.

The key of an entry is a digest of everything that determines the analysis: the version of the method, every row of the
trial, and the level (``Key``). Each entry carries its own digest; if that does not match, the analysis is computed
again. Analyses are never read from a packed file: its author could have written anything there.
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
from typing import Self, TypeVar

import msgspec
import numpy as np

import iotrial
from iotrial.report.analysed import Analysed
from iotrial.stats.analyse import METHOD
from iotrial.stats.model import Analysis

T = TypeVar("T")

#: Limits in bytes: one analysis uncompressed, and all analyses compressed (the oldest are evicted first)
_LARGEST = 256 << 20
_ROOM = 256 << 20
_DIGEST_SIZE = hashlib.sha256().digest_size
#: version of what a summary contains: incremented when a field is added or changes its meaning
CONTENT = 6
#: version of the cached content: numbers depend on the method, sentences on the release
VERSION = f"{METHOD} {CONTENT} {iotrial.__version__}"
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS analysis (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, method TEXT NOT NULL, trial TEXT NOT NULL, share INTEGER NOT NULL,
    mark TEXT NOT NULL, summary BLOB NOT NULL, analysis BLOB NOT NULL
) STRICT
""",
    "CREATE INDEX IF NOT EXISTS analysis_of_trial ON analysis (trial, share, number)",
    # tables of earlier versions
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
    """Identity of a trial at the time it was read.

    ``rows`` is a digest of everything stored for the trial. ``mark`` changes when something is added to it
    (``Store.mark``); it is empty for a packed trial.
    """

    trial: str
    rows: bytes
    mark: str = ""

    def at(self, share: int) -> bytes:
        """Return the digest for an analysis at the trial's alpha divided by ``share``."""
        return hashlib.sha256(repr((VERSION, self.trial, self.rows, self.mark, share)).encode()).digest()


def cache_path(store: Path) -> Path:
    """Return the path of the analysis cache of a store."""
    return store.with_suffix(".analysed")


class Analyses:
    """Cached analyses of a store's trials, and of packed trials reported together with them.

    Use it as a context manager. If the store does not exist or the cache file cannot be created, lookups find nothing
    and nothing is stored.
    """

    def __init__(self, store: Path) -> None:
        self._connection = opened(store, _TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def has(self, key: Key) -> bool:
        """Return whether an analysis of exactly these rows at the trial's own level is stored, damaged or not."""
        if self._connection is None:
            return False
        with suppress(sqlite3.Error):
            found = self._connection.execute("SELECT 1 FROM analysis WHERE key = ?", (key.at(1),))
            return found.fetchone() is not None
        return False

    def analysis(self, key: Key) -> Analysis | None:
        """Return the analysis of exactly these rows at the trial's own level."""
        return self._found(_ANALYSES, "analysis", "key = ?", key.at(1))

    def summary(self, key: Key, *, share: int = 1) -> Analysed | None:
        """Return the summary of exactly these rows at this level."""
        return self._found(_SUMMARIES, "summary", "key = ?", key.at(share))

    def newest_summary(self, trial: str, mark: str, *, share: int = 1) -> Analysed | None:
        """Return the summary of a trial if nothing was added to it since.

        Does not read the trial's rows: for pages with many trials.
        """
        where = "trial = ? AND share = ? AND mark = ? ORDER BY number DESC LIMIT 1"
        return self._found(_SUMMARIES, "summary", where, trial, share, mark)

    def store(self, key: Key, analysis: Analysis, summary: Analysed, *, share: int = 1) -> None:
        """Store both. If another process is writing at this moment, drop them: they can be computed again."""
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
    """Encode a value for storage: a digest of the value and its row, then the compressed value."""
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
    """Encode types that msgspec does not support: NumPy scalars, and mappings other than dict."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


# MessagePack because JSON has no infinity
_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_ANALYSES = msgspec.msgpack.Decoder(Analysis)
_SUMMARIES = msgspec.msgpack.Decoder(Analysed)


def opened(store: Path, statements: Sequence[str]) -> sqlite3.Connection | None:
    """Open the analysis cache of a store and create these tables; None if there is no store or the file cannot be created."""
    if not store.is_file():
        return None
    path = cache_path(store)
    with suppress(sqlite3.Error, OSError):
        # readable by the owner only, as the store is
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # a lost entry is computed again
            for statement in statements:
                connection.execute(statement)
        except sqlite3.Error:
            connection.close()
            return None
        return connection
    return None
