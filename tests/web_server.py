"""A web server that sends exactly the bytes a test wants, on its own port: raw sockets, a thread per
connection, no HTTP library."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

Say = Callable[[socket.socket, str, int], bool]


class WebServer:
    """Calls ``say(connection, path, n)`` for the n-th request; it returns whether the connection stays open."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.requests: list[str] = []
        self.heads: list[str] = []
        self.connections = 0
        self.threads: list[threading.Thread] = []
        self._serve(self._accept)

    def _serve(self, work: Callable[[], None]) -> None:
        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                self.connections += 1
                self._serve(lambda own=connection: self._talk(own))

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = b""
            while True:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
                while b"\r\n\r\n" in head:
                    text, head = head.split(b"\r\n\r\n", 1)
                    path = text.split(b" ", 2)[1].decode()
                    self.requests.append(path)
                    self.heads.append(text.decode())
                    if not self.say(connection, path, len(self.requests)):
                        return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


@contextlib.contextmanager
def serving(say: Say) -> Iterator[WebServer]:
    server = WebServer(say)
    try:
        yield server
    finally:
        server.close()


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Return a response with Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(*pieces: bytes) -> bytes:
    """Return a chunked response."""
    parts = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"


def reset(connection: socket.socket) -> None:
    """Close a connection by RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def fnv1a(data: bytes) -> str:
    """Return the published 64-bit FNV-1a hash, with which bodies are compared."""
    mark = 0xCBF29CE484222325
    for byte in data:
        mark = (mark ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{mark:016x}"
