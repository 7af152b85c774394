"""What trials said when they were last looked at, so that a thousand of them can be laid side by side at once.

A cache beside the store, in a file that may be deleted at any time: what is missing is analysed anew, and what another
version of the analysis made is not used. The store itself is only read.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from types import TracebackType
from typing import Self

from iotrial.report.analysed import Analysed, analysed, from_json, to_json
from iotrial.report.beside import beside, opened
from iotrial.report.beside import by as _by
from iotrial.report.document import Document
from iotrial.report.kept_reports import Report
from iotrial.report.opening import document_of
from iotrial.store import Store
from iotrial.store.model import StoredTrial, TrialState

_TABLE = """
CREATE TABLE IF NOT EXISTS analysed (
    trial TEXT NOT NULL, share INTEGER NOT NULL, state TEXT NOT NULL, by TEXT NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (trial, share)
) STRICT
"""


class Remembered:
    """The trials of a store, as ``Analysed``. Use it as a context; without a file that can be written nothing is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = opened(beside(store.path), _TABLE) if store.path.is_file() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection to the cache."""
        if self._kept is not None:
            self._kept.close()

    def of(self, ref: str | int, *, share: int = 1) -> Analysed:
        """What this trial says at its level divided by ``share``. Raises what ``document_of`` raises."""
        trial = self._store.find(ref)
        state = state_mark(trial.state, trial.duration_s)
        found = self._found(trial.header.id, share, state)
        if found is not None:
            return found
        one = analysed(document_of(self._store, trial.number), share=share)
        if trial.state is not TrialState.RUNNING:
            self._keep(one, state)
        return one

    def known(self, trial: str, state: str, *, share: int = 1) -> Analysed | None:
        """What has been said of the trial of this id and ``state_mark``; None where it would have to be analysed."""
        return self._found(trial, share, state)

    def headline(self, trial: str, state: str) -> tuple[str, str] | None:
        """Of what is known of a trial only its sentence and its tone, which is had for many at once."""
        if self._kept is not None:
            with suppress(sqlite3.Error, ValueError):
                row = self._kept.execute(
                    "SELECT json_extract(text, '$.headline'), json_extract(text, '$.tone') FROM analysed "
                    "WHERE trial = ? AND share = 1 AND state = ? AND by = ?",
                    (trial, state, _by()),
                ).fetchone()
                if row is not None and all(isinstance(text, str) for text in row):
                    return row[0], row[1]
        return None

    def keep(self, document: Document) -> None:
        """What has been analysed anyway."""
        trial = document.trial
        if trial.state is not TrialState.RUNNING:
            self._keep(analysed(document), state_mark(trial.state, trial.duration_s))

    def keep_report(self, trial: StoredTrial, report: Report) -> None:
        """As ``keep``; nothing is analysed where it is known already."""
        if trial.state is TrialState.RUNNING:
            return
        if self.known(trial.header.id, state_mark(trial.state, trial.duration_s)) is None:
            self.keep(report.document)

    def _found(self, trial: str, share: int, state: str) -> Analysed | None:
        if self._kept is None:
            return None
        with suppress(sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
            row = self._kept.execute(
                "SELECT text FROM analysed WHERE trial = ? AND share = ? AND state = ? AND by = ?",
                (trial, share, state, _by()),
            ).fetchone()
            return None if row is None else from_json(json.loads(row[0]))
        return None

    def _keep(self, one: Analysed, state: str) -> None:
        if self._kept is not None:
            row = (one.id, one.share, state, _by(), json.dumps(to_json(one)))
            with suppress(sqlite3.Error):
                self._kept.execute("INSERT OR REPLACE INTO analysed VALUES (?, ?, ?, ?, ?)", row)


def state_mark(state: TrialState | None, duration_s: float) -> str:
    """What changes with a trial: it is analysed anew when it has gone on."""
    return f"{'' if state is None else state.value} {duration_s}"
