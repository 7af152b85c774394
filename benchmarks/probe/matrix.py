"""The matrix job compared with fio's closest jobs, and with iozone if installed.

    python benchmarks/probe/matrix.py                         print a table, in about a minute
    python benchmarks/probe/matrix.py --write BENCHMARKS.md   put it where the document marks a place for it

Same file system, file size and record, through the page cache, with fsync and close outside the time. The programs
take turns in random order in each round. Each program is measured by its own account of the test, because what it
does before is not part of the test: the probe's wall, fio's runtime (whole milliseconds, so its jobs repeat),
iozone's rate. Figures are times per record.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from comparison import machine, options, parsed_arguments, tell
from iotrial.probe.client import Probe

FILE_BYTES = 32 << 20
RECORDS = (4096, 65536)
#: tests of the matrix, and their closest equivalents in fio
FIO_JOBS = {
    "reread": "read",
    "random-read": "randread",
    "rewrite": "write",
    "random-write": "randwrite",
}
#: in the order of iozone's own table
TESTS = (
    "write", "rewrite", "read", "reread", "random-read", "random-write", "backward-read", "record-rewrite",
    "stride-read", "fwrite", "frewrite", "fread", "freread",
)  # fmt: skip
REPEATS = 12
Times = dict[str, float]


def main() -> None:
    """Measure, print, and write if requested."""
    parser = options(__doc__, "matrix", rounds=(15, 2, "how often each program has its turn"))
    parser.add_argument("--folder", default="/var/tmp", help="a folder on the disk to measure on")
    arguments = parsed_arguments(parser)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        tell(table(measure(Path(folder), arguments.rounds), arguments.rounds), "matrix", arguments.write)


def measure(folder: Path, rounds: int) -> dict[int, dict[str, list[Times]]]:
    """Return, by record size and program, nanoseconds per record by test for each round."""
    probe = Probe(isolate=False)
    try:
        probe.call("fileset", set="s", dir=str(folder / "s"), count=1, size=4096, seed=1, content="text")
        programs: dict[str, Callable[[Path, int], Times]] = {
            "iotrial": lambda _, record: by_probe(probe, record)
        }
        if shutil.which("fio"):
            programs["fio"] = by_fio
        if shutil.which("iozone"):
            programs["iozone"] = by_iozone
        found: dict[int, dict[str, list[Times]]] = {}
        for record in RECORDS:
            found[record] = {name: [] for name in programs}
            for _ in range(rounds):
                for name in random.sample(sorted(programs), len(programs)):
                    found[record][name].append(programs[name](folder, record))
        return found
    finally:
        probe.close()


def by_probe(probe: Probe, record: int) -> Times:
    """Run the job once."""
    done = probe.call(
        "matrix", set="s", file_size=FILE_BYTES, record_size=record, tests=list(TESTS), replicates=2
    )
    return {name: test["wall_ns"] / test["records"] for name, test in done["tests"].items()}


def by_fio(folder: Path, record: int) -> Times:
    """Run a job with fio's psync engine for each test.

    fio's file already exists and is cached, written record by record like the probe's: the write size decides
    the size of the pieces that the page cache keeps it in.
    """
    path = folder / "fio"
    path.unlink(missing_ok=True)
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // record):
            file.write(os.urandom(record))
        os.fsync(file)
    found = {}
    for test, job in FIO_JOBS.items():
        done = subprocess.run(
            [
                "fio", "--name=test", f"--filename={path}", f"--rw={job}", f"--bs={record}", f"--size={FILE_BYTES}",
                "--ioengine=psync", "--direct=0", "--invalidate=0", "--overwrite=1", "--scramble_buffers=0",
                f"--loops={REPEATS}", "--output-format=json",
            ],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        side = json.loads(done.stdout)["jobs"][0]["write" if "write" in job else "read"]
        found[test] = side["runtime"] * 1e6 / side["total_ios"]
    return found


def by_iozone(folder: Path, record: int) -> Times:
    """Parse iozone's own table of its tests 0 to 7."""
    argv = ["iozone", "-s", f"{FILE_BYTES >> 10}k", "-r", f"{record >> 10}k", "-f", str(folder / "iozone")]
    asked_for = [word for test in range(8) for word in ("-i", str(test))]
    done = subprocess.run([*argv, *asked_for], check=True, capture_output=True, text=True)
    # A line of the table has file size, record size, and a rate in KiB/s for each test.
    rows = [line.split() for line in done.stdout.split("\n")]
    rates = next(row[2:] for row in rows if len(row) == 2 + len(TESTS) and all(map(str.isdigit, row)))
    return {
        test: record / 1024 / rate * 1e9 for test, rate in zip(TESTS, map(int, rates), strict=True) if rate
    }


def table(found: dict[int, dict[str, list[Times]]], rounds: int) -> str:
    """Return Markdown: the probe's time a record, and its ratio to each other program, paired by round."""
    names = list(next(iter(found.values())))
    others = [name for name in names if name != "iotrial"]
    versions = [f"{name} {version(name)}" for name in others]
    lines = [
        f"{machine()}; {', '.join(versions) or 'no peer installed'}; a file of "
        f"{FILE_BYTES >> 20} MiB through the page cache; {rounds} rounds, programs in drawn order.",
        "",
    ]
    lines += [f"{name} is not installed and was left out." for name in ("fio", "iozone") if name not in names]
    lines += [""] if len(names) < 3 else []
    heads = ["test"]
    for record in found:
        heads += [f"{record >> 10} KiB / {name}" for name in others]
    lines += [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for test in TESTS:
        cells = [test]
        for programs in found.values():
            for name in others:
                pairs = zip(programs["iotrial"], programs[name], strict=True)
                cells.append(spread([a[test] / b[test] for a, b in pairs if test in b]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Format median and quartiles; empty if a program has no such test."""
    if len(values) < 2:
        return ""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def version(name: str) -> str:
    """Return the program's version."""
    argv = [name, "--version"] if name == "fio" else [name, "-v"]
    said = subprocess.run(argv, check=False, capture_output=True, text=True).stdout.split()
    return next((word for word in said if any(c.isdigit() for c in word)), "").removeprefix("fio-")


if __name__ == "__main__":
    main()
