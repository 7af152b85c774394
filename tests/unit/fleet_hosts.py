"""Fleet hosts backed by stores on local disk, and a cluster of them: what a scheduler would pass on."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import store_examples

from iotrial import __version__
from iotrial.fleet.cluster import Facts, Lost
from iotrial.fleet.host import Result
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

    def packed(self) -> bytes:
        """Return the trial as its task would."""
        file = io.BytesIO()
        with Store.open(self.path, read_only=True) as store:
            store.pack("last", file)
        return file.getvalue()


@dataclass
class Task:
    """A task that was started: ``done`` tells the coordinator that it has ended."""

    order: Order
    worker: str
    key: str
    done: Callable[[], None]


@dataclass
class FakeCluster:
    """A cluster with these workers, each the name of its host and the outcome of its task in turn.

    An outcome is a result, an error, or None: the task goes on. ``looked`` runs at each look.
    """

    outcomes: dict[str, list[Result | Exception | None]]
    versions: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    looked: Callable[[int], None] = lambda _: None
    away: bool = False
    looks: int = 0
    started: list[Task] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    receive: Callable[[Any], None] = lambda _: None
    found: dict[str, Result | Exception] = field(default_factory=dict)

    def subscribe(self, fleet: str, receive: Callable[[Any], None]) -> None:
        self.receive = receive

    def workers(self) -> tuple[str, ...]:
        self.looks += 1
        self.looked(self.looks)
        if self.away:
            raise Lost("the scheduler x does not answer")
        return (*self.outcomes, *self.unfit)

    def facts(self, workers: Sequence[str]) -> dict[str, Facts]:
        names = {worker: worker.partition("//")[2].partition(":")[0] for worker in workers}
        return {
            worker: self.unfit.get(worker) or (name, self.versions.get(name, __version__))
            for worker, name in names.items()
        }

    def start(self, order: Order, worker: str, key: str, every_s: float, done: Callable[[], None]) -> Task:
        task = Task(order, worker, key, done)
        self.started.append(task)
        outcome = self.outcomes[worker].pop(0) if self.outcomes[worker] else None
        self.receive({"key": key, "blocks": 1})
        if outcome is not None:
            self.found[key] = outcome
            done()
        return task

    def result(self, task: Task) -> Result:
        found = self.found[task.key]
        if isinstance(found, Exception):
            raise found
        return found

    def end(self, tasks: Sequence[tuple[str, str]]) -> None:
        self.ended += [key for _, key in tasks]

    def cancel(self, task: Task) -> None:
        self.cancelled.append(task.key)

    def close(self) -> None:
        pass
