"""The coordinator: one loop that starts a task on every host, shows their progress, and stores what they return.

A host that dies, hangs or cannot be reached does not delay the others. What the coordinator does not have yet,
the hosts' stores have: ``fleet resume`` fetches it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import msgspec

from iotrial import __version__
from iotrial.errors import IotrialError, StoreError
from iotrial.fleet.cluster import Cluster, Facts, Lost, ip_of
from iotrial.fleet.collect import Collector
from iotrial.fleet.order import HOST_NAME, Record
from iotrial.store.states import TrialState
from iotrial.terminal import escape


class Phase(StrEnum):
    """State of a host as its coordinator sees it."""

    JOINING = "joining"  # its task has not reported yet
    MEASURING = "measuring"
    LOST = "lost"  # has no task; waiting for a worker
    LEFT_OUT = "left out"  # no worker for too long; taken up again if one comes while others measure
    STOPPED = "stopped"  # its trial was interrupted
    DONE = "done"
    INVALID = "invalid"  # its controls failed: reported, not averaged
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether the coordinator no longer waits for this host."""
        return self not in (Phase.JOINING, Phase.MEASURING, Phase.LOST)


_ENDINGS: dict[TrialState | None, Phase] = {
    TrialState.DONE: Phase.DONE,
    TrialState.INVALID: Phase.INVALID,
    TrialState.FAILED: Phase.FAILED,
}


@dataclass(slots=True)
class Host:
    """One host. ``trial`` is its number in the coordinator's store, ``left`` counts changes that are not restored."""

    name: str
    phase: Phase = Phase.LOST
    blocks: int = 0
    trial: int | None = None
    trial_id: str = ""
    said: str = ""
    left: int = 0
    #: Dask's task, its key, and the worker where it was started
    task: Any = None
    key: str = ""
    worker: str = ""
    joined: bool = False
    lost_since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class FleetProgress:
    """State of the whole fleet, with the hosts by name."""

    fleet: str
    study: str
    elapsed_s: float
    hosts: list[Host]


class FleetWatcher(Protocol):
    """Receives progress of a fleet: its state, and single events. Must be cheap; called by one thread."""

    def update(self, progress: FleetProgress) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals and timeouts in seconds: of the loop, of looks at who is there, without an answer, and so on.

    A host reports every ``report_s``, less often with more than ``often`` hosts: their total rate stays the same.
    """

    tick_s: float = 0.5
    look_s: float = 2.0
    report_s: float = 2.0
    often: int = 20
    leave_out_s: float = 180.0
    first_s: float = 60.0
    stop_s: float = 120.0


class FleetConductor:
    """Runs one fleet, until its end."""

    def __init__(
        self,
        cluster: Cluster,
        record: Record,
        collector: Collector,
        watcher: FleetWatcher,
        *,
        stopped: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
    ) -> None:
        self._cluster, self._record, self._collector, self._watcher = cluster, record, collector, watcher
        self._stopped, self._pace = stopped, pace or Pace()
        self._began = time.monotonic()
        self._asked: dict[str, Facts] = {}  # by worker
        self._looking: Future[dict[str, Facts]] | None = None
        self._look_due = self._shown = 0.0
        self._stopping_since: float | None = None
        self._arrived: SimpleQueue[Any] = SimpleQueue()
        self._warned: set[str] = set()
        self._hosts = {name: Host(name) for name in {*record.hosts, *collector.trials()}}
        for name, stored in collector.trials().items():
            self._stored(self._hosts[name])
            if stored.state in (TrialState.DONE, TrialState.INVALID):
                self._hosts[name].phase = _ENDINGS[stored.state]

    def run(self) -> FleetProgress:
        """Run until every host is done, failed or left out, or until ``stopped`` returns true.

        Raises Lost if the scheduler does not answer, IotrialError if no worker ever appears, and StoreError if
        the coordinator's own store fails. Tasks that still run are then cancelled.
        """
        pool = ThreadPoolExecutor(2, thread_name_prefix="cluster")  # a look that hangs delays no stop
        try:
            self._cluster.subscribe(self._record.id, self._arrived.put)
            while not self._over():
                self._turn(pool)
                if time.monotonic() - self._shown >= max(0.5, 0.005 * len(self._hosts)):
                    self._shown = time.monotonic()
                    self._watcher.update(self.progress())
        finally:
            for host in self._hosts.values():
                self._give_up(host)
                host.phase = host.phase if host.phase.over else Phase.STOPPED
            pool.shutdown(wait=False, cancel_futures=True)
            self._cluster.close()
        return self.progress()

    def progress(self) -> FleetProgress:
        """Return the current state of the fleet."""
        hosts = [host for _, host in sorted(self._hosts.items())]
        return FleetProgress(self._record.id, self._record.name, time.monotonic() - self._began, hosts)

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        now = time.monotonic()
        if self._stopping_since is None and self._stopped():
            self._stopping_since = now
            self._watcher.say("telling all hosts to stop and undo their changes")
            going = [(host.worker, host.key) for host in self._hosts.values() if host.task is not None]
            pool.submit(self._cluster.end, going)
        if self._looking is None and now >= self._look_due and self._stopping_since is None:
            self._looking = pool.submit(self._look)
        if self._looking is not None and self._looking.done():
            looking, self._looking = self._looking, None
            self._look_due = now + self._pace.look_s * max(1.0, len(self._hosts) / 100)
            self._seen(looking.result())
        try:
            self._take(self._arrived.get(timeout=self._pace.tick_s))
            while True:
                self._take(self._arrived.get_nowait())
        except Empty:
            pass

    def _over(self) -> bool:
        now, hosts = time.monotonic(), self._hosts.values()
        if self._stopping_since is not None:
            late = now - self._stopping_since > self._pace.stop_s
            return late or all(host.task is None for host in hosts)
        if not hosts and now - self._began > self._pace.first_s:
            raise IotrialError(
                f"no worker has joined the scheduler within {self._pace.first_s:g} s",
                hint="start one on each host: `dask worker ADDRESS --nthreads 1`, or dask-ssh (docs/fleet.md)",
            )
        return bool(hosts) and all(host.phase.over for host in hosts)

    # who is there

    def _look(self) -> dict[str, Facts]:
        """Return the facts of the workers that are there. Runs in the pool's thread."""
        workers = self._cluster.workers()
        known = {worker: facts for worker, facts in self._asked.items() if worker in workers}
        new = [worker for worker in workers if worker not in known]
        self._asked = {**known, **(self._cluster.facts(new) if new else {})}
        return self._asked

    def _seen(self, facts: dict[str, Facts]) -> None:
        """Start tasks on hosts that are new or back, and miss those that are gone."""
        present = self._named(facts)
        new = tuple(sorted(set(present) - set(self._hosts)))
        if new:
            self._hosts.update({name: Host(name) for name in new})
            self._record = msgspec.structs.replace(self._record, hosts=(*self._record.hosts, *new))
            self._record.write()
        for name, host in self._hosts.items():
            workers = present.get(name, [])
            if host.task is not None and host.worker not in workers:
                self._drop(host, "its worker has gone")
                self._say(host, f"lost: {host.said}")
            if host.task is None and workers and (not host.phase.over or host.phase is Phase.LEFT_OUT):
                self._start(host, workers[0])
            elif host.phase is Phase.LOST and time.monotonic() - host.lost_since > self._pace.leave_out_s:
                self._end(host, Phase.LEFT_OUT, f"it has had no worker for {self._pace.leave_out_s:g} s")

    def _named(self, facts: dict[str, Facts]) -> dict[str, list[str]]:
        """Return the workers that can measure by the names of their hosts; say why others cannot."""
        present: dict[str, list[str]] = {}
        for worker, found in sorted(facts.items()):
            name, version = (ip_of(worker), None) if isinstance(found, str) else found
            if version == __version__ and HOST_NAME.fullmatch(name):
                present.setdefault(name, []).append(worker)
            elif name not in self._hosts:
                why = f"has iotrial {version}, this machine has {__version__}: versions must be equal"
                why = "its host name is not valid" if version == __version__ else why
                self._hosts[name] = Host(name)
                self._end(self._hosts[name], Phase.FAILED, found if isinstance(found, str) else why)
        for name, workers in present.items():
            if name not in self._warned and len({ip_of(worker) for worker in workers}) > 1:
                self._warned.add(name)
                self._watcher.say(
                    f"several machines call themselves {name}; one takes part: {', '.join(workers)}"
                )
        return present

    # one host

    def _start(self, host: Host, worker: str) -> None:
        key = f"iotrial-{host.name}-{uuid.uuid4().hex}"
        every_s = self._pace.report_s * max(1.0, len(self._hosts) / self._pace.often)
        order = self._record.order_for(host.name)
        host.task = self._cluster.start(order, worker, key, every_s, lambda: self._arrived.put(key))
        host.phase, host.said, host.worker, host.key = Phase.JOINING, "", worker, key
        self._say(host, "is back" if host.joined else "has joined")
        host.joined = True

    def _take(self, message: Any) -> None:
        """Handle what has arrived: the progress of a task, or the key of one that has ended."""
        key = message.get("key") if isinstance(message, dict) else message
        host = next((one for one in self._hosts.values() if one.key == key and one.task is not None), None)
        if host is None:
            return
        if not isinstance(message, dict):
            self._ended(host)
            return
        host.phase = Phase.MEASURING
        blocks = message.get("blocks")
        if isinstance(blocks, int) and host.blocks < blocks < 2**31:
            host.blocks = blocks

    def _ended(self, host: Host) -> None:
        """Store what a task returned, and decide how to go on with its host."""
        try:
            problem, host.left, packed = self._cluster.result(host.task)
            state = None
            if packed:
                state = self._collector.add(self._record.order_for(host.name), packed).state
                self._stored(host)
        except Lost as error:  # the next look starts it again
            self._drop(host, error.message)
        except StoreError:
            raise
        except IotrialError as error:
            self._end(host, Phase.FAILED, error.message)
        else:
            early = state is None and self._stopping_since is None
            phase = Phase.FAILED if early else _ENDINGS.get(state, Phase.STOPPED)
            self._end(host, phase, problem or ("it ended before the trial began" if early else ""))

    def _stored(self, host: Host) -> None:
        stored = self._collector.trials()[host.name]
        host.trial, host.trial_id, host.blocks = stored.number, stored.id, stored.blocks

    def _drop(self, host: Host, why: str) -> None:
        """Give up the task of a host, which is started again by a later look."""
        self._give_up(host)
        host.phase, host.lost_since, host.said = Phase.LOST, time.monotonic(), why

    def _give_up(self, host: Host) -> None:
        if host.task is not None:
            self._cluster.cancel(host.task)
        host.task = None

    def _end(self, host: Host, phase: Phase, why: str) -> None:
        host.phase, host.said, host.task = phase, why, None
        left = f"; {host.left} changes are not undone yet" if host.left else ""
        self._say(host, f"{phase.value}{': ' + why if why else ''}{left}")

    def _say(self, host: Host, what: str) -> None:
        self._watcher.say(f"host {escape(host.name)[:80]}: {escape(what)[:1000]}")
