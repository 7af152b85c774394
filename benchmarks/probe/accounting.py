"""Cost of the accounting around a run: the same job with and without it, in pairs of random order, in one process.

    python benchmarks/probe/accounting.py                          prints the tables
    python benchmarks/probe/accounting.py --write BENCHMARKS.md    and puts them where "accounting" is marked

A request takes longer because the counters are read before and after the timed part. The timed part itself could
only take longer because of what the reading leaves in the processor's caches: the ratio shows whether it does.
Sampling is measured with runs of some tenths of a second. The lab's device is the disk under /var/tmp. Takes half a
minute; as root it sees the same counters as a trial.
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

from comparison import machine, options, parsed_arguments, spelled, tell
from iotrial.probe.client import Probe

FOLDER = "/var/tmp"
READING = ["open", "read", "read", "close"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds of the timed part and of the whole request, with and without accounting."""

    work: tuple[float, float]
    request: tuple[float, float]


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, "accounting", pairs=(1500, 60, "pairs of the shortest work"))
    parser.add_argument("--seed", type=int, default=1, help="of the order in each pair")
    arguments = parsed_arguments(parser)
    tell("\n".join(lines(arguments.pairs, random.Random(arguments.seed))), "accounting", arguments.write)


def lines(pairs: int, draw: random.Random) -> Iterator[str]:
    """Yield the lines of the Markdown table, and its provenance."""
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
                )  # opening all files leaves a different state behind than reading them

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
    """Yield what is timed, the number of pairs, and the job."""
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
    """Run the job with and without accounting, in pairs of random order. One run of each before the first is discarded."""
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
    """Format a table line: medians over pairs, with their intervals."""
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
    """Return the disk or partition of a folder, by its name in /sys/class/block."""
    number = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name


if __name__ == "__main__":
    main()
