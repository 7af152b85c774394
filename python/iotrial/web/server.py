"""Listen on a loopback address, and run uvicorn there with timeouts for slow clients.

uvicorn itself waits forever for the rest of a request and for a client that does not read; here both have a
timeout.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import signal
import socket
import sys
from types import FrameType
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from iotrial.errors import IotrialError, RequestError
from iotrial.terminal import escape

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8137
REQUEST_S = 10.0  # for receiving a whole request
STALLED_S = 30.0  # for a client that reads nothing of its response
END_S = 1  # for responses in progress when the server ends
LARGEST_HEAD = 16 << 10  # bytes of request line and headers
MOST_CONNECTIONS = 1024


class PortTaken(IotrialError):
    """Another program is listening there."""

    code = "port_taken"


def loopback(host: str) -> str:
    """Return the loopback address without brackets. Raises RequestError for every other address."""
    name = host.strip().removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return DEFAULT_HOST
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        address = None
    if address is None or not address.is_loopback or "%" in name:
        raise RequestError(
            f'--host "{escape(host[:80])}": expected a loopback address (127.0.0.1, ::1)',
            hint=f"from another machine: ssh -L {DEFAULT_PORT}:{DEFAULT_HOST}:{DEFAULT_PORT} THIS-MACHINE, "
            f"then open the address that serve prints there",
        )
    return str(address)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free port. Raises PortTaken if another program uses the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        at = f"cannot listen on {bracketed(host)} port {port}"
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"{at}: the port is already in use",
                hint="--port 0 uses any free port; if `iotrial serve` is already running, open its address",
            ) from error
        if error.errno == errno.EACCES:
            raise RequestError(f"{at}: {error.strerror}", hint="ports below 1024 need root") from error
        raise IotrialError(f"{at}: {error.strerror or error}") from error
    return listener


def bracketed(host: str) -> str:
    """Return the host as written in URLs."""
    return f"[{host}]" if ":" in host else host


class Impatient(H11Protocol):
    """Aborts the connection of a client that is too slow."""

    _request: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._request = self.loop.call_later(REQUEST_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            _stop(self._request)

    def on_response_complete(self) -> None:
        _stop(self._request)
        self._request = self.loop.call_later(REQUEST_S, self.transport.abort)
        super().on_response_complete()
        if (
            self.cycle is not None and not self.cycle.response_complete
        ):  # the next request had already arrived
            _stop(self._request)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        _stop(self._stalled)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._request)
        _stop(self._stalled)
        super().connection_lost(exc)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class Tickless(Server):
    """Waits without polling: uvicorn's own loop uses 0.3 % of a processor, which would disturb measurements."""

    async def main_loop(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await self._end.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._end.set)


def serve_forever(listener: socket.socket, app: ASGIApp) -> None:
    """Serve until SIGINT or SIGTERM ends the process, with status 128 + signal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # re-raised by uvicorn when it has ended; sys.exit lets multiprocessing release its semaphores
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2 * MOST_CONNECTIONS
    if soft < enough:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (enough if hard == resource.RLIM_INFINITY else min(enough, hard), hard)
        )
    config = Config(
        app,
        http=Impatient,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level="error",  # no log line for every rejected connection
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(REQUEST_S),
        timeout_graceful_shutdown=END_S,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    Tickless(config).run(sockets=[listener])
