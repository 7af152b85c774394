"""Moves trials between stores: packed in one piece, or in parts, each time another machine has measured more.

A trial that arrives in parts is stored like any other. Its ``options["fleet"]`` names its fleet and host. How
much of it has arrived is counted from its rows: no separate progress is stored, which could be lost or wrong.
Coordinators of earlier versions added rows of their own, which a host may not send: states with a reason that
begins with ``OWN`` and events of the kind ``KIND``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import structs

from iotrial.errors import RequestError, StoreError
from iotrial.store import checksums, records
from iotrial.store.checksums import (
    INSERT_END,
    INSERT_EVENT,
    INSERT_RUN,
    INSERT_STATE,
    Seals,
    insert_trial,
    now,
    sealed,
)
from iotrial.store.connection import explained
from iotrial.store.finding import rows
from iotrial.store.model import BlockEnd, Event, StoredTrial, TrialHeader, TrialState
from iotrial.store.packed import PackedEnd, PackedRecord, PackedRun, PackedState
from iotrial.store.schema import IMPORTED

FLEET = "fleet"  # its key in the options of a trial
KIND = "fleet"  # of events that the coordinator adds
OWN = "fleet: "  # prefix of the reason of states that the coordinator adds


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """How much of a trial has arrived: counts of its states, finished blocks and events."""

    states: int = 0
    blocks: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one trial that arrived together, in the order of its host's store; ``runs`` are those of ``ends``."""

    states: tuple[PackedState, ...] = ()
    runs: tuple[PackedRun, ...] = ()
    ends: tuple[BlockEnd, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.states or self.runs or self.ends or self.events)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A fleet's trial as stored here. ``state``: its last one; ``running`` if its process on its host was killed."""

    number: int
    id: str
    host: str
    position: Position
    state: TrialState


class Gathering:
    """The trials of fleets in one store. Made by ``Store.gathering``."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def trials(self, fleet: str) -> tuple[Gathered, ...]:
        """Return the trials of one fleet, by number."""
        with explained(self.path):
            found = self._connection.execute(
                "SELECT number, id, json_extract(options, '$.fleet.host') FROM trial "
                "WHERE json_extract(options, '$.fleet.id') = ? ORDER BY number",
                (fleet,),
            ).fetchall()
            return tuple(
                Gathered(number, name, str(host), *_counted(self._connection, number))
                for number, name, host in found
            )

    def begin(self, header: TrialHeader, fleet: str, host: str, part: Part) -> int:
        """Add a trial with its first part; return its number.

        The study of a trial from elsewhere is not trusted. ValueError for rows that the store refuses.
        """
        named = {**header.options, FLEET: {"id": fleet, "host": host}}
        study = structs.replace(header.study, trusted=False)
        with self._transaction():
            number = checksums.insert_trial(self._connection, replace(header, study=study, options=named))
            self._insert(number, part)
        return number

    def add(self, number: int, part: Part) -> None:
        """Add a further part, all or nothing. ValueError for rows that the store refuses."""
        with self._transaction():
            self._insert(number, part)

    def _insert(self, number: int, part: Part) -> None:
        states = [(one.at_s, one.state.value, one.reason, None, None) for one in part.states]
        self._put(checksums.INSERT_STATE, "state", number, states)
        runs = [(packed.attempt, packed.at_s, *records.run_row(packed.run, _compact)) for packed in part.runs]
        self._put(checksums.INSERT_RUN, "run", number, runs)
        self._put(checksums.INSERT_END, "block_end", number, list(map(records.end_row, part.ends)))
        events = [(one.at, one.kind, one.text) for one in part.events]
        self._put(checksums.INSERT_EVENT, "event", number, events)

    def _put(self, statement: str, table: str, number: int, found: Sequence[records.Row]) -> None:
        if found:
            (trial,) = self._connection.execute("SELECT id FROM trial WHERE number = ?", (number,)).fetchone()
            self._connection.executemany(statement, [sealed(table, trial, number, row) for row in found])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Add all or nothing. ValueError for what the tables refuse: a block or a trial that already exists."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.IntegrityError):
                    raise ValueError(f"it is already in the store: {error}") from error
                raise


def refuse_reserved(part: Part) -> None:
    """Raise ValueError if a host sends what only a coordinator has added, which would be miscounted."""
    if any(state.reason is not None and state.reason.startswith(OWN) for state in part.states):
        raise ValueError(f'a host sent a reason that begins with "{OWN}"')
    if any(event.kind in (KIND, IMPORTED) for event in part.events):
        raise ValueError("a host sent an event of a kind reserved for the coordinator")


_encoded = msgspec.json.Encoder().encode


def _compact(value: object) -> str:
    """Return JSON of a value already checked to be finite: several times as fast as ``records.to_json``."""
    return _encoded(value).decode()


def _own(reason: object) -> bool:
    return isinstance(reason, str) and reason.startswith(OWN)


def _counted(connection: sqlite3.Connection, number: int) -> tuple[Position, TrialState]:
    states = connection.execute(
        "SELECT state, reason FROM state WHERE trial = ? ORDER BY sequence", (number,)
    ).fetchall()
    if not states:
        raise StoreError(f"trial {number} has no state")
    own = sum(_own(reason) for _, reason in states)
    (blocks,) = connection.execute("SELECT count(*) FROM block_end WHERE trial = ?", (number,)).fetchone()
    (events,) = connection.execute(
        "SELECT count(*) FROM event WHERE trial = ? AND kind NOT IN (?, ?)", (number, KIND, IMPORTED)
    ).fetchone()
    position = Position(len(states) - own, int(blocks), int(events))
    return position, records.state_of(states[-1][0])


def packed_records(connection: sqlite3.Connection, trial: StoredTrial) -> Iterator[PackedRecord]:
    """Yield all records of a packed trial, in order. The caller holds a transaction open meanwhile."""
    yield trial.header
    seals = Seals(connection, trial.number)
    seals.refuse_lost()

    def stored(table: str, columns: str) -> Iterator[records.Row]:
        query = f"SELECT {seals.columns(columns)} FROM {table} WHERE trial = ? ORDER BY sequence"
        return seals.checked(table, rows(connection, query, trial.number))

    for at, state, reason, *_ in stored("state", records.STATE_COLUMNS):
        yield PackedState(records.number_of(at), records.state_of(state), records.text_of(reason))
    for attempt, at, *run in stored("run", records.STORED_RUN_COLUMNS):
        yield PackedRun(records.run_of(tuple(run)), attempt, at)
    for row in stored("block_end", records.END_COLUMNS):
        yield records.end_of(row)
    for row in stored("event", records.EVENT_COLUMNS):
        yield records.event_of(row)


def take_in(connection: sqlite3.Connection, found: Iterable[PackedRecord | PackedEnd], *, source: str) -> str:
    """Insert the records of one packed trial; return its ID. The caller commits, or rolls back on any error.

    ``source`` is the file's name, for the event that marks the trial as imported.
    """
    number, name = 0, ""
    for record in found:
        match record:
            case TrialHeader():
                name = record.id
                number = _insert_header(connection, record)
            case PackedState():
                state = (record.at_s, record.state.value, record.reason, None, None)
                connection.execute(INSERT_STATE, sealed("state", name, number, state))
            case PackedRun():
                run = (record.attempt, record.at_s, *records.run_row(record.run))
                connection.execute(INSERT_RUN, sealed("run", name, number, run))
            case BlockEnd():
                connection.execute(INSERT_END, sealed("block_end", name, number, records.end_row(record)))
            case Event():
                event = (record.at, record.kind, record.text)
                connection.execute(INSERT_EVENT, sealed("event", name, number, event))
            case PackedEnd():
                text = f'from "{source}", SHA-256 {record.sha256}'
                connection.execute(INSERT_EVENT, sealed("event", name, number, (now(), IMPORTED, text)))
    return name


def _insert_header(connection: sqlite3.Connection, header: TrialHeader) -> int:
    known = connection.execute("SELECT number FROM trial WHERE id = ?", (header.id,)).fetchone()
    if known is not None:
        raise RequestError(
            f"this trial is already stored, as number {known[0]}",
            hint=f"`iotrial report {known[0]}` shows it",
        )
    return insert_trial(connection, replace(header, study=structs.replace(header.study, trusted=False)))
