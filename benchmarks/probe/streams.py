"""Streams compared with the real dd, bonnie++ and hdparm: same system calls on the same disk, so rates should be equal.

Each pair does both in random order, moments apart; the ratio of the rates has an interval by the same e-process as
in trials. The originals report their own rates. Prints a Markdown table; `--write FILE` puts it into the place
marked `<!-- streams -->`. The loop device needs root; hdparm pauses 3 s before each reading.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison import first_line, machine, options, parsed_arguments, tell
from iotrial.probe.client import Probe
from iotrial.stats.eprocess import interval

MIB = 1 << 20
FILE_BYTES = 64 * MIB
BONNIE_BYTES = 3072 * MIB
SETTLED_S = 4.0
ALPHA = 0.05
_DD = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s", re.MULTILINE)
_HDPARM = re.compile(r"= *([0-9.]+) ([kM])B/sec")


@dataclass(frozen=True)
class Case:
    """One row: how to get the rate from the original, and from the probe."""

    name: str
    original: Callable[[], float]
    ours: Callable[[], float]
    pairs: int


def main() -> None:
    """Measure and print."""
    parser = options(
        __doc__,
        "streams",
        pairs=(150, 10, "pairs of dd and the probe, each row"),
        bonnie_pairs=(8, 1, "pairs of bonnie++ and the probe"),
        hdparm_pairs=(12, 1, "pairs of hdparm and the probe, each row"),
    )
    parser.add_argument(
        "--on", type=Path, default=Path("/var/tmp"), help="a folder on the disk to measure on"
    )
    parser.add_argument("--device", type=int, default=512, metavar="MIB", help="size of the loop device")
    parser.add_argument("--seed", type=int, default=1, help="of the order in each pair")
    arguments = parsed_arguments(parser)
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(dir=arguments.on) as folder, Probe(isolate=False) as probe:
        rows = [row(case, draw) for case in cases(probe, Path(folder), arguments)]
    tell("\n".join((*head(arguments), *rows)), "streams", arguments.write)


def cases(probe: Probe, folder: Path, arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield every row; the file or device of a group exists while its rows are measured."""
    fields = {"dir": f"{folder}/s", "count": 1, "size": FILE_BYTES, "seed": 1, "content": "zeros"}
    probe.call("fileset", set="s", **fields)
    path = f"{folder}/s/f000000"
    zeros, null = ("if=/dev/zero", f"of={path}"), (f"if={path}", "of=/dev/null")
    small, large = FILE_BYTES >> 2, FILE_BYTES
    for name, words, more, cached in (
        ("write, buffered, 1 MiB, fsync", (*zeros, *_count(MIB, large), "conv=fsync,notrunc"),
         {"block_size": MIB, "volume": large, "flush": "fsync", "truncate": False}, None),
        ("write, direct, 64 KiB", (*zeros, *_count(65536, large), "oflag=direct", "conv=notrunc"),
         {"block_size": 65536, "volume": large, "direct": True, "truncate": False}, None),
        ("write, dsync, 64 KiB", (*zeros, *_count(65536, small >> 2), "oflag=dsync", "conv=notrunc"),
         {"block_size": 65536, "volume": small >> 2, "sync": "dsync", "truncate": False}, None),
        ("read, cached, 4 KiB", (*null, *_count(4096, large)), {"block_size": 4096, "volume": large}, True),
        ("read, cached, 512 B", (*null, *_count(512, small)), {"block_size": 512, "volume": small}, True),
        ("read, cached, 1 MiB", (*null, *_count(MIB, large)), {"block_size": MIB, "volume": large}, True),
        ("read, cold, 1 MiB", (*null, *_count(MIB, large)), {"block_size": MIB, "volume": large}, False),
        ("read, direct, 64 KiB", (*null, *_count(65536, large), "iflag=direct"),
         {"block_size": 65536, "volume": large, "direct": True}, False),
    ):  # fmt: skip
        yield _of_dd(probe, f"dd {name}", words, more, cached, arguments.pairs)
    if shutil.which("bonnie++"):
        yield _of_bonnie(probe, folder, arguments.bonnie_pairs)
    if os.geteuid() == 0 and shutil.which("hdparm"):
        yield from _of_hdparm(probe, folder, arguments)


def _count(block: int, volume: int) -> tuple[str, str]:
    return f"bs={block}", f"count={volume // block}"


def _of_dd(
    probe: Probe, name: str, words: tuple[str, ...], more: dict[str, Any], cached: bool | None, pairs: int
) -> Case:
    operation = "write" if cached is None else "read"

    def prepare() -> None:
        probe.call("warm" if cached else "evict", set="s")

    def original() -> float:
        prepare()
        said = subprocess.run(
            ["dd", *words],
            capture_output=True,
            text=True,
            check=True,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        ).stderr
        found = _DD.search(said)
        if found is None:
            raise ValueError(f"dd: wanted its rate, found {said!r}")
        return int(found[1]) / float(found[2])

    def ours() -> float:
        prepare()
        done = probe.call("stream", set="s", operation=operation, evict=False, beside=True, **more)
        return float(done["bytes_per_s"])

    return Case(name, original, ours, pairs)


def _of_bonnie(probe: Probe, folder: Path, pairs: int) -> Case:
    """Return the case of bonnie++'s block output, with fsync and close included in the time.

    Block input from the cache takes less than half a second, for which bonnie++ reports nothing.
    """
    probe.call(
        "fileset", set="large", dir=f"{folder}/large", count=1, size=BONNIE_BYTES, seed=1, content="zeros"
    )
    size = BONNIE_BYTES // MIB

    def prepare() -> None:
        # The host may have reclaimed memory that a virtual machine has had free for some seconds, which makes
        # the first write to it slower. So neither side gets the pages that the other has just freed.
        probe.call("evict", set="large")
        time.sleep(SETTLED_S)

    def original() -> float:
        prepare()
        return float(_bonnie(folder, size)[11]) * 1024

    def ours() -> float:
        prepare()
        done = probe.call(
            "stream", set="large", operation="write", truncate=True, flush="fsync", block_size=8192,
            volume=BONNIE_BYTES, evict=False, beside=True,
        )  # fmt: skip
        return float(done["bytes_per_s"])

    return Case(f"bonnie++ block output, {size} MiB", original, ours, pairs)


def _bonnie(folder: Path, size: int) -> list[str]:
    """Run bonnie++ on a file of ``size`` MiB in records of 8 KiB; return its CSV fields: version second, rates in KiB/s."""
    words = ["-q", "-f", "-n", "0", "-u", "root", "-r", str(size // 2), "-s", f"{size}:8k", "-d", str(folder)]
    return subprocess.run(["bonnie++", *words], capture_output=True, text=True, check=True).stdout.split(",")


def _of_hdparm(probe: Probe, folder: Path, arguments: argparse.Namespace) -> Iterator[Case]:
    image = probe.call("image", folder=str(folder), size=arguments.device * MIB, fill="write")["image"]
    device = str(probe.call("loop_attach", image=image, direct_io=True)["name"])
    try:
        for direct in (False, True):
            words = ["hdparm", "-t", *(["--direct"] if direct else []), f"/dev/{device}"]
            yield _hdparm_case(probe, words, device, direct=direct, pairs=arguments.hdparm_pairs)
    finally:
        probe.call("loop_detach", device=f"/dev/{device}")


def _hdparm_case(probe: Probe, words: list[str], device: str, *, direct: bool, pairs: int) -> Case:
    def original() -> float:
        probe.call("evict_device", device=f"/dev/{device}")
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = _HDPARM.search(said)
        if found is None:
            raise ValueError(f"hdparm: wanted its rate, found {said!r}")
        return float(found[1]) * (MIB if found[2] == "M" else 1024)  # it prints MB and counts 2^20 bytes

    def ours() -> float:
        probe.call("evict_device", device=f"/dev/{device}")
        done = probe.call(
            "stream", operation="read", device=device, block_size=2 * MIB, seconds=3.0, pause_s=3.0, evict=False,
            beside=True, direct=direct,
        )  # fmt: skip
        return float(done["bytes_per_s"])

    return Case(" ".join(words[:-1]), original, ours, pairs)


def row(case: Case, draw: random.Random) -> str:
    """Measure and format one row of the table."""
    rates: dict[str, list[float]] = {"original": [], "ours": []}
    for _ in range(case.pairs):
        both = [("original", case.original), ("ours", case.ours)]
        draw.shuffle(both)
        for name, measure in both:
            rates[name].append(measure())
    ratios = [math.log(ours / theirs) for ours, theirs in zip(rates["ours"], rates["original"], strict=True)]
    found = interval(ratios, ALPHA)
    cells = [f"`{case.name}`" if case.name.startswith("hdparm") else case.name]
    cells += [f"{statistics.median(rates[name]) / 1e6:,.1f}" for name in ("original", "ours")]
    cells += [
        "open" if found.estimate is None else f"{math.exp(found.estimate):.3f}",
        _ends(found.low, found.high),
    ]
    return f"| {' | '.join((*cells, str(case.pairs)))} |"


def _ends(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "none yet"
    return f"{math.exp(low):.3f} to {math.exp(high):.3f}"


def head(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the environment and the table's header."""
    versions = [first_line("dd", "--version"), first_line("hdparm", "-V")]
    if shutil.which("bonnie++"):
        with tempfile.TemporaryDirectory(dir=arguments.on) as folder:
            versions.append(f"bonnie++ {_bonnie(Path(folder), 4)[1]}")
    filesystem = subprocess.run(
        ["stat", "-f", "-c", "%T", str(arguments.on)], capture_output=True, text=True, check=True
    ).stdout.strip()
    yield (
        f"Machine: {machine()}, {filesystem}; {', '.join(filter(None, versions))}; "
        f"files of {FILE_BYTES // MIB} MiB, a loop device of {arguments.device} MiB; intervals at {1 - ALPHA:.0%}.\n"
    )
    yield "| stream | original, MB/s, median | probe, MB/s, median | ratio of rates | interval | pairs |"
    yield "| --- | --- | --- | --- | --- | --- |"


if __name__ == "__main__":
    main()
