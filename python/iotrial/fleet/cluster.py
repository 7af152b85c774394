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
from pathlib import Path
from typing import Any

from iotrial.errors import IotrialError, MissingTool, RequestError
from iotrial.fleet import host
from iotrial.fleet.order import Order, Scheduler

INSTALL = "pip install 'iotrial[fleet]'"
CONNECT_S = 10.0
ANSWER_S = 20.0
RESULT_S = 300.0

#: name of a worker's host and its version of iotrial, or why it cannot measure
Facts = tuple[str, str] | str
#: what a task returns: what went wrong, changes that are not restored, the packed trial
Result = tuple[str, int, bytes]


class Lost(IotrialError):
    """The scheduler or a worker cannot be reached or does not answer. It may come back."""

    code = "host_lost"


class Cluster:
    """A connection to a scheduler. Every method may take long, and raises Lost if the scheduler does not answer."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Connect. Raises RequestError for keys or an address that cannot be used."""
        try:
            import dask
            import distributed as package
        except ImportError as error:
            raise MissingTool("a fleet needs the Python package distributed", hint=INSTALL) from error
        distributed: Any = package
        for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        address = scheduler.address or dask.config.get("scheduler-address", None)
        if not address:
            raise RequestError(
                "no scheduler is named",
                hint="--scheduler ADDRESS, such as tls://10.0.0.1:8786, or $DASK_SCHEDULER_ADDRESS",
            )
        security = None
        if scheduler.tls_ca or scheduler.tls_cert or scheduler.tls_key:
            security = distributed.Security(
                require_encryption=True,
                tls_ca_file=scheduler.tls_ca,
                tls_client_cert=scheduler.tls_cert,
                tls_client_key=scheduler.tls_key,
            )
        self.address = str(address)
        try:
            self._client: Any = distributed.Client(
                self.address, security=security, timeout=CONNECT_S, set_as_default=False, name="iotrial"
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise RequestError(f"scheduler {self.address}: {_root(error)}") from error
        except (OSError, TimeoutError) as error:
            raise Lost(
                f"no Dask scheduler answers at {self.address}: {_root(error)}",
                hint="does `dask scheduler` run there, with TLS as you named it?",
            ) from error

    @property
    def encrypted(self) -> bool:
        """Whether the connection to the scheduler is encrypted, or does not leave this machine."""
        return self.address.startswith("tls://") or ip_of(self.address) in ("127.0.0.1", "localhost", "[::1]")

    def subscribe(self, fleet: str, receive: Callable[[Any], None]) -> None:
        """Have the hosts' progress handed to ``receive``, in a thread of Dask's."""
        self._client.subscribe_topic(host.TOPIC + fleet, lambda event: receive(event[1]))

    def workers(self) -> tuple[str, ...]:
        """Return the addresses of the workers that the scheduler has now."""
        client = self._client
        if client.status != "running":
            raise Lost(f"the scheduler {self.address} does not answer")
        try:
            return tuple(client.sync(client.scheduler.ncores, workers=None, callback_timeout=ANSWER_S))
        except Exception as error:
            raise Lost(f"the scheduler {self.address} does not answer: {_root(error)}") from error

    def facts(self, workers: Sequence[str]) -> dict[str, Facts]:
        """Return host name and version of iotrial for each worker, or why it cannot measure.

        One that does not answer in time is left out.
        """
        found = self._run(host.facts, workers)
        missing = "iotrial is not installed there, or without its extra `fleet`"
        return {
            worker: missing
            if isinstance(one, ImportError)
            else _root(one)
            if isinstance(one, Exception)
            else one
            for worker, one in found.items()
        }

    def start(self, order: Order, worker: str, key: str, every_s: float, done: Callable[[], None]) -> Any:
        """Submit the task of a host to one worker; ``done`` is called in another thread when it has ended."""
        try:
            task = self._client.submit(
                host.measure, order.to_json(), every_s,
                key=key, workers=[worker], allow_other_workers=False, pure=False, retries=0,
            )  # fmt: skip
        except Exception as error:
            raise Lost(f"the scheduler {self.address} does not answer: {_root(error)}") from error
        task.add_done_callback(lambda _: done())
        return task

    def result(self, task: Any) -> Result:
        """Return what a task that has ended returned. Raises IotrialError if it failed, Lost if the result is gone."""
        if task.status == "cancelled":
            raise Lost("its task was cancelled")
        try:
            found = task.result(timeout=RESULT_S)
        except Exception as error:
            if type(error).__name__ in (
                "CancelledError",
                "FutureCancelledError",
                "KilledWorker",
                "TimeoutError",
            ):
                raise Lost(f"its task was lost: {_root(error)}") from error
            raise IotrialError(f"its task failed: {type(error).__name__}: {_root(error)}") from error
        match found:
            case (str(problem), int(left), bytes(packed)):
                return problem, left, packed
        raise IotrialError("its task returned something else than a trial")

    def end(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Make the trials of these tasks, each a worker and a key, end; they return what they have measured."""
        self._run(host.end, [worker for worker, _ in tasks], [key for _, key in tasks])

    def cancel(self, task: Any) -> None:
        """Give up a task: its host ends its trial and restores everything."""
        with suppress(Exception):
            self._client.cancel([task], force=True)

    def close(self) -> None:
        """Disconnect. Dask then cancels the tasks."""
        with suppress(Exception):
            self._client.close(timeout=5)

    def _run(self, function: Callable[..., Any], workers: Sequence[str], *words: Any) -> dict[str, Any]:
        """Call a function in each worker; return results and errors by worker. Who hangs delays no other."""
        client = self._client

        async def one(worker: str) -> Any:
            found = await client.run(function, *words, workers=[worker], on_error="return")
            return found.get(worker)

        async def every() -> list[Any]:
            calls = (asyncio.wait_for(one(worker), ANSWER_S) for worker in workers)
            return await asyncio.gather(*calls, return_exceptions=True)

        try:
            found = client.sync(every, callback_timeout=2 * ANSWER_S)
        except Exception as error:
            raise Lost(f"the scheduler {self.address} does not answer: {_root(error)}") from error
        return {
            worker: one
            for worker, one in zip(workers, found, strict=True)
            if not isinstance(one, OSError | TimeoutError | None)
        }


def ip_of(address: str) -> str:
    """Return the host part of ``tls://HOST:PORT``."""
    return re.sub(r"^[a-z]+://|:\d+$", "", address)


def checked(scheduler: Scheduler) -> Scheduler:
    """Return it with absolute paths. Raises RequestError unless CA, certificate and key come together and can be read."""
    named = {"--tls-ca": scheduler.tls_ca, "--tls-cert": scheduler.tls_cert, "--tls-key": scheduler.tls_key}
    if any(named.values()) and not all(named.values()):
        raise RequestError(f"{', '.join(named)} belong together: name all three, or none")
    paths = {}
    for option, text in named.items():
        path = Path(text).expanduser().absolute()
        try:
            if text:
                path.open("rb").close()
        except OSError as error:
            raise RequestError(f"{option} {text}: {error.strerror}") from error
        paths[option] = str(path) if text else ""
    return Scheduler(scheduler.address, *paths.values())


def _root(error: BaseException) -> str:
    """Return the root cause of an error that Dask has wrapped, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__
