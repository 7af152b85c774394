"""Add the packed trials that hosts return to the coordinator's store, each row once.

A host's trial may come several times: as it was when it was stopped, and after it was continued. Only what is
new is added. A trial that the study, the seed and the order of blocks do not plan is rejected.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace

from iotrial.errors import IotrialError, StoreError
from iotrial.fleet.order import Order
from iotrial.store import Store
from iotrial.store.exchange import Gathered, Part, refuse_reserved
from iotrial.store.model import BlockEnd, Event, TrialHeader, TrialState
from iotrial.store.packed import PackedRun, PackedState, read_packed


class Distrusted(IotrialError):
    """A host sent something invalid. Nothing of it was kept."""

    code = "bad_host"


@dataclass(frozen=True, slots=True)
class Stored:
    """A host's trial in this store. ``number`` is its number here, ``id`` its global one.

    ``state`` is its last one: ``running`` if its process was killed.
    """

    number: int
    id: str
    blocks: int
    state: TrialState


class Collector:
    """The trials of one fleet in one store. Not thread-safe."""

    def __init__(self, store: Store, fleet: str, study: str, *, seed_chosen: bool = False) -> None:
        """Load what the store has of this fleet; all its trials are of the named study.

        ``seed_chosen``: the user chose the fleet's seed (hosts are always given theirs).
        """
        self._seed_chosen = seed_chosen
        self._gathering = store.gathering()
        self.fleet = fleet
        self.study = study
        self._had: dict[str, Gathered] = {}
        for one in self._gathering.trials(fleet):
            if one.host in self._had:
                raise StoreError(f"store {store.path}: host {one.host} has two trials in fleet {fleet}")
            self._had[one.host] = one

    def trials(self) -> Mapping[str, Stored]:
        """Return what the store has of each host."""
        return {
            host: Stored(one.number, one.id, one.position.blocks, one.state)
            for host, one in self._had.items()
        }

    def add(self, order: Order, packed: bytes) -> Stored:
        """Add what is new in a host's packed trial, all of it or nothing.

        Raises Distrusted for one that is invalid; a StoreError is a failure of the store itself.
        """
        host = order.host
        try:
            header, part = _read(packed, f"host {host}")
            if header.seed != order.seed:
                raise ValueError("runs a trial with another seed than ordered")
            if header.study.name != self.study:
                raise ValueError(f"runs another study than {self.study}")
            self._store(header, host, part)
        except StoreError:
            raise
        except (ValueError, KeyError, OverflowError, IotrialError) as error:
            message = error.message if isinstance(error, IotrialError) else str(error)
            raise Distrusted(f"host {host}: {message[:500]}") from error
        finally:
            found = {one.host: one for one in self._gathering.trials(self.fleet) if one.host == host}
            self._had.update(found)
        return self.trials()[host]

    def _store(self, header: TrialHeader, host: str, part: Part) -> None:
        had = self._had.get(host)
        if had is not None and had.id != header.id:
            raise ValueError("sent another trial than before")
        part = _new(part, had)
        if had is None:
            header = replace(header, seed_chosen=self._seed_chosen)
            self._gathering.begin(header, self.fleet, host, part)
        elif not part.empty:
            self._gathering.add(had.number, part)


def _read(packed: bytes, where: str) -> tuple[TrialHeader, Part]:
    """Return the header and the finished blocks of a packed trial. Raises PackedError and its kin."""
    header: TrialHeader | None = None
    states: list[PackedState] = []
    runs: list[PackedRun] = []
    ends: list[BlockEnd] = []
    events: list[Event] = []
    for record in read_packed(io.BytesIO(packed), where):
        match record:
            case TrialHeader():
                header = record
            case PackedState():
                states.append(record)
            case PackedRun():
                runs.append(record)
            case BlockEnd():
                ends.append(record)
            case Event():
                events.append(record)
    assert header is not None
    part = Part(tuple(states), tuple(runs), tuple(ends), tuple(events))
    refuse_reserved(part)
    return header, part


def _new(part: Part, had: Gathered | None) -> Part:
    """Return what the store lacks of a host's trial: only finished blocks. Raises ValueError if it has more."""
    states, blocks, events = (0, 0, 0) if had is None else (
        had.position.states, had.position.blocks, had.position.events)  # fmt: skip
    if states > len(part.states) or blocks > len(part.ends) or events > len(part.events):
        raise ValueError("sent less than before")
    ends = part.ends[blocks:]
    finished = {(end.condition, end.block) for end in ends}
    runs = tuple(one for one in part.runs if (one.run.condition, one.run.block) in finished)
    return Part(part.states[states:], runs, ends, part.events[events:])
