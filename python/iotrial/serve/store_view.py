"""The store as the pages see it: a snapshot of its trials, what is known of them, and jobs for what must be analysed.

The file is opened for reading for each request. The snapshot is kept until the file changes. While a trial is running the
file changes all the time: it is then looked at once a second at most, without a check of every page of the file, which would
read all of it beside the measurement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from iotrial.errors import IotrialError, StoreError, UnknownName
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses
from iotrial.serve.cpu_priority import give_way
from iotrial.serve.jobs import Jobs, NotReady
from iotrial.serve.render import Reports, comparison_reports, packed_trial, summarise, trial_reports
from iotrial.store import Store
from iotrial.store.model import TrialHeader
from iotrial.store.outline import Outline, outlines
from iotrial.store.states import TrialState

PAGE_WAIT_S = 1.5  # of a request for its job
SUMMARISE_S = 2.0  # of one job, after which a page asks again: nobody may be looking any more
_FRESH_S = 1.0  # how long a snapshot counts while a trial is running
_Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Snapshot:
    """What the store holds. ``trials``: newest first; ``warnings``: of the file as a whole; ``failures``: why trials could
    not be analysed, by number, found since the file has changed last."""

    trials: tuple[Outline, ...] = ()
    damaged: tuple[Outline, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: bool = False
    failures: dict[int, str] = field(default_factory=dict)

    @cached_property
    def running(self) -> tuple[Outline, ...]:
        """The trials that are being measured now."""
        return tuple(trial for trial in self.trials if trial.state is TrialState.RUNNING)

    @cached_property
    def by_number(self) -> dict[int, Outline]:
        """The trials that can be read."""
        return {trial.number: trial for trial in self.trials}


@dataclass(frozen=True, slots=True)
class Summaries:
    """Trials that have been analysed, by number. ``open``: how many have not; ``measuring``: because a trial is running;
    ``failed``: why not, by number."""

    found: dict[int, Analysed]
    open: int
    measuring: bool
    failed: dict[int, str]


class StoreView:
    """One store's file. Methods may be called from several threads. They raise StoreError where the store cannot be read.

    ``background``: give way to other work, and more so once a trial has been seen running.
    """

    def __init__(self, path: Path, *, background: bool) -> None:
        self.path = path
        self._jobs = Jobs(self._measuring, background=background)
        self._gives_way = background
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._stamp: _Stamp = ()
        self._warnings: tuple[str, ...] = ()
        self._seen_s = 0.0

    def close(self) -> None:
        """End what is being done."""
        self._jobs.close()

    def trial(self, number: int | None) -> Outline:
        """UnknownName where there is none of this number, StoreError where it is damaged."""
        snapshot = self.snapshot()
        if number is not None and number in snapshot.by_number:
            return snapshot.by_number[number]
        for lost in snapshot.damaged:
            if lost.number == number:
                raise StoreError(f"trial {lost.number} cannot be read: {lost.problem}")
        known = [str(trial.number) for trial in snapshot.trials[:8]]
        raise UnknownName("trial", str(number or "that"), known, where="the store")

    def header(self, trial: Outline) -> TrialHeader:
        """All that is known of a trial before its first run."""
        with self._opened() as store:
            return store.find(trial.number).header

    # -- analyses

    def stored(self, trials: Sequence[Outline]) -> dict[int, Analysed]:
        """The stored summaries of these trials, by number."""
        found: dict[int, Analysed] = {}
        trials = [trial for trial in trials if trial.state is not TrialState.RUNNING]
        if trials:
            with self._opened() as store, Analyses(store.path) as stored:
                for trial in trials:
                    with suppress(StoreError):  # a damaged trial has a page of its own that says so
                        one = stored.newest_summary(trial.id, store.mark(trial.number))
                        if one is not None and one.number == trial.number:
                            found[trial.number] = one
        return found

    def summaries(self, trials: Sequence[Outline], *, wait_s: float = PAGE_WAIT_S) -> Summaries:
        """The summaries of trials that have ended. What is missing is analysed; this waits at most ``wait_s`` for it."""
        failures, measuring = self.snapshot().failures, False
        found = self.stored(trials)
        unknown = [one for one in trials if one.number not in found and one.number not in failures]
        if unknown:
            which = [(one.number, one.id) for one in unknown]
            try:
                failures |= self._jobs.result(
                    "summarise", summarise, self.path, which, SUMMARISE_S, wait_s=wait_s, keep=False
                )
            except NotReady as error:
                measuring = error.measuring
            except IotrialError as error:
                failures[unknown[0].number] = error.message
            found |= self.stored(unknown)
        failed = {one.number: failures[one.number] for one in trials if one.number in failures}
        found = {one.number: found[one.number] for one in trials if one.number in found}
        return Summaries(found, len(trials) - len(found.keys() | failed.keys()), measuring, failed)

    def reports(self, trial: Outline) -> Reports:
        """The reports of a trial that has ended. NotReady where they are not there yet."""
        arguments = (self.path, (trial.number, trial.id))
        return self._jobs.result(("report", _key(trial)), trial_reports, *arguments, wait_s=PAGE_WAIT_S)

    def comparison(self, trials: Sequence[Outline]) -> Reports:
        """Trials that have ended side by side, in this order. NotReady where that is not there yet."""
        key = ("comparison", *map(_key, trials))
        which = [(trial.number, trial.id) for trial in trials]
        return self._jobs.result(key, comparison_reports, self.path, which, wait_s=PAGE_WAIT_S)

    def packed(self, trial: Outline) -> bytes:
        """The packed trial. NotReady where it is not there yet."""
        arguments = (self.path, (trial.number, trial.id))
        return self._jobs.result(
            ("packed", _key(trial)), packed_trial, *arguments, wait_s=PAGE_WAIT_S, keep=False
        )

    def _measuring(self) -> bool:
        try:
            return bool(self.snapshot(at_most_s=1.0).running)
        except StoreError:
            return False

    # -- the file

    def _opened(self) -> Store:
        return Store.open(self.path, read_only=True, checked=False)

    def snapshot(self, *, at_most_s: float = 0.0) -> Snapshot:
        """What the store holds now, or held ``at_most_s`` ago."""
        with self._lock:
            before = self._snapshot
            if before is not None and time.monotonic() - self._seen_s < at_most_s:
                return before
            stamp = self._stamp_now()
            if before is not None and self._counts(before, stamp):
                return before
            self._snapshot = None  # whatever comes of it, what was known is over
            self._snapshot = found = self._read(before, stamp)
            self._stamp, self._seen_s = stamp, time.monotonic()
            if found.running and self._gives_way:
                self._gives_way = False
                give_way(idle=True)
            return found

    def _counts(self, before: Snapshot, stamp: _Stamp) -> bool:
        if before.running:  # its conductor may be gone without a change to the file
            return time.monotonic() - self._seen_s < _FRESH_S and stamp[:2] == self._stamp[:2]
        return stamp == self._stamp

    def _read(self, before: Snapshot | None, stamp: _Stamp) -> Snapshot:
        if not self.path.exists():
            return Snapshot(missing=True)
        measured = before is not None and before.running and stamp[:2] == self._stamp[:2]
        if measured and before is not None and (followed := self._followed(before)) is not None:
            return followed
        found, warnings = outlines(self.path, checked=not measured)
        if not measured:
            self._warnings = warnings
        newest = tuple(reversed(found))
        return Snapshot(
            tuple(one for one in newest if one.problem is None),
            tuple(one for one in newest if one.problem is not None),
            self._warnings,
        )

    def _followed(self, before: Snapshot) -> Snapshot | None:
        """The snapshot before with its running trials as they are now; None where there are others by now."""
        now: dict[int, Outline] = {}
        try:
            with self._opened() as store:
                if store.find("last").number != max(one.number for one in (*before.trials, *before.damaged)):
                    return None
                for one in before.running:
                    found = store.find(one.number)
                    now[one.number] = replace(one, state=found.state, duration_s=found.duration_s)
        except (StoreError, UnknownName):
            return None
        return replace(before, trials=tuple(now.get(one.number, one) for one in before.trials))

    def _stamp_now(self) -> _Stamp:
        """Which file it is, then when it and its log were written to last. A log without a byte is none: readers make one."""
        log = _stamp(self.path.with_name(self.path.name + "-wal"))
        return (*_stamp(self.path), *(log[2:] if log[2] else ()))


def _stamp(path: Path) -> _Stamp:
    try:
        facts = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)


def _key(trial: Outline) -> tuple[object, ...]:
    return (trial.number, trial.id, trial.state, trial.duration_s)
