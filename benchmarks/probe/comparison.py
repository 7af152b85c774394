"""Shared parts of the comparisons in this folder: options, machine description, intervals of medians, marked places."""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "truth"))

from marked import put


def options(about: str, mark: str, **counts: tuple[int, int, str]) -> argparse.ArgumentParser:
    """Return a parser with ``--quick``, ``--write`` and an option per count (usual value, quick value, help text)."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="so few that all is tried and nothing is known; not to be written",
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help=f"a document with a place marked {mark}")
    for name, (usual, quick, what) in counts.items():
        told = f"{what}; {usual}, with --quick {quick}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=told)
    parser.set_defaults(counts=counts)
    return parser


def parsed_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line and fill in missing counts. Exit on invalid combinations."""
    given = parser.parse_args()
    if given.quick and given.write:
        parser.error("a quick look is not written down: leave out --quick or --write")
    for name, (usual, quick, _) in given.counts.items():
        count = getattr(given, name)
        setattr(given, name, (quick if given.quick else usual) if count is None else count)
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: wanted at least 1, found {count}")
    return given


def tell(table: str, mark: str, document: Path | None) -> None:
    """Print a table, and put it into the marked place of a document."""
    print(table)
    if document is not None:
        put(document, mark, table)


def machine() -> str:
    """Return processors and kernel."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def first_line(*argv: str) -> str:
    """Return the first line that a program prints, or nothing if it is not installed."""
    if not shutil.which(argv[0]):
        return ""
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    return (said.stdout or said.stderr).split("\n")[0]


def median(values: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Return the median and its distribution-free 95 % confidence interval.

    The interval is the narrowest pair of values equally far from both ends that contains the true median with a
    probability of 95 % or more, whatever the distribution (Conover 1999, 3.2, exact). None for fewer than six values.
    """
    ordered = sorted(values)
    n, outside, at = len(ordered), 0, -1
    # at the k-th value from each end, both tails together have probability 2 P(Bin(n, 1/2) < k)
    while (outside := outside + math.comb(n, at + 1)) * 40 <= 1 << n:
        at += 1
    return statistics.median(ordered), (ordered[at], ordered[n - 1 - at]) if at >= 0 else None


def spelled(
    values: Sequence[float], form: str, of: Callable[[float], float] = float, between: str = " to "
) -> tuple[str, str]:
    """Format median and interval, each number through ``of`` first; ``between`` separates the ends."""
    middle, ends = median(values)
    words = "fewer than 6 pairs" if ends is None else between.join(format(of(end), form) for end in ends)
    return format(of(middle), form), words
