"""The coordinator: one loop that starts a task on every host, shows their progress, and stores what they return.

The hosts run the trials; the coordinator only collects. So a host that dies, hangs or cannot be reached does
not delay the others. What a coordinator does not have yet, the hosts' stores have: ``fleet resume`` fetches it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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

BEGINNINGS = 3  # retries of a trial that is interrupted repeatedly without a new block
_SHOWN_EVERY_S = 0.5
_SHOWN_EVERY_HOST_S = 0.005  # times the number of hosts, since each update looks at all of them


class Phase(StrEnum):
    """State of a host as its coordinator sees it."""

    JOINING = "joining"  # its task has not reported yet
    MEASURING = "measuring"
    LOST = "lost"  # has no worker; waiting for it
    LEFT_OUT = "left out"  # no worker for too long; taken up again if it returns while others measure
    STOPPED = "stopped"  # its trial was interrupted
    DONE = "done"
    INVALID = "invalid"  # its controls failed: reported, not averaged
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether the coordinator no longer waits for this host."""
        return self not in (Phase.JOINING, Phase.MEASURING, Phase.LOST)


_ENDINGS = {TrialState.DONE: Phase.DONE, TrialState.INVALID: Phase.INVALID, TrialState.FAILED: Phase.FAILED}


@dataclass(frozen=True, slots=True)
class HostStanding:
    """State of one host: ``trial`` is its number in the coordinator's store, ``trial_id`` its global id."""

    name: str
    phase: Phase
    blocks: int = 0
    trial: int | None = None
    trial_id: str | None = None
    said: str = ""
    left: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """State of the whole fleet."""

    fleet: str
    study: str
    elapsed_s: float
    hosts: Sequence[HostStanding]

    @property
    def blocks(self) -> int:
        return sum(host.blocks for host in self.hosts)

    def counted(self, phase: Phase) -> int:
        """Return how many hosts are in this phase."""
        return sum(host.phase is phase for host in self.hosts)


class FleetWatcher(Protocol):
    """Receives progress of a fleet. Every method must be cheap; all are called by one thread."""

    def update(self, standing: Standing) -> None:
        """Report the current state of the fleet."""

    def say(self, text: str) -> None:
        """Report a single event."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals and timeouts of a coordinator, in seconds.

    A host reports its progress every ``report_s``, less often with more than ``often`` hosts, so that the total
    rate stays that of ``often``. The others: of the loop, between looks at who is there, for a host or the
    scheduler without an answer, for the first worker, and for hosts to end when the fleet is stopped.
    """

    report_s: float = 2.0
    often: int = 20
    tick_s: float = 0.5
    look_s: float = 2.0
    leave_out_s: float = 180.0
    first_s: float = 60.0
    stop_s: float = 120.0


@dataclass(slots=True)
class _Host:
    name: str
    phase: Phase = Phase.LOST
    worker: str = ""  # where its task was started
    key: str = ""
    task: Any = None
    joined: bool = False
    since: float = 0.0  # without a task
    blocks: int = 0
    beginnings: int = 0
    said: str = ""
    left: int = 0


class FleetConductor:
    """Runs one fleet. ``connect`` returns a new connection to the cluster, or raises Lost."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        record: Record,
        collector: Collector,
        watcher: FleetWatcher,
        *,
        stopped: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._record = record
        self._collector = collector
        self._watcher = watcher
        self._stopped = stopped
        self._pace = pace or Pace()
        self._clock = clock
        self._began = clock()
        self._cluster: Cluster | None = None
        self._asked: dict[str, Facts] = {}  # by worker
        self._looking: Future[tuple[Cluster, dict[str, Facts]]] | None = None
        self._look_due = 0.0
        self._lost_since: float | None = None
        self._stopping_since: float | None = None
        self._shown = 0.0
        self._arrived: SimpleQueue[object] = SimpleQueue()
        self._warned: set[str] = set()
        self._hosts = {name: _Host(name, since=self._began) for name in record.hosts}
        for name, stored in collector.trials().items():
            host = self._hosts.setdefault(name, _Host(name, since=self._began))
            host.blocks = stored.blocks
            if stored.state in (TrialState.DONE, TrialState.INVALID):
                host.phase = _ENDINGS[stored.state]

    def run(self) -> Standing:
        """Run until every host is done, failed or left out, or until ``stopped`` returns true.

        Raises Lost if the scheduler stays away, IotrialError if no worker ever appears, and StoreError if the
        coordinator's own store fails. Tasks that still run are then cancelled.
        """
        pool = ThreadPoolExecutor(1, thread_name_prefix="cluster")
        try:
            self._cluster = self._opened()
            while not self._over():
                self._turn(pool)
                every_s = max(_SHOWN_EVERY_S, _SHOWN_EVERY_HOST_S * len(self._hosts))
                if self._clock() - self._shown >= every_s:
                    self._shown = self._clock()
                    self._watcher.update(self.standing())
        finally:
            for host in self._hosts.values():
                self._give_up(host)
                if not host.phase.over:
                    host.phase = Phase.STOPPED
            pool.shutdown(wait=False, cancel_futures=True)
            if self._cluster is not None:
                self._cluster.close()
        return self.standing()

    def standing(self) -> Standing:
        """Return the current state of the fleet."""
        stored = self._collector.trials()
        found = []
        for name, host in sorted(self._hosts.items()):
            one = stored.get(name)
            number, trial_id = (None, None) if one is None else (one.number, one.id)
            found.append(HostStanding(name, host.phase, host.blocks, number, trial_id, host.said, host.left))
        return Standing(self._record.id, self._record.name, self._clock() - self._began, tuple(found))

    # the loop

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        now = self._clock()
        cluster = self._cluster
        assert cluster is not None
        if self._stopping_since is None and self._stopped():
            self._stopping_since = now
            self._watcher.say("telling all hosts to stop and undo their changes")
            going = [(host.worker, host.key) for host in self._hosts.values() if host.task is not None]
            pool.submit(cluster.end, going)
        if self._looking is None and now >= self._look_due and self._stopping_since is None:
            self._looking = pool.submit(self._look, cluster)
        if self._looking is not None and self._looking.done():
            looking, self._looking = self._looking, None
            self._look_due = self._clock() + self._pace.look_s * max(1.0, len(self._hosts) / 100)
            try:
                self._cluster, facts = looking.result()
                if self._cluster is not cluster:  # Dask cancels the tasks of a client that it has lost
                    self._drop_all()
                self._seen(facts)
            except Lost as error:
                self._scheduler_lost(error)
        try:
            self._take(self._arrived.get(timeout=self._pace.tick_s))
            while True:
                self._take(self._arrived.get_nowait())
        except Empty:
            pass

    def _over(self) -> bool:
        now = self._clock()
        hosts = self._hosts.values()
        if self._stopping_since is not None:
            going = any(host.task is not None for host in hosts)
            return not going or now - self._stopping_since > self._pace.stop_s
        if not hosts:
            if now - self._began > self._pace.first_s:
                raise IotrialError(
                    f"no worker has joined the scheduler within {self._pace.first_s:g} s",
                    hint="start one on each host: `dask worker ADDRESS --nthreads 1`, or dask-ssh (docs/fleet.md)",
                )
            return False
        return all(host.phase.over for host in hosts)

    def _opened(self) -> Cluster:
        cluster = self._connect()
        cluster.subscribe(self._record.id, self._arrived.put)
        return cluster

    def _look(self, cluster: Cluster) -> tuple[Cluster, dict[str, Facts]]:
        """Return the facts of the workers that are there, and the connection, which may be a new one.

        Runs in the pool's thread.
        """
        try:
            workers = cluster.workers()
        except Lost:
            cluster.close()
            cluster = self._opened()
            workers = cluster.workers()
        known = {worker: facts for worker, facts in self._asked.items() if worker in workers}
        new = [worker for worker in workers if worker not in known]
        self._asked = {**known, **(cluster.facts(new) if new else {})}
        return cluster, self._asked

    def _seen(self, facts: dict[str, Facts]) -> None:
        """Start tasks on hosts that are new or back, and miss those that are gone."""
        if self._lost_since is not None:
            self._lost_since = None
            self._watcher.say("the scheduler is back")
        present = self._named(facts)
        new = tuple(sorted(set(present) - set(self._hosts)))
        if new:
            self._hosts.update({name: _Host(name, since=self._clock()) for name in new})
            self._record = msgspec.structs.replace(self._record, hosts=(*self._record.hosts, *new))
            self._record.write()
        for name, host in self._hosts.items():
            workers = present.get(name, [])
            if host.task is not None and host.worker not in workers:
                self._drop(host, "its worker has gone")
                self._say(host, f"lost: {host.said}")
            if host.task is None and workers and (not host.phase.over or host.phase is Phase.LEFT_OUT):
                self._start(host, workers[0])
            elif host.phase is Phase.LOST and self._clock() - host.since > self._pace.leave_out_s:
                host.phase = Phase.LEFT_OUT
                self._say(host, f"left out: it has had no worker for {self._pace.leave_out_s:g} s")

    def _named(self, facts: dict[str, Facts]) -> dict[str, list[str]]:
        """Return the workers that can measure by the names of their hosts; say why others cannot."""
        present: dict[str, list[str]] = {}
        for worker, found in sorted(facts.items()):
            if isinstance(found, str):
                self._refuse(ip_of(worker), found)
            elif found[1] != __version__:
                version = escape(found[1][:40])
                self._refuse(
                    found[0], f"has iotrial {version}, this machine has {__version__}: versions must be equal"
                )
            elif not HOST_NAME.fullmatch(found[0]):
                self._warn(f'worker {worker}: "{escape(found[0][:80])}" cannot be the name of a host')
            else:
                present.setdefault(found[0], []).append(worker)
        for name, workers in present.items():
            if len({ip_of(worker) for worker in workers}) > 1:
                self._warn(f"several machines call themselves {name}; one takes part: {', '.join(workers)}")
        return present

    def _scheduler_lost(self, error: Lost) -> None:
        now = self._clock()
        if self._lost_since is None:
            self._lost_since = now
            self._watcher.say(f"{error.message}; the hosts end their trials and restore their settings")
            self._drop_all()
        elif now - self._lost_since > self._pace.leave_out_s:
            raise error

    # one host

    def _start(self, host: _Host, worker: str) -> None:
        assert self._cluster is not None
        key = f"iotrial-{host.name}-{uuid.uuid4().hex}"
        every_s = self._pace.report_s * max(1.0, len(self._hosts) / self._pace.often)
        order = self._record.order_for(host.name)
        try:
            host.task = self._cluster.start(order, worker, key, every_s, lambda: self._arrived.put(key))
        except Lost as error:
            self._scheduler_lost(error)
            return
        host.phase, host.said, host.worker, host.key = Phase.JOINING, "", worker, key
        self._say(host, "is back" if host.joined else "has joined")
        host.joined = True

    def _take(self, message: object) -> None:
        """Handle what has arrived: the progress of a task, or the key of one that has ended."""
        ended = isinstance(message, str)
        key = message if ended else message.get("key") if isinstance(message, dict) else None
        host = next((one for one in self._hosts.values() if one.key == key and one.task is not None), None)
        if host is None:
            return
        if ended:
            self._ended(host)
            return
        assert isinstance(message, dict)
        host.phase = Phase.MEASURING
        blocks = message.get("blocks")
        if isinstance(blocks, int) and host.blocks < blocks < 2**31:
            host.blocks, host.beginnings = blocks, 0

    def _ended(self, host: _Host) -> None:
        """Store what a task returned, and decide how to go on with its host."""
        assert self._cluster is not None
        state = None
        try:
            problem, host.left, packed = self._cluster.result(host.task)
            if packed:
                stored = self._collector.add(self._record.order_for(host.name), packed)
                host.blocks, state = stored.blocks, stored.state
        except Lost as error:  # the next look starts it again
            self._drop(host, error.message)
            return
        except StoreError:
            raise
        except IotrialError as error:
            self._end(host, Phase.FAILED, error.message)
            return
        if state in _ENDINGS:
            self._end(host, _ENDINGS[state], problem)
        elif self._stopping_since is not None:
            self._end(host, Phase.STOPPED, "")
        elif state is None:
            self._end(host, Phase.FAILED, problem or "its process ended before the trial started")
        elif host.beginnings >= BEGINNINGS:
            self._end(host, Phase.STOPPED, problem or "interrupted too many times")
        else:
            host.beginnings += 1
            self._drop(host, problem or "its trial was interrupted")

    def _drop(self, host: _Host, why: str) -> None:
        """Give up the task of a host, which is started again by a later look."""
        self._give_up(host)
        host.phase, host.since, host.said = Phase.LOST, self._clock(), why

    def _drop_all(self) -> None:
        for host in self._hosts.values():
            if host.task is not None:
                self._drop(host, "the connection to the scheduler was lost")

    def _give_up(self, host: _Host) -> None:
        if host.task is not None and self._cluster is not None:
            self._cluster.cancel(host.task)
        host.task = None

    def _refuse(self, name: str, why: str) -> None:
        if name not in self._hosts:
            self._hosts[name] = _Host(name)
            self._end(self._hosts[name], Phase.FAILED, why)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._watcher.say(text)

    def _end(self, host: _Host, phase: Phase, message: str) -> None:
        host.phase, host.said, host.task = phase, message, None
        left = f"; {host.left} changes are not undone yet" if host.left else ""
        self._say(host, f"{phase.value}{': ' + message if message else ''}{left}")

    def _say(self, host: _Host, what: str) -> None:
        self._watcher.say(f"host {host.name}: {escape(what)[:1000]}")
