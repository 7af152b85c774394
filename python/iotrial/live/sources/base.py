"""What every source of a metric has: its description, its errors, and a thread that reads it.

All reading happens in a separate thread (``Poller``). A source that hangs, in a lookup of a name, in a server that
accepts and never answers, in a command, hangs that thread alone. The caller waits a few seconds at most and gets MetricLost.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from iotrial.errors import IotrialError, RequestError
from iotrial.units import LARGEST

#: how long one reading may take before the metric counts as lost
TIMEOUT_S = 3.0
#: time between two readings
EVERY_S = 2.0
#: of the numbers that a metric can have, for messages
RANGE = f" of a magnitude up to {LARGEST:g}"
#: readings kept for the guard; those of a window are kept apart
_RECENT = 64
#: readings in one window: a day at one a second
_MOST_READINGS = 100_000

T = TypeVar("T")


class MetricLost(IotrialError):
    """The metric cannot be read any more, or not in time."""

    code = "metric_lost"


class WindowVoid(MetricLost):
    """The source works, but this window has no right value: a counter was reset, or nothing happened in it.

    The pair of windows is void. Those who do not distinguish the two treat it as a lost metric."""

    code = "window_void"


def no_number(where: str, found: object) -> MetricLost:
    return MetricLost(f"{where}: expected a number{RANGE}, found {str(found)[:80]!r}")


def nothing(name: str) -> WindowVoid:
    return WindowVoid(f"metric {name}: nothing was counted in this window")


def was_reset(name: str, what: str = "") -> WindowVoid:
    return WindowVoid(f"metric {name}: a counter was reset{what and ': '}{what}")


def several(name: str, count: int, hint: str) -> MetricLost:
    return MetricLost(f"{name}: expected one series, found {count}", hint=hint)


def unreadable(what: object, why: object) -> MetricLost:
    return MetricLost(f"cannot read {what}: {str(why)[:120]}")


def silent(what: str, timeout_s: float) -> MetricLost:
    return MetricLost(f"{what}: no answer within {timeout_s:g} s")


class Source(Protocol):
    """A metric of the service: one number for each window.

    ``begin`` and ``end`` enclose the counted part of a window, after the washout. ``current`` may be called at any time
    between ``start`` and ``stop``, also from another thread.
    """

    #: of the metric, as it stands in reports
    name: str
    #: "" if the source does not know it
    unit: str
    lower_is_better: bool

    def start(self) -> None:
        """Start reading. Raises RequestError, which says what to do, if there is no number to be had."""

    def begin(self) -> None:
        """The counted part of a window begins now. Raises MetricLost."""

    def end(self) -> float:
        """The counted part ends now; return its value. Raises MetricLost (WindowVoid: only this window has no value)."""

    def current(self) -> float | None:
        """Return the newest value, for the guard; None: none yet. Raises MetricLost."""

    def stop(self) -> None:
        """Stop reading, whatever state the source is in. May be called twice, and before ``start``."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What ``--metric`` says about a source of any kind."""

    name: str
    unit: str
    lower_is_better: bool
    every_s: float = EVERY_S
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read, and when on CLOCK_MONOTONIC: the middle between the start and the end of reading."""

    at_s: float
    value: T


class Poller(Generic[T]):
    """Calls ``read`` in a separate thread, every ``every_s`` seconds, and functions on request.

    The thread is a daemon: one that hangs for ever does not keep the program from ending.
    """

    def __init__(self, what: str, read: Callable[[], T], *, every_s: float, timeout_s: float) -> None:
        self._what, self._read = what, read
        self._every_s, self._timeout_s = every_s, timeout_s
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._recent: deque[Reading[T]] = deque(maxlen=_RECENT)
        self._window: list[Reading[T]] | None = None
        self._lost: MetricLost | None = None
        self._busy_since: float | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name=f"metric {what}"[:60], daemon=True)

    def start(self) -> None:
        """Start the thread. It reads when asked, and for the first time by itself after ``every_s``."""
        self._thread.start()

    def stop(self) -> bool:
        """Tell the thread to end, wait for a moment, and return whether it has ended: it may hang."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._timeout_s)
        return not self._thread.is_alive()

    def call(self, function: Callable[[], Any]) -> Any:
        """Run the function in the thread and return its answer.

        Raises what it raises, and MetricLost if it is not done in time. The time counts from its start; a reading that is
        in progress has its own.
        """
        job = _Job(function)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            while not job.done and not self._stopping:
                began = job.began_s or self._busy_since or job.asked_s
                left = began + self._timeout_s - time.monotonic()
                if left <= 0.0:
                    if job in self._jobs:
                        self._jobs.remove(job)
                    raise silent(self._what, self._timeout_s)
                self._changed.wait(left)
        if job.error is not None:
            raise job.error
        if not job.done:
            raise MetricLost(f"{self._what}: reading has ended")
        return job.answer

    def fresh(self) -> Reading[T]:
        """Read now. Raises MetricLost."""
        found: Reading[T] = self.call(self._reading)
        return found

    def record(self) -> None:
        """Read now, and keep this reading and all later ones until ``recorded``. Raises MetricLost."""
        with self._changed:
            self._window = None
        first = self.fresh()
        with self._changed:
            # a poll may have come between
            self._window = [one for one in self._recent if one.at_s >= first.at_s]

    def recorded(self) -> list[Reading[T]]:
        """Read now, and return all readings since ``record`` in time order: at least two. Raises MetricLost."""
        try:
            self.fresh()
        finally:
            with self._changed:
                found, self._window = self._window, None
        if found is None or len(found) < 2:
            raise MetricLost(f"{self._what}: no readings")
        return found

    def newest(self, over_s: float) -> list[Reading[T]]:
        """Return the newest reading and those before it, back to the first that is ``over_s`` older.

        Fewer if there are fewer yet. Raises MetricLost if the last reading failed or the one in progress hangs.
        """
        with self._changed:
            if self._busy_since is not None and time.monotonic() - self._busy_since > self._timeout_s:
                raise silent(self._what, self._timeout_s)
            if self._lost is not None:
                raise MetricLost(self._lost.message, hint=self._lost.hint) from self._lost
            found: list[Reading[T]] = []
            for one in reversed(self._recent):
                found.append(one)
                if found[0].at_s - one.at_s >= over_s:
                    break
            return found[::-1]

    def _work(self) -> None:
        due = time.monotonic() + self._every_s
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._jobs or self._stopping, timeout=max(0.0, due - time.monotonic())
                )
                if self._stopping:
                    return
                job = self._jobs.popleft() if self._jobs else _Job(self._reading)
                self._busy_since = job.began_s = time.monotonic()
                self._changed.notify_all()
            try:
                job.answer = job.function()
            except MetricLost as lost:
                job.error = lost
            except Exception as error:  # the thread must continue, or the error would be lost
                job.error = MetricLost(f"{self._what}: {type(error).__name__}: {error}")
                job.error.__cause__ = error
            due = time.monotonic() + self._every_s
            with self._changed:
                self._busy_since = None
                # a window without a value is no loss of the metric
                self._lost = None if isinstance(job.error, WindowVoid) else job.error
                job.done = True
                self._changed.notify_all()

    def _reading(self) -> Reading[T]:
        began = time.monotonic()
        value = self._read()
        found = Reading((began + time.monotonic()) / 2.0, value)
        with self._changed:
            self._recent.append(found)
            if self._window is not None:
                self._window.append(found)
                if len(self._window) > _MOST_READINGS:
                    raise MetricLost(f"{self._what}: more than {_MOST_READINGS} readings in a window")
        return found


class _Job:
    """A function to run in the thread, and what came of it."""

    __slots__ = ("answer", "asked_s", "began_s", "done", "error", "function")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.asked_s = time.monotonic()
        self.began_s: float | None = None
        self.done = False
        self.answer: Any = None
        self.error: MetricLost | None = None


class Polled(Generic[T]):
    """A source that is read from time to time; its value follows from two readings or more."""

    def __init__(self, metric: Metric) -> None:
        self.name, self.unit, self.lower_is_better = metric.name, metric.unit, metric.lower_is_better
        self.metric = metric
        self._poller: Poller[T] | None = None

    def read(self) -> T:
        """Read once, in the thread of the source. Raises MetricLost."""
        raise NotImplementedError

    def value(self, readings: Sequence[Reading[T]]) -> float:
        """Return the value of the time from the first reading to the last (at least two). Raises WindowVoid, MetricLost."""
        raise NotImplementedError

    def check(self, first: T) -> None:
        """Check the first reading. Raises RequestError or MetricLost."""

    @property
    def poller(self) -> Poller[T]:
        """The thread that reads. Raises MetricLost before ``start`` and after ``stop``."""
        if self._poller is None:
            raise MetricLost(f"metric {self.name}: reading has ended")
        return self._poller

    def start(self) -> None:
        self.stop()
        metric = self.metric
        self._poller = Poller(
            f"metric {self.name}", self.read, every_s=metric.every_s, timeout_s=metric.timeout_s
        )
        self._poller.start()
        try:
            self.check(self._poller.fresh().value)
        except RequestError:
            self.stop()
            raise
        except MetricLost as lost:
            self.stop()
            raise RequestError(lost.message, hint=lost.hint) from lost

    def begin(self) -> None:
        self.poller.record()

    def end(self) -> float:
        return finite(self.value(self.poller.recorded()), self.name)

    def current(self) -> float | None:
        readings = self.poller.newest(0.9 * self.metric.every_s)
        # two readings just after the start are too close to each other to be worth anything
        if len(readings) < 2 or readings[-1].at_s - readings[0].at_s < 0.5 * self.metric.every_s:
            return None
        try:
            return finite(self.value(readings), self.name)
        except WindowVoid:
            return None

    def stop(self) -> None:
        poller, self._poller = self._poller, None
        if poller is not None and poller.stop():
            self.release()

    def release(self) -> None:
        """Close what reading needs. Not called while the thread hangs: it would go on with a closed file's number."""


def finite(value: float, name: str) -> float:
    """Return the value. Raises WindowVoid if it is not a number."""
    if not math.isfinite(value):
        raise nothing(name)
    return value


def elapsed_s(readings: Sequence[Reading[T]]) -> float:
    """Return the time from the first reading to the last, in seconds. Raises WindowVoid if it is 0."""
    found = readings[-1].at_s - readings[0].at_s
    if found <= 0.0:
        raise nothing("of this source")
    return found


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed; ``values`` are sorted."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def bucket_quantile(share: float, bounds: Sequence[float], counts: Sequence[float]) -> float:
    """Return a quantile of a histogram, interpolated within its bucket as by PromQL's ``histogram_quantile``.

    ``bounds``: upper ends in ascending order, the last may be infinite. ``counts``: observations in each bucket alone, of
    which some are positive. A quantile in an unbounded last bucket is its lower end; the lowest bucket begins at 0 unless
    its end is negative.
    """
    total = math.fsum(counts)
    if total <= 0.0:
        raise nothing("of a histogram")
    rank, below = share * total, 0.0
    for place, (bound, count) in enumerate(zip(bounds, counts, strict=True)):
        if below + count >= rank and count > 0.0:
            low = bounds[place - 1] if place else min(0.0, bound)
            if math.isinf(bound):
                return low
            return low + (bound - low) * max(0.0, rank - below) / count
        below += count
    return next((bound for bound in reversed(bounds) if math.isfinite(bound)), math.nan)
