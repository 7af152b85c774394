"""Traces for the tests of what is made from them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trace_files import MIB, MICROSECOND, Trace, number, text


def named(command: Sequence[str] = ("app", "--fast"), under: str = "/srv/data") -> Trace:
    """Return an empty trace of one thread, with the header of a command."""
    words = number(len(command)) + b"".join(map(text, command))
    trace = Trace(header=text("2026-01-02T03:04:05Z") + text("6.12.0") + text(under) + b"\x00" + words)
    trace.thread()
    return trace


def database(*, transactions: int = 40) -> Trace:
    """Return the trace of a database of 4 MiB: each millisecond two random reads of 4 KiB, two writes of 4 KiB to a log, and
    an fdatasync of the log."""
    trace = named()
    trace.elsewhere = 17
    trace.file("db/main.db", 4 * MIB)
    trace.file("db/main.log", None)
    main, log = trace.open("db/main.db"), trace.open("db/main.log", os.O_RDWR | os.O_CREAT)
    for count in range(transactions):
        trace.now = (100 + 1000 * count) * MICROSECOND
        for place in range(2):
            offset = (count * 977 + place * 331) % 1024 * 4096
            trace.op("read", handle=main, at=offset, length=4096, positional=True, took=10 * MICROSECOND)
        for place in range(2):
            offset = (2 * count + place) * 4096
            trace.op("write", handle=log, at=offset, length=4096, took=10 * MICROSECOND)
        trace.op("fdatasync", handle=log, took=100 * MICROSECOND)
    trace.op("close", handle=main)
    trace.op("close", handle=log)
    return trace


def sequential(call: str, *, count: int = 500, size: int = 128 << 10) -> Trace:
    """Return the trace of one file of 64 MiB, read or written in order."""
    trace = named()
    trace.file("f", 64 * MIB if call == "read" else None)
    handle = trace.open("f", os.O_RDWR | os.O_CREAT)
    for place in range(count):
        trace.op(call, handle=handle, at=place * size, length=size, took=10 * MICROSECOND)
    return trace


def many_files(call: str, *, count: int = 50, synced: bool = False) -> Trace:
    """Return the trace of files of 3,000 bytes, each opened, read or written, and closed."""
    trace = named()
    for place in range(count):
        trace.file(f"d/{place}", 3000 if call == "read" else None)
        handle = trace.open(f"d/{place}", os.O_RDWR | os.O_CREAT)
        trace.op(call, handle=handle, length=3000, took=10 * MICROSECOND)
        if synced:
            trace.op("fsync", handle=handle)
        trace.op("close", handle=handle)
    return trace


def at_once(*, uring: bool = False, files: int = 1) -> Trace:
    """Return the trace of four threads that read files at once, 100 times each."""
    trace = named()
    for _ in range(3):
        trace.thread(started_by=0)
    names = ["f", *(f"f{number}" for number in range(1, files))]
    for name in names:
        trace.file(name, 4 * MIB)
    handles = [trace.open(name, os.O_RDONLY) for name in names]
    for place in range(400):
        trace.op(
            "read",
            thread=place % 4,
            handle=handles[place % files],
            at=place * 4096,
            length=4096,
            positional=True,
            uring=uring,
            start=(place // 4) * 20 * MICROSECOND + 1000,
            took=10 * MICROSECOND,
        )
    return trace
