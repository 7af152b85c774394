"""Between the coordinator and one host: what is asked, what is answered, and what any transport must be able to do.

A host is asked for what it has after a position in its own store, so that asking again loses nothing and doubles nothing.
Answers travel as text and are read here, each record as that of a packed trial is: by type, by limit, by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

from iotrial.errors import IotrialError, StudyError
from iotrial.fleet import wire
from iotrial.fleet.order import Order
from iotrial.fleet.values import HOST_NAME, Distrusted, Fields, parsed
from iotrial.store.gathered import Position
from iotrial.store.model import BlockEnd, Event, TrialHeader
from iotrial.store.packed.records import PackedRecord, PackedRun, PackedState, from_value

__all__ = ["Batch", "HostFacts", "HostLink", "Hosts", "Lost", "Position", "Stage"]

MAX_BATCH = 32 << 20  # characters
MAX_RECORDS = 20_000
MAX_FACTS = 65_536  # characters
MAX_PROBLEM = 4096
MAX_COUNT = 10_000_000
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")


class Lost(IotrialError):
    """A host that cannot be reached now, or does not answer. It may come back."""

    code = "host_lost"


class Stage(StrEnum):
    """Where the work on a host stands, as its agent sees it."""

    NONE = "none"  # nothing was ordered here by this fleet
    GOING = "going"  # the program runs
    ENDED = "ended"  # it has ended, and what its store has is all there will be


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the coordinator must know of a host before it orders anything."""

    name: str
    version: str
    kernel: str
    processors: int
    memory_bytes: int
    root: bool

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Raises Distrusted."""
        table = Fields(parsed(text, longest=MAX_FACTS, what="facts of a host"), "facts of a host")
        facts = cls(
            name=table.matching("name", HOST_NAME),
            version=table.matching("version", _VERSION),
            kernel=table.text("kernel", 200),
            processors=table.whole("processors", 1, 65_536),
            memory_bytes=table.whole("memory_bytes", 0, 2**62),
            root=table.flag("root"),
        )
        table.done()
        return facts


@dataclass(frozen=True, slots=True)
class Batch:
    """What a host has after the position ``since``: states, finished blocks with their runs, events.

    ``header`` comes with the first state. ``more``: ask again at once. ``stage`` holds of the moment before the records were
    read, so that an ended host without ``more`` has nothing left. ``problem``: why it ended, where its store cannot say.
    ``left``: what it changed and could not put back yet, in number of entries of its journal.
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
        """The position behind all of it."""
        since = self.since
        return Position(
            since.states + len(self.states), since.blocks + len(self.ends), since.events + len(self.events)
        )

    def to_json(self) -> str:
        header: list[PackedRecord] = [] if self.header is None else [self.header]
        return wire.written(
            {
                "since": [self.since.states, self.since.blocks, self.since.events],
                "stage": self.stage.value,
                "more": self.more,
                "problem": self.problem[:MAX_PROBLEM],
                "left": self.left,
            },
            [*header, *self.states, *self.runs, *self.ends, *self.events],
        )

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Raises Distrusted for anything that no agent sends."""
        what = "a batch"
        envelope, found = _opened(text, what)
        table = Fields(envelope, what)
        stage = table.text("stage", 20)
        if stage not in list(Stage):
            raise Distrusted(f"{what}: no stage of that name")
        headers = [record for record in found if isinstance(record, TrialHeader)]
        if len(headers) > 1:
            raise Distrusted(f"{what}: holds two trials")
        batch = cls(
            since=position_of(table.list("since", 3)),
            stage=Stage(stage),
            header=headers[0] if headers else None,
            states=tuple(record for record in found if isinstance(record, PackedState)),
            runs=tuple(record for record in found if isinstance(record, PackedRun)),
            ends=tuple(record for record in found if isinstance(record, BlockEnd)),
            events=tuple(record for record in found if isinstance(record, Event)),
            more=table.flag("more"),
            problem=table.text("problem", MAX_PROBLEM),
            left=table.whole("left", 0, MAX_COUNT),
        )
        table.done()
        return batch


class HostLink(Protocol):
    """One host, over whatever transport. Every call may take long and raises Lost where there is no answer in time,
    Distrusted where there is one that cannot be; each is called by one thread at a time."""

    @property
    def name(self) -> str:
        """Under which the host is known in the fleet: of the form HOST_NAME, and its alone."""

    def facts(self) -> HostFacts:
        """What the host is."""

    def begin(self, order: Order) -> None:
        """Begin the trial, or go on with it where it was: whatever of this order is there already is kept."""

    def after(self, fleet: str, position: Position) -> Batch:
        """What the host's store has after a position; to ask is also what keeps the trial there going."""

    def stop(self, fleet: str) -> None:
        """Have the trial end now, and everything put back; what was measured stays there."""

    def close(self) -> None:
        """Let go of the host. Nothing there is ended by that, but the time of grace begins."""


class Hosts(Protocol):
    """Where hosts come from: those that are named, or those that have reported at a scheduler."""

    def present(self) -> Sequence[HostLink]:
        """The hosts that are known now; the same object for the same host each time. Ones that come late are added."""

    def close(self) -> None:
        """Let go of all of them."""


def position_of(found: Sequence[object]) -> Position:
    """The position in three numbers. Raises Distrusted."""
    numbers = [n for n in found if type(n) is int and 0 <= n <= MAX_COUNT]
    if len(found) != 3 or len(numbers) != 3:
        raise Distrusted("a position: wanted three numbers")
    return Position(*numbers)


def _opened(text: object, what: str) -> tuple[dict[str, Any], list[PackedRecord]]:
    """The envelope of a batch and its records. Raises Distrusted."""
    quick = wire.read(text, most=MAX_RECORDS) if isinstance(text, str) and len(text) <= MAX_BATCH else None
    if quick is not None:
        return quick
    table = Fields(parsed(text, longest=MAX_BATCH, what=what), what)
    records = [_record(value) for value in table.list("records", MAX_RECORDS)]
    return table.rest(), records


def _record(value: Any) -> PackedRecord:
    try:
        kind, fields = value
        if not isinstance(kind, str):
            raise ValueError("its kind is no text")
        return from_value(kind, fields, "a host")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, StudyError) as error:
        message = error.message if isinstance(error, StudyError) else str(error)
        raise Distrusted(f"a batch: a record that cannot be: {message[:300]}") from error
