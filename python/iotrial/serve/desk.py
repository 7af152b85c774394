"""Whatever takes long, done one thing at a time: analyses, reports, packed trials.

Whoever asks waits a moment, and is told when it is not done yet. While a trial is running nothing new is begun: the processor
and the disk are the trial's. What was made is kept while there is room.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

MOST_BYTES = 96 << 20
MOST_WAITING = 512
ERROR_S = 20.0  # how long a failure is told without trying again


class Unmade(Exception):
    """It is not there: ``measuring``: nor is it begun while a trial is running; else it will be there later."""

    def __init__(self, *, measuring: bool) -> None:
        super().__init__("measuring" if measuring else "not yet")
        self.measuring = measuring


@dataclass(order=True)
class _Job:
    rank: int
    turn: int
    key: Hashable = field(compare=False)
    make: Callable[[], Any] = field(compare=False)
    size: Callable[[Any], int] = field(compare=False)
    until_s: float = field(compare=False)
    future: Future[Any] = field(compare=False)


class Desk:
    """``measuring`` says whether a trial is running."""

    def __init__(self, measuring: Callable[[], bool]) -> None:
        self._measuring = measuring
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._turns = itertools.count()
        self._lock = threading.Lock()
        self._pending: dict[Hashable, _Job] = {}
        self._made: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._failed: dict[Hashable, tuple[Exception, float]] = {}
        self._thread: threading.Thread | None = None

    def known(self, key: Hashable) -> Any | None:
        """What was made under this key, if it is still there."""
        with self._lock:
            found = self._made.get(key)
            if found is None:
                return None
            self._made.move_to_end(key)
            return found[0]

    def ask(
        self,
        key: Hashable,
        make: Callable[[], T],
        *,
        size: Callable[[T], int],
        wait_s: float,
        urgent: bool = True,
        patience_s: float = 60.0,
    ) -> T:
        """What ``make`` makes, or has made. Unmade where it is not there within ``wait_s``; what ``make`` raised is raised.

        It is begun within ``patience_s`` or not at all: nobody may be waiting any more. ``size``: of the result, in bytes.
        """
        found: T | None = self.known(key)
        if found is not None:
            return found
        future = self._future(key, make, size, urgent=urgent, until_s=time.monotonic() + patience_s)
        try:
            return future.result(wait_s)  # type: ignore[no-any-return]
        except NotYet:
            raise Unmade(measuring=False) from None

    def _future(
        self,
        key: Hashable,
        make: Callable[[], Any],
        size: Callable[[Any], int],
        *,
        urgent: bool,
        until_s: float,
    ) -> Future[Any]:
        with self._lock:
            failed = self._failed.get(key)
            if failed is not None and time.monotonic() - failed[1] < ERROR_S:
                raise failed[0]
            waiting = self._pending.get(key)
            if waiting is not None:
                waiting.until_s = max(waiting.until_s, until_s)
                return waiting.future
        if self._measuring():
            raise Unmade(measuring=True)
        with self._lock:
            if key in self._pending:  # by another request, in the meantime
                return self._pending[key].future
            if len(self._pending) >= MOST_WAITING:
                raise Unmade(measuring=False)
            job = _Job(0 if urgent else 1, next(self._turns), key, make, size, until_s, Future())
            self._pending[key] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
                self._thread.start()
        self._jobs.put(job)
        return job.future

    def _work(self) -> None:
        while True:
            self._do(self._jobs.get())

    def _do(self, job: _Job) -> None:
        error: Exception | None = None
        result: Any = None
        try:
            result = self._result(job)
        except Exception as raised:  # whoever asked is told, and the thread lives on
            error = raised
        with self._lock:
            self._pending.pop(job.key, None)
            if error is None:
                self._keep(job.key, result, job.size(result))
            elif not isinstance(error, Unmade):
                self._failed = {
                    key: one for key, one in self._failed.items() if time.monotonic() - one[1] < ERROR_S
                }
                self._failed[job.key] = (error, time.monotonic())
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    def _result(self, job: _Job) -> Any:
        if time.monotonic() > job.until_s:
            raise Unmade(measuring=False)
        if self._measuring():
            raise Unmade(measuring=True)
        return job.make()

    def _keep(self, key: Hashable, result: Any, size: int) -> None:
        self._made[key] = (result, size)
        total = sum(one for _, one in self._made.values())
        while total > MOST_BYTES and len(self._made) > 1:
            _, (_, freed) = self._made.popitem(last=False)
            total -= freed
