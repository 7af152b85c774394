"""Writes traces (.iotrace files): a second implementation of the format, from its description in crates/iotrace."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

MAGIC, VERSION = b"iotrace\n", 2
CALLS = (
    *("open", "close", "read", "write", "fsync", "fdatasync", "sync_file_range", "sync", "truncate"),
    *("rename", "link", "symlink", "unlink", "mkdir", "rmdir", "stat", "readdir", "allocate", "advise"),
    *("send", "copy", "map", "fault", "unmap", "wait", "start", "exit"),
)
RECORDS_A_BLOCK = 1000
MIB = 1 << 20
MICROSECOND = 1000
MILLISECOND = 1_000_000


def number(value: int) -> bytes:
    """Return seven bits a byte, the lowest first."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def folded(value: int) -> bytes:
    """Return a number that may be negative: 0, -1, 1, -2 ..."""
    return number(value << 1 if value >= 0 else ((-value) << 1) - 1)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def block(payload: bytes) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


@dataclass
class Trace:
    """A trace that is written operation by operation. ``now`` (ns) is the end of the last one."""

    header: bytes = field(
        default_factory=lambda: (
            text("2026-01-02T03:04:05Z") + text("6.12.0") + text("/x") + b"\x00" + number(1) + text("app")
        )
    )
    records: list[bytes] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    operations: int = 0
    now: int = 0
    #: by thread: file, handle, offset, length and end of its last operation
    last: dict[int, list[int]] = field(default_factory=dict)
    handles: int = 0
    #: operations that were lost, and those on other files
    lost: int = 0
    elsewhere: int = 0

    def file(
        self,
        path: str,
        size: int | None,
        *,
        stored: int | None = None,
        extents: int = 1,
        kind: int = 0,
    ) -> int:
        known = b"\x00" if size is None else b"\x01" + number(size)
        stored = (size or 0) if stored is None else stored
        position = number(0)  # not known
        self.records.append(
            b"\x00" + text(path) + bytes([kind]) + known + number(stored) + number(extents) + position
        )
        return self.files.setdefault(path, len(self.files))

    def thread(self, started_by: int | None = None) -> int:
        by = 0 if started_by is None else started_by + 1
        self.records.append(b"\x01" + number(0) + number(by) + text("worker"))
        self.last[len(self.last)] = [0] * 5
        return len(self.last) - 1

    def op(
        self,
        call: str,
        *,
        thread: int = 0,
        file: int | None = None,
        other: int | None = None,
        handle: int | None = None,
        at: int = 0,
        length: int = 0,
        result: int | None = None,
        flags: int = 0,
        target: tuple[int, bool] | None = None,
        positional: bool = False,
        uring: bool = False,
        vectors: int = 1,
        start: int | None = None,
        took: int = MICROSECOND,
    ) -> None:
        """Add an operation, which starts when the last one has ended unless ``start`` (ns) says otherwise.

        ``target``: the offset in the file that a copy writes, and whether the caller gave it.
        """
        start = self.now if start is None else start
        result = length if result is None else result
        last = self.last[thread]
        bits = (
            positional
            | uring << 1
            | (file is not None) << 2
            | (other is not None) << 3
            | (handle is not None) << 4
        )
        bits |= (vectors != 1) << 5 | 1 << 6 | 1 << 7
        data = bytes([0x80 | CALLS.index(call), bits]) + number(thread)
        data += b"" if file is None else folded(file - last[0])
        data += b"" if other is None else number(other)
        data += b"" if handle is None else folded(handle - last[1])
        data += b"" if vectors == 1 else number(vectors)
        data += folded(at - last[2]) + folded(length - last[3]) + folded(result)
        data += number(flags) if target is None else number(1 + target[1]) + number(target[0])
        data += folded(start - last[4]) + number(took)
        self.records.append(data)
        self.last[thread] = [
            last[0] if file is None else file,
            last[1] if handle is None else handle,
            at + max(0, result),
            length,
            start + took,
        ]
        self.operations += 1
        self.now = start + took

    def open(self, path: str, flags: int = os.O_RDWR, *, thread: int = 0, start: int | None = None) -> int:
        """Add an open, and return its handle."""
        self.op(
            "open",
            thread=thread,
            file=self.files[path],
            handle=self.handles,
            flags=flags,
            result=3,
            start=start,
        )
        self.handles += 1
        return self.handles - 1

    def missing(self, path: str) -> None:
        """Add an open that found no file."""
        self.op("open", file=self.files[path], flags=os.O_RDONLY, result=-errno.ENOENT)

    def bytes(self, *, complete: bool = True) -> bytes:
        counts = (self.operations, self.lost, self.elsewhere, self.now)
        end = b"\x02" + b"".join(map(number, counts))
        records = [*self.records, end] if complete else self.records
        several = range(0, len(records), RECORDS_A_BLOCK)
        blocks = [block(b"".join(records[first : first + RECORDS_A_BLOCK])) for first in several]
        return MAGIC + struct.pack("<H", VERSION) + block(self.header) + b"".join(blocks)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def small() -> Trace:
    """A trace of one thread: reads of two files, and a new file that is written, synced and renamed."""
    trace = Trace()
    trace.thread()
    trace.file("data/a", 64 << 10)
    trace.file("data/b", 8 << 10)
    trace.file("data/new", None)
    trace.file("data/final", None)
    trace.file("none", None)
    trace.missing("none")
    one, two = trace.open("data/a"), trace.open("data/b", os.O_RDONLY)
    for place in range(8):
        trace.op("read", handle=one, at=place * 8192, length=8192)
    trace.op("read", handle=two, at=0, length=4096, positional=True)
    trace.op("read", handle=two, at=4096, length=4096, positional=True, vectors=2)
    new = trace.open("data/new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    trace.op("write", handle=new, at=0, length=10_000)
    trace.op("fsync", handle=new)
    trace.op("close", handle=new)
    trace.op("rename", file=trace.files["data/new"], other=trace.files["data/final"])
    trace.op("stat", file=trace.files["data/final"])
    trace.op("write", handle=one, at=4096, length=100, positional=True)
    trace.op("fdatasync", handle=one)
    trace.op("close", handle=one)
    return trace
