"""The record of trials: append-only, one JSON object per line, one line per trial."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from trials.cells import Cell

DEFAULT = Path(__file__).resolve().parent.parent / "record" / "trials.jsonl"
#: a trial interrupted by a signal has no outcome: it stays in the record and is repeated
INTERRUPTED = "interrupted"


class Busy(RuntimeError):
    """Another suite writes to this record."""


class Record:
    """The record, opened for appending; locked against a second suite while entered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> Record:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Busy(f"another suite is writing to {self._path}") from None
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # a line torn by a power cut stays separate
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def add(self, line: dict[str, Any]) -> None:
        """Append a trial with one write, then fsync."""
        os.write(self._descriptor, (json.dumps(line, allow_nan=False) + "\n").encode())
        os.fsync(self._descriptor)


def read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return all trials in the order in which they were made, and the number of torn lines."""
    lines, torn = [], 0
    for text in path.read_text().split("\n") if path.exists() else ():
        if not text:
            continue
        try:
            lines.append(json.loads(text))
        except ValueError:
            torn += 1
    return lines, torn


def cell_of(line: dict[str, Any]) -> Cell:
    """Return the cell of a line."""
    return Cell(line["workload"], line["neighbour"], line["injected"])


def counted(lines: list[dict[str, Any]]) -> Counter[Cell]:
    """Count trials with an outcome, whatever it was, by cell."""
    return Counter(cell_of(line) for line in lines if line["state"] != INTERRUPTED)
