"""Run long work in one worker process, one job at a time, and stop it when a trial begins.

A process rather than a thread, so that pages need not wait for the GIL, its memory is released, and it can be
killed at any time: a trial that begins has the machine to itself within two seconds. A request waits only
briefly for its job; the page then says that the result is not ready and reloads.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, TypeVar

from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.terminal import escape

T = TypeVar("T")

MOST_JOBS = 16  # waiting and running ones, and finished ones until their result is dropped
LOOK_S = 1.0  # polling interval for a trial that has begun
LONGEST_S = 1800.0  # timeout of one job
IDLE_S = 120.0  # until an idle worker ends


class NotReady(Exception):
    """There is no result yet. ``measuring``: a trial is running, and the job waits for its end."""

    def __init__(self, *, measuring: bool) -> None:
        super().__init__("measuring" if measuring else "not yet")
        self.measuring = measuring


class Jobs:
    """A job queue with one worker process.

    ``measuring`` returns whether a trial is running. ``background``: the worker runs only when the processor
    is otherwise idle.
    """

    def __init__(self, measuring: Callable[[], bool], *, background: bool) -> None:
        self._measuring = measuring
        self._background = background
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._futures: dict[Hashable, Future[Any]] = {}

    def result(
        self, key: Hashable, function: Callable[..., T], *arguments: object, wait_s: float, keep: bool = True
    ) -> T:
        """Return what ``function`` returns in the worker; requests with the same ``key`` share one job.

        Raises NotReady after ``wait_s``. An IotrialError in the function is raised as StoreError,
        RequestError or IotrialError. The last results are kept if ``keep``; errors are not.
        """
        future: Future[T] = self._future(key, function, arguments)
        try:
            return future.result(wait_s)
        except TimeoutError:
            raise NotReady(measuring=False) from None
        except (BrokenProcessPool, CancelledError) as error:
            if self._measuring():
                raise NotReady(measuring=True) from None
            raise IotrialError(
                f"the analysis was killed: out of memory, or longer than {LONGEST_S:.0f} s"
            ) from error
        finally:
            if future.done() and not (keep and _succeeded(future)):
                with self._lock:
                    if self._futures.get(key) is future:
                        del self._futures[key]

    def close(self) -> None:
        """Kill the worker, whatever it is doing."""
        with self._lock:
            self._end()

    def _future(self, key: Hashable, function: Callable[..., T], arguments: tuple[object, ...]) -> Future[T]:
        with self._lock:
            found = self._futures.pop(key, None)
            if found is None:
                if self._measuring():
                    raise NotReady(measuring=True)
                if len(self._futures) >= MOST_JOBS:
                    oldest = next((key for key, one in self._futures.items() if one.done()), None)
                    if oldest is None:
                        raise NotReady(measuring=False)
                    del self._futures[oldest]
                found = self._submit(function, arguments)
            self._futures[key] = found
            return found

    def _submit(self, function: Callable[..., T], arguments: tuple[object, ...]) -> Future[T]:
        if self._pool is not None:
            try:
                return self._pool.submit(_call, function, arguments)
            except BrokenProcessPool:
                self._end()
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        pool = self._pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _begin_worker, (self._background,)
        )
        threading.Thread(target=self._watch, args=(pool,), daemon=True).start()
        return pool.submit(_call, function, arguments)

    def _watch(self, pool: ProcessPoolExecutor) -> None:
        """Kill the worker when a trial begins, when a job times out, and when it has been idle for long."""
        job: Future[Any] | None = None
        since_s = time.monotonic()
        while self._pool is pool:
            time.sleep(LOOK_S)
            measuring = self._measuring()
            with self._lock:
                current = next((one for one in self._futures.values() if not one.done()), None)
                if current is not job:
                    job, since_s = current, time.monotonic()
                too_long = time.monotonic() - since_s > (IDLE_S if job is None else LONGEST_S)
                if self._pool is pool and (too_long or (measuring and job is not None)):
                    if measuring:  # forget unfinished jobs, so that no request sees an error
                        self._futures = {key: one for key, one in self._futures.items() if one.done()}
                    self._end()

    def _end(self) -> None:
        if self._pool is not None:
            for worker in multiprocessing.active_children():
                worker.kill()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _succeeded(future: Future[Any]) -> bool:
    return not future.cancelled() and future.exception() is None


def _begin_worker(background: bool) -> None:
    os.setsid()  # Ctrl-C is for the server
    if background:
        give_way(idle=True)
        lowest_session()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _call(function: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Call the function; convert exceptions to types that can be sent to another process."""
    try:
        return function(*arguments)
    except IotrialError as error:
        kind = next(one for one in (StoreError, RequestError, IotrialError) if isinstance(error, one))
        raise kind(error.message, hint=error.hint) from None
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise IotrialError(f"internal error: {escape(f'{type(error).__name__}: {error}')[:300]}") from None


# Lower CPU and I/O priority, for processes that run during a measurement.


_LOW, _LOWEST = 10, 19
# ioprio_set(2): class idle of one thread. The numbers are the kernel's (include/uapi/linux/ioprio.h, unistd.h).
_SYSCALL = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_WHO_PROCESS, _CLASS_IDLE, _CLASS_SHIFT = 1, 3, 13


def give_way(*, idle: bool = False) -> None:
    """Lower the priority of this process: nice 10, SCHED_BATCH, and idle I/O class.

    ``idle``: nice 19 and SCHED_IDLE, so that it runs only when the processor is otherwise idle. Applies to
    all threads and what they start later. Changes that the system rejects are skipped; without privileges
    they cannot be reverted.
    """
    nice, policy = (_LOWEST, "SCHED_IDLE") if idle else (_LOW, "SCHED_BATCH")
    for thread in _threads():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
        number = _SYSCALL.get(platform.machine())
        if number is not None:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).syscall(number, _WHO_PROCESS, thread, _CLASS_IDLE << _CLASS_SHIFT)


def lowest_session() -> None:
    """Lower the priority of this session: with autogroups (sched(7)) a nice value only counts within a session."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(f"{_LOWEST}\n", "ascii")


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    except OSError:
        return [0]
