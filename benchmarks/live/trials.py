"""`iotrial live` on a loaded database: false alarms, planted effects, time from harm to revert, processor time.

    python benchmarks/live/trials.py --minutes 240            # as root, alone on the machine
    python benchmarks/live/trials.py --minutes 8 --window 3   # only try whether it runs
    python benchmarks/live/trials.py --write BENCHMARKS.md    # and write the table between its marks

Rows, in turn until the time is over:

- A/A: `vm.stat_interval` of 1 or 2 s, which does nothing to the database, looked at after every pair. Any verdict other than
  "equivalent" or "undecided" is a false alarm.
- planted: read-ahead of 0 under the scanning load. Its true size is the ratio of the means of long stretches with each
  setting, measured without iotrial before and after the trials.
- hard guard, relative guard: the same with `mean > LIMIT` and `mean worse by 20 %`. The time to revert goes from when the
  kernel first has the harmful setting (seen in sysfs, 50 times a second) to when it has today's for good.
- killed: SIGKILL in a harmful window; the same time, from the signal.
- cost: processor time of all of iotrial's processes while windows are measured, in percent of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "truth"))
from service import EXPORTER_PORT, Running, database

from marked import put

TODAY, HARM = "128", "0"
CALM = frozenset({"equivalent", "equivalent_detectable", "undecided"})
TICK_S = 0.02
START_S, END_S = 5.0, 5.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Found:
    """What the trials showed."""

    aa: list[str] = field(default_factory=list)
    planted: list[tuple[str, float, float, float]] = field(default_factory=list)
    reverted_s: dict[str, list[float]] = field(default_factory=dict)
    blocks: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0


def main() -> None:
    """Run trials in turn until the time is over, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--window", type=float, default=5.0, help="seconds; the washout is 40 % of it")
    parser.add_argument("--pairs", type=int, default=30, help="of a trial")
    parser.add_argument("--rate", type=int, default=100, help="transactions a second")
    parser.add_argument("--write", type=Path, help="file with the marks <!-- live --> and <!-- end -->")
    given = parser.parse_args()
    found = Found()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="iotrial-live-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        with database(folder, rate=given.rate) as running:
            (running.queue / "read_ahead_kb").write_text(TODAY)
            truth = [true_ratio(running, given.window)]
            end = time.monotonic() + 60.0 * given.minutes
            while True:
                for turn in (aa, planted, hard, relative, killed):
                    turn(running, given, found, truth[0])
                    print(turn.__name__, found, file=sys.stderr, flush=True)
                if time.monotonic() > end:
                    break
            truth.append(true_ratio(running, given.window))
    text = table(found, truth, given)
    print(text)
    if given.write:
        put(given.write, "live", text)


def mean_s() -> tuple[float, float]:
    """Return the sum and the count of the exporter's histogram."""
    with urllib.request.urlopen(f"http://127.0.0.1:{EXPORTER_PORT}/metrics", timeout=5) as answer:
        lines = dict(
            line.split(" ")
            for line in answer.read().decode().splitlines()
            if "_bucket" not in line and "#" not in line
        )
    return float(lines["pgbench_seconds_sum"]), float(lines["pgbench_seconds_count"])


def true_ratio(running: Running, window_s: float) -> float:
    """Return the ratio of mean transaction times at both settings, from eight long stretches in the order ABBABAAB."""
    means: dict[str, list[float]] = {TODAY: [], HARM: []}
    for value in (TODAY, HARM, HARM, TODAY, HARM, TODAY, TODAY, HARM):
        (running.queue / "read_ahead_kb").write_text(value)
        time.sleep(window_s)
        before = mean_s()
        time.sleep(4 * window_s)
        after = mean_s()
        means[value].append((after[0] - before[0]) / (after[1] - before[1]))
    (running.queue / "read_ahead_kb").write_text(TODAY)
    return statistics.fmean(means[HARM]) / statistics.fmean(means[TODAY])


def words(running: Running, given: argparse.Namespace, setting: str, *more: str) -> list[str]:
    """Return the command of a trial."""
    metrics = [word for one in (running.mean, running.p99, running.rate) for word in ("--metric", one)]
    return [
        sys.executable, "-m", "iotrial", "live", setting, *metrics, "--in", str(running.folder),
        "--window", f"{given.window:g} s", "--washout", f"{0.4 * given.window:g} s",
        "--yes", "--blocks", str(given.pairs), "--time", "12 h", "--json", *more,
    ]  # fmt: skip


def trial(
    running: Running, given: argparse.Namespace, found: Found, setting: str, *more: str
) -> dict[str, object]:
    """Run a trial to its end, and add what it cost."""
    began = time.monotonic()
    process = subprocess.Popen(words(running, given, setting, *more), stdout=subprocess.PIPE, text=True)
    samples: list[tuple[float, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            samples.append((time.monotonic(), sum(cpu_of(process.pid).values())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    ended.set()
    watcher.join()
    # without the start of Python and the report at the end, which a trial of hours has once
    steady = [one for one in samples if began + START_S < one[0] < samples[-1][0] - END_S]
    if len(steady) > 1:
        found.cpu_s += steady[-1][1] - steady[0][1]
        found.wall_s += steady[-1][0] - steady[0][0]
    report: dict[str, Any] = json.loads(out)
    return report


def cpu_of(pid: int) -> dict[int, float]:
    """Return the processor time of a process, of its descendants and of watchdogs, in seconds by process."""
    found: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            rest = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        own = int(entry.name)
        if own == pid or int(rest[1]) in found or int(rest[1]) == pid or b"iotrial.live.watchdog" in command:
            found[own] = (int(rest[11]) + int(rest[12])) / CLOCK_TICKS
    return found


def conclusions(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the judged effects."""
    return [one for one in report["effects"] if one["primary"]]


def aa(running: Running, given: argparse.Namespace, found: Found, truth: float) -> None:  # noqa: ARG001
    (effect,) = conclusions(trial(running, given, found, "vm.stat_interval=1,2", "--no-stop"))
    found.aa.append(str(effect["conclusion"]))


def planted(running: Running, given: argparse.Namespace, found: Found, truth: float) -> None:  # noqa: ARG001
    setting = f"block.read_ahead_kb={TODAY},{HARM}"
    (effect,) = conclusions(trial(running, given, found, setting, "--precise"))
    low, high = float(effect["low"] or 0.0), float(effect["high"] or "inf")
    found.planted.append((str(effect["conclusion"]), float(effect["ratio"]), low, high))
    found.blocks.append(int(effect["blocks"]))


class Harm(threading.Thread):
    """Watches the setting in the kernel: since when it was harmful, and for how long in all until it is well for good."""

    def __init__(self, running: Running) -> None:
        super().__init__(daemon=True)
        self._running = running
        self.spells: list[tuple[float, float]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        since: float | None = None
        while not self.ended.wait(TICK_S):
            now, harmful = time.monotonic(), self._running.read_ahead() == HARM
            if harmful and since is None:
                since = now
            elif not harmful and since is not None:
                self.spells.append((since, now))
                since = None


def hard(running: Running, given: argparse.Namespace, found: Found, truth: float) -> None:
    """A limit halfway between the two settings' means: how long does one harmful window last?"""
    sums = mean_s()
    time.sleep(10)
    later = mean_s()
    limit = (later[0] - sums[0]) / (later[1] - sums[1]) * (1.0 + truth) / 2.0
    _guarded("hard guard", running, given, found, f"mean > {limit:.6f} s")


def relative(running: Running, given: argparse.Namespace, found: Found, truth: float) -> None:  # noqa: ARG001
    _guarded("relative guard", running, given, found, "mean worse by 20 %")


def _guarded(name: str, running: Running, given: argparse.Namespace, found: Found, guard: str) -> None:
    harm = Harm(running)
    harm.start()
    trial(running, given, found, f"block.read_ahead_kb={TODAY},{HARM}", "--no-stop", "--guard", guard)
    harm.ended.set()
    harm.join()
    assert running.read_ahead() == TODAY
    if harm.spells:
        first, last = harm.spells[0][0], harm.spells[-1][1]
        found.reverted_s.setdefault(name, []).append(last - first)


def killed(running: Running, given: argparse.Namespace, found: Found, truth: float) -> None:  # noqa: ARG001
    setting = f"block.read_ahead_kb={TODAY},{HARM}"
    process = subprocess.Popen(words(running, given, setting, "--no-stop"), stdout=subprocess.DEVNULL)
    while running.read_ahead() != HARM:
        time.sleep(TICK_S)
    time.sleep(given.window / 2)
    began = time.monotonic()
    process.send_signal(signal.SIGKILL)
    while running.read_ahead() == HARM:
        time.sleep(TICK_S)
    found.reverted_s.setdefault("killed", []).append(time.monotonic() - began)
    process.wait()
    time.sleep(3)


def table(found: Found, truth: Sequence[float], given: argparse.Namespace) -> str:
    """Return the results as Markdown."""
    alarms = [one for one in found.aa if one not in CALM]
    size = statistics.fmean(truth)
    covered = sum(low <= size <= high for _, _, low, high in found.planted)
    seen = sum(said in ("slower", "probably_slower") for said, *_ in found.planted)
    rows = [
        ("A/A, a look after every pair", f"{len(alarms)} false alarms in {len(found.aa)} trials"),
        ("read-ahead 0, found", f"{seen} of {len(found.planted)}, after {_spread(found.blocks)} pairs"),
        (
            "... and its size covered",
            f"{covered} of {len(found.planted)} (true ratio {' and '.join(f'{t:.2f}' for t in truth)})",
        ),
        *((f"{name}: harm to revert", f"{_spread(times)} s") for name, times in found.reverted_s.items()),
        (
            "processor time of iotrial",
            f"{100 * found.cpu_s / found.wall_s:.2f} % of one core over {found.wall_s / 60:.0f} min",
        ),
    ]
    head = (
        f"Windows of {given.window:g} s, washout {0.4 * given.window:g} s, {given.pairs} pairs a trial; PostgreSQL under "
        f"pgbench ({given.rate} scans a second) on ext4 on a loop device; Linux {platform.release()}, "
        f"{os.cpu_count()} processors."
    )
    return "\n".join([head, "", "| what | result |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)])


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return (
        f"{statistics.median(values):.1f} (median of {len(values)}; {min(values):.1f} to {max(values):.1f})"
    )


main()
