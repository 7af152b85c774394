"""The coordinator: one loop that starts the trial on every host, polls each for new records, and stores them.

The hosts run the trials; the coordinator only collects. So a host that dies, hangs or cannot be reached does
not delay the others, and a coordinator that is killed leaves nothing half-done: its store has what was
collected, the hosts have the rest. Each host is polled by one thread at a time; only the loop uses the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import Protocol

from iotrial import __version__
from iotrial.errors import IotrialError
from iotrial.fleet.batch import Batch, HostFacts, Lost, Stage
from iotrial.fleet.collect import Collector
from iotrial.fleet.interim import Interim, SoFar
from iotrial.fleet.order import Distrusted, Order, Record
from iotrial.store.exchange import Position
from iotrial.store.states import TrialState
from iotrial.terminal import escape

MOST_THREADS = 64
BEGINNINGS = 3  # retries of a trial that is interrupted repeatedly without a new block
_TICK_S = 0.25
_GATHERED = 0.05  # share of the polling interval: answers that arrive within it are handled together
_MOST_GATHERED_S = 0.25
_MOST_TOGETHER = 64  # answers in one transaction
_SHOWN_EVERY_S = 0.2
_MEANS_EVERY_S = 2.0
_SHOWN_EVERY_HOST_S = 0.005  # times the number of hosts, since each update looks at all of them
_SHOWN_AT_LEAST_S = 2.0


class HostLink(Protocol):
    """One host, over any transport.

    Every call may take long. It raises Lost on a timeout and Distrusted for an invalid answer, and is made by
    one thread at a time.
    """

    @property
    def name(self) -> str:
        """The host's name in the fleet: matches HOST_NAME and is unique."""

    def facts(self) -> HostFacts:
        """Return the facts about the host."""

    def begin(self, order: Order) -> None:
        """Start the trial, or continue it; whatever already exists of this order is kept."""

    def after(self, fleet: str, position: Position) -> Batch:
        """Return what the host's store has after a position; polling also keeps the trial there running."""

    def stop(self, fleet: str) -> None:
        """Make the trial end now and restore everything; its measurements stay there."""

    def close(self) -> None:
        """Disconnect from the host. Nothing there ends, but the grace period starts."""


class Hosts(Protocol):
    """A source of hosts: those that are named, or those that have registered with a scheduler."""

    def present(self) -> Sequence[HostLink]:
        """Return the hosts known now, always the same object for a host. Late arrivals are added."""

    def close(self) -> None:
        """Disconnect from all of them."""


class Phase(StrEnum):
    """State of a host as its coordinator sees it."""

    JOINING = "joining"  # present, not started
    MEASURING = "measuring"
    LOST = "lost"  # does not answer; waiting for it
    LEFT_OUT = "left out"  # no answer for too long; taken up again if it returns while others measure
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
    """State of the whole fleet. ``so_far``: means over hosts; ``further``: number of comparisons not in it."""

    fleet: str
    study: str
    elapsed_s: float
    hosts: Sequence[HostStanding]
    so_far: Sequence[SoFar] = ()
    further: int = 0

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
    """Polling intervals and timeouts of a coordinator, in seconds.

    In order: for new records, for hosts that join, for a host that does not answer, for leaving it out, for
    the first host, and for hosts to end when the fleet is stopped. With more than ``often`` hosts each is
    polled less often, so that the total rate stays that of ``often`` hosts: every answer has a cost, and the
    hosts keep what is waiting. The interval is at most ``share`` of the grace period.
    """

    ask_s: float = 1.0
    often: int = 20
    share: float = 0.125
    join_s: float = 2.0
    lost_s: float = 5.0
    leave_out_s: float = 180.0
    first_s: float = 60.0
    stop_s: float = 120.0


@dataclass(slots=True)
class _Host:
    """State of one host in the loop."""

    link: HostLink
    order: Order
    phase: Phase = Phase.JOINING
    begun: bool = False
    beginnings: int = 0
    due: float = 0.0
    lost_since: float | None = None
    pending: Future[Batch | None] | None = None
    said: str = ""
    left: int = 0
    stop_sent: bool = False


class FleetConductor:
    """Runs one fleet. ``hosts`` may use any transport."""

    def __init__(
        self,
        hosts: Hosts,
        record: Record,
        collector: Collector,
        watcher: FleetWatcher,
        *,
        stopped: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
        interim: Interim | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = hosts
        self._record = record
        self._collector = collector
        self._watcher = watcher
        self._stopped = stopped
        self._pace = pace or Pace()
        self._clock = clock
        self._hosts: dict[str, _Host] = {}
        self._looking: Future[object] | None = None
        self._look_due = 0.0
        self._began = clock()
        self._stopping_since: float | None = None
        self._answers: SimpleQueue[_Host] = SimpleQueue()
        self._shown = 0.0
        self._interim = interim
        self._so_far: tuple[SoFar, ...] = ()
        self._means_due = 0.0

    def run(self) -> Standing:
        """Run until every host is done, failed or left out, or until ``stopped`` returns true.

        Raises IotrialError if no host ever appears, and StoreError if the coordinator's own store fails.
        """
        pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="host")
        try:
            while not self._over():
                self._turn(pool)
                shown_every_s = max(
                    _SHOWN_EVERY_S, min(_SHOWN_AT_LEAST_S, _SHOWN_EVERY_HOST_S * len(self._hosts))
                )
                if self._clock() - self._shown >= shown_every_s:
                    self._shown = self._clock()
                    self._watcher.update(self.standing())
            self._let_go()
            return self.standing()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def standing(self) -> Standing:
        """Return the current state of the fleet."""
        trials = self._collector.trials()
        found = []
        for name, host in sorted(self._hosts.items()):
            number, trial_id = trials.get(name, (None, None))
            blocks = self._collector.position(name).blocks
            found.append(HostStanding(name, host.phase, blocks, number, trial_id, host.said, host.left))
        now = self._clock()
        further = 0
        if self._interim is not None:
            further = self._interim.further
            if now >= self._means_due:
                self._means_due = now + _MEANS_EVERY_S
                self._so_far = self._interim.means()
        return Standing(
            self._record.id, self._record.name, now - self._began, tuple(found), self._so_far, further
        )

    # the loop

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        now = self._clock()
        if self._stopping_since is None and self._stopped():
            self._stopping_since = now
            for host in self._hosts.values():
                host.due = min(host.due, now)
            self._watcher.say("telling all hosts to stop and undo their changes")
        if self._looking is None and now >= self._look_due and self._stopping_since is None:
            self._looking = pool.submit(self._source.present)
        for host in self._hosts.values():
            if host.pending is None and now >= host.due and self._wanted(host):
                host.pending = pool.submit(self._ask, host, self._collector.position(host.order.host))
                host.pending.add_done_callback(lambda _, host=host: self._answers.put(host))  # type: ignore[misc]
        self._take_in()
        woken = self._woken()
        for first in range(0, len(woken), _MOST_TOGETHER):
            with self._collector.together():
                for host in woken[first : first + _MOST_TOGETHER]:
                    if host.pending is not None and host.pending.done():
                        done, host.pending = host.pending, None
                        self._answered(host, done)

    def _woken(self) -> list[_Host]:
        """Return the hosts that have answered.

        Waits briefly to handle them in batches, so that 1,000 hosts need few turns.
        """
        found: list[_Host] = []
        with suppress(Empty):
            found.append(self._answers.get(timeout=_TICK_S))
            time.sleep(min(_GATHERED * self._pause_s(), _MOST_GATHERED_S))
            while True:
                found.append(self._answers.get_nowait())
        return found

    def _wanted(self, host: _Host) -> bool:
        """Return whether to poll the host. One that was left out may come back."""
        if host.phase is Phase.LEFT_OUT:
            return self._stopping_since is None
        return not host.phase.over

    def _over(self) -> bool:
        now = self._clock()
        hosts = self._hosts.values()
        if self._stopping_since is not None:
            waited = now - self._stopping_since
            going = [host for host in hosts if host.begun and not host.phase.over]
            return not going or waited > self._pace.stop_s or all(host.lost_since for host in going)
        if not hosts:
            if now - self._began > self._pace.first_s:
                raise IotrialError(
                    f"no host has reported within {self._pace.first_s:g} s",
                    hint="start `iotrial fleet worker ADDRESS --keys FOLDER` on each host",
                )
            return False
        return all(host.phase.over for host in hosts)

    def _take_in(self) -> None:
        """Add hosts that have newly appeared."""
        if self._looking is None or not self._looking.done():
            return
        looking, self._looking = self._looking, None
        self._look_due = self._clock() + self._pace.join_s
        links = looking.result()
        assert isinstance(links, list | tuple)
        for link in links:
            if link.name not in self._hosts:
                self._hosts[link.name] = _Host(link, self._record.order_for(link.name))
                self._collector.take_up(link.name)
                self._watcher.say(f"host {link.name} has joined")

    # one host

    def _ask(self, host: _Host, position: Position) -> Batch | None:
        """Take the next step with one host. Runs in a thread of the pool."""
        if self._stopping_since is not None and not host.stop_sent:
            host.link.stop(self._record.id)
            host.stop_sent = True
        elif not host.begun and self._stopping_since is None:
            facts = host.link.facts()
            if facts.version != __version__:
                raise IotrialError(
                    f"has iotrial {facts.version}, this machine has {__version__}: versions must be equal"
                )
            host.link.begin(host.order)
            host.begun = True
        return host.link.after(self._record.id, position) if host.begun else None

    def _answered(self, host: _Host, done: Future[Batch | None]) -> None:
        name = host.order.host
        try:
            batch = done.result()
        except Lost as error:
            self._lost(host, error.message)
            return
        except IotrialError as error:
            self._end(host, Phase.FAILED, error.message)
            return
        except Exception as error:  # any error of the transport fails this host, not the fleet
            self._end(host, Phase.FAILED, f"{type(error).__name__}: {error}")
            return
        if batch is None:
            host.phase = Phase.STOPPED
            return
        if host.lost_since is not None:
            host.lost_since = None
            self._say(host, "is back")
        try:
            added = self._collector.add(
                host.order, batch
            )  # a StoreError is the coordinator's own and ends the fleet
        except Distrusted as error:
            self._end(host, Phase.FAILED, f"its data are rejected from now on: {error.message}")
            return
        host.phase, host.said, host.left = Phase.MEASURING, "", batch.left
        if self._interim is not None:
            self._interim.add(name, batch, added.blocks)
        if added.blocks:
            host.beginnings = 0
        host.due = self._clock() + (0.0 if batch.more else self._pause_s())
        if batch.stage is not Stage.GOING and not batch.more:
            self._ended(host, batch, self._collector.state(name))

    def _pause_s(self) -> float:
        """Return the polling interval of a host."""
        pace = self._pace
        if self._stopping_since is not None:
            return pace.ask_s
        rarely = pace.ask_s * len(self._hosts) / pace.often
        return max(pace.ask_s, min(rarely, pace.share * self._record.order.grace_s))

    def _ended(self, host: _Host, batch: Batch, state: TrialState | None) -> None:
        """Handle a trial that no longer runs: finished, or interrupted."""
        if state in _ENDINGS:
            self._end(host, _ENDINGS[state], batch.problem)
        elif self._stopping_since is not None:
            self._end(host, Phase.STOPPED, "")
        elif batch.stage is Stage.ENDED and state is None:
            self._end(host, Phase.FAILED, batch.problem or "its process ended before the trial started")
        elif host.beginnings >= BEGINNINGS:
            self._end(host, Phase.STOPPED, batch.problem or "interrupted too many times")
        else:
            host.begun = False  # its agent restores what is left, then continues
            host.beginnings += 1

    def _end(self, host: _Host, phase: Phase, message: str) -> None:
        host.phase, host.said = phase, message
        left = f"; {host.left} changes are not undone yet" if host.left else ""
        self._say(host, f"{phase.value}{': ' + message if message else ''}{left}")

    def _lost(self, host: _Host, why: str) -> None:
        now = self._clock()
        host.due = now + self._pace.lost_s
        if host.lost_since is None:
            host.lost_since, host.phase, host.said = now, Phase.LOST, why
            self._say(host, f"lost: {why}")
        elif host.phase is Phase.LOST and now - host.lost_since > self._pace.leave_out_s:
            host.phase = Phase.LEFT_OUT
            self._say(host, f"left out: it has not answered for {self._pace.leave_out_s:g} s")

    def _say(self, host: _Host, what: str) -> None:
        text = f"host {host.order.host}: {escape(what)[:1000]}"
        self._collector.note(host.order.host, text)
        self._watcher.say(text)

    def _let_go(self) -> None:
        """Mark trials that are no longer followed as not running."""
        for name, host in self._hosts.items():
            if not host.phase.over:
                host.phase = Phase.STOPPED if self._stopping_since is not None else host.phase
            if host.phase in (Phase.LEFT_OUT, Phase.STOPPED):
                self._collector.leave(name, f"{host.phase.value}{': ' + host.said if host.said else ''}")
