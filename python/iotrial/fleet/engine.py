"""Dask's scheduler and worker, with TLS and without everything that a fleet does not need.

Each host has one worker with one thread and one resource ``lab``. The task that runs a trial requires it, so
two trials never share a machine. All other requests to a host go to a handler of the worker, as text
messages. Dask's statistics, its web page and its built-in ways of running functions are disabled: a measuring
host should do nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from iotrial import __version__
from iotrial.errors import IotrialError, MissingTool, RequestError
from iotrial.fleet.agent import DONE, Agent, answered
from iotrial.fleet.batch import Lost
from iotrial.fleet.keys import INSTALL, Keys, Part
from iotrial.fleet.order import HOST_NAME, MAX_NAME, Order
from iotrial.polling import attempts

LAB = "lab"
HANDLER = "iotrial"
AGENT = "iotrial_agent"
DEFAULT_PORT = 8786
CONNECT_S = 20.0
AGAIN_AFTER_S = 2.0
#: a worker over SSH exits after this long without a request: a connection can die silently
QUIET_S = 900.0
#: printed by a worker with ``--keys -``: first, followed by its version; and after joining, followed by its name
GREETING = "iotrial-worker"
READY = "iotrial-joined"

_ADDRESS = re.compile(r"(?:tls://)?(\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?")
_QUIET: dict[str, object] = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": "15s",
    "distributed.scheduler.blocked-handlers": [
        "run_function", "register_scheduler_plugin", "unregister_scheduler_plugin", "register_worker_plugin",
        "unregister_worker_plugin", "register_nanny_plugin", "unregister_nanny_plugin", "update_data", "scatter",
        "benchmark_hardware", "dump_cluster_state_to_url", "restart", "restart_workers", "terminate",
    ],
    "distributed.worker.blocked-handlers": [
        "run", "run_coroutine", "upload_file", "actor_execute", "actor_attribute", "plugin-add", "plugin-remove",
        "update_data", "benchmark_disk", "benchmark_memory", "benchmark_network",
    ],
}  # fmt: skip


def configured() -> Any:
    """Return the module ``distributed``, configured for this process. Raises MissingTool if it is not installed."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingTool("a fleet needs the Python package distributed", hint=INSTALL) from error
    dask.config.set(_QUIET)
    for name in ("distributed", "distributed.worker", "distributed.scheduler", "distributed.core", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def security(keys: Keys) -> Any:
    """Return Dask's security settings: TLS 1.3, both sides with a certificate of this authority."""
    if not all(
        "\n" in text for text in (keys.authority, keys.certificate, keys.key)
    ):  # otherwise Dask treats it as a file name
        raise RequestError("not the keys of a fleet", hint="`iotrial fleet keys FOLDER` creates them")
    distributed = configured()
    named = {
        f"tls_{role}_{what}": value
        for role in Part
        for what, value in (("cert", keys.certificate), ("key", keys.key))
    }
    made = distributed.Security(
        require_encryption=True, tls_ca_file=keys.authority, tls_min_version=ssl.TLSVersion.TLSv1_3, **named
    )
    try:
        made.get_connection_args("client")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise RequestError(
            f"not the keys of a fleet: {error}", hint="`iotrial fleet keys FOLDER` creates them"
        ) from error
    return made


def address_of(text: str, option: str) -> str:
    """Return the user's text as ``tls://HOST:PORT``. Raises RequestError if it has no host or another protocol."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2] or DEFAULT_PORT) > 65_535:
        raise RequestError(
            f'{option} "{text[:80]}": expected tls://HOST:PORT',
            hint="such as tls://192.168.1.10:8786; only TLS is supported, because every connection needs keys",
        )
    return f"tls://{found[1]}:{found[2] or DEFAULT_PORT}"


def host_name(requested: str | None) -> str:
    """Return the name of this host in the fleet: as requested, else the machine's. Raises RequestError if invalid."""
    name = platform.node()[:MAX_NAME] if requested is None else requested
    if not HOST_NAME.fullmatch(name):
        raise RequestError(
            f'"{name[:80]}" is not a valid host name: use letters, digits, dots, hyphens and underscores, at most {MAX_NAME}',
            hint="choose another with --name",
        )
    return name


def greet(address: str, secured: Any, part: Part, within_s: float = 0.0) -> None:
    """Test the connection with one TLS handshake: Dask would retry for long and report little.

    Waits up to ``within_s`` for a scheduler that is just starting. Raises Lost.
    """
    host, _, port = address.removeprefix("tls://").rpartition(":")
    context = secured.get_connection_args(part.value)["ssl_context"]
    for _ in attempts(within_s, every_s=0.5):
        try:
            with (
                socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as plain,
                context.wrap_socket(plain),
            ):
                return
        except ssl.SSLError as error:
            raise Lost(
                f"no scheduler of this fleet at {address}: {error.reason or error}",
                hint="the peer has keys of another set, or expired ones",
            ) from error
        except OSError as error:
            failed = error
    raise Lost(
        f"no scheduler of this fleet at {address}: {failed.strerror or failed}",
        hint="check that `iotrial fleet scheduler` runs there and can be reached from here",
    ) from failed


def conduct(order: str) -> str:
    """Run a trial: the only task that a fleet submits to Dask. It holds the host's lab until the trial ends."""
    distributed = configured()
    worker = distributed.get_worker()
    agent: Agent = getattr(worker, AGENT)
    text = answered(agent, "begin", order)
    if text == DONE:
        fleet = Order.from_json(order).fleet
        while worker.status is distributed.Status.running and not agent.wait(fleet, 0.5):
            pass
    return text


def serve_scheduler(address: str, keys: Keys, ready: Callable[[str], None], *, from_stdin: bool) -> None:
    """Run a scheduler until a signal arrives, or until the end of standard input with ``from_stdin``.

    Raises IotrialError if it cannot listen at the address.
    """
    secured = security(keys)

    class WithoutPage(configured().Scheduler):  # type: ignore[misc]
        def start_http_server(self, *_: object, **__: object) -> None:
            """Start no HTTP server: bind only what the user names."""

    async def run(ended: _Ended) -> None:
        host, _, port = address.removeprefix("tls://").rpartition(":")
        try:
            scheduler = await WithoutPage(
                host=f"tls://{host}", port=int(port), protocol="tls", security=secured, dashboard=False
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise IotrialError(
                f"cannot listen on {address}: {_root(error)}",
                hint="name an address of this machine and a free port",
            ) from error
        ready(str(scheduler.address))
        await ended.event.wait()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(scheduler.close(), 10)

    _until_ended(run, from_stdin=from_stdin)


@dataclass(frozen=True, slots=True)
class Place:
    """How a worker finds its scheduler, listens, and is reached.

    ``bind`` is HOST or HOST:PORT, by default the address from which this machine reaches the scheduler;
    ``contact`` is an address that leads to it, by default the same.
    """

    scheduler: str
    bind: str | None = None
    contact: str | None = None


def serve_worker(
    place: Place, keys: Keys, agent: Agent, report: Callable[[str], None], *, from_stdin: bool
) -> None:
    """Run a worker until a signal arrives; a running trial is then stopped and restored first.

    Retries forever if the scheduler is absent or lost. With ``from_stdin`` it joins once, reports this on
    standard output, and exits when the scheduler is lost, when standard input ends, or after a long time
    without requests: its parent starts it again. A trial continues meanwhile, for its grace period.
    """
    secured = security(keys)

    async def run(ended: _Ended) -> None:
        problem = await asyncio.to_thread(agent.mend)
        report(problem and f"changes left by an earlier trial could not be undone: {problem}")
        worker = _Serving(place, secured, agent, ended, report, from_stdin=from_stdin)
        before = ""
        while not ended.event.is_set():
            why = await worker.once()
            if from_stdin:
                if why and not ended.event.is_set():
                    raise IotrialError(why)
                break
            if why != before and not ended.event.is_set():
                report(why and f"{why}; trying again")
            before = why
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.event.wait(), AGAIN_AFTER_S)
        for fleet in agent.going() if ended.by_signal else ():
            report("stopping the trial after undoing its changes")
            agent.stop(fleet)
            await asyncio.to_thread(agent.wait, fleet)

    _until_ended(run, from_stdin=from_stdin)


class _Serving:
    """Runs one worker after another."""

    def __init__(
        self,
        place: Place,
        secured: Any,
        agent: Agent,
        ended: _Ended,
        report: Callable[[str], None],
        *,
        from_stdin: bool,
    ) -> None:
        self._place = place
        self._secured = secured
        self._agent = agent
        self._ended = ended
        self._report = report
        self._from_stdin = from_stdin
        self._asked_s = 0.0

    async def once(self) -> str:
        """Run one worker from its start to its end; return why it ended."""
        address = self._place.scheduler
        try:
            await asyncio.to_thread(greet, address, self._secured, Part.WORKER)
        except IotrialError as error:
            return f"{error.message}; {error.hint}"
        try:
            worker = await self._made()
        except (OSError, ValueError, RuntimeError) as error:
            return f"no connection to {address}: {_root(error)}"
        starting = asyncio.ensure_future(_started(worker))
        waiting = asyncio.ensure_future(self._ended.event.wait())
        try:
            await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return ""
            failed = starting.exception()
            if failed is not None:
                return f"rejected by {address}: {_root(failed)}"
            self._joined()
            finished = asyncio.ensure_future(worker.finished())
            asked = asyncio.ensure_future(self._until_quiet())
            await asyncio.wait({finished, waiting, asked}, return_when=asyncio.FIRST_COMPLETED)
            finished.cancel()
            asked.cancel()
            return f"the connection to {address} has ended"
        finally:
            for task in (starting, waiting):
                task.cancel()
            with suppress(Exception):
                await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), 10)

    async def _made(self) -> Any:
        class WithoutPage(configured().Worker):  # type: ignore[misc]
            def start_http_server(self, *_: object, **__: object) -> None:
                """Start no HTTP server: bind only what the user names."""

        place = self._place
        bind = place.bind
        if bind is None:
            bind = await asyncio.to_thread(_reached_from, place.scheduler)
        found = _ADDRESS.fullmatch(bind)
        host, port = (bind, None) if found is None else (found[1], found[2])
        worker = WithoutPage(
            place.scheduler, name=self._agent.name, nthreads=1, resources={LAB: 1}, security=self._secured,
            protocol="tls", host=f"tls://{host}", port=None if port is None else int(port),
            contact_address=place.contact, dashboard=False, memory_limit=0, local_directory=None,
        )  # fmt: skip
        worker.handlers[HANDLER] = self._handler
        setattr(worker, AGENT, self._agent)
        return worker

    async def _handler(self, ask: str = "", text: str = "") -> str:
        """Answer a request of a coordinator, as text. Errors are answers too."""
        self._asked_s = time.monotonic()
        return await asyncio.to_thread(answered, self._agent, ask, text)

    def _joined(self) -> None:
        self._asked_s = time.monotonic()
        if self._from_stdin:
            print(READY, self._agent.name, flush=True)
        else:
            self._report(f"{self._agent.name} is at {self._place.scheduler}")

    async def _until_quiet(self) -> None:
        """Wait until no request has arrived for QUIET_S; forever unless ``from_stdin``."""
        while not self._from_stdin or time.monotonic() - self._asked_s < QUIET_S:
            await asyncio.sleep(10)


def greet_standard_output() -> None:
    """Print the greeting of a worker with ``--keys -``, before it reads its keys: another version must not receive them."""
    print(GREETING, __version__, flush=True)


async def _started(worker: Any) -> None:
    await worker


def _reached_from(address: str) -> str:
    """Return this machine's source address for reaching that host, from a UDP socket that sends nothing."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        own = str(probe.getsockname()[0])
    return f"[{own}]" if family == socket.AF_INET6 else own


def _root(error: BaseException) -> str:
    """Return the root cause of an error that Dask has wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


@dataclass(slots=True)
class _Ended:
    """Tells a program to end, and whether a signal was the reason."""

    event: asyncio.Event
    by_signal: bool = False


def _until_ended(run: Callable[[_Ended], Coroutine[Any, Any, None]], *, from_stdin: bool) -> None:
    async def main() -> None:
        ended = _Ended(asyncio.Event())
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            ended.by_signal = True
            ended.event.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, signalled)

        def readable() -> None:
            if not os.read(sys.stdin.fileno(), 4096):
                loop.remove_reader(sys.stdin.fileno())
                ended.event.set()

        if from_stdin:
            loop.add_reader(sys.stdin.fileno(), readable)
        await run(ended)

    asyncio.run(main())
