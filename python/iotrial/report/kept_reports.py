"""The report of one trial in every format; of a stored trial that has ended, as it was said when it was last asked for.

What was written is kept beside the store under a digest of every row of the trial (``store.fingerprint``), of this
program's files and of the libraries that draw: the same rows give the same report. Nothing else is trusted. A trial that
is running is neither looked up nor kept; nor is one to which something was added while it was being read. A text comes back
only with its own digest, so that a damaged file gives no report but is made anew, and a trial that is refused is refused
again, because it never had one.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from iotrial.errors import StoreError
from iotrial.report.beside import beside, digest_of, opened
from iotrial.store import Store
from iotrial.store.model import TrialState

if TYPE_CHECKING:
    from rich.console import Console

    from iotrial.report.document import Document

_LARGEST = 64 << 20
#: bytes of all texts, compressed; the oldest go first
_ROOM = 64 << 20
_LIBRARIES = ("numpy", "msgspec", "jinja2", "markupsafe", "matplotlib", "rich")
_TABLE = """
CREATE TABLE IF NOT EXISTS report (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, digest BLOB NOT NULL, text BLOB NOT NULL
) STRICT
"""
_KEEP_NEWEST = """
DELETE FROM report WHERE number IN (
    SELECT number FROM (SELECT number, sum(length(text)) OVER (ORDER BY number DESC) AS held FROM report) WHERE held > ?
)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an exit status is made of: whether the trial may give verdicts, and those of its main effects."""

    valid: bool
    verdicts: frozenset[str]


class Report:
    """One trial's report. Its ``document`` is made when it is first needed, each format only when it is not kept."""

    def __init__(self, made: Callable[[], Document], kept: _Kept | None = None) -> None:
        self._made = made
        self._kept = kept

    @cached_property
    def document(self) -> Document:
        """Analysed. Raises what ``document_of`` raises."""
        return self._made()

    def html(self) -> str:
        """The page."""

        def made() -> str:
            from iotrial.report.html import html_report

            return html_report(self.document)

        return self._text("html", made)

    def json(self) -> str:
        """One JSON document, without a line's end."""

        def made() -> str:
            from iotrial.report.jsonreport import report_json

            return json.dumps(report_json(self.document), indent=1)

        return self._text("json", made)

    def markdown(self) -> str:
        """Markdown."""

        def made() -> str:
            from iotrial.report.markdown import markdown_report

            return markdown_report(self.document)

        return self._text("markdown", made)

    def print(self, console: Console, *, html_path: str | None) -> None:
        """For a terminal: widths and colours are this console's, so that each kind of console has a text of its own."""
        from iotrial.report.place import print_place

        if self._kept is None:
            from iotrial.report.text import print_report

            print_report(self.document, console, html_path=html_path)
            return

        def made() -> str:
            from iotrial.report.text import print_report

            with console.capture() as captured:
                print_report(self.document, console)
            return captured.get()

        kind = (console.width, console.color_system, console.no_color, console.encoding, console.is_terminal)
        console.file.write(self._text(f"terminal {kind} {console.legacy_windows}", made))
        if html_path is not None:
            print_place(console, html_path)
        console.file.flush()

    @cached_property
    def outcome(self) -> Outcome:
        """What the exit status is made of."""

        def made() -> str:
            rows = (row.effect for row in self.document.primary)
            verdicts = sorted({effect.verdict.value for effect in rows if effect.kind == "main"})
            return json.dumps([self.document.valid, *verdicts])

        valid, *verdicts = json.loads(self._text("outcome", made))
        return Outcome(valid, frozenset(verdicts))

    def _text(self, kind: str, made: Callable[[], str]) -> str:
        found = None if self._kept is None else self._kept.get(kind)
        if found is None:
            found = made()
            if self._kept is not None:
                self._kept.put(kind, found)
        return found


@contextmanager
def report_of(
    store: Store, ref: str | int, *, alone: bool = False, told: Callable[[int], None] | None = None
) -> Iterator[Report]:
    """The report of a stored trial. UnknownName where there is none; StoreError for a damaged one, once it is asked for.

    ``alone``: it may take all processors that no trial needs. ``told`` of how many blocks, before a long trial is analysed
    whose report will be kept: it takes a while, this time.
    """
    trial = store.find(ref)
    kept = _kept(store, trial.number)

    def made() -> Document:
        from iotrial.report.opening import document_of, processes_to_spare

        if told is not None and kept is not None:
            told(store.count_blocks(trial.number))
        return document_of(store, trial.number, processes=processes_to_spare() if alone else 1)

    try:
        yield Report(made, kept)
    finally:
        if kept is not None:
            kept.close()


def _kept(store: Store, number: int) -> _Kept | None:
    """Where the texts of this trial are; None for one that is running, or where the folder takes no file."""
    if not store.path.is_file():
        return None
    try:
        seen = store.changes_seen()
        trial, rows = store.fingerprint(number)
    except StoreError:
        return None  # whoever reads it says what is wrong
    if trial.state is TrialState.RUNNING:
        return None
    connection = opened(beside(store.path), _TABLE)
    if connection is None:
        return None
    of_trial = repr((rows, number, trial.state.value, trial.reason, trial.duration_s, _drawn_by()))
    return _Kept(connection, of_trial, unchanged=lambda: store.changes_seen() == seen)


class _Kept:
    """Texts in one table, each under a digest of what it is made of."""

    def __init__(
        self, connection: sqlite3.Connection, of_trial: str, *, unchanged: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._of_trial = of_trial
        self._unchanged = unchanged

    def close(self) -> None:
        self._connection.close()

    def get(self, kind: str) -> str | None:
        with suppress(sqlite3.Error, ValueError, TypeError, zlib.error):
            row = self._connection.execute(
                "SELECT digest, text FROM report WHERE key = ?", (self._key(kind),)
            ).fetchone()
            if row is not None:
                unpacker = zlib.decompressobj()
                text = unpacker.decompress(row[1], _LARGEST)
                if _digest(self._key(kind), text) == row[0]:
                    return text.decode()
        return None

    def put(self, kind: str, text: str) -> None:
        """Keeps it, unless the trial may be another one by now. Lost is what another process is just writing."""
        with suppress(sqlite3.Error, StoreError, UnicodeEncodeError):
            plain = text.encode()
            if len(plain) > _LARGEST or not self._unchanged():
                return
            key = self._key(kind)
            row = (key, _digest(key, plain), zlib.compress(plain, 1))
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "INSERT OR REPLACE INTO report (key, digest, text) VALUES (?, ?, ?)", row
            )
            self._connection.execute(_KEEP_NEWEST, (_ROOM,))
            self._connection.execute("COMMIT")

    def _key(self, kind: str) -> bytes:
        return hashlib.sha256(f"{self._of_trial} {kind}".encode()).digest()


def _digest(key: bytes, text: bytes) -> bytes:
    return hashlib.sha256(key + text).digest()


@cache
def _drawn_by() -> str:
    """What writes a report: all files of this program, templates too, and the libraries that it draws with."""
    import sys
    from importlib.metadata import PackageNotFoundError, version

    parts = [digest_of((".",), "*"), sys.version]
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            parts.append(f"{name} {version(name)}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
