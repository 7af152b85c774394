"""Overhead of the probe itself, compared with bare C loops, fio and fio's io_uring demonstrator.

Peers that can be paused between two slices (the C loops, the demonstrator) are compared in slices of milliseconds,
each pair in random order, because runs of seconds differ by more than the effect. fio can only do whole runs, which
alternate with slices of the probe of the same length. Each ratio is a median over pairs, with a distribution-free
95 % confidence interval.

Needs gcc, and fio for its rows; rows whose tools are missing are left out and reported. ``--fio-source FOLDER`` is an
unpacked source of fio (``apt-get source fio``), for the demonstrator, which is configured and built in a temporary
copy. Prints a Markdown table; ``--write BENCHMARKS.md`` puts it there, between ``<!-- overhead -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from comparison import first_line, machine, options, parsed_arguments, spelled, tell
from iotrial.probe.client import Probe

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
BLOCK = 4096
FILE = 64 * MIB
SMALL_FILES = 200
DEPTHS = (1, 4, 32, 128)
USUAL_BATCH = 32
#: direct reads before the clock starts, for all peers: a virtual disk is slower for the first ones after a
#: pause, and the probe, which opens and sets up again for each slice, would pause longer than a demonstrator
#: that is merely stopped
RAMP = 2000
#: CPU for all peers: they take turns, and a migration would be charged to one of them
CPU = max(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds per operation, wall clock and CPU."""

    wall: float
    cpu: float


Slice = Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: ``ours`` over ``theirs``, pair by pair."""

    what: str
    ours: str
    theirs: str
    pairs: tuple[tuple[Cost, Cost], ...]

    def ratio(self) -> str:
        """Return the median ratio of the wall times and its interval."""
        logs = [math.log(a.wall / b.wall) for a, b in self.pairs]
        return "{} [{}]".format(*spelled(logs, ".3f", math.exp, ", "))

    def median(self) -> float:
        """Return the median ratio of the wall times."""
        return math.exp(statistics.median(math.log(a.wall / b.wall) for a, b in self.pairs))

    def printed(self) -> str:
        """Format a line of the table."""
        takes = statistics.median(theirs.wall for _, theirs in self.pairs)
        return f"| {self.what} | {self.theirs} | {takes:.0f} ns | {self.ratio()} |"


def main() -> None:
    """Measure, print, and write if requested."""
    parser = options(
        __doc__,
        "overhead",
        pairs=(400, 20, "pairs of slices a comparison"),
        runs=(10, 6, "pairs of whole runs of a second, of fio"),
    )
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the files lie")
    parser.add_argument("--fio-source", type=Path, help="an unpacked source of fio")
    parser.add_argument("--only", metavar="TEXT", help="comparisons whose text contains this")
    arguments = parsed_arguments(parser)
    if not shutil.which("gcc"):
        parser.error("wanted gcc for the bare loops, found none; apt-get install gcc libc6-dev")
    os.sched_setaffinity(0, {CPU})
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, ExitStack() as stack:
        rows = [
            compare(what, names, stack.enter_context(pair), arguments.pairs if sliced else arguments.runs)
            for what, names, pair, sliced in comparisons(Path(folder), arguments.fio_source)
            if not arguments.only or arguments.only in f"{what} {' '.join(names)}"
        ]
    table = [row.printed() for row in rows if not row.theirs.startswith("fio")]
    tell("\n".join([*heading(arguments), *table, *of_fio(rows)]), "overhead", arguments.write)


def of_fio(rows: list[Row]) -> list[str]:
    """Return a sentence on the rows of fio itself, which is measured in few whole runs."""
    own = [row for row in rows if row.theirs.startswith("fio")]
    ranges = []
    for what, chosen in (
        ("psync", [row for row in own if "io_uring" not in row.what]),
        ("io_uring, cached", [row for row in own if "io_uring, cached" in row.what]),
        ("io_uring, direct", [row for row in own if "io_uring, direct" in row.what]),
    ):
        if chosen:
            medians = sorted(row.median() for row in chosen)
            ranges.append(f"{medians[0]:.3f} to {medians[-1]:.3f} ({what})")
    if not ranges:
        return []
    return [
        "",
        f"Probe / fio itself, medians of {len(own[0].pairs)} pairs of whole runs: {', '.join(ranges)}.",
    ]


def heading(arguments: argparse.Namespace) -> list[str]:
    """Return machine, versions, what is left out, and the table's header."""
    versions = filter(None, (machine(), first_line("gcc", "--version"), first_line("fio", "--version")))
    absent = ["fio"] * (not shutil.which("fio")) + ["fio's demonstrator"] * (arguments.fio_source is None)
    return [
        f"Machine: {'; '.join(versions)}. All on CPU {CPU}, {FILE // MIB} MiB of incompressible data in {arguments.folder}."
        + (f" Left out, because it is not here: {' and '.join(absent)}." if absent else ""),
        "",
        "| work | peer | it takes | probe / peer, median [95 %] |",
        "| --- | --- | --- | --- |",
    ]


def compare(what: str, names: tuple[str, str], pair: tuple[Slice, Slice], pairs: int) -> Row:
    """Measure pairs in random order; a few before them are discarded."""
    ours, theirs = pair
    found = []
    for n in range(-max(2, pairs // 20), pairs):
        if random.getrandbits(1):
            a = ours()
            b = theirs()
        else:
            b = theirs()
            a = ours()
        if n >= 0:
            found.append((a, b))
    row = Row(what, names[0], names[1], tuple(found))
    print(row.printed(), file=sys.stderr)
    return row


def comparisons(folder: Path, source: Path | None) -> Iterator[tuple]:
    """Yield the comparisons: text, names, a context that gives both slices, and whether they are slices or whole runs."""
    bare = folder / "bare"
    subprocess.run(["gcc", "-O2", "-o", bare, HERE / "bare.c"], check=True)
    text = "cached 4 KiB random pread"
    preads = "bare C loop"
    yield text, ("probe, psync", preads), beside_bare(folder, bare, psync(5000), "pread"), True
    if shutil.which("fio"):
        for name, options in (("fio, psync", []), ("fio, psync, gtod_reduce", ["--gtod_reduce=1"])):
            yield (
                text,
                ("probe, psync", name),
                beside_fio(folder, psync(None), ["--ioengine=psync", *options]),
                False,
            )
    for name, verb, operations, count in (
        ("open, read to the end, close", "open", ["open", "read-to-end", "close"], 10),
        ("stat", "stat", ["stat"], 20),
        ("getdents", "getdents", ["getdents"], 100),
    ):
        fields = {"operations": operations, "replicates": count, "histograms": True}
        yield (
            f"{name}, {SMALL_FILES} files of 64 bytes",
            ("probe, files", preads),
            by_file(folder, bare, verb, fields),
            True,
        )
    built = build_demonstrator(folder, source) if source else None
    for direct in (False, True):
        for depth in DEPTHS:
            text = f"io_uring, {'direct' if direct else 'cached'}, depth {depth}"
            # Long enough that filling and draining the queue, which the demonstrator never does, is a small
            # part of it.
            ramp = RAMP if direct else 0
            queued = {"engine": "io_uring", "depth": depth, "direct": direct, "ramp": ramp}
            count = 1000 + 60 * depth if direct else 10_000
            if built:
                pair = beside_demonstrator(
                    folder, built, {**queued, "operations": count}, depth, (ramp or 4 * depth, count), direct
                )
                yield text, ("probe", "t/io_uring"), pair, True
            if shutil.which("fio"):
                batch = min(depth, USUAL_BATCH)
                options = [
                    *("--ioengine=io_uring", "--registerfiles=1", "--fixedbufs=1", f"--iodepth={depth}"),
                    *(f"--iodepth_batch_submit={batch}", f"--iodepth_batch_complete_min={batch}"),
                    f"--direct={int(direct)}",
                    *(["--ramp_time=300ms"] if direct else []),
                ]
                yield (
                    text,
                    ("probe", "fio, io_uring"),
                    beside_fio(folder, {**queued, "time_s": 1.0}, options),
                    False,
                )


def psync(operations: int | None) -> dict[str, object]:
    """Return a job of preads: ``operations`` of them, or one second."""
    return {"engine": "psync", **({"operations": operations} if operations else {"time_s": 1.0})}


@contextmanager
def probe_over(folder: Path) -> Iterator[Probe]:
    """Yield a probe with the big file and the small ones."""
    probe = Probe(isolate=False)
    try:
        for name, count, size, content in (("big", 1, FILE, "random"), ("small", SMALL_FILES, 64, "text")):
            probe.call(
                "fileset",
                set=name,
                dir=str(folder / name),
                count=count,
                size=size,
                seed=1,
                content=content,
                create=not (folder / name).exists(),
            )
        yield probe
    finally:
        probe.close()


def random_slice(probe: Probe, fields: dict[str, object]) -> Slice:
    """Return a slice of the ``random`` job, at new offsets each time."""

    def run() -> Cost:
        done = probe.call("random", set="big", seed=random.getrandbits(48), histograms=True, **fields)
        count = done["operations"]["read"]["count"]
        return Cost(done["wall_ns"] / count, done["cpu_ns"] / count)

    return run


@contextmanager
def server(argv: list[str], answers: str, **streams: int) -> Iterator[Callable[[str], list[int]]]:
    """Start a process that answers each line with a line of numbers, on ``stdout`` or ``stderr``."""
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, text=True, bufsize=1, **{answers: subprocess.PIPE, **streams}
    )
    stream = getattr(process, answers)

    def ask(line: str) -> list[int]:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        return [int(word) for word in stream.readline().split()]

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


@contextmanager
def beside_bare(
    folder: Path, bare: Path, fields: dict[str, object], verb: str
) -> Iterator[tuple[Slice, Slice]]:
    """Compare the probe's reads with those of the C loop."""
    with probe_over(folder) as probe, server([str(bare)], "stdout") as ask:
        count = fields["operations"]
        assert isinstance(count, int)

        def theirs() -> Cost:
            place = folder / "big" / "f000000"
            wall, cpu = ask(f"{verb} {place} {FILE // BLOCK} {count} {random.getrandbits(48)}")
            return Cost(wall / count, cpu / count)

        yield random_slice(probe, fields), theirs


@contextmanager
def by_file(folder: Path, bare: Path, verb: str, fields: dict[str, object]) -> Iterator[tuple[Slice, Slice]]:
    """Compare the probe's per-file operations with those of the C loop."""
    count = fields["replicates"]
    assert isinstance(count, int)
    each = count * (1 if verb == "getdents" else SMALL_FILES)
    with probe_over(folder) as probe, server([str(bare)], "stdout") as ask:

        def ours() -> Cost:
            done = probe.call("files", set="small", **fields)
            return Cost(done["wall_ns"] / each, done["cpu_ns"] / each)

        def theirs() -> Cost:
            wall, cpu = ask(f"{verb} {folder / 'small'} {SMALL_FILES} {count}")
            return Cost(wall / each, cpu / each)

        yield ours, theirs


@contextmanager
def beside_fio(folder: Path, fields: dict[str, object], options: list[str]) -> Iterator[tuple[Slice, Slice]]:
    """Compare a second of the probe with a second of fio."""
    with probe_over(folder) as probe:
        argv = [
            *(
                "fio",
                "--name=peer",
                f"--filename={folder / 'big' / 'f000000'}",
                f"--size={FILE}",
                "--rw=randread",
            ),
            *("--bs=4k", "--norandommap", "--invalidate=0", "--time_based", "--runtime=1", "--thread"),
            *("--output-format=json", *options),
        ]

        def theirs() -> Cost:
            said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=folder).stdout
            job = json.loads(said[said.index("{") :])["jobs"][0]
            count, wall = job["read"]["total_ios"], job["read"]["runtime"] * 1e6
            return Cost(wall / count, wall * (job["usr_cpu"] + job["sys_cpu"]) / 100.0 / count)

        yield random_slice(probe, fields), theirs


def build_demonstrator(folder: Path, source: Path) -> Path:
    """Build t/io_uring with our pause gate, from a copy of fio's source."""
    copy = folder / "fio"
    shutil.copytree(source, copy)
    objects = ["lib/rand.o", "lib/pattern.o", "lib/strntol.o"]
    for argv in (["./configure"], ["make", *objects]):
        subprocess.run(argv, cwd=copy, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # fio's own flags for it
    flags = [
        "-std=gnu99",
        "-O3",
        "-march=native",
        "-ffast-math",
        "-w",
        "-D_GNU_SOURCE",
        "-include",
        "config-host.h",
    ]
    flags += ["-DBITS_PER_LONG=64", "-D_FILE_OFFSET_BITS=64", "-I."]
    argv = [
        "gcc",
        *flags,
        "-o",
        "demonstrator",
        str(HERE / "demonstrator.c"),
        *objects,
        "-lpthread",
        "-lm",
        "-ldl",
    ]
    subprocess.run(argv, cwd=copy, check=True)
    return copy / "demonstrator"


@contextmanager
def beside_demonstrator(
    folder: Path, built: Path, fields: dict[str, object], depth: int, slice_of: tuple[int, int], direct: bool
) -> Iterator[tuple[Slice, Slice]]:
    """Compare the probe's io_uring with fio's demonstrator: same batches, registered files, buffers and ring, no polling.

    ``slice_of``: operations of the demonstrator before the clock starts, and those that are timed.
    """
    batch = min(depth, USUAL_BATCH)
    flags = [f"-d{depth}", f"-s{batch}", f"-c{batch}", "-p0", f"-O{int(direct)}", "-B1", "-F1", "-R1", "-X1"]
    argv = [str(built), *flags, str(folder / "big" / "f000000")]
    with (
        probe_over(folder) as probe,
        server(argv, "stderr", stdout=subprocess.DEVNULL) as ask,
    ):

        def theirs() -> Cost:
            done, wall, cpu = ask("{} {}".format(*slice_of))
            return Cost(wall / done, cpu / done)

        yield random_slice(probe, fields), theirs


if __name__ == "__main__":
    main()
