"""Between the tables of a store and the records of a packed trial, in both directions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import structs

from iotrial.errors import RequestError
from iotrial.store import records
from iotrial.store.checksums import Seals, sealed
from iotrial.store.inserting import INSERT_END, INSERT_EVENT, INSERT_RUN, INSERT_STATE, insert_trial, now
from iotrial.store.model import BlockEnd, Event, StoredTrial, TrialHeader
from iotrial.store.packed import PackedEnd, PackedRecord, PackedRun, PackedState
from iotrial.store.retrieval import rows
from iotrial.store.schema import IMPORTED


def packed_records(connection: sqlite3.Connection, trial: StoredTrial) -> Iterator[PackedRecord]:
    """All that a packed trial holds, in its order. The caller holds a transaction open meanwhile."""
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
    """Inserts the records of one packed trial; gives its id. The caller commits, or rolls back on any error.

    ``source`` is the file's name for the event that marks the trial as foreign.
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
            f"this trial is here already, as number {known[0]}", hint=f"`iotrial report {known[0]}` shows it"
        )
    return insert_trial(connection, replace(header, study=structs.replace(header.study, trusted=False)))
