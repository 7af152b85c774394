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
from iotrial.store.exchange import Gathered, Part, Position, refuse_reserved
from iotrial.store.model import BlockEnd, Event, TrialHeader, TrialState
from iotrial.store.packed import PackedRun, PackedState, read_packed


class Distrusted(IotrialError):
    """A host sent something invalid. Nothing of it was kept."""

    code = "bad_host"


@dataclass(frozen=True, slots=True)
class Stored:
    """A host's trial in this store: number here, global id, blocks, and last state (``running``: it was killed)."""

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
        self._fleet = fleet
        self._study = study
        found = self._gathering.trials(fleet)
        self._had = {one.host: one for one in found}
        if len(self._had) < len(found):
            raise StoreError(f"store {store.path}: a host has two trials in fleet {fleet}")

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
        had = self._had.get(host)
        try:
            header, part, position = _read(
                packed, f"host {host}", Position() if had is None else had.position
            )
            if header.seed != order.seed or header.study.name != self._study:
                raise ValueError("runs a trial with another seed or study than ordered")
            if had is None:
                header = replace(header, seed_chosen=self._seed_chosen)
                number = self._gathering.begin(header, self._fleet, host, part)
                had = Gathered(number, header.id, host, position, TrialState.RUNNING)
            elif had.id != header.id:
                raise ValueError("sent another trial than before")
            elif not part.empty:
                self._gathering.add(had.number, part)
        except StoreError:
            raise
        except (ValueError, KeyError, OverflowError, IotrialError) as error:
            raise Distrusted(f"host {host}: {str(error)[:500]}") from error
        state = part.states[-1].state if part.states else had.state
        self._had[host] = replace(had, position=position, state=state)
        return self.trials()[host]


def _read(packed: bytes, where: str, had: Position) -> tuple[TrialHeader, Part, Position]:
    """Return the header, what comes after ``had``, only finished blocks of it, and the new position.

    Raises ValueError, PackedError and its kin.
    """
    header, *records = read_packed(io.BytesIO(packed), where)
    assert isinstance(header, TrialHeader)
    states = tuple(one for one in records if isinstance(one, PackedState))
    ends = tuple(one for one in records if isinstance(one, BlockEnd))
    events = tuple(one for one in records if isinstance(one, Event))
    refuse_reserved(Part(states=states, events=events))
    if had.states > len(states) or had.blocks > len(ends) or had.events > len(events):
        raise ValueError("sent less than before")
    finished = {(end.condition, end.block) for end in ends[had.blocks :]}
    runs = tuple(
        one
        for one in records
        if isinstance(one, PackedRun) and (one.run.condition, one.run.block) in finished
    )
    part = Part(states[had.states :], runs, ends[had.blocks :], events[had.events :])
    return header, part, Position(len(states), len(ends), len(events))
