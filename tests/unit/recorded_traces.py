"""Traces made for tests from plain dictionaries, by ``ioprobe trace write``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iotrial.probe.binary import find_binary

Record = dict[str, Any]
MIB = 1 << 20
O_CREAT = 0o100


def write_trace(
    path: Path,
    files: Iterable[Record],
    operations: Iterable[Record],
    *,
    threads: int = 1,
    header: Record | None = None,
    end: Record | None = None,
) -> Path:
    """Write a trace and return its path. Numbers of files and threads are those of their order; without ``end`` it is cut
    off."""
    lines: list[Record] = [
        {
            "header": {
                "recorded_at": "2026-01-02T03:04:05Z",
                "kernel": "6.12.0",
                "command": ["app", "--fast"],
                "under": "/srv/data",
                **(header or {}),
            }
        }
    ]
    lines += [{"file": {"id": number, **file}} for number, file in enumerate(files)]
    lines += [{"thread": {"id": number}} for number in range(threads)]
    lines += [{"op": one} for one in operations]
    if end is not None:
        lines.append({"end": end})
    subprocess.run(
        [find_binary(), "trace", "write", str(path)],
        input="\n".join(map(json.dumps, lines)),
        text=True,
        check=True,
    )
    return path


def data(call: str, file: int, offset: int, length: int, *, at_us: int, **more: Any) -> Record:
    """Return a read or write of 10 microseconds, on a handle with the number of its file."""
    return {
        "call": call,
        "file": file,
        "handle": file,
        "offset": offset,
        "length": length,
        "start_ns": at_us * 1000,
        "duration_ns": 10_000,
        **more,
    }


def call(name: str, file: int, *, at_us: int, **more: Any) -> Record:
    """Return another operation."""
    return {"call": name, "file": file, "start_ns": at_us * 1000, "duration_ns": 5_000, **more}


def database(path: Path, *, transactions: int = 40) -> Path:
    """Write a trace of a database of 4 MiB: for each transaction two random reads of 4 KiB, two writes of 4 KiB to a log, and
    an fdatasync of the log."""
    operations: list[Record] = [
        call("open", 0, at_us=0, handle=0),
        call("open", 1, at_us=6, handle=1, flags=O_CREAT),
    ]
    for number in range(transactions):
        at = 100 + number * 1000
        for place in range(2):
            offset = (number * 977 + place * 331) % 1024 * 4096
            operations.append(data("read", 0, offset, 4096, at_us=at + 20 * place, positional=True))
        for place in range(2):
            operations.append(data("write", 1, (2 * number + place) * 4096, 4096, at_us=at + 50 + 20 * place))
        operations.append(call("fdatasync", 1, at_us=at + 100, handle=1))
    operations.append(call("close", 0, at_us=transactions * 1000 + 200, handle=0))
    operations.append(call("close", 1, at_us=transactions * 1000 + 206, handle=1))
    return write_trace(
        path,
        [{"path": "db/main.db", "size": 4 * MIB, "stored": 4 * MIB}, {"path": "db/main.log", "size": None}],
        operations,
        end={"duration_ns": (transactions * 1000 + 300) * 1000, "elsewhere": 17},
    )
