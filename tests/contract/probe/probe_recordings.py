"""Records programs by `ioprobe record`, and reads what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_client import BINARY

#: calls of the interpreter itself while it ends
IGNORED = ("start", "exit", "wait")


@dataclass(frozen=True)
class Recording:
    """A trace, and what the recorder said of it."""

    report: dict[str, Any]
    header: dict[str, Any]
    files: list[dict[str, Any]]
    threads: list[dict[str, Any]]
    ops: list[dict[str, Any]]
    end: dict[str, Any]

    def path(self, file: int | None) -> str | None:
        return None if file is None else self.files[file]["path"]

    def of(self, *keys: str, calls: Sequence[str] = (), thread: int | None = None) -> list[tuple[Any, ...]]:
        """Return call, path and these keys of each operation, in order, without starts and ends."""
        return [
            (op["call"], self.path(op["file"]), *(op[key] for key in keys))
            for op in self.ops
            if op["call"] not in IGNORED
            and (not calls or op["call"] in calls)
            and thread in (None, op["thread"])
        ]

    def known(self, path: str) -> dict[str, Any]:
        """Return the record of a file."""
        (found,) = (file for file in self.files if file["path"] == path)
        return found


def python(script: str) -> list[str]:
    """Return the command of a Python program that reads nothing in its current folder."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(script)]


def recorder(trace: Path, under: Path, report: int, *options: str) -> list[str]:
    own = ["--output", str(trace), "--under", str(under), "--report", str(report)]
    return [str(BINARY), "record", *own, *options]


def record(folder: Path, command: list[str], *options: str, check: bool = True) -> Recording:
    """Run a command in a folder and return its recording; the trace is next to the folder."""
    trace = folder.with_name("app.iotrace")
    reading, writing = os.pipe()
    done = subprocess.run(
        [*recorder(trace, folder, writing, *options), "--", *command],
        pass_fds=(writing,),
        cwd=folder,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read())
    assert done.returncode == 0, answer
    if check:
        assert answer["ok"]["exit_code"] == 0
        assert answer["ok"]["lost"] == 0
    return read(trace, answer["ok"])


def read(trace: Path, report: dict[str, Any]) -> Recording:
    dumped = subprocess.run(
        [str(BINARY), "record", "--dump", str(trace)], capture_output=True, text=True, check=True
    )
    found: dict[str, list[Any]] = {"header": [], "file": [], "thread": [], "op": [], "end": []}
    for line in dumped.stdout.splitlines():
        ((kind, record),) = json.loads(line).items()
        found[kind].append(record)
    assert report["operations"] == len(found["op"]) == found["end"][0]["operations"]
    assert report["files"] == len(found["file"])
    assert report["threads"] == len(found["thread"])
    assert report["lost"] == found["end"][0]["lost"]
    assert report["trace_bytes"] == trace.stat().st_size
    return Recording(report, found["header"][0], found["file"], found["thread"], found["op"], found["end"][0])
