"""The suite: one trial after the other, drawn among the cells, each recorded before the next starts."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from iotrial import __version__
from iotrial.lab.journal import Journal
from iotrial.lab.lock import Busy as MachineBusy
from iotrial.lab.lock import MachineLock
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from trials.cells import Cell, draw
from trials.conducting import conduct
from trials.neighbour import BurstyNeighbour
from trials.record import INTERRUPTED, Busy, Record, counted, read
from trials.summary import alarm, covered

FAILURES_TO_STOP = 5
DATABASE = "trial.db"
WAITS_FOR_THE_MACHINE_S = 600.0


class Stop(BaseException):
    """A signal arrived between two trials."""


def run(target: dict[Cell, int], path: Path, state: Path, *, budget_s: float) -> int:
    """Run trials until all cells are complete or the time is used up; return the exit status."""
    os.environ["XDG_STATE_HOME"] = str(state)
    _take(state)
    began = time.monotonic()
    about = _about()
    failures = 0
    with _alone(state), Record(path) as record, _signals_stop(), _beside_the_last_cpu() as last_cpu:
        _drop(state / DATABASE)  # left by a suite that was killed: its trial is repeated
        while True:
            done = counted(read(path)[0])
            cell = draw(target, done)
            if cell is None:
                print("all cells are complete", file=sys.stderr)
                return 0
            if time.monotonic() - began > budget_s:
                print("the time is spent; run it again to go on", file=sys.stderr)
                return 0
            line, ended_by = _one(cell, state, about, last_cpu)
            record.add(line)
            _tell(line, sum(done.values()) + 1, sum(target.values()))
            if ended_by is not None:
                return 128 + ended_by
            failures = failures + 1 if line["state"] == "failed" else 0
            if failures >= FAILURES_TO_STOP:
                print(f"{failures} trials in a row have failed: {line['problem']}", file=sys.stderr)
                return 1


def _one(cell: Cell, state: Path, about: dict[str, Any], last_cpu: int) -> tuple[dict[str, Any], int | None]:
    """Run one trial; return a line of the record, and the signal that interrupted it, if any."""
    line: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "workload": cell.workload,
        "neighbour": cell.neighbour,
        "injected": cell.injected,
        **about,
    }
    database = state / DATABASE
    ended_by: int | None = None
    began = time.monotonic()
    try:
        _put_back_what_is_left()
        with BurstyNeighbour(state, last_cpu) if cell.neighbour == "bursty" else nullcontext():
            facts, ended_by = _with_patience(cell, database)
        line |= facts
    except Stop as stopped:
        ended_by = int(stopped.args[0])
        line["state"] = INTERRUPTED
    except Exception as error:
        line |= {"state": "failed", "problem": f"{type(error).__name__}: {error}"}
    if ended_by is not None:
        line["state"] = INTERRUPTED
    line.setdefault("seconds_in_all", round(time.monotonic() - began, 3))
    _keep_or_drop(database, line)
    return line, ended_by


def _with_patience(cell: Cell, database: Path) -> tuple[dict[str, Any], int | None]:
    """Run a trial; while another iotrial uses the machine, wait and retry."""
    until = time.monotonic() + WAITS_FOR_THE_MACHINE_S
    while True:
        try:
            return conduct(cell, database)
        except MachineBusy:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def _put_back_what_is_left() -> None:
    """Clean up after a killed suite, which leaves only a folder and processes of its own."""
    journal = Journal(state_folder() / "journal")
    if journal.pending():
        with MachineLock(), Probe(isolate=False) as probe:
            restore(journal, Target(probe))


def _keep_or_drop(database: Path, line: dict[str, Any]) -> None:
    """Keep the runs of a trial that erred in the state folder for inspection; drop all others."""
    erred = line["state"] in ("failed", "invalid") or (
        line["state"] == "done" and (not covered(line) or (line["injected"] == 0.0 and alarm(line)))
    )
    kept = database.parent / "erred"
    for suffix in ("", "-wal", "-shm"):
        file = database.with_name(database.name + suffix)
        if not file.exists():
            continue
        if erred:
            kept.mkdir(exist_ok=True)
            shutil.move(file, kept / f"{line['at'].replace(':', '')}-{line['workload']}.db{suffix}")
        else:
            file.unlink()


def _drop(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _take(state: Path) -> None:
    """Create the state folder, possibly in a world-writable place. Raise Busy if others can write to it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = state.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Busy(f"{state} is not a folder of yours alone; remove it, or name another with --state")


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Lock the state folder (flock). Raise Busy if another suite holds it, whatever its record."""
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another suite is at work in {state}") from None
        yield


def _about() -> dict[str, Any]:
    """Return the facts shared by all trials of one start of the suite."""
    return {
        "machine": _machine(),
        "commit": _commit(),
        "versions": {
            "iotrial": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "kernel": platform.release(),
        },
    }


def _machine() -> str:
    models = [
        text.partition(":")[2].strip()
        for text in Path("/proc/cpuinfo").read_text().splitlines()
        if text.startswith("model name")
    ]
    return f"{os.cpu_count()} x {models[0] if models else platform.machine()}, Linux {platform.release()}"


def _commit() -> str:
    """Return the commit of the code, with a mark if the tree differs from it in more than the record."""
    folder = Path(__file__).resolve().parent
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        top = subprocess.run(
            [*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(
            [
                *git,
                "status",
                "--porcelain",
                "--",
                top.stdout.strip(),
                ":(top,exclude)benchmarks/truth/record",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if dirty.stdout.strip() else "")


@contextmanager
def _beside_the_last_cpu() -> Iterator[int]:
    """Reserve the last CPU for the neighbour and yield its number, even while it is quiet, so that nothing else differs.

    With a single CPU both share it.
    """
    every = os.sched_getaffinity(0)
    last = max(every)
    os.sched_setaffinity(0, every - {last} or every)
    try:
        yield last
    finally:
        os.sched_setaffinity(0, every)


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Between trials a signal ends the suite; within one the conductor handles it."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Stop(number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(line: dict[str, Any], number: int, of: int) -> None:
    cell = Cell(line["workload"], line["neighbour"], line["injected"])
    ratio = "-" if line.get("ratio") is None else f"{line['ratio']:.4f}"
    said = line.get("problem") or f"{line.get('verdict')} {ratio}, {line.get('blocks')} blocks"
    print(
        f"{number}/{of} {cell.name}: {line['state']}, {said}, {line['seconds_in_all']:.1f} s",
        file=sys.stderr,
        flush=True,
    )
