"""Overhead of iotrial itself, measured on this machine: `make bench` (as root).

    python benchmarks/speed.py            a minute or two
    python benchmarks/speed.py --quick    a smoke test with too few repeats for usable figures

Prints a Markdown table: program start, the conductor's own time between two warm probe runs, making a file set.
Nothing here is asserted; BENCHMARKS.md has one dated result.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of program starts, blocks of the trial, and file sets per place."""

    starts: int
    blocks: int
    sets: int


USUAL, QUICK = Counts(40, 300, 5), Counts(3, 10, 1)


def main() -> None:
    """Measure everything and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only try everything")
    counts = QUICK if parser.parse_args().quick else USUAL
    print(
        f"Machine: {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}\n"
    )
    print("| what | median | 5 % to 95 % | n |\n| --- | --- | --- | --- |")
    starts, bare = program_start(counts.starts)
    row("`iotrial --help`, whole process", starts, "ms", 1e3)
    row("`python -c pass`, alternating with it", bare, "ms", 1e3)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        own, gap = between_runs(Path(folder), counts.blocks)
        row("conductor's own time between two warm probe runs of a block", own, "ms", 1e3)
        row("the same gap with all that the probe does in it (modes, read-back, warming)", gap, "ms", 1e3)
        for name, times in file_sets(Path(folder), counts.sets).items():
            row(f"file set of 10,000 files of 64 bytes, {name}", times, "s", 1.0)


def row(name: str, seconds: Sequence[float], unit: str, factor: float) -> None:
    """Print a line of the table."""
    ordered = sorted(s * factor for s in seconds)
    low, high = ordered[int(0.05 * len(ordered))], ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(
        f"| {name} | {statistics.median(ordered):.3g} {unit} | {low:.3g} to {high:.3g} {unit} | {len(ordered)} |"
    )


def program_start(repeats: int) -> tuple[list[float], list[float]]:
    """Return the wall times in seconds of `iotrial --help` and of a bare interpreter, alternating."""
    program = Path(sys.executable).parent / "iotrial"
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for times, argv in zip(
            found, ([str(program), "--help"], [sys.executable, "-c", "pass"]), strict=True
        ):
            began = time.perf_counter()
            subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - began)
    return found


def between_runs(folder: Path, blocks: int) -> tuple[list[float], list[float]]:
    """Return the seconds from a probe run's answer to the next request in the same block.

    Two lists: without, and with, the probe's other calls in between.
    """
    from iotrial.probe.client import Probe
    from iotrial.runner.planning import default_folder, make_plan
    from iotrial.runner.progress import Silent
    from iotrial.runner.resolve import resolve
    from iotrial.runner.start import begin
    from iotrial.runner.trial import Limits
    from iotrial.store import Store
    from iotrial.study.catalogue import find
    from iotrial.study.select import select

    log: list[tuple[str, float, float]] = []
    plain = Probe.call

    def call(self: Probe, verb: str, **fields: object) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            return plain(self, verb, **fields)
        finally:
            log.append((verb, began, time.perf_counter()))

    Probe.call = call  # type: ignore[method-assign]
    try:
        study = select(
            find("files/permissions"),
            conditions={"workload": ["probe"], "cache": ["warm"]},
            blocks=blocks,
            time_s=60.0,
        )
        resolved = resolve(study, root=os.geteuid() == 0)
        begin(
            resolved,
            make_plan(resolved, None, controls=True),
            Store.open(folder / "trials.db"),
            Limits(60.0, blocks, stop_when_decided=False),
            Silent(),
            folder=default_folder(resolved, str(folder)),
            seed_chosen=False,
            options={"time_s": 60.0, "blocks": blocks},
        )
    finally:
        Probe.call = plain  # type: ignore[method-assign]
    own, gap = [], []
    runs = [i for i, (verb, _, _) in enumerate(log) if verb == "files"]
    for first, second in itertools.pairwise(runs):
        between = log[first + 1 : second]
        whole = log[second][1] - log[first][2]
        gap.append(whole)
        own.append(whole - sum(end - began for _, began, end in between))
    return own, gap


def file_sets(folder: Path, sets: int) -> dict[str, list[float]]:
    """Return the seconds to make the set, by place, in a fresh folder each time."""
    from iotrial.lab.image import ImagePlace
    from iotrial.lab.journal import Journal
    from iotrial.lab.place import FileSet
    from iotrial.lab.target import Target
    from iotrial.probe.client import Probe

    found: dict[str, list[float]] = {}
    with Probe(isolate=os.geteuid() == 0) as probe:
        target = Target(probe)
        wanted = {"on the host's file system": str(folder)}
        places = []
        if os.geteuid() == 0:
            target.mount("bench", "/mnt", "tmpfs", ["mode=0755"])
            for filesystem in ("ext4", "xfs", "btrfs"):
                place = ImagePlace(
                    filesystem,
                    target,
                    Journal(folder / "journal"),
                    folder=str(folder),
                    mount_point=f"/mnt/{filesystem}",
                    filesystem=filesystem,
                    size_bytes=1 << 30,
                )
                place.open()
                places.append(place)
                wanted[f"on {filesystem} (image lab)"] = place.root
        for number in range(sets):
            for name, root in wanted.items():
                files = FileSet(f"s{number}", f"{root}/s{number}", 10_000, 64, "text", 1)
                began = time.perf_counter()
                target.call(
                    "fileset",
                    set=files.name,
                    dir=files.folder,
                    count=files.count,
                    size=files.bytes_each,
                    seed=number,
                    content=files.content,
                    directories=1,
                    mode="0644",
                    create=True,
                )
                found.setdefault(name, []).append(time.perf_counter() - began)
        # not in between: if the host discards freed blocks, that work would be timed with the next set
        for number in range(sets):
            target.call("remove", path=f"{folder}/s{number}", recursive=True)
        for place in places:
            place.close()
    return found


if __name__ == "__main__":
    main()
