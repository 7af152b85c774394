"""How much slower a recorded application is: `python benchmarks/replay/record_cost.py`, as root.

Prints a table for BENCHMARKS.md. Three applications run bare, under `ioprobe record`, `strace -f` and `perf trace`. A block
has each once, in an order drawn for the block. Time and processor time are the application's own, taken by the shell that
starts it, so that neither the start of the recorder counts nor what it does on another processor. Ratios to the bare run are
geometric means over the blocks, with a 95 % interval by Student's t on the logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t as student

from iotrial.probe.binary import find_binary

FILES = 10_000
BARE = "bare"
#: writes start and end of its arguments, and the shell's processor times, to the file in $TIMES
TIMED = 'a=$EPOCHREALTIME; "$@" >/dev/null 2>&1; b=$EPOCHREALTIME; { echo "$a $b"; times; } >"$TIMES"'
COMMITS = """
import sqlite3
with sqlite3.connect("db", isolation_level=None) as db:
    db.execute("create table if not exists t (a integer, b text)")
    for number in range(100):
        db.execute("insert into t values (?, ?)", (number, "x" * 100))
"""
READS = """
import os, mmap
page = mmap.mmap(-1, 4096)
fd = os.open("large", os.O_RDONLY | os.O_DIRECT)
for number in range(5_000):
    os.preadv(fd, [page], number * 7919 % 16384 * 4096)
"""


def applications(python: str) -> dict[str, list[str]]:
    return {
        "100 commits of SQLite": [python, "-I", "-S", "-c", COMMITS],
        "5,000 random reads of 4 KiB, O_DIRECT": [python, "-I", "-S", "-c", READS],
        f"grep -r over {FILES:,} warm files": ["grep", "-r", "nowhere", "files"],
    }


def prepare(folder: Path) -> None:
    files = folder / "files"
    for number in range(FILES):
        place = files / f"{number // 100:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number % 100:03}").write_bytes(b"a line of text, as they are\n" * 70)
    with (folder / "large").open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    os.sync()


def ways(folder: Path) -> dict[str, list[str]]:
    """Return what stands before the command, by name."""
    trace = str(folder / "trace")
    report = str(folder / "report")
    found = {
        BARE: [],
        "iotrial record": [
            str(find_binary()),
            "record",
            "--output",
            trace,
            "--under",
            str(folder / "work"),
            "--",
        ],
    }
    if shutil.which("strace"):
        found["strace -f"] = ["strace", "-f", "-o", report]
    if shutil.which("perf"):
        found["perf trace"] = ["perf", "trace", "-o", report]
    return found


@dataclass(frozen=True)
class Run:
    """One run of an application, in seconds, and how many events the recorder lost."""

    wall_s: float
    processor_s: float
    lost: int


def run(way: list[str], command: list[str], folder: Path) -> Run:
    times = folder / "times"
    times.unlink(missing_ok=True)
    shell = ["bash", "-c", TIMED, "bash", *command]
    environment = {**os.environ, "TIMES": str(times)}
    done = subprocess.run(
        [*way, *shell], cwd=folder / "work", env=environment, capture_output=True, text=True, check=False
    )
    if not times.exists():
        raise SystemExit(f"{way}: {done.stderr[-500:]}")
    # start and end; user and system time of the shell; those of its children
    span, _, children = times.read_text().splitlines()
    start, end = map(float, span.split())
    parts = [re.fullmatch(r"(\d+)m([\d.]+)s", word) for word in children.split()]
    processor = sum(60 * int(part[1]) + float(part[2]) for part in parts if part)
    lost = json.loads(done.stderr.splitlines()[-1])["ok"]["lost"] if "record" in way else 0
    return Run(end - start, processor, lost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--on", default="/var/tmp", help="folder for the files (default /var/tmp)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("run it as root")
    draw = random.Random(asked.seed)
    folder = Path(tempfile.mkdtemp(prefix="record-cost-", dir=asked.on))
    try:
        work = folder / "work"
        work.mkdir()
        prepare(work)
        print("| application | way | n | median | times as long | processor time | lost |")
        print("| --- | --- | --: | --: | --: | --: | --: |", flush=True)
        for name, command in applications(sys.executable).items():
            measure(name, command, ways(folder), folder, asked.blocks, draw)
    finally:
        shutil.rmtree(folder)


def measure(
    name: str, command: list[str], among: dict[str, list[str]], folder: Path, blocks: int, draw: random.Random
) -> None:
    found: dict[str, list[Run]] = {way: [] for way in among}
    run([], command, folder)  # warm
    for _ in range(blocks):
        for way in draw.sample(list(among), len(among)):
            (folder / "work" / "db").unlink(missing_ok=True)
            found[way].append(run(among[way], command, folder))
    bare = found[BARE]
    for way, runs in found.items():
        median = f"{statistics.median(one.wall_s for one in runs) * 1000:.0f} ms"
        wall = ratio([one.wall_s for one in runs], [one.wall_s for one in bare])
        processor = ratio([one.processor_s for one in runs], [one.processor_s for one in bare])
        lost = str(sum(one.lost for one in runs)) if way == "iotrial record" else ""
        print(f"| {name} | {way} | {blocks} | {median} | {wall} | {processor} | {lost} |", flush=True)


def ratio(times: list[float], bare: list[float]) -> str:
    if times == bare:
        return "1"
    logs = [math.log(one / other) for one, other in zip(times, bare, strict=True)]
    mean = statistics.fmean(logs)
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"{math.exp(mean):.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
