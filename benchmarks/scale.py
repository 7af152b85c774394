"""How what people look at grows: a list of so many trials, a report of so many runs, in seconds and in memory.

    python benchmarks/scale.py [REPETITIONS [FOLDER]]     # FOLDER keeps the stores (3 GB) for the next time

Stores are made of one real trial of the catalogue: every trial has its study, a plan of its own, and for each planned run
what one of the real runs of the same arm and condition was (responses, evidence, histograms, checks). So rows are as wide as
real ones. Each figure is of processes of their own, started one after the other, sizes in turn.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from iotrial.design.plan import Plan
from iotrial.store import Store, exchange, records
from iotrial.store.model import BlockEnd, RunRecord, TrialData, TrialState
from iotrial.store.packed import open_packed, read_packed

REAL = Path(__file__).parents[1] / "docs" / "catalogue" / "files" / "permissions.iotrial"
#: runs of each trial of a list, how many trials; and runs of the trials that are reported
RUNS_EACH, TRIALS = 1000, (10, 100, 1000)
RUNS = (1_000, 10_000, 100_000)


def main(repetitions: int, folder: Path) -> None:
    """Print two tables in Markdown."""
    real = _real()
    lists = {count: _store(folder / f"trials-{count}.db", real, [RUNS_EACH] * count) for count in TRIALS}
    reports = {count: _store(folder / f"runs-{count}.db", real, [count]) for count in RUNS}
    print(
        "| what | of | median | from | to | memory at most | n |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for title, words, stores in (
        ("`iotrial trials`", ["trials"], lists),
        ("`iotrial trials --json`", ["trials", "--json"], lists),
        ("`iotrial report --html`", ["report", "last", "--html", str(folder / "report.html")], reports),
        ("`iotrial report --json`", ["report", "last", "--json"], reports),
    ):
        found: dict[int, list[tuple[float, int]]] = {count: [] for count in stores}
        for _ in range(repetitions):
            for count, store in stores.items():
                found[count].append(_run(words, store))
        unit = f"trials of {RUNS_EACH:,} runs" if stores is lists else "runs"
        for count, times in found.items():
            took = [seconds for seconds, _ in times]
            most = max(kib for _, kib in times) / 1024
            spread = " | ".join(f"{f(took):.2f} s" for f in (statistics.median, min, max))
            print(f"| {title} | {count:,} {unit} | {spread} | {most:.0f} MB | {repetitions} |", flush=True)


def _run(words: list[str], store: Path) -> tuple[float, int]:
    """Seconds, and the most memory that it held, in KiB."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "iotrial", *words],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "IOTRIAL_STORE": str(store)},
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 3), words  # a made-up trial may fail its controls
    return took, used.ru_maxrss


def _real() -> TrialData:
    with open_packed(REAL) as file, Store.in_memory() as store:
        return store.data(store.unpack(read_packed(file, "it"), source="it").number)


def _store(path: Path, real: TrialData, runs: list[int]) -> Path:
    """A store of trials with at least so many runs each; made where it is not there."""
    if path.exists():
        return path
    making = path.with_suffix(".making")
    making.unlink(missing_ok=True)
    Store.open(making).close()
    connection = sqlite3.connect(making, isolation_level=None)
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
    number = exchange.insert_trial(connection, own)
    at = began.timestamp()
    connection.execute(exchange.INSERT_STATE, (number, at, TrialState.RUNNING.value, None, None, None))
    done = 0
    for runs, end in _planned(Plan(own.study, own.seed), real.runs, draw):
        for run in runs:
            placed = replace(run, started_s=done * 0.05)
            row = (number, 1, at + placed.started_s, *records.run_row(placed))
            connection.execute(exchange.INSERT_RUN, row)
            done += 1
        connection.execute(exchange.INSERT_END, (number, *records.end_row(end)))
        if done >= count:
            break
    ended = at + done * 0.05
    connection.execute(exchange.INSERT_STATE, (number, ended, TrialState.DONE.value, None, None, None))


def _planned(
    plan: Plan, real: tuple[RunRecord, ...], draw: random.Random
) -> Iterator[tuple[list[RunRecord], BlockEnd]]:
    """Blocks of the plan without end."""
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
