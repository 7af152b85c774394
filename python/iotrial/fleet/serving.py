"""A scheduler and a worker of the engine as processes that a signal ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from iotrial.errors import IotrialError
from iotrial.fleet.agent import Agent
from iotrial.fleet.asking import answered
from iotrial.fleet.engine import AGENT, HANDLER, LAB, configured, greet, security
from iotrial.fleet.keys import Part

AGAIN_AFTER_S = 2.0


def serve_scheduler(address: str, keys: Path, ready: Callable[[str], None]) -> None:
    """Runs a scheduler at an address until a signal ends it. Raises IotrialError where it cannot listen there."""
    secured = security(keys, Part.SCHEDULER)

    class WithoutPage(configured().Scheduler):  # type: ignore[misc]
        def start_http_server(self, *_: object, **__: object) -> None:
            """None: only what the user names is bound."""

    async def run(ended: asyncio.Event) -> None:
        host, _, port = address.removeprefix("tls://").rpartition(":")
        try:
            scheduler = await WithoutPage(
                host=f"tls://{host}", port=int(port), protocol="tls", security=secured, dashboard=False
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise IotrialError(
                f"cannot listen at {address}: {_root(error)}",
                hint="name an address of this machine and a free port",
            ) from error
        ready(str(scheduler.address))
        await ended.wait()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(scheduler.close(), 10)

    _until_signal(run)


def serve_worker(
    address: str, keys: Path, agent: Agent, bind: str | None, said: Callable[[str], None]
) -> None:
    """Runs a worker until a signal ends it; then a trial that goes on is ended and put back first. A scheduler that is not
    there, or is lost, is tried again and again."""
    secured = security(keys, Part.WORKER)

    async def run(ended: asyncio.Event) -> None:
        problem = await asyncio.to_thread(agent.mend)
        said(problem and f"what an earlier trial left could not be put back: {problem}")
        before = ""
        while not ended.is_set():
            told = await _one_worker(address, secured, agent, bind, ended, said)
            if told != before and not ended.is_set():
                said(told and f"{told}; trying again")
            before = told
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), AGAIN_AFTER_S)
        for fleet in agent.going():
            said("ending the trial; what it changed is put back first")
            agent.stop(fleet)
            await asyncio.to_thread(agent.wait, fleet)

    _until_signal(run)


async def _one_worker(
    address: str,
    secured: Any,
    agent: Agent,
    bind: str | None,
    ended: asyncio.Event,
    said: Callable[[str], None],
) -> str:
    """One worker from its start to its end; why it ended."""

    class WithoutPage(configured().Worker):  # type: ignore[misc]
        def start_http_server(self, *_: object, **__: object) -> None:
            """None: only what the user names is bound."""

    try:
        await asyncio.to_thread(greet, address, secured, Part.WORKER)
    except IotrialError as error:
        return f"{error.message}; {error.hint}"
    try:
        host = bind or await asyncio.to_thread(_reached_from, address)
        worker = WithoutPage(
            address, name=agent.name, nthreads=1, resources={LAB: 1}, security=secured, protocol="tls",
            host=f"tls://{host}", dashboard=False, memory_limit=0, local_directory=None,
        )  # fmt: skip
        worker.handlers[HANDLER] = _handler(agent)
        setattr(worker, AGENT, agent)
    except (OSError, ValueError, RuntimeError) as error:
        return f"no connection to {address}: {_root(error)}"
    starting = asyncio.ensure_future(_started(worker))
    waiting = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return ""
        failed = starting.exception()
        if failed is not None:
            return f"not taken by {address}: {_root(failed)}"
        said(f"{agent.name} is at {address}")
        finished = asyncio.ensure_future(worker.finished())
        await asyncio.wait({finished, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        return f"the connection to {address} has ended"
    finally:
        for task in (starting, waiting):
            task.cancel()
        with suppress(Exception):
            await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), 10)


async def _started(worker: Any) -> None:
    await worker


def _handler(agent: Agent) -> Callable[..., Coroutine[Any, Any, str]]:
    async def answer(ask: str = "", text: str = "") -> str:
        """What a coordinator is told, as text; an error is an answer too."""
        return await asyncio.to_thread(answered, agent, ask, text)

    return answer


def _reached_from(address: str) -> str:
    """The address of this machine from which that host is reached: a socket that sends nothing tells."""
    import socket

    host, _, port = address.removeprefix("tls://").rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        own = str(probe.getsockname()[0])
    return f"[{own}]" if family == socket.AF_INET6 else own


def _root(error: BaseException) -> str:
    """The cause of an error of the engine, which wraps them."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def _until_signal(run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, ended.set)
        await run(ended)

    asyncio.run(main())
