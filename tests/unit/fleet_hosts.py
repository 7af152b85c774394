"""Fleet hosts backed by stores on local disk: the data their agents would read, and fake links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import store_examples

from iotrial import __version__
from iotrial.fleet.batch import Batch, HostFacts, Lost, Position, Stage, tail
from iotrial.fleet.order import Order, Record, seed_of
from iotrial.store import Store
from iotrial.store.model import TrialHeader, TrialState
from values import replace

FLEET = "f1ee7" + "0" * 27
ORDER = Order(FLEET, "unnamed", "0" * 32, "", text=store_examples.STUDY)
RECORD = Record(ORDER, "example")


def header_for(host: str) -> TrialHeader:
    """Return the header that this host's trial must have, with its own id."""
    seed = seed_of(ORDER.seed, host)
    made = store_examples.header(seed_of("id", host), controls=True, time_s=60.0, blocks=100)
    return replace(made, seed=seed)


class HostStore:
    """A host's own store, filled block by block."""

    def __init__(self, path: Path, host: str, blocks: int = 100) -> None:
        self.host = host
        self.path = path
        self.header = header_for(host)
        self._left = list(store_examples.planned_runs(self.header, blocks))
        with Store.open(path) as store:
            store.create_trial(self.header)

    def measure(self, blocks: int) -> None:
        with Store.open(self.path, checked=False) as store:
            for runs, end in self._left[:blocks]:
                for record in runs:
                    store.append_run(self.header.id, record)
                store.end_block(self.header.id, end)
        del self._left[:blocks]

    def begin_block(self) -> None:
        """Store one run of a block that is not finished."""
        with Store.open(self.path) as store:
            store.append_run(self.header.id, self._left[0][0][0])

    def note(self, kind: str, *texts: str) -> None:
        with Store.open(self.path) as store:
            store.note_all(self.header.id, kind, texts)

    def state(self, state: TrialState, reason: str | None = None) -> None:
        with Store.open(self.path) as store:
            store.set_state(self.header.id, state, reason)

    def batch(self, since: Position | None = None, stage: Stage = Stage.GOING) -> Batch:
        """Return a batch that has been through its wire format (JSON) and back."""
        return Batch.from_json(tail(self.path, since or Position(), stage).to_json())


@dataclass
class Link:
    """Fake link to a host backed by a store. ``lost`` makes it fail, ``then`` runs during :meth:`after`."""

    store: HostStore
    lost: bool = False
    ended: bool = True
    version: str = __version__
    then: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)
    batch: Batch | None = None

    @property
    def name(self) -> str:
        return self.store.host

    def facts(self) -> HostFacts:
        self._reached("facts")
        return HostFacts(self.name, self.version, "6.1", 2, 1 << 30, root=False)

    def begin(self, order: Order) -> None:
        self._reached("begin")
        assert order.host == self.name
        assert order.seed == self.store.header.seed

    def after(self, fleet: str, position: Position) -> Batch:
        self._reached("after")
        assert fleet == FLEET
        self.then()
        return self.batch or self.store.batch(position, Stage.ENDED if self.ended else Stage.GOING)

    def stop(self, fleet: str) -> None:
        self._reached("stop")
        assert fleet == FLEET
        self.store.state(TrialState.INTERRUPTED, "ended by SIGTERM")
        self.ended = True

    def close(self) -> None:
        self.calls.append("close")

    def _reached(self, call: str) -> None:
        self.calls.append(call)
        if self.lost:
            raise Lost(f"host {self.name} does not answer")


@dataclass
class Some:
    """Fake fleet with these links. ``late`` links appear from the second call of :meth:`present`."""

    links: Sequence[Link]
    late: Sequence[Link] = ()
    looks: int = 0

    def present(self) -> Sequence[Link]:
        self.looks += 1
        return [*self.links, *(self.late if self.looks > 1 else ())]

    def close(self) -> None:
        pass
