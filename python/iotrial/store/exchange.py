"""Between the tables of a store and the records of a packed trial, in both directions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace

from iotrial.errors import RequestError
from iotrial.store import records
from iotrial.store.inserting import INSERT_END, INSERT_EVENT, INSERT_RUN, INSERT_STATE, insert_trial, now
from iotrial.store.model import BlockEnd, Event, StoredTrial, TrialHeader
from iotrial.store.packed import PackedEnd, PackedRecord, PackedRun, PackedState
from iotrial.store.retrieval import rows
from iotrial.store.schema import IMPORTED


def packed_records(connection: sqlite3.Connection, trial: StoredTrial) -> Iterator[PackedRecord]:
    """All that a packed trial holds, in its order. The caller holds a transaction open meanwhile."""
    yield trial.header
    for at, state, reason in rows(
        connection, "SELECT at, state, reason FROM state WHERE trial = ? ORDER BY sequence", trial.number
    ):
        yield PackedState(records.number_of(at), records.state_of(state), records.text_of(reason))
    for attempt, at, *run in rows(
        connection,
        f"SELECT attempt, at, {records.RUN_COLUMNS} FROM run WHERE trial = ? ORDER BY sequence",
        trial.number,
    ):
        yield PackedRun(records.run_of(tuple(run)), attempt, at)
    for row in rows(
        connection,
        f"SELECT {records.END_COLUMNS} FROM block_end WHERE trial = ? ORDER BY sequence",
        trial.number,
    ):
        yield records.end_of(row)
    for row in rows(
        connection, "SELECT at, kind, text FROM event WHERE trial = ? ORDER BY sequence", trial.number
    ):
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
                connection.execute(
                    INSERT_STATE, (number, record.at_s, record.state.value, record.reason, None, None)
                )
            case PackedRun():
                connection.execute(
                    INSERT_RUN, (number, record.attempt, record.at_s, *records.run_row(record.run))
                )
            case BlockEnd():
                connection.execute(INSERT_END, (number, *records.end_row(record)))
            case Event():
                connection.execute(INSERT_EVENT, (number, record.at, record.kind, record.text))
            case PackedEnd():
                text = f'from "{source}", SHA-256 {record.sha256}'
                connection.execute(INSERT_EVENT, (number, now(), IMPORTED, text))
    return name


def _insert_header(connection: sqlite3.Connection, header: TrialHeader) -> int:
    known = connection.execute("SELECT number FROM trial WHERE id = ?", (header.id,)).fetchone()
    if known is not None:
        raise RequestError(
            f"this trial is here already, as number {known[0]}", hint=f"`iotrial report {known[0]}` shows it"
        )
    return insert_trial(connection, replace(header, study=replace(header.study, trusted=False)))
