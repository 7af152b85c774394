"""Add what hosts send to trials in the coordinator's store: each batch in one transaction, each row once.

A host's position is counted from the store itself when the coordinator starts. A batch that was already
added, in full or in part, adds nothing twice. A batch that skips something is rejected, as is a row that the
study, the seed and the order of blocks do not plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from iotrial.errors import StoreError
from iotrial.fleet.batch import Batch
from iotrial.fleet.order import Distrusted, Order
from iotrial.store import Store
from iotrial.store.exchange import Gathered, Part, Position, refuse_reserved
from iotrial.store.model import TrialState
from iotrial.store.packed.consistency import Consistency


@dataclass(slots=True)
class _Line:
    """The trial of one host. ``taken_up``: how many of its beginnings the coordinator marked itself."""

    id: str
    number: int
    consistency: Consistency
    position: Position
    state: TrialState
    taken_up: int = 0


@dataclass(frozen=True, slots=True)
class Added:
    """The result of adding one batch. ``blocks`` counts new ones; ``state`` is the trial's state on its host."""

    number: int
    blocks: int = 0
    position: Position = field(default_factory=Position)
    state: TrialState | None = None


class Collector:
    """The trials of one fleet in one store. Not thread-safe."""

    def __init__(self, store: Store, fleet: str, study: str, *, seed_chosen: bool = False) -> None:
        """Load what the store has of this fleet; all its trials are of the named study.

        ``seed_chosen``: the user chose the fleet's seed (hosts are always given theirs). Raises StoreError if
        the stored trials cannot match the plan.
        """
        self._seed_chosen = seed_chosen
        self._gathering = store.gathering()
        self.fleet = fleet
        self.study = study
        self._lines = self._stored()

    def position(self, host: str) -> Position:
        """Return the position up to which the store has this host's trial."""
        line = self._lines.get(host)
        return Position() if line is None else line.position

    def state(self, host: str) -> TrialState | None:
        """Return the last known state of the host's trial; None before its first state."""
        line = self._lines.get(host)
        return None if line is None else line.state

    def trials(self) -> Mapping[str, tuple[int, str]]:
        """Return number and id of each host's trial."""
        return {host: (line.number, line.id) for host, line in self._lines.items()}

    def add(self, order: Order, batch: Batch) -> Added:
        """Add what is new in a batch, all of it or nothing.

        Raises Distrusted for a batch that is invalid; a StoreError is a failure of the store itself.
        """
        host = order.host
        had = self.position(host)
        line = self._lines.get(host)
        try:
            part = _new(batch, had, host)
        except ValueError as error:
            raise Distrusted(f"host {host}: {error}") from error
        if line is None and batch.header is None:
            if not part.empty:
                raise Distrusted(f"host {host}: sent parts of a trial that it has not started")
            return Added(0)
        if line is not None and part.empty:
            return Added(line.number, 0, line.position, line.state)
        try:
            if line is None:
                line = self._begun(order, batch, part)
            else:
                _follow(line.consistency, part)
                self._gathering.add(line.number, part, line.taken_up)
        except (ValueError, KeyError, OverflowError, Distrusted) as error:
            self._mend(host)
            message = error.message if isinstance(error, Distrusted) else str(error)
            raise Distrusted(f"host {host}: {message[:500]}") from error
        except BaseException:
            self._mend(host)
            raise
        self._lines[host] = line
        line.position = Position(
            had.states + len(part.states), had.blocks + len(part.ends), had.events + len(part.events)
        )
        if part.states:
            line.state = part.states[-1].state
        return Added(line.number, len(part.ends), line.position, line.state)

    def _begun(self, order: Order, batch: Batch, part: Part) -> _Line:
        """Store the first part of a trial."""
        header = batch.header
        assert header is not None
        if header.seed != order.seed:
            raise ValueError("runs a trial with another seed than ordered")
        if header.study.name != self.study:
            raise ValueError(f"runs another study than {self.study}")
        if header.id in {one.id for one in self._lines.values()}:
            raise ValueError("sent the trial of another host")
        if not part.states:
            raise ValueError("sent a trial without a state")
        consistency = Consistency(header)
        _follow(consistency, part)
        header = replace(header, seed_chosen=self._seed_chosen)
        number = self._gathering.begin(header, self.fleet, order.host, part)
        return _Line(header.id, number, consistency, Position(), TrialState.RUNNING)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Group additions into one transaction, durable when the block ends, so that many small batches cost one disk write.

        A rejected batch leaves the others; a StoreError, or any other error that leaves the block, rolls back
        all of them.
        """
        try:
            with self._gathering.together():
                yield
        except BaseException:
            with suppress(StoreError):
                self._lines = self._stored()
            raise

    def take_up(self, host: str) -> None:
        """Mark that this coordinator follows a trial that an earlier coordinator left running."""
        line = self._lines.get(host)
        if line is not None and line.state is TrialState.RUNNING:
            self._gathering.mark(line.number, TrialState.RUNNING, "coordinator reconnected")
            line.taken_up += 1

    def leave(self, host: str, reason: str) -> None:
        """Mark that a host's trial is no longer followed, though it may continue there."""
        line = self._lines.get(host)
        if line is not None and line.state is TrialState.RUNNING:
            self._gathering.mark(line.number, TrialState.INTERRUPTED, reason)

    def note(self, host: str, text: str) -> None:
        """Add an event of the coordinator to a host's trial; ignored if there is no trial yet."""
        line = self._lines.get(host)
        if line is not None:
            self._gathering.note(line.number, text)

    def _stored(self) -> dict[str, _Line]:
        """Load the state of all trials from the store."""
        lines: dict[str, _Line] = {}
        for one in self._gathering.trials(self.fleet):
            if one.host in lines:
                raise StoreError(
                    f"store {self._gathering.path}: host {one.host} has two trials in fleet {self.fleet}"
                )
            lines[one.host] = self._line(one)
        return lines

    def _line(self, one: Gathered) -> _Line:
        """Load the state of one trial from the store."""
        consistency = Consistency(self._gathering.header(one.number))
        states = self._gathering.states(one.number)
        for state in states:
            consistency.add_state(state)
        taken_up = one.runnings - sum(state.state is TrialState.RUNNING for state in states)
        newest = states[-1].state if states else TrialState.RUNNING
        return _Line(one.id, one.number, consistency, one.position, newest, taken_up)

    def _mend(self, host: str) -> None:
        """Reload a host's state from the store after a batch was rejected half-way."""
        self._lines.pop(host, None)
        for one in self._gathering.trials(self.fleet):
            if one.host == host:
                self._lines[host] = self._line(one)


def _new(batch: Batch, had: Position, host: str) -> Part:
    """Return the new part of a batch. Raises Distrusted if something before it is missing."""
    since = batch.since
    if since.states > had.states or since.blocks > had.blocks or since.events > had.events:
        raise Distrusted(f"host {host}: sent records after {since}, expected those after {had}")
    ends = batch.ends[had.blocks - since.blocks :]
    sent = {(end.condition, end.block) for end in batch.ends}
    if any((packed.run.condition, packed.run.block) not in sent for packed in batch.runs):
        raise Distrusted(f"host {host}: sent runs of a block that it has not finished")
    runs = batch.runs
    if len(ends) < len(batch.ends):
        kept = {(end.condition, end.block) for end in ends}
        runs = tuple(packed for packed in runs if (packed.run.condition, packed.run.block) in kept)
    part = Part(
        states=batch.states[had.states - since.states :],
        runs=runs,
        ends=ends,
        events=batch.events[had.events - since.events :],
    )
    refuse_reserved(part)
    return part


def _follow(consistency: Consistency, part: Part) -> None:
    """Check that the part follows what came before. Raises ValueError and its subclasses."""
    for state in part.states:
        consistency.add_state(state)
    for packed in part.runs:
        consistency.add_run(packed)
    for end in part.ends:
        consistency.add_end(end)
    consistency.forget_blocks()
