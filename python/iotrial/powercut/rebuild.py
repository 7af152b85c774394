"""Makes a disk image of any state in a write log.

The image goes forward with the log; what a drawn state has beyond that is written over it, and undone before the
next one. So a series of states in the order of the log costs each write once.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from iotrial.powercut.log import Entry, LogError, WriteLog
from iotrial.powercut.states import Arrival, CutPoint, arrivals

_LIBC = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_CHUNK = 1 << 20


class Rebuilder:
    """An image file that takes the states of a log. Use as a context manager; the file stays.

    ``image``: created if need be, best in memory (tmpfs). ``base``: the disk's content before the first entry; None: zeros.
    Raises LogError if the log writes beyond ``size_bytes``, OSError.
    """

    def __init__(self, log: WriteLog, image: Path, size_bytes: int, *, base: Path | None = None) -> None:
        self._log = log
        self._base = base
        self._size = size_bytes
        self._file = os.open(image, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        #: the bytes under a drawn state, latest first to put back; None: zeros of that length
        self._under: list[tuple[int, int, bytes | None]] = []
        self._applied = 0
        self._rewind()

    def close(self) -> None:
        """Close the image file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self, point: CutPoint) -> None:
        """Give the image the state of a cut point. Fast if the points come in the order of the log."""
        self.put(point.stable, arrivals(self._log, point))

    def put(self, stable: int, arrived: Iterable[Arrival]) -> None:
        """Give the image the first ``stable`` entries, and of later ones what arrived."""
        self.advance(stable)
        for arrival in arrived:
            self._save(arrival.entry.offset + arrival.start, arrival.stop - arrival.start)
            self._write(arrival.entry, arrival.start, arrival.stop)

    def advance(self, entry: int) -> None:
        """Give the image the state after the first ``entry`` entries, all of them whole."""
        self._take_back()
        if entry < self._applied:
            self._rewind()
        for each in self._log.entries(self._applied, entry):
            if each.length:
                self._write(each, 0, each.length)
        self._applied = entry

    def _rewind(self) -> None:
        os.ftruncate(self._file, self._size)
        _punch(self._file, 0, self._size)
        self._applied = 0
        self._under.clear()
        if self._base is not None:
            with self._base.open("rb") as base:
                for at in range(0, self._size, _CHUNK):
                    chunk = os.pread(base.fileno(), min(_CHUNK, self._size - at), at)
                    if chunk.strip(b"\0"):
                        os.pwrite(self._file, chunk, at)

    def _write(self, entry: Entry, start: int, stop: int) -> None:
        if entry.offset + stop > self._size:
            raise LogError(
                f"{self._log.path}: entry {entry.index} ends at byte {entry.offset + stop} of a disk of {self._size} bytes"
            )
        if entry.discard:
            _punch(self._file, entry.offset + start, stop - start)
            return
        data = self._log.data(entry)
        os.pwrite(
            self._file, data if (start, stop) == (0, entry.length) else data[start:stop], entry.offset + start
        )

    def _save(self, offset: int, length: int) -> None:
        for at in range(offset, offset + length, _CHUNK):
            size = min(_CHUNK, offset + length - at)
            chunk = os.pread(self._file, size, at)
            self._under.append((at, size, chunk if chunk.strip(b"\0") else None))

    def _take_back(self) -> None:
        while self._under:
            at, size, chunk = self._under.pop()
            if chunk is None:
                _punch(self._file, at, size)
            else:
                os.pwrite(self._file, chunk, at)


def _punch(file: int, offset: int, length: int) -> None:
    """Zero a range of a file without allocating it."""
    mode = _KEEP_SIZE | _PUNCH_HOLE
    if _LIBC.fallocate(file, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"punch a hole: {os.strerror(number)}")
