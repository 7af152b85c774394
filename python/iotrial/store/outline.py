"""Lists the trials of a store, one line each: a thousand trials in a few hundredths of a second.

All trials are queried at once, without decoding studies or reading more runs than the first and the last of
each attempt. If anything in the file is not as expected, all trials are read one by one instead, as
``Store.listing`` does: that finds what can still be read.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from iotrial.errors import StoreError
from iotrial.store.checksums import all_as_stored
from iotrial.store.connection import connect
from iotrial.store.schema import IMPORTED
from iotrial.store.states import (
    Measured,
    ProcessIdentity,
    StateChange,
    TrialState,
    duration_s,
    is_alive,
    present,
)

_NUMBERS = {int, float}
_STATES: Mapping[object, TrialState] = {state.value: state for state in TrialState}

_TRIALS = """
SELECT number, id, json_extract(study, '$.study.name'), json_extract(study, '$.study.title'), started,
    json_extract(host, '$.kernel'), lab, json_extract(lab, '$.kind'), host, (
        SELECT text FROM event WHERE event.trial = trial.number AND kind = ? ORDER BY sequence LIMIT 1
    ), json_extract(options, '$.fleet.id'), json_extract(options, '$.fleet.host')
FROM trial ORDER BY number
"""
_CHANGES = "SELECT trial, at, state, reason, pid, pid_started FROM state ORDER BY sequence"
# Runs of an attempt are stored consecutively by one conductor. So the run before the first, or after the
# last, belongs to another attempt; otherwise the time of day was set back in between.
_MEASURED = """
WITH attempts AS (
    SELECT trial, row_number() OVER (PARTITION BY trial ORDER BY sequence) AS attempt FROM state WHERE state = 'running'
), ends AS MATERIALIZED (
    SELECT trial, attempt, (
        SELECT sequence FROM run WHERE run.trial = attempts.trial AND run.attempt = attempts.attempt
        ORDER BY at, sequence LIMIT 1
    ) AS first, (
        SELECT sequence FROM run WHERE run.trial = attempts.trial AND run.attempt = attempts.attempt
        ORDER BY at DESC, sequence DESC LIMIT 1
    ) AS last FROM attempts
)
SELECT ends.trial, ends.attempt, one.at, other.at, one.started_s, other.started_s,
    before.trial = ends.trial AND before.attempt = ends.attempt,
    after.trial = ends.trial AND after.attempt = ends.attempt
FROM ends JOIN run AS one ON one.sequence = first JOIN run AS other ON other.sequence = last
    LEFT JOIN run AS before ON before.sequence = first - 1 LEFT JOIN run AS after ON after.sequence = last + 1
"""


@dataclass(frozen=True, slots=True)
class Outline:
    """One trial of a list.

    ``problem``: why it cannot be read; then only its number is known. ``lab``: its kind. ``host``: facts of
    the machine. ``fleet``: ID of its fleet; ``member``: its host's name there.
    """

    number: int
    id: str = ""
    study: str = ""
    title: str = ""
    state: TrialState | None = None
    started: str = ""
    duration_s: float = 0.0
    kernel: str = ""
    imported: str | None = None
    problem: str | None = None
    lab: str = ""
    host: Mapping[str, object] = field(default_factory=dict)
    fleet: str | None = None
    member: str | None = None


class _NotAsItShouldBe(Exception):
    """Something that only reading trial by trial can handle."""


def outlines(path: Path, *, checked: bool = True) -> tuple[tuple[Outline, ...], tuple[str, ...]]:
    """Return all trials of the store by number, and warnings about the file. A missing store has no trials.

    Frequent callers may skip the check of the file (``checked``). Raises StoreError if nothing can be read.
    """
    if not path.exists():
        return (), ()
    connection, warnings = connect(path, read_only=True, checked=checked)
    with closing(connection):
        try:
            connection.execute("BEGIN")
            return tuple(_at_once(connection)), warnings
        except (sqlite3.Error, UnicodeDecodeError, _NotAsItShouldBe, StoreError):
            pass
    return _one_by_one(path), warnings


def _at_once(connection: sqlite3.Connection) -> Iterator[Outline]:
    if not all_as_stored(connection):
        raise _NotAsItShouldBe
    changes: dict[object, list[StateChange]] = {}
    for row in connection.execute(_CHANGES):
        changes.setdefault(row[0], []).append(_change(row))
    measured = {}
    for trial, attempt, first_at, last_at, first_s, last_s, earlier, later in connection.execute(_MEASURED):
        if earlier or later or not {*map(type, (first_at, last_at, first_s, last_s))} <= _NUMBERS:
            raise _NotAsItShouldBe
        measured[trial, attempt] = Measured(first_at, last_at, last_s - first_s)
    now_s = time.time()
    facts = cache(_facts)  # most trials share one machine
    for row in connection.execute(_TRIALS, (IMPORTED,)):
        number, name, study, title, started, kernel, lab, kind, host, imported, fleet, member = row
        if {*map(type, (name, study, started, lab))} != {str} or lab[:1] != "{" or number not in changes:
            raise _NotAsItShouldBe
        own = changes[number]
        state, _ = present(own, is_alive)
        yield Outline(
            number=number,
            id=name,
            study=study,
            title=title if isinstance(title, str) else "",
            state=state,
            started=started,
            duration_s=duration_s(
                own,
                lambda attempt, number=number: measured.get((number, attempt)),  # type: ignore[misc]
                now_s=now_s if state is TrialState.RUNNING else None,
            ),
            kernel=kernel if isinstance(kernel, str) else "",
            imported=imported,
            lab=kind if isinstance(kind, str) else "",
            host=facts(host),
            fleet=fleet if isinstance(fleet, str) else None,
            member=member if isinstance(member, str) else None,
        )


def _facts(text: object) -> Mapping[str, object]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _NotAsItShouldBe
    return found


def _membership(found: object) -> dict[str, str | None]:
    names = found if isinstance(found, dict) else {}
    fleet, member = names.get("id"), names.get("host")
    return {
        "fleet": fleet if isinstance(fleet, str) else None,
        "member": member if isinstance(member, str) else None,
    }


def _change(row: tuple[Any, ...]) -> StateChange:
    _, at, state, reason, pid, started = row
    if not isinstance(at, float | int) or state not in _STATES:
        raise _NotAsItShouldBe
    process = ProcessIdentity(pid, str(started)) if isinstance(pid, int) else None
    return StateChange(at, _STATES[state], reason, process)


def _one_by_one(path: Path) -> tuple[Outline, ...]:
    from iotrial.store.database import Store  # not needed for an undamaged store

    with Store.open(path, read_only=True) as store:
        sound, damaged = store.listing()
    found = [
        Outline(
            number=trial.number,
            id=trial.header.id,
            study=trial.header.study.name,
            title=trial.header.study.title,
            state=trial.state,
            started=trial.header.started,
            duration_s=trial.duration_s,
            kernel=str(trial.header.host.get("kernel", "")),
            imported=trial.imported,
            lab=str(trial.header.lab.get("kind", "")),
            host=trial.header.host,
            **_membership(trial.header.options.get("fleet")),
        )
        for trial in sound
    ]
    found += [Outline(number=one.number, problem=one.problem) for one in damaged]
    return tuple(sorted(found, key=lambda one: one.number))
