"""The server itself: uvicorn on a socket that listens already, with an end to the patience for slow clients.

uvicorn waits without limit for the rest of a request and for a client that does not read; here both have a time. It leaves
signals alone, so that they end the process at once as they do everywhere outside a trial, and it does not wake up by itself.
A loopback port is open to every user of the machine: connections of other users are refused when they are accepted, and
never count against the limit on connections.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from iotrial.serve.gate import not_for_this_user
from iotrial.serve.whose import asker

REQUEST_S = 10.0  # for a whole request, from when it may begin
STALLED_S = 30.0  # for a client that reads nothing of its answer
LARGEST_HEAD = 16 << 10  # bytes of request line and headers
MOST_CONNECTIONS = 64
QUEUED = (
    4096  # connections that the kernel holds until they are accepted: a full queue would keep the owner out
)
ACCEPTED_AT_ONCE = 32  # before what is under way goes on
MOST_REFUSED = (
    16  # connections of other users that wait for their refusal; further ones are closed without a word
)
REFUSED_S = 1.0  # for another user's request to arrive


class Impatient(H11Protocol):
    """A connection that is cut where its client is too slow, and refused where its client is another user's.

    ``users``: those who are answered (None: all).
    """

    users: frozenset[int] | None = None
    _asked: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if self.users is not None and _user_of(transport) not in self.users:
            refusal = _Refusal(transport)
            transport.set_protocol(refusal)
            return
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


class _Refusal(asyncio.Protocol):
    """Says no to another user's first bytes, whatever they are, and closes."""

    waiting = 0

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        _Refusal.waiting += 1
        loop = asyncio.get_running_loop()
        at_once = _Refusal.waiting > MOST_REFUSED
        self._timer = loop.call_soon(self._reset) if at_once else loop.call_later(REFUSED_S, self._reset)

    def _reset(self) -> None:
        # A reset leaves no TIME_WAIT behind, thousands of which would take the ports that the owner's browser needs.
        ours: socket.socket = self._transport.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._transport.write(not_for_this_user())
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        _Refusal.waiting -= 1
        self._timer.cancel()


def _user_of(transport: asyncio.Transport) -> int | None:
    """The user at the other end; None where that cannot be known, as of a connection that is closed already."""
    client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return asker(client[:2], server[:2]) if client and server else None


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _Silent(Server):
    """Leaves signals to the program, and waits without a tick: uvicorn's wakes the processor ten times a second."""

    def __init__(self, config: Config, listener: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._listener = listener
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self._listener.listen(QUEUED)  # asyncio has one number for both, and has used the other
        self._ready()
        await asyncio.Event().wait()


def serve_forever(
    listener: socket.socket, app: Any, ready: Callable[[], None], *, users: frozenset[int] | None
) -> None:
    """Answers programs of these ``users`` (None: of all) until a signal ends the process. ``ready`` is called once, when the
    first request can come."""
    config = Config(
        app,
        http=type("Impatient", (Impatient,), {"users": users}),
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
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    _Silent(config, listener, ready).run(sockets=[listener])
