"""How a program of the trial's own probe learns that all clients are done: a byte in a FIFO, once the last of them is."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any


class Bell:
    """A FIFO in a folder of our own, which a program of the probe's waits at until ``ring``; the byte stays there, however
    late it comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> Bell:
        self._folder = tempfile.TemporaryDirectory(prefix="iotrial-bell-")
        self.path = str(Path(self._folder.name) / "bell")
        os.mkfifo(self.path, 0o600)
        # for both, so that neither end waits for the other to be opened
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def ring(self) -> None:
        """Once, when all is over; too late it does nothing, for the number may be another file's by then."""
        with self._lock, suppress(OSError):
            if not self._over:
                os.write(self._descriptor, b".")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
            os.close(self._descriptor)
        self._folder.cleanup()


class Latch:
    """Acts once so many are done."""

    def __init__(self, count: int, act: Callable[[], None]) -> None:
        self._left = count
        self._act = act
        self._lock = threading.Lock()

    def one_done(self, _: Future[dict[str, Any]]) -> None:
        with self._lock:
            self._left -= 1
            over = self._left == 0
        if over:
            self._act()
