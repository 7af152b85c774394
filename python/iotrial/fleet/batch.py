"""Records that a host sends about its trial: states, runs, blocks and events, and their serialisation.

The coordinator requests what the host's store has after a position in its own store, so a repeated request
loses and duplicates nothing. Records are sent as text in the format of a packed trial, with the same checks
of types, limits and names.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from iotrial.errors import IotrialError, StudyError
from iotrial.fleet.order import Distrusted, HostName, read
from iotrial.store import records
from iotrial.store.connection import connect, explained
from iotrial.store.exchange import Position
from iotrial.store.finding import stored_trial
from iotrial.store.model import BlockEnd, Event, TrialHeader
from iotrial.store.packed.privacy import Privacy
from iotrial.store.packed.records import PackedRecord, PackedRun, PackedState, from_value, to_value
from iotrial.store.packed.stream import MAX_DEPTH, check_plain
from iotrial.terminal import escape

__all__ = ["Batch", "HostFacts", "Lost", "Position", "Stage", "tail"]

MAX_BATCH = 32 << 20  # characters
MAX_RECORDS = 20_000
MAX_FACTS = 65_536  # characters
MAX_PROBLEM = 4096
ENOUGH = 1 << 20  # characters of runs and events in one answer
MOST_BLOCKS = 500
MOST_EVENTS = 2_000

Count = Annotated[int, Meta(ge=0, le=10_000_000)]


class Lost(IotrialError):
    """A host that cannot be reached or does not answer. It may come back."""

    code = "host_lost"


class Stage(StrEnum):
    """State of the work on a host, as its agent sees it."""

    NONE = "none"  # this fleet ordered nothing here
    GOING = "going"  # the program is running
    ENDED = "ended"  # it has ended, and its store is final


class HostFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the coordinator needs to know about a host before it sends an order."""

    name: HostName
    version: Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+-]{1,40}\Z")]
    kernel: Annotated[str, Meta(max_length=200)]
    processors: Annotated[int, Meta(ge=1, le=65_536)]
    memory_bytes: Annotated[int, Meta(ge=0, le=2**62)]
    root: bool

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Parse the facts of a host. Raises Distrusted."""
        return read(cls, text, longest=MAX_FACTS, what="facts of a host")


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A batch as sent; ``records`` are pairs of a kind and its fields."""

    since: tuple[Count, Count, Count]
    stage: Stage
    records: Annotated[list[tuple[str, dict[str, Any]]], Meta(max_length=MAX_RECORDS)]
    more: bool
    problem: Annotated[str, Meta(max_length=MAX_PROBLEM)]
    left: Count


@dataclass(frozen=True, slots=True)
class Batch:
    """What a host has after the position ``since``: states, finished blocks with their runs, events.

    ``header`` comes with the first state. ``more``: request the next batch at once. ``stage`` was determined
    before the records were read, so an ended host without ``more`` has nothing left. ``problem``: why it
    ended, if its store does not say. ``left``: number of journal entries with changes that could not be
    restored yet.
    """

    since: Position
    stage: Stage
    header: TrialHeader | None = None
    states: tuple[PackedState, ...] = ()
    runs: tuple[PackedRun, ...] = ()
    ends: tuple[BlockEnd, ...] = ()
    events: tuple[Event, ...] = ()
    more: bool = False
    problem: str = ""
    left: int = 0

    @property
    def after(self) -> Position:
        """The position after all of its records."""
        since = self.since
        return Position(
            since.states + len(self.states), since.blocks + len(self.ends), since.events + len(self.events)
        )

    def to_json(self) -> str:
        header: list[PackedRecord] = [] if self.header is None else [self.header]
        since = self.since
        message = _Message(
            since=(since.states, since.blocks, since.events),
            stage=self.stage,
            records=[to_value(one) for one in (*header, *self.states, *self.runs, *self.ends, *self.events)],
            more=self.more,
            problem=self.problem[:MAX_PROBLEM],
            left=self.left,
        )
        return msgspec.json.encode(message).decode()

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Parse a batch. Raises Distrusted for anything that no agent sends."""
        message = read(_Message, text, longest=MAX_BATCH, what="a batch")
        found = [_record(kind, fields) for kind, fields in message.records]
        headers = [one for one in found if isinstance(one, TrialHeader)]
        if len(headers) > 1:
            raise Distrusted("a batch: holds two trials")
        return cls(
            since=Position(*message.since),
            stage=message.stage,
            header=headers[0] if headers else None,
            states=tuple(one for one in found if isinstance(one, PackedState)),
            runs=tuple(one for one in found if isinstance(one, PackedRun)),
            ends=tuple(one for one in found if isinstance(one, BlockEnd)),
            events=tuple(one for one in found if isinstance(one, Event)),
            more=message.more,
            problem=message.problem,
            left=message.left,
        )


def _record(kind: str, fields: dict[str, Any]) -> PackedRecord:
    try:
        check_plain(fields, MAX_DEPTH - 1)
        return from_value(kind, fields, "a host")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, StudyError) as error:
        message = error.message if isinstance(error, StudyError) else str(error)
        raise Distrusted(f"a batch: an invalid record: {escape(message[:300])}") from error


def tail(store: Path, position: Position, stage: Stage) -> Batch:
    """Return the next part of the only trial in a store. Raises StoreError if the store cannot be read."""
    if not store.exists():
        return Batch(position, stage)
    connection, _ = connect(store, read_only=True, checked=False)
    with closing(connection), explained(store):
        connection.execute("BEGIN")  # a consistent snapshot of the file
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
