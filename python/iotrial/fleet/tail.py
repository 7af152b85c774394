"""What a host's own store has behind a position: whole blocks only, no more at once than fits into an answer.

The store is read as any reader does, while the trial goes on. Texts and facts leave the host as they do in a packed trial:
without its folders and with nothing in them that a terminal would obey.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from iotrial.fleet.link import Batch, Stage
from iotrial.store import records
from iotrial.store.connection import connect, explained
from iotrial.store.finding import stored_trial
from iotrial.store.gathered import Position
from iotrial.store.model import BlockEnd, Event
from iotrial.store.packed import PackedRun, PackedState
from iotrial.store.packed.privacy import Privacy

ENOUGH = 1 << 20  # characters of runs and events in one answer
MOST_BLOCKS = 500
MOST_EVENTS = 2_000


def tail(store: Path, position: Position, stage: Stage) -> Batch:
    """The next part of the only trial of a store. Raises StoreError where the store cannot be read."""
    if not store.exists():
        return Batch(position, stage)
    connection, _ = connect(store, read_only=True, checked=False)
    with closing(connection), explained(store):
        connection.execute("BEGIN")  # one moment of the file
        row = connection.execute("SELECT min(number) FROM trial").fetchone()
        if row[0] is None:
            return Batch(position, stage)
        return _part(connection, int(row[0]), position, stage)


def _part(connection: sqlite3.Connection, number: int, position: Position, stage: Stage) -> Batch:
    header = stored_trial(connection, number).header
    privacy = Privacy(header)
    states = [
        privacy.reduced(PackedState(records.number_of(at), records.state_of(state), records.text_of(reason)))
        for at, state, reason in connection.execute(
            "SELECT at, state, reason FROM state WHERE trial = ? ORDER BY sequence LIMIT -1 OFFSET ?",
            (number, position.states),
        )
    ]
    ends, runs, size = _blocks(connection, number, position.blocks, privacy)
    events, more_events = _events(connection, number, position.events, privacy, size)
    (blocks,) = connection.execute("SELECT count(*) FROM block_end WHERE trial = ?", (number,)).fetchone()
    return Batch(
        since=position,
        stage=stage,
        header=privacy.reduced(header) if position.states == 0 else None,  # type: ignore[arg-type]
        states=tuple(states),  # type: ignore[arg-type]
        runs=tuple(runs),
        ends=tuple(ends),
        events=tuple(events),
        more=more_events or position.blocks + len(ends) < blocks,
    )


def _blocks(
    connection: sqlite3.Connection, number: int, had: int, privacy: Privacy
) -> tuple[list[BlockEnd], list[PackedRun], int]:
    ends: list[BlockEnd] = []
    runs: list[PackedRun] = []
    size = 0
    found = connection.execute(
        f"SELECT {records.END_COLUMNS} FROM block_end WHERE trial = ? ORDER BY sequence LIMIT ? OFFSET ?",
        (number, MOST_BLOCKS, had),
    ).fetchall()
    for row in found:
        if ends and size > ENOUGH:
            break
        end = records.end_of(row)
        ends.append(end)
        for attempt, at, *rest in connection.execute(
            f"SELECT attempt, at, {records.RUN_COLUMNS} FROM run "
            "WHERE trial = ? AND condition = ? AND block = ? ORDER BY sequence",
            (number, end.condition, end.block),
        ):
            size += sum(len(text) for text in rest if isinstance(text, str))
            packed = privacy.reduced(PackedRun(records.run_of(tuple(rest)), attempt, at))
            assert isinstance(packed, PackedRun)
            runs.append(packed)
    return ends, runs, size


def _events(
    connection: sqlite3.Connection, number: int, had: int, privacy: Privacy, size: int
) -> tuple[list[Event], bool]:
    events: list[Event] = []
    found = connection.execute(
        "SELECT at, kind, text FROM event WHERE trial = ? ORDER BY sequence LIMIT ? OFFSET ?",
        (number, MOST_EVENTS + 1, had),
    ).fetchall()
    for row in found[:MOST_EVENTS]:
        if size > ENOUGH:
            return events, True
        event = privacy.reduced(records.event_of(row))
        assert isinstance(event, Event)
        size += len(event.text)
        events.append(event)
    return events, len(found) > MOST_EVENTS
