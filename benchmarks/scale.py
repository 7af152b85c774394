"""Growth of time and memory with size: a list of many trials, a report of many runs.

    python benchmarks/scale.py [REPETITIONS [FOLDER]]     # FOLDER keeps the stores (3 GB) for the next time

Stores are made from one real trial of the catalogue: every trial has its study and a plan of its own; each planned
run copies one of the real runs of the same arm and condition (responses, evidence, histograms, checks). So rows are
as wide as real ones. Each figure comes from separate processes, started one after the other, alternating between
sizes; each command has one uncounted warm-up run. The program runs from bytecode, as when installed: with
PYTHONDONTWRITEBYTECODE set, as in many containers, every process would compile its imports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from iotrial.design.plan import Plan
from iotrial.report.analyses import cache_path
from iotrial.store import Store, checksums, records
from iotrial.store.checksums import sealed
from iotrial.store.model import BlockEnd, RunRecord, TrialData, TrialState
from iotrial.store.packed import open_packed, read_packed

REAL = Path(__file__).parents[1] / "docs" / "catalogue" / "files" / "permissions.iotrial"
#: runs per trial of a list, numbers of trials; and runs of the trials that are reported
RUNS_EACH, TRIALS = 1000, (10, 100, 1000)
RUNS = (1_000, 10_000, 100_000)


def main(repetitions: int, folder: Path) -> None:
    """Print two Markdown tables."""
    real = _real()
    lists = {count: _store(folder / f"trials-{count}.db", real, [RUNS_EACH] * count) for count in TRIALS}
    reports = {count: _store(folder / f"runs-{count}.db", real, [count]) for count in RUNS}
    print(
        "| what | of | median | from | to | memory at most | n |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    html = ["report", "last", "--html", str(folder / "report.html")]
    _run(["trials"], lists[min(lists)])
    _run(["report", "last", "--json"], reports[min(reports)])
    for title, words, stores, anew in (
        ("`iotrial trials`", ["trials"], lists, False),
        ("`iotrial trials --json`", ["trials", "--json"], lists, False),
        ("`iotrial report --html`, first", html, reports, True),
        ("`iotrial report --html`, again", html, reports, False),
        ("`iotrial report --json`, first", ["report", "last", "--json"], reports, True),
        ("`iotrial report --json`, again", ["report", "last", "--json"], reports, False),
    ):
        found: dict[int, list[tuple[float, int]]] = {count: [] for count in stores}
        for _ in range(repetitions):
            for count, store in stores.items():
                if anew:
                    cache_path(store).unlink(missing_ok=True)
                found[count].append(_run(words, store))
        unit = f"trials of {RUNS_EACH:,} runs" if stores is lists else "runs"
        for count, times in found.items():
            took = [seconds for seconds, _ in times]
            most = max(kib for _, kib in times) / 1024
            spread = " | ".join(f"{f(took):.2f} s" for f in (statistics.median, min, max))
            print(f"| {title} | {count:,} {unit} | {spread} | {most:.0f} MB | {repetitions} |", flush=True)
    for count, store in lists.items():
        for title, took in _pages(store, repetitions).items():
            spread = " | ".join(f"{f(took):.3f} s" for f in (statistics.median, min, max))
            print(
                f"| `serve`: {title} | {count:,} trials of {RUNS_EACH:,} runs | {spread} | – | {len(took)} |",
                flush=True,
            )


def _pages(store: Path, repetitions: int) -> dict[str, list[float]]:
    """Return the seconds per page, once everything on it is cached."""
    server = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        env=_environment(store),
    )
    assert server.stdout
    try:
        address = json.loads(server.stdout.readline())["serve"]["address"].rstrip("/")
        pages = {
            "list": "/",
            "search": "/?study=permissions",
            "report": "/trials/1",
            "comparison": "/compare?trials=1,2",
        }
        found: dict[str, list[float]] = {title: [] for title in pages}
        for path in pages.values():
            _fetched(address + path, within_s=120)
        for _ in range(10 * repetitions):
            for title, path in pages.items():
                found[title].append(_fetched(address + path, within_s=120))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    return found


def _fetched(url: str, *, within_s: float) -> float:
    """Return the seconds of the complete answer: until then the page says that it is being made, and reloads."""
    until = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        with urllib.request.urlopen(url) as answer:
            page = answer.read()
            whole = answer.status == 200 and b'http-equiv="refresh"' not in page
        took = time.monotonic() - began
        if whole:
            return took
        assert time.monotonic() < until, url
        time.sleep(0.5)


# Measure from a small process: a child's peak memory starts with what its parent had when it forked.
_WATCHED = """
import os, sys, time
began = time.monotonic()
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
print(time.monotonic() - began, used.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


def _run(words: list[str], store: Path) -> tuple[float, int]:
    """Return seconds and peak memory in KiB."""
    output = subprocess.run(
        [sys.executable, "-S", "-c", _WATCHED, sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        check=True,
        text=True,
        env=_environment(store),
    ).stdout.split()
    assert int(output[2]) in (0, 3), words  # a synthetic trial may fail its controls
    return float(output[0]), int(output[1])


def _environment(store: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "IOTRIAL_STORE": str(store)}


def _real() -> TrialData:
    with open_packed(REAL) as file, Store.in_memory() as store:
        return store.data(store.unpack(read_packed(file, "it"), source="it").number)


def _store(path: Path, real: TrialData, runs: list[int]) -> Path:
    """Return a store with trials of at least these numbers of runs; make it if it does not exist."""
    if path.exists():
        return path
    making = path.with_suffix(".making")
    making.unlink(missing_ok=True)
    Store.open(making).close()
    connection = sqlite3.connect(making, isolation_level=None)
    checksums.prepare(connection)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    draw = random.Random(len(runs))
    for index, count in enumerate(runs):
        _add(connection, real, index, count, draw)
    connection.execute("COMMIT")
    connection.close()
    making.rename(path)
    return path


def _add(
    connection: sqlite3.Connection, real: TrialData, index: int, count: int, draw: random.Random
) -> None:
    header = real.trial.header
    began = datetime.fromisoformat(header.started) + timedelta(hours=index)
    own = replace(
        header,
        id=uuid.UUID(int=draw.getrandbits(128)).hex,
        seed=f"{draw.getrandbits(128):032x}",
        started=began.isoformat(),
    )
    number = checksums.insert_trial(connection, own)
    at = began.timestamp()
    connection.execute(
        checksums.INSERT_STATE,
        sealed("state", own.id, number, (at, TrialState.RUNNING.value, None, None, None)),
    )
    done = 0
    for runs, end in _planned(Plan(own.study, own.seed), real.runs, draw):
        for run in runs:
            placed = replace(run, started_s=done * 0.05)
            row = (1, at + placed.started_s, *records.run_row(placed))
            connection.execute(checksums.INSERT_RUN, sealed("run", own.id, number, row))
            done += 1
        connection.execute(checksums.INSERT_END, sealed("block_end", own.id, number, records.end_row(end)))
        if done >= count:
            break
    ended = at + done * 0.05
    connection.execute(
        checksums.INSERT_STATE,
        sealed("state", own.id, number, (ended, TrialState.DONE.value, None, None, None)),
    )


def _planned(
    plan: Plan, real: tuple[RunRecord, ...], draw: random.Random
) -> Iterator[tuple[list[RunRecord], BlockEnd]]:
    """Yield the blocks of the plan, endlessly."""
    like: dict[tuple[str, str], list[RunRecord]] = {}
    for run in real:
        if run.failure is None and "void" not in run.checks:
            like.setdefault((run.condition, run.arm), []).append(run)
    index = 0
    while True:
        for condition in plan.conditions:
            block = plan.block(condition, index)
            runs = [
                replace(
                    draw.choice(like[condition.key, planned.arm.name]),
                    block=index,
                    slot=planned.slot,
                    treatment=dict(planned.arm.treatment),
                    files=planned.files,
                )
                for planned in block.runs
            ]
            yield runs, BlockEnd(condition.key, index, index, controls=block.controls)
        index += 1


if __name__ == "__main__":
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    if len(sys.argv) > 2:
        Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        main(repetitions, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            main(repetitions, Path(folder))
