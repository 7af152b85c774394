"""The user's Dask cluster, as a coordinator uses it: who is there, one task per host, its events and its result.

Everything between machines is Dask's: connections, TLS, who may join. Only this module and the task itself
(``fleet.host``) know Dask.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from iotrial.errors import IotrialError, MissingTool, RequestError
from iotrial.fleet import host
from iotrial.fleet.order import Order, Scheduler

CONNECT_S = 10.0
ANSWER_S = 20.0
RESULT_S = 300.0

#: name of a worker's host and its version of iotrial, or why it cannot measure
Facts = tuple[str, str] | str


class Lost(IotrialError):
    """The scheduler or a worker cannot be reached or does not answer. It may come back."""

    code = "host_lost"


class Cluster:
    """A connection to a scheduler. Methods may take long, and raise Lost if the scheduler does not answer."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Connect. Raises RequestError for keys or an address that cannot be used."""
        try:
            import dask
            import distributed as package
        except ImportError as error:
            raise MissingTool.extra("fleet", "distributed", "fleet") from error
        distributed: Any = package
        for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.address = str(scheduler.address or dask.config.get("scheduler-address", None) or "")
        if not self.address:
            hint = "--scheduler ADDRESS, such as tls://10.0.0.1:8786, or $DASK_SCHEDULER_ADDRESS"
            raise RequestError("no scheduler is named", hint=hint)
        try:
            security = None
            if scheduler.tls:
                names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
                files = dict(zip(names, scheduler.tls, strict=True))
                security = distributed.Security(require_encryption=True, **files)
            self._client: Any = distributed.Client(
                self.address, security=security, timeout=CONNECT_S, set_as_default=False, name="iotrial"
            )
        except (OSError, TimeoutError) as error:
            raise Lost(
                f"no Dask scheduler answers at {self.address}: {_root(error)}",
                hint="does `dask scheduler` run there, with TLS as you named it?",
            ) from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise RequestError(f"scheduler {self.address}: {_root(error)}") from error

    def subscribe(self, fleet: str, receive: Callable[[Any], None]) -> None:
        """Have the hosts' progress handed to ``receive``, in a thread of Dask's."""
        self._client.subscribe_topic(host.TOPIC + fleet, lambda event: receive(event[1]))

    def workers(self) -> tuple[str, ...]:
        """Return the addresses of the workers that the scheduler has now."""
        self._check()
        return tuple(self._sync(self._client.scheduler.ncores, workers=None))

    def facts(self, workers: Sequence[str]) -> dict[str, Facts]:
        """Return the facts of each worker. One that does not answer in time is left out."""
        found = self._run(host.facts, workers)
        missing = "iotrial is not installed there, or without its extra `fleet`"
        return {
            worker: one if isinstance(one, tuple) else missing if isinstance(one, ImportError) else _root(one)
            for worker, one in found.items()
        }

    def start(self, order: Order, worker: str, key: str, every_s: float, done: Callable[[], None]) -> Any:
        """Submit the task of a host to one worker; ``done`` is called in another thread when it has ended."""
        self._check()
        task = self._client.submit(
            host.measure, order.to_json(), every_s,
            key=key, workers=[worker], allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip
        task.add_done_callback(lambda _: done())
        return task

    def result(self, task: Any) -> host.Result:
        """Return what a task that has ended returned. Raises Lost if that is gone, IotrialError if it failed."""
        try:
            problem, left, packed = task.result(timeout=RESULT_S)
            return str(problem), int(left), bytes(packed)
        except Exception as error:
            lost = (
                "CancelledError",
                "FutureCancelledError",
                "FuturesCancelledError",
                "KilledWorker",
                "TimeoutError",
            )
            kind = Lost if type(error).__name__ in lost else IotrialError
            raise kind(f"its task failed: {type(error).__name__}: {_root(error)}") from error

    def end(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Make the trials of these tasks, each a worker and a key, end; they return what they have measured."""
        self._run(host.end, [worker for worker, _ in tasks], [key for _, key in tasks])

    def cancel(self, task: Any) -> None:
        """Give up a task: its host ends its trial and restores everything."""
        with suppress(Exception):
            task.release()  # unlike cancel(), it does not wait for a scheduler that is gone

    def close(self) -> None:
        """Disconnect. Dask then cancels the tasks."""
        with suppress(Exception):
            self._client.close(timeout=5)

    def _run(self, function: Callable[..., Any], workers: Sequence[str], *words: Any) -> dict[str, Any]:
        """Call a function in each worker; return results and errors by worker. One that hangs does not delay the others."""

        async def one(worker: str) -> Any:
            found = await self._client.run(function, *words, workers=[worker], on_error="return")
            return found.get(worker)

        async def every() -> list[Any]:
            calls = (asyncio.wait_for(one(worker), ANSWER_S) for worker in workers)
            return await asyncio.gather(*calls, return_exceptions=True)

        found = zip(workers, self._sync(every), strict=True)
        return {worker: one for worker, one in found if not isinstance(one, OSError | TimeoutError | None)}

    def _check(self) -> None:
        if self._client.status != "running":
            raise Lost(
                f"the scheduler {self.address} does not answer; the hosts end their trials and restore"
            )

    def _sync(self, function: Callable[..., Any], **words: Any) -> Any:
        try:
            return self._client.sync(function, callback_timeout=2 * ANSWER_S, **words)
        except Exception as error:
            raise Lost(f"the scheduler {self.address} does not answer: {_root(error)}") from error


def ip_of(address: str) -> str:
    """Return the host part of ``tls://HOST:PORT``."""
    return re.sub(r"^[a-z]+://|:\d+$", "", address)


def _root(error: Any) -> str:
    """Return the root cause of an error that Dask has wrapped, in one line."""
    while getattr(error, "__cause__", None) is not None and str(error.__cause__):
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__
