"""The store as the pages see it: a snapshot of its trials, their stored summaries, and jobs for missing analyses.

The file is opened for reading for each request. The snapshot is kept until the file changes. While a trial is
running, the file changes all the time: it is then read at most once a second, without checking every page of
the file, which would read all of it during the measurement.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from iotrial.errors import IotrialError, RequestError, StoreError, UnknownName
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses
from iotrial.report.comparing import compare
from iotrial.report.comparison_blocks import comparison_html, comparison_markdown
from iotrial.report.comparison_json import comparison_json
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of, summary_of
from iotrial.report.render import html_report, markdown_report
from iotrial.store import Store
from iotrial.store.model import TrialHeader
from iotrial.store.outline import Outline, outlines
from iotrial.store.packed import verify_packed
from iotrial.store.states import TrialState
from iotrial.web.jobs import Jobs, NotReady, give_way

PAGE_WAIT_S = 1.5  # time that a request waits for its job
SUMMARISE_S = 2.0  # of one job, after which a page must ask again: the user may have left
_FRESH_S = 1.0  # how long a snapshot is valid while a trial is running
_Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Snapshot:
    """The content of the store.

    ``trials``: newest first. ``warnings``: about the file as a whole. ``failures``: why trials could not be
    analysed, by number, since the last change of the file.
    """

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
        """The readable trials."""
        return {trial.number: trial for trial in self.trials}


@dataclass(frozen=True, slots=True)
class Summaries:
    """Analysed trials, by number.

    ``open``: how many are not analysed yet; ``measuring``: because a trial is running; ``failed``: errors, by
    number.
    """

    found: dict[int, Analysed]
    open: int
    measuring: bool
    failed: dict[int, str]


class StoreView:
    """One store file. Thread-safe. Methods raise StoreError if the store cannot be read.

    ``background``: lower the priority, and lower it further once a running trial has been seen.
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
        """Stop the jobs."""
        self._jobs.close()

    def trial(self, number: int | None) -> Outline:
        """Return the trial with this number. Raises UnknownName if there is none, StoreError if it is damaged."""
        snapshot = self.snapshot()
        if number is not None and number in snapshot.by_number:
            return snapshot.by_number[number]
        for lost in snapshot.damaged:
            if lost.number == number:
                raise StoreError(f"trial {lost.number} cannot be read: {lost.problem}")
        known = [str(trial.number) for trial in snapshot.trials[:8]]
        raise UnknownName("trial", str(number or "that"), known, where="the store")

    def header(self, trial: Outline) -> TrialHeader:
        """Return the header of a trial: what is known before its first run."""
        with self._opened() as store:
            return store.find(trial.number).header

    # -- analyses

    def stored(self, trials: Sequence[Outline]) -> dict[int, Analysed]:
        """Return the stored summaries of these trials, by number."""
        found: dict[int, Analysed] = {}
        trials = [trial for trial in trials if trial.state is not TrialState.RUNNING]
        if trials:
            with self._opened() as store, Analyses(store.path) as stored:
                for trial in trials:
                    with suppress(StoreError):  # a damaged trial has its own page with an error message
                        one = stored.newest_summary(trial.id, store.mark(trial.number))
                        if one is not None and one.number == trial.number:
                            found[trial.number] = one
        return found

    def summaries(self, trials: Sequence[Outline], *, wait_s: float = PAGE_WAIT_S) -> Summaries:
        """Return summaries of ended trials; analyse missing ones, waiting at most ``wait_s`` for them."""
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
        """Return the reports of a trial that has ended. Raises NotReady."""
        arguments = (self.path, (trial.number, trial.id))
        return self._jobs.result(("report", _key(trial)), trial_reports, *arguments, wait_s=PAGE_WAIT_S)

    def comparison(self, trials: Sequence[Outline]) -> Reports:
        """Return the comparison of ended trials, in this order. Raises NotReady."""
        key = ("comparison", *map(_key, trials))
        which = [(trial.number, trial.id) for trial in trials]
        return self._jobs.result(key, comparison_reports, self.path, which, wait_s=PAGE_WAIT_S)

    def packed(self, trial: Outline) -> bytes:
        """Return the packed trial. Raises NotReady."""
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
        """Return the current content of the store, at most ``at_most_s`` old."""
        with self._lock:
            before = self._snapshot
            if before is not None and time.monotonic() - self._seen_s < at_most_s:
                return before
            stamp = self._stamp_now()
            if before is not None and self._counts(before, stamp):
                return before
            self._snapshot = None  # invalidate the old snapshot even if reading fails
            self._snapshot = found = self._read(before, stamp)
            self._stamp, self._seen_s = stamp, time.monotonic()
            if found.running and self._gives_way:
                self._gives_way = False
                give_way(idle=True)
            return found

    def _counts(self, before: Snapshot, stamp: _Stamp) -> bool:
        if before.running:  # its conductor may have died without changing the file
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
        """Return the previous snapshot with its running trials updated; None if it has other trials now.

        A store that replaced the previous one may have its inode number.
        """
        now: dict[int, Outline] = {}
        damaged = {one.number for one in before.damaged}
        try:
            with self._opened() as store:
                ids = store.ids()
                whole = {number: of_trial for number, of_trial in ids.items() if number not in damaged}
                if not damaged <= ids.keys() or whole != {one.number: one.id for one in before.trials}:
                    return None
                for one in before.running:
                    found = store.find(one.number)
                    now[one.number] = replace(one, state=found.state, duration_s=found.duration_s)
        except (StoreError, UnknownName):
            return None
        return replace(before, trials=tuple(now.get(one.number, one) for one in before.trials))

    def _stamp_now(self) -> _Stamp:
        """Return the file's identity, then the last changes of it and its WAL.

        An empty WAL counts as none: readers create it.
        """
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


# Jobs of the worker process of ``serve``: analyse and draw trials, compare them, pack them.


MOST_PACKED = 256 << 20
Which = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Reports:
    """A report in each format; ``json`` and ``markdown`` are UTF-8."""

    html: str
    json: bytes
    markdown: bytes


def trial_reports(path: Path, which: Which) -> Reports:
    """Return the reports of a trial that has ended. Raises StoreError if it cannot be read."""
    # not at the top: the server itself draws nothing, and starts in two thirds of the time without
    with _opened(path, which) as store:
        document = document_of(store, which[0])
        found = json.dumps(report_json(document), indent=1).encode()
        return Reports(html_report(document), found, markdown_report(document).encode("utf-8", "replace"))


def summarise(path: Path, trials: Sequence[Which], budget_s: float) -> dict[int, str]:
    """Analyse at least one of these trials, and more within the time budget.

    The analyses are stored. Returns the failures by trial number.
    """
    failed, until_s = {}, time.monotonic() + budget_s
    for which in trials:
        try:
            with _opened(path, which) as store:
                summary_of(store, which[0])
        except (StoreError, RequestError) as error:
            failed[which[0]] = error.message
        if time.monotonic() > until_s:
            break
    return failed


def comparison_reports(path: Path, trials: Sequence[Which]) -> Reports:
    """Compare these trials in this order, dividing the level among them. Raises RequestError if they share nothing."""
    summaries = []
    for which in trials:
        with _opened(path, which) as store:
            summaries.append(summary_of(store, which[0], share=len(trials)))
    comparison = compare(summaries)
    found = json.dumps(comparison_json(comparison), indent=1, allow_nan=False).encode()
    markdown = comparison_markdown(comparison).encode("utf-8", "replace")
    return Reports(comparison_html(comparison), found, markdown)


def packed_trial(path: Path, which: Which) -> bytes:
    """Return a packed trial, verified by reading it back. Raises StoreError if it could not be imported or is too large."""
    number, _ = which
    with _opened(path, which) as store, tempfile.TemporaryFile() as file:
        store.pack(number, file)
        size = file.seek(0, 2)
        if size > MOST_PACKED:
            raise StoreError(
                f"trial {number} is too large for a download ({size:,} bytes)",
                hint=f"iotrial export {number}",
            )
        verify_packed(file, number)
        return file.read()


@contextmanager
def _opened(path: Path, which: Which) -> Iterator[Store]:
    number, name = which
    with Store.open(path, read_only=True, checked=False) as store:
        found = store.find(number)
        if found.header.id != name:
            raise StoreError(f"trial {number} has been replaced")
        if found.state is TrialState.RUNNING:
            raise StoreError(f"trial {number} is running again")
        yield store
