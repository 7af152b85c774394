"""Records in the write log what a workload acknowledges, at the moment it does so and outside the disk under test."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

from iotrial.powercut.log import MARK_BYTES, LogError

#: environment variable with the path of the socket, for workloads that put marks by themselves
MARKS = "IOTRIAL_MARKS"


class Marker:
    """A connection to the disk that logs. Use as a context manager. Safe for one thread.

    The socket is a Unix one of type SOCK_SEQPACKET: each message is the text of one mark, and is answered with one byte
    once the mark is in the log. So the mark follows all writes and flushes that completed before it was sent,
    and precedes those that begin after the answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
        except BaseException:
            self._socket.close()
            raise

    def mark(self, text: str) -> None:
        """Put a mark into the log. Raises LogError if the text is too long, or if the disk has gone."""
        data = text.encode()
        if not 0 < len(data) <= MARK_BYTES:
            raise LogError(f"a mark has 1 to {MARK_BYTES} bytes, found {len(data)}")
        self._socket.sendall(data)
        if not self._socket.recv(1):
            raise LogError(f"mark {text!r}: the disk that logs has ended")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
