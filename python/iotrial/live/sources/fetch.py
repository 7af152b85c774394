"""One HTTP request with a limit on everything: time, size and kind of answer.

No proxy from the environment, no redirects, a connection for each request: what is measured is read rarely, and a
connection kept open would be closed by the server at some time anyway.
"""

from __future__ import annotations

import base64
import http.client
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, unquote, urlsplit

from iotrial.errors import RequestError
from iotrial.live.sources.base import MetricLost, silent, unreadable

#: bytes of an answer; an exporter with a million series has more, and is too costly to read every other second
MOST_BYTES = 32 << 20
_PIECE = 1 << 16
_TOLD = 200  # characters of an error's answer that are shown


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with status 200."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, from a URL. ``authority`` is what messages show: it has no password."""

    secure: bool
    host: str
    port: int
    path: str
    authorization: str | None

    @property
    def authority(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}"


def server_of(url: str) -> Server:
    """Parse a URL of http or https. Raises RequestError."""
    if re.search(r"[\x00-\x20\x7f]", url) or not url.isascii():
        raise RequestError(f"URL {url!r}: has blanks or characters beyond ASCII", hint="write them as %XX")
    try:
        parts: SplitResult = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise RequestError(f"URL {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise RequestError(f"URL {url!r}: expected http://HOST:PORT/... or https://...")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode("utf-8", "surrogateescape")).decode("ascii")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Server(secure, host, port or (443 if secure else 80), path, authorization)


def get(server: Server, path: str, *, accept: str, timeout_s: float) -> Answer:
    """Ask for a path. Raises MetricLost if there is no answer with status 200, within the time and size limits."""
    deadline = time.monotonic() + timeout_s
    connection = _connection(server, timeout_s)
    cut: threading.Timer | None = None
    headers = {
        "Accept": accept,
        "Accept-Encoding": "identity",
        "Connection": "close",
        "User-Agent": "iotrial",
    }
    if server.authorization is not None:
        headers["Authorization"] = server.authorization
    try:
        connection.connect()
        sock = connection.sock  # the connection forgets it once the answer begins
        # The timeout of a socket is for each piece: headers that come byte by byte would take hours.
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _shut, (sock,))
        cut.daemon = True
        cut.start()
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = _body(response, sock, deadline, server)
    except TimeoutError:
        raise silent(server.authority, timeout_s) from None
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise silent(server.authority, timeout_s) from None
        why = (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:_TOLD]
        raise MetricLost(f"{server.authority}: {why}") from error
    finally:
        if cut is not None:
            cut.cancel()
        connection.close()
    if 300 <= response.status < 400:
        to = str(response.headers.get("Location", ""))[:_TOLD]
        raise MetricLost(f"{server.authority}: redirects to {to!r}", hint="give the URL that answers")
    if response.status != 200:
        text = " ".join(body[:_TOLD].decode("utf-8", "replace").split())
        raise MetricLost(f"{server.authority}: status {response.status}: {text!r}")
    return Answer(str(response.headers.get("Content-Type", "")), body)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        sock.shutdown(socket.SHUT_RDWR)


def _connection(server: Server, timeout_s: float) -> http.client.HTTPConnection:
    if not server.secure:
        return http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
    return http.client.HTTPSConnection(server.host, server.port, timeout=timeout_s, context=_context())


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()  # reads all certificates of the system: 20 ms


def _body(
    response: http.client.HTTPResponse,
    sock: socket.socket,
    deadline: float,
    server: Server,
) -> bytes:
    """Read the answer piece by piece: each piece may take what is left of the time, so that a trickle ends too."""
    pieces: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError
        sock.settimeout(left)
        piece = response.read1(_PIECE)
        if not piece:
            if response.length:
                if time.monotonic() >= deadline:  # this side ended the connection
                    raise TimeoutError
                raise unreadable(server.authority, f"{response.length} bytes are missing")
            return b"".join(pieces)
        size += len(piece)
        if size > MOST_BYTES:
            raise unreadable(server.authority, f"more than {MOST_BYTES >> 20} MiB")
        pieces.append(piece)
