"""Traces that cost their readers as much as possible for their size, by the number of operations."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from trace_files import MAGIC, VERSION, Trace, block, number

MOST_BLOCK = 1 << 19
FOLDER = 2


def content(trace: Trace) -> bytes:
    """Return the trace, cut into blocks by size: its records may be long."""
    counts = (trace.operations, trace.lost, trace.elsewhere, trace.now)
    parts, size = [[]], 0
    for record in [*trace.records, b"\x02" + b"".join(map(number, counts))]:
        if size > MOST_BLOCK:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += len(record)
    blocks = [block(b"".join(part)) for part in parts]
    return MAGIC + struct.pack("<H", VERSION) + block(trace.header) + b"".join(blocks)


def _begun(threads: int = 1) -> Trace:
    trace = Trace()
    for _ in range(threads):
        trace.thread()
    return trace


def renames(n: int) -> Trace:
    """As many folders that are renamed, and then as many files in them that were not seen before."""
    trace = _begun()
    for place in range(n):
        old, new = trace.file(f"o{place}", 4096, kind=1), trace.file(f"n{place}", None, kind=1)
        trace.op("rename", file=old, other=new)
    for place in range(n):
        trace.file(f"n{place}/f", 0)
        trace.open(f"n{place}/f", os.O_RDONLY)
    return trace


def renamed_on(n: int) -> Trace:
    """One folder that is renamed again and again, with a file that is first seen under each name."""
    trace = _begun()
    now = trace.file("d0", 4096, kind=1)
    for place in range(1, n):
        new = trace.file(f"d{place}", None, kind=1)
        trace.op("rename", file=now, other=new)
        now = new
        trace.file(f"d{place}/f{place}", 0)
        trace.open(f"d{place}/f{place}", os.O_RDONLY)
    return trace


def nested(n: int) -> Trace:
    """Folders that are moved into each other, so that a short name was a long one."""
    trace = _begun()
    for place in range(n):
        deep = trace.file(f"a/{'x/' * 50}{place}", 4096, kind=1)
        top = trace.file(f"t{place}", None, kind=1)
        trace.op("rename", file=deep, other=top)
        trace.file(f"t{place}/f", 0)
        trace.open(f"t{place}/f", os.O_RDONLY)
    return trace


def deep_paths(n: int) -> Trace:
    """Paths of 4,000 bytes, each of 2,000 folders."""
    trace = _begun()
    for place in range(max(1, n // 100)):
        trace.file("a/" * 1990 + f"{place}", 0)
        trace.open("a/" * 1990 + f"{place}", os.O_RDONLY)
    return trace


def in_flight(n: int) -> Trace:
    """Operations by io_uring of which none ends before the last has begun."""
    trace = _begun()
    trace.file("f", 1 << 30)
    handle = trace.open("f")
    for place in range(n):
        trace.op("read", handle=handle, at=0, length=1, uring=True, positional=True, start=place, took=10 * n)
        trace.now = 11 * n
    return trace


def overlapping(n: int) -> Trace:
    """Each operation begins before the one before it: the one that ends last has begun first."""
    trace = _begun()
    trace.file("f", 1 << 30)
    handle = trace.open("f")
    for place in range(n):
        end = 10 * n + place
        start = 8 * n - 4 * place
        trace.op(
            "read", handle=handle, at=0, length=1, uring=True, positional=True, start=start, took=end - start
        )
    return trace


def contended(n: int) -> Trace:
    """Writes of one file by 1,000 threads, all in flight at once."""
    threads = 1000
    trace = _begun(threads)
    trace.file("f", 1 << 20)
    handle = trace.open("f")
    for place in range(n):
        trace.op(
            "write",
            thread=place % threads,
            handle=handle,
            at=0,
            length=1,
            positional=True,
            start=1000,
            took=10 * n + place,
        )
    return trace


def awaited(n: int) -> Trace:
    """Waits for threads, where there are 1,000."""
    threads = 1000
    trace = _begun(threads)
    trace.file("f", 1)
    trace.open("f", os.O_RDONLY)
    for place in range(n):
        trace.op("wait", thread=place % threads, other=(place + 1) % threads)
    return trace


def handles(n: int) -> Trace:
    """Opens and closes of one file, and operations on handles that were open before."""
    trace = _begun()
    trace.file("f", 1)
    for _ in range(n):
        trace.open("f")
    for handle in range(n):
        trace.op("close", handle=handle)
    return trace


def copies(n: int) -> Trace:
    """Copies from each of many files to one that is not open."""
    trace = _begun()
    to = trace.file("to", 1)
    trace.open("to")
    for place in range(n):
        trace.file(f"{place}", 1)
        handle = trace.open(f"{place}")
        trace.op("copy", handle=handle, other=to, length=1, target=(place, True))
    return trace


SHAPES: dict[str, Callable[[int], Trace]] = {
    one.__name__: one
    for one in (
        renames,
        renamed_on,
        nested,
        deep_paths,
        in_flight,
        overlapping,
        contended,
        awaited,
        handles,
        copies,
    )
}
