"""`iotrial try` compared with hyperfine: from typing to a right answer, on the same command with the same budget.

    python benchmarks/try_hyperfine.py                        # a quarter of an hour, alone on the machine
    python benchmarks/try_hyperfine.py --trials 1 --budget 2  # only try whether it runs
    python benchmarks/try_hyperfine.py --write BENCHMARKS.md  # and write the table between its marks

dd reads the beginning of one cached file; the second command reads 0, 2, 5 or 10 % more of it. (Two files would not do:
copies of one file in the page cache differ by 1 % and more.) iotrial decides with a margin of 1 % and may stop as soon as it
knows. hyperfine makes as many runs as fit into the same budget, all of A, then all of B; Welch's test at .05 on its numbers
(as its own welch_ttest.py does) says whether they differ. Which program comes first is drawn for each trial.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import math
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "truth"))
from iotrial.stats.student import two_sided
from marked import put

PLANTED = (0.0, 0.02, 0.05, 0.10)
ALPHA = 0.05
SLOWER = ("slower", "probably_slower")
FASTER = ("faster", "probably_faster")


@dataclass(frozen=True, slots=True)
class Answer:
    """One program's answer after ``seconds``: "slower", "faster", "same" (equivalent) or "open"; ``overhead_s`` per run."""

    program: str
    planted: float
    said: str
    seconds: float
    runs: int
    overhead_s: float


def main() -> None:
    """Run all trials in random order, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=12, help="of each program and difference")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of measuring")
    parser.add_argument("--write", type=Path, help="file with the marks <!-- try --> and <!-- end -->")
    given = parser.parse_args()
    answers = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        count, one_run_s = files(folder)
        cells = [(d, n) for d in PLANTED for n in range(given.trials)]
        random.shuffle(cells)
        for planted, _ in cells:
            for ask in random.sample((iotrial, hyperfine), 2):
                answers.append(ask(folder, (count, planted), given.budget, one_run_s))
                print(answers[-1], file=sys.stderr, flush=True)
    text = table(answers, given.budget, one_run_s)
    print(text)
    if given.write:
        put(given.write, "try", text)


def files(folder: Path) -> tuple[int, float]:
    """Make the file; return how many pieces of it take about 50 ms, and the seconds that they take."""
    (folder / "a").write_bytes(os.urandom(1 << 20) * 768)
    os.sync()  # or the disk writes it during the first trials
    count = 64
    while True:
        seconds = statistics.median(timed(shlex.split(command(folder / "a", count))) for _ in range(9))
        if seconds > 0.05 or count > 10_000:
            return count, seconds
        count = round(count * 1.3)


def command(file: Path, count: int | str) -> str:
    """Return the command that reads ``count`` pieces of a file."""
    return f"dd if={file} of=/dev/null bs=64k status=none count={count}"


def counts(count: int, planted: float) -> tuple[str, str]:
    """Return the two counts as words; the second has a zero in front, so that equal ones are two levels."""
    return str(count), f"0{round(count * (1 + planted))}"


def timed(argv: Sequence[str]) -> float:
    """Return the seconds that a command takes."""
    began = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def iotrial(folder: Path, cell: tuple[int, float], budget_s: float, _: float) -> Answer:
    """Ask ``iotrial try``."""
    count, planted = cell
    argv = [
        sys.executable, "-m", "iotrial", "try", "-L", "count", ",".join(counts(count, planted)), "--time", f"{budget_s} s",
        "--margin", "1 %", "--json", "--", *shlex.split(command(Path("a"), "{count}")),
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=folder)
    seconds = time.monotonic() - began
    report = json.loads(done.stdout)
    (effect,) = [one for one in report["effects"] if one["primary"]]
    exported = subprocess.run(
        [sys.executable, "-m", "iotrial", "export", "last", "-", "--as", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [row for row in csv.DictReader(io.StringIO(exported.stdout)) if row["response"] == "wall"]
    times = sorted((float(row["started_s"]), float(row["value"])) for row in rows)
    gaps = [later[0] - began_s - wall_s for (began_s, wall_s), later in itertools.pairwise(times)]
    words = {**dict.fromkeys(SLOWER, "slower"), **dict.fromkeys(FASTER, "faster"), "equivalent": "same"}
    said = words.get(effect["verdict"], "open")
    return Answer("iotrial try", planted, said, seconds, len(times), statistics.median(gaps))


def hyperfine(folder: Path, cell: tuple[int, float], budget_s: float, one_run_s: float) -> Answer:
    """Ask hyperfine, and Welch's test on its numbers."""
    count, planted = cell
    runs = max(3, round(budget_s / 2 / one_run_s))
    found = folder / "hyperfine.json"
    argv = [
        "hyperfine", "-N", "--warmup", "1", "--runs", str(runs), "--export-json", str(found), "--style", "none",
        *(command(Path("a"), one) for one in counts(count, planted)),
    ]  # fmt: skip
    began = time.monotonic()
    subprocess.run(argv, check=True, cwd=folder, capture_output=True)
    seconds = time.monotonic() - began
    a, b = (one["times"] for one in json.loads(found.read_text())["results"])
    slower = statistics.fmean(b) > statistics.fmean(a)
    said = ("slower" if slower else "faster") if welch(a, b) < ALPHA else "open"
    overhead = (seconds - math.fsum(a) - math.fsum(b)) / (len(a) + len(b))
    return Answer("hyperfine, Welch's test", planted, said, seconds, len(a) + len(b), overhead)


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the p value of Welch's test."""
    u, v = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    t = (statistics.fmean(a) - statistics.fmean(b)) / math.sqrt(u + v)
    freedom = (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1))
    return two_sided(abs(t), freedom)


def table(answers: Sequence[Answer], budget_s: float, one_run_s: float) -> str:
    """Return the answers as a Markdown table, one row for each program and difference."""
    lines = [
        f"`dd` of {one_run_s * 1e3:.0f} ms, budget {budget_s:g} s, {len(answers) // (2 * len(PLANTED))} trials a row; "
        f"{machine()}.",
        "",
        "| planted | program | slower | faster | same | open | seconds, median (10 to 90 %) | overhead per run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for planted in PLANTED:
        for program in sorted({one.program for one in answers}, reverse=True):
            mine = [one for one in answers if (one.planted, one.program) == (planted, program)]
            counts = [
                str(sum(one.said == word for one in mine)) for word in ("slower", "faster", "same", "open")
            ]
            seconds = sorted(one.seconds for one in mine)
            low, high = seconds[len(seconds) // 10], seconds[-1 - len(seconds) // 10]
            cells = [
                f"{planted:.0%}", program.replace(", Welch's test", ""), *counts,
                f"{statistics.median(seconds):.1f} ({low:.1f} to {high:.1f})",
                f"{statistics.median(one.overhead_s for one in mine) * 1e3:.1f} ms",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> str:
    """Return machine and versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "a processor",
    )
    version = subprocess.run(
        ["hyperfine", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (
        f"{os.cpu_count()} x {model}, Linux {platform.release()}, {version}, Python {platform.python_version()}, "
        f"{datetime.now(UTC).date()}"
    )


if __name__ == "__main__":
    main()
