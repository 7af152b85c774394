"""The server itself: uvicorn on a socket that listens already, with an end to the patience for slow clients.

uvicorn waits without limit for the rest of a request and for a client that does not read; here both have a time. It leaves
signals alone, so that they end the process at once as they do everywhere outside a trial, and it does not wake up by itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0  # for a whole request, from when it may begin
STALLED_S = 30.0  # for a client that reads nothing of its answer
LARGEST_HEAD = 16 << 10  # bytes of request line and headers
MOST_CONNECTIONS = 64


class Impatient(H11Protocol):
    """A connection that is cut where its client is too slow."""

    _asked: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._asked = self.loop.call_later(REQUEST_S, self._cut)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            _stop(self._asked)

    def on_response_complete(self) -> None:
        _stop(self._asked)
        self._asked = self.loop.call_later(REQUEST_S, self._cut)
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:  # the next one was there already
            _stop(self._asked)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_S, self._cut)

    def resume_writing(self) -> None:
        _stop(self._stalled)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._asked)
        _stop(self._stalled)
        super().connection_lost(exc)

    def _cut(self) -> None:
        self.transport.abort()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _Silent(Server):
    """Leaves signals to the program, and waits without a tick: uvicorn's wakes the processor ten times a second."""

    def __init__(self, config: Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self._ready()
        await asyncio.Event().wait()


def serve_forever(listener: socket.socket, app: Any, ready: Callable[[], None]) -> None:
    """Answers until a signal ends the process. ``ready`` is called once, when the first request can come."""
    config = Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(REQUEST_S),
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    _Silent(config, ready).run(sockets=[listener])
