"""What hosts' trials said when they were last looked at, so that the next report of a thousand hosts reads only what is new.

A table of its own in the cache beside the store (``trials.analysed`` for ``trials.db``), which may be deleted at any time:
what is missing is summed up anew, and what another version of the analysis made is not used. The store is only read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import iotrial
from iotrial.errors import IotrialError
from iotrial.fleet.summary import HostTrial, from_json, to_json
from iotrial.fleet.summing import summaries
from iotrial.report.analyses import beside
from iotrial.store import Store
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState

_DECIDES = ("analysis", "design", "study", "fleet", "store")
_TABLE = """
CREATE TABLE IF NOT EXISTS summed_up (
    trial TEXT PRIMARY KEY, state TEXT NOT NULL, by TEXT NOT NULL, text TEXT NOT NULL
) STRICT
"""


def summed_up(
    store: Store, trials: Sequence[Outline], told: Callable[[int], None] | None = None
) -> Iterator[HostTrial]:
    """What each trial says, in their order; one that cannot be read says why. ``told`` hears how many are done."""
    kept = _opened(beside(store.path)) if store.path.is_file() else None
    known = {one.number: _known(kept, one) for one in trials}
    anew = summaries(store, [(one.number, one.member or "") for one in trials if known[one.number] is None])
    try:
        for done, one in enumerate(trials, start=1):
            found = known[one.number]
            if found is None:
                said = next(anew)
                found = _unread(one, said.message) if isinstance(said, IotrialError) else said
                if found.problem is None and one.state is not TrialState.RUNNING:
                    _keep(kept, found, state_mark(one.state, one.duration_s))
            yield found
            if told is not None:
                told(done)
    finally:
        anew.close()
        if kept is not None:
            kept.close()


def state_mark(state: TrialState | None, duration_s: float) -> str:
    """What changes with a trial: it is analysed anew when it has gone on."""
    return f"{'' if state is None else state.value} {duration_s}"


def _known(kept: sqlite3.Connection | None, one: Outline) -> HostTrial | None:
    if one.state is TrialState.RUNNING:
        return None
    return _found(kept, one.id, state_mark(one.state, one.duration_s))


def _unread(one: Outline, problem: str) -> HostTrial:
    return HostTrial(
        number=one.number,
        id=one.id,
        host=one.member or "",
        study=one.study,
        question="",
        state=one.state or TrialState.FAILED,
        started=one.started,
        duration_s=one.duration_s,
        alpha=0.05,
        margin=0.0,
        problem=problem,
    )


def _found(kept: sqlite3.Connection | None, trial: str, state: str) -> HostTrial | None:
    if kept is None:
        return None
    with suppress(sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
        row = kept.execute(
            "SELECT text FROM summed_up WHERE trial = ? AND state = ? AND by = ?", (trial, state, _by())
        ).fetchone()
        return None if row is None else from_json(json.loads(row[0]))
    return None


def _keep(kept: sqlite3.Connection | None, one: HostTrial, state: str) -> None:
    if kept is not None:
        with suppress(sqlite3.Error):
            row = (one.id, state, _by(), json.dumps(to_json(one)))
            kept.execute("INSERT OR REPLACE INTO summed_up VALUES (?, ?, ?, ?)", row)


def _opened(path: Path) -> sqlite3.Connection | None:
    with suppress(sqlite3.Error, OSError):
        # for its owner's eyes, as the store is
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # lost is made anew
            connection.execute(_TABLE)
        except sqlite3.Error:
            connection.close()
            return None
        return connection
    return None


@cache
def _by() -> str:
    """What says so: this version, and the code that decides."""
    digest = hashlib.sha256(iotrial.__version__.encode())
    root = Path(iotrial.__file__).parent
    for folder in _DECIDES:
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
