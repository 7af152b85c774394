"""A noisy neighbour: a process on one CPU that works and rests for random times.

As a context manager it holds the child, which is killed by its id on exit. If the suite itself is killed, the kernel
kills the child (PR_SET_PDEATHSIG, prctl(2)). Run as a script it *is* the child: bursts of hashing and of writing and
reading a file through the page cache; lengths of bursts and rests are exponential, half a second on average.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

MEAN_S = 0.5
STRETCH_S = 0.005
CHUNK = 1 << 20
FILE_CHUNKS = 32
PR_SET_PDEATHSIG = 1


class BurstyNeighbour:
    """Runs while the context is entered. ``folder``: place of its file, on the disk that the trial uses too."""

    def __init__(self, folder: Path, cpu: int) -> None:
        self._folder = folder
        self._cpu = cpu
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BurstyNeighbour:
        argv = [
            sys.executable,
            "-E",
            "-S",
            str(Path(__file__).resolve()),
            str(self._folder),
            str(os.getpid()),
            str(self._cpu),
        ]
        self._child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert self._child.stdout is not None
            if self._child.stdout.readline() != b"ready\n":
                raise RuntimeError("the noisy neighbour did not start")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._child = None


def _be_noisy(folder: str, parent: int, cpu: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request took effect
        return
    os.sched_setaffinity(0, {cpu})
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    chunk = os.urandom(CHUNK)
    os.write(1, b"ready\n")
    drawn = random.SystemRandom()
    position = 0
    while True:
        time.sleep(drawn.expovariate(1.0 / MEAN_S))
        until = time.monotonic() + drawn.expovariate(1.0 / MEAN_S)
        while time.monotonic() < until:
            _hash(chunk, min(until, time.monotonic() + STRETCH_S))
            offset = position % FILE_CHUNKS * CHUNK
            os.pwrite(descriptor, chunk, offset)
            os.pread(descriptor, CHUNK, offset)
            position += 1


def _hash(chunk: bytes, until: float) -> None:
    while time.monotonic() < until:
        hashlib.blake2b(chunk[:65536]).digest()


if __name__ == "__main__":
    _be_noisy(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
