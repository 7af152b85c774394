"""Accuracy of the positive control's known slowdown: stretched over unstretched time, against the requested ratio.

Prints a Markdown table. Needs no privilege; takes about ten seconds.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iotrial.probe.client import Probe

STRETCH = 0.06
READING = ["open", "read", "read", "close"]


def main() -> None:
    """Measure and print."""
    print(
        f"Machine: {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}\n"
    )
    print(
        "| what is stretched | it takes, median | mean | median | 5 % to 95 % | n |\n| --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        probe = Probe(isolate=False)
        try:
            probe.call("fileset", set="s", dir=f"{folder}/s", count=2000, size=100, seed=1, content="text")
            for name, count, verb, fields in works(folder):
                answers = [probe.call(verb, stretch=STRETCH, **fields) for _ in range(count)]
                row(name, answers)
        finally:
            probe.close()


def works(folder: str) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    """Yield what is timed, how often, and the request for it."""
    for files in (1, 4, 40, 2000):
        fields = {"set": "s", "files": list(range(files)), "operations": ["stat"]}
        yield f"`stat` of {files} files", 1000 if files < 100 else 100, "files", fields
    reading = {"set": "s", "files": [0], "operations": READING}
    yield "`read` alone, of open, read, read, close", 1000, "files", {**reading, "stretch_of": "read"}
    for files in (1, 200):
        fields = {"set": "s", "files": list(range(files)), "operations": READING, "stretch_clock": "cpu"}
        yield f"CPU time of reading {files} files", 500, "files", fields
    a_file = str(next(path for path in Path(folder, "s").rglob("*") if path.is_file()))
    for argv in (["true"], ["md5sum", a_file]):
        fields = {"steps": [{"name": "step", "argv": argv}]}
        yield f"`{argv[0]}`, a process", 300, "command", fields
        yield f"CPU time of `{argv[0]}`", 300, "command", {**fields, "stretch_clock": "cpu"}
    nap = {"steps": [{"name": "step", "argv": ["sleep", "1"]}]}
    yield "`sleep 1`", 5, "command", nap


def row(name: str, answers: list[dict[str, Any]]) -> None:
    """Print a line: deviation of the injected ratio from the requested one, in per cent of the work."""
    off = sorted(100.0 * (answer["injected"] - 1.0 - STRETCH) for answer in answers)
    n = len(off)
    took = statistics.median(answer["stretched_ns"] / (answer["injected"] - 1.0 or 1.0) for answer in answers)
    unit, factor = next((u, f) for u, f in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if took >= f or u == "µs")
    low, high = off[int(0.05 * n)], off[min(n - 1, int(0.95 * n))]
    mean = statistics.fmean(off)
    print(
        f"| {name} | {took / factor:.3g} {unit} | {mean:+.4f} % | {statistics.median(off):+.4f} % | "
        f"{low:+.4f} to {high:+.4f} % | {n} |"
    )


if __name__ == "__main__":
    main()
