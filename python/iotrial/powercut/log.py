"""Reads a log of a disk's writes, in the format of the kernel's dm-log-writes target.

Documented in the kernel's Documentation/admin-guide/device-mapper/log-writes.rst; layouts in drivers/md/dm-log-writes.c.
All numbers are little-endian. The first sector is the superblock: magic, version, number of entries (64 bits each), bytes
per sector (32 bits). Each entry is one sector: sector, number of sectors, flags, length of inline data (64 bits each). The
text of a mark follows within that sector; the data of a write follow in the next sectors; a discard has none.

Where this project's own disk wrote the log, the unused part of a request's sector begins with the time at which it was
logged: 64 bits, nanoseconds of the monotonic clock. The kernel's target leaves it zero.

The order is that of completion: a write is logged when it completes, a flush when it arrives. So a flush covers
exactly the writes before it in the log.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from iotrial.errors import IotrialError

MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, MARK, METADATA = 1, 2, 4, 8, 16
SUPERBLOCK = struct.Struct("<QQQI")
ENTRY, TIME = struct.Struct("<QQQQ"), struct.Struct("<Q")
#: longest text of a mark, so that it fits into its entry's sector of 512 bytes
MARK_BYTES = 512 - ENTRY.size
#: a log with more entries is refused: the index of one entry takes 40 bytes of memory
MAX_ENTRIES = 20_000_000


class LogError(IotrialError):
    """A write log cannot be read, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``offset`` and ``length`` in bytes of the disk; ``at``: position of its data in the log file."""

    index: int
    offset: int
    length: int
    flags: int
    at: int

    @property
    def flush(self) -> bool:
        """True if all writes before it are on stable storage once it completes."""
        return bool(self.flags & FLUSH)

    @property
    def fua(self) -> bool:
        """True if this write itself is on stable storage when it completes."""
        return bool(self.flags & FUA)

    @property
    def discard(self) -> bool:
        """True if it zeroes its range and has no data."""
        return bool(self.flags & DISCARD)

    @property
    def mark(self) -> bool:
        """True if it is a mark, not a request to the disk."""
        return bool(self.flags & MARK)


@dataclass(frozen=True, slots=True)
class Mark:
    """A text that was put into the log by a program."""

    entry: int
    text: str


class WriteLog:
    """An open write log. Use as a context manager. Memory is bounded by the number of entries, not by their data.

    Entries that are added to the file later are not seen, nor those from the first mark with the text ``until`` on. Raises
    LogError if it is not a write log or is cut short.
    """

    def __init__(self, path: Path, *, until: str | None = None) -> None:
        self.path = path
        self._until = until
        with path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # an empty file
                raise LogError(f"{path}: expected a write log, found an empty file") from error
        self._empty()
        self.marks: list[Mark] = []
        try:
            self._index()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._flags)

    def entry(self, index: int) -> Entry:
        """Return one entry; IndexError beyond the end."""
        return Entry(
            index, self._offsets[index], self._lengths[index], self._flags[index], self._places[index]
        )

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Yield the entries from ``start`` up to, not including, ``stop``."""
        for index in range(start, len(self) if stop is None else min(stop, len(self))):
            yield self.entry(index)

    def data(self, entry: Entry) -> bytes:
        """Return what an entry leaves in its range of the disk; empty for a flush without data and for a mark."""
        if entry.discard:
            return bytes(entry.length)
        return self._map[entry.at : entry.at + entry.length]

    def last_flush(self, before: int) -> int:
        """Return the last flush among the first ``before`` entries; -1 if there is none."""
        found = bisect_left(self.flushes, before)
        return self.flushes[found - 1] if found else -1

    def within_cache(self, before: int, cache_bytes: int) -> int:
        """Return the first entry from which on no more than ``cache_bytes`` were written up to entry ``before``."""
        return bisect_left(self._written, max(0, self._written[before] - cache_bytes), 0, before)

    def marked(self, text: str) -> int:
        """Return the entry of the first mark with this text. Raises LogError if there is none."""
        for mark in self.marks:
            if mark.text == text:
                return mark.entry
        raise LogError(f"{self.path}: no mark {text!r} among {len(self.marks)} marks")

    def place(self, texts: Sequence[tuple[int, str]], *, after: int) -> None:
        """Put these marks in place of those from entry ``after`` on: each with its time, in ns of the monotonic clock.

        Each stands behind the requests that had been logged by then, as if it had been put into the log at that time. Raises
        LogError if the log has no times.
        """
        if not any(self._times):
            raise LogError(f"{self.path}: its requests have no times")
        rows = list(zip(self._offsets, self._lengths, self._flags, self._places, self._times, strict=True))
        kept, requests = rows[:after], [row for row in rows[after:] if not row[2] & MARK]
        logged = [row[4] for row in requests]
        self.marks = [mark for mark in self.marks if mark.entry < after]
        done = 0
        for at, text in texts:
            behind = max(done, bisect_right(logged, at))
            kept += requests[done:behind]
            done = behind
            self.marks.append(Mark(len(kept), text))
            kept.append((0, 0, MARK, 0, at))
        kept += requests[done:]
        self._empty()
        for row in kept:
            self._add(*row)

    def _empty(self) -> None:
        self._offsets, self._lengths, self._flags, self._places, self._times = (array("Q") for _ in range(5))
        #: bytes written before each entry, and at the end: all
        self._written = array("Q", [0])
        #: entries that are flushes, in ascending order
        self.flushes: list[int] = []

    def _add(self, offset: int, length: int, flags: int, place: int, time: int) -> None:
        if flags & FLUSH and not flags & MARK:
            self.flushes.append(len(self))
        self._offsets.append(offset)
        self._lengths.append(length)
        self._flags.append(flags)
        self._places.append(place)
        self._times.append(time)
        self._written.append(self._written[-1] + (0 if flags & DISCARD else length))

    def _index(self) -> None:
        size = len(self._map)
        if size < SUPERBLOCK.size:
            raise LogError(f"{self.path}: expected a write log, found {size} bytes")
        magic, version, count, sector = SUPERBLOCK.unpack_from(self._map, 0)
        if magic != MAGIC or version != VERSION:
            raise LogError(
                f"{self.path}: expected a write log of version {VERSION}, found magic {magic:#x}, version {version}"
            )
        if sector not in (512, 1024, 2048, 4096) or count > MAX_ENTRIES:
            raise LogError(
                f"{self.path}: expected sectors of 512 to 4096 bytes and up to {MAX_ENTRIES} entries, "
                f"found {sector} bytes and {count} entries"
            )
        at = sector
        for index in range(count):
            if at + sector > size:
                raise LogError(f"{self.path}: cut short in entry {index} of {count}")
            first, sectors, flags, inline = ENTRY.unpack_from(self._map, at)
            length = sectors * sector
            (time,) = TIME.unpack_from(self._map, at + ENTRY.size)
            if flags & MARK:
                time = 0
                if inline > sector - ENTRY.size:
                    raise LogError(f"{self.path}: entry {index}: a mark of {inline} bytes in a sector")
                data = self._map[at + ENTRY.size : at + ENTRY.size + inline]
                text = data.rstrip(b"\0").decode(errors="replace")
                if text == self._until:
                    return
                self.marks.append(Mark(index, text))
                length = 0
            at += sector
            self._add(first * sector, length, flags, at, time)
            at += 0 if flags & DISCARD else length
            if at > size:
                raise LogError(f"{self.path}: cut short in entry {index} of {count}")
