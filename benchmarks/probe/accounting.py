"""What the accounting around a run costs: the same job with and without it, in pairs of shuffled order, in one process.

    python benchmarks/probe/accounting.py                          prints the tables
    python benchmarks/probe/accounting.py --write BENCHMARKS.md    and puts them where "accounting" is marked

A request is longer by the reading of the counters before and after the timed part. Of the timed part itself only what the
reading leaves behind in the processor's caches could be longer: the ratio says whether it is. Sampling is measured beside
runs of some tenths of a second. The lab's device is the disk under /var/tmp. Half a minute; root sees what a trial sees.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from comparison import asked, machine, options, spelled, tell
from iotrial.probe.client import Probe

FOLDER = "/var/tmp"
READING = ["open", "read", "read", "close"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds of the timed part and of the whole request, with and without."""

    work: tuple[float, float]
    request: tuple[float, float]


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, "accounting", pairs=(1500, 60, "pairs of the shortest work"))
    parser.add_argument("--seed", type=int, default=1, help="of the order in each pair")
    given = asked(parser)
    tell("\n".join(lines(given.pairs, random.Random(given.seed))), "accounting", given.write)


def lines(pairs: int, draw: random.Random) -> Iterator[str]:
    """The table in Markdown, and where it comes from."""
    yield (
        "| what | the work takes | longer request, median | 95 % | ratio of the work's time | 95 % | pairs |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, Probe(isolate=False) as probe:
        device = device_of(Path(folder))
        probe.call("fileset", set="s", dir=f"{folder}/s", count=2000, size=100, seed=1, content="text")
        for name, count, fields in works(pairs):
            job = {"set": "s", "operations": READING, "devices": [device], **fields}

            def switch(on: bool, job: dict[str, Any] = job) -> None:
                probe.call("around", on=on)
                probe.call(
                    "files", **job
                )  # what opening all files has left behind is not what reading them does

            yield row(name, paired(probe, job, count, switch, draw))
        with Probe(isolate=False) as beside:
            for period_ms in (100, 10):
                job = {"set": "s", "operations": READING, "devices": [device], "replicates": 25}

                def sample(on: bool, period_ms: int = period_ms) -> None:
                    if on:
                        beside.call("sample_start", devices=[device], period_ms=period_ms)

                name = f"a sample every {period_ms} ms"
                found = paired(
                    probe,
                    job,
                    max(8, pairs // 60),
                    sample,
                    draw,
                    after=lambda on: beside.call("sample_stop") if on else None,
                )
                yield row(name, found)
    yield ""
    yield (
        f"<sub>{datetime.now(UTC):%Y-%m-%d}, {machine()}, "
        f"{'root' if os.geteuid() == 0 else 'no privilege'}: device, page cache, pressure, own reads and writes"
        f"{', dirty inodes' if os.geteuid() == 0 else ''}</sub>"
    )


def works(pairs: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """What is timed, how many pairs, and how it is asked for."""
    yield "counters around `stat` of a file", pairs, {"files": [0], "operations": ["stat"]}
    yield "counters around reading 20 files", pairs, {"files": list(range(20))}
    yield "counters around reading 2,000 files", max(20, pairs // 10), {}


def paired(
    probe: Probe,
    job: dict[str, Any],
    count: int,
    switch: Callable[[bool], None],
    draw: random.Random,
    after: Callable[[bool], object] | None = None,
) -> list[Pair]:
    """Each pair is the job with and without, in an order drawn by a coin; one of either before the first, for nothing."""
    found = []
    for number in range(count + 1):
        times: dict[bool, tuple[float, float]] = {}
        for on in draw.sample((True, False), 2):
            switch(on)
            start = time.perf_counter()
            answer = probe.call("files", **job)
            took = time.perf_counter() - start
            if after is not None:
                after(on)
            times[on] = answer["wall_ns"] / 1e9, took
        if number:
            found.append(Pair((times[True][0], times[False][0]), (times[True][1], times[False][1])))
    return found


def row(name: str, pairs: list[Pair]) -> str:
    """One line: medians over pairs, with their intervals."""
    longer = [pair.request[0] - pair.request[1] for pair in pairs]
    ratios = [math.log(pair.work[0] / pair.work[1]) for pair in pairs]
    takes = statistics.median(pair.work[1] for pair in pairs)
    more, between = spelled(longer, ".0f", lambda seconds: 1e6 * seconds)
    ratio, within = spelled(ratios, ".4f", math.exp)
    return f"| {name} | {duration(takes)} | {more} µs | {between} µs | {ratio} | {within} | {len(pairs)} |"


def duration(seconds: float) -> str:
    unit, factor = next(
        (u, f) for u, f in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)) if seconds * f >= 1 or u == "µs"
    )
    return f"{seconds * factor:.3g} {unit}"


def device_of(folder: Path) -> str:
    """The disk or partition that a folder lies on, as in /sys/class/block."""
    number = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name


if __name__ == "__main__":
    main()
