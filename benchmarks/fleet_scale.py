"""Growth of a store with many hosts, and the cost of a report: simulated hosts with a given number of blocks each.

    python benchmarks/fleet_scale.py [--hosts 10,100,1000] [--folder FOLDER] [--write BENCHMARKS.md]

Each host returns its packed trial. The coordinator's own ``Collector`` reads, checks and stores it, with one durable
transaction per host. The cost of making the synthetic hosts (``fleet_made``) is not counted. Then ``iotrial fleet
report`` runs on the store: once without and once with the cached summaries of all hosts. Before that, the coordinator's
own loop follows as many hosts on a Dask cluster (``fleet_paced``). Adding, following and reporting are separate processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "truth"))
from fleet_made import FLEET, NAME, TEMPLATES, templates
from fleet_paced import paced

import iotrial
from iotrial.fleet.collect import Collector
from iotrial.fleet.order import Order, seed_of
from iotrial.store import Store
from marked import put

WORKS = ("design", "fleet", "store")  # folders of the code that adds


def main() -> None:
    """Make the requested stores, smallest first, and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="10,100,1000")
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keeps the stores there (13 GB) for the next time")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="how long hosts are followed (0: not at all)"
    )
    parser.add_argument("--write", type=Path, help="a document with a marked place for the table")
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--add", nargs=2, metavar=("HOSTS", "STORE"), help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs=2, metavar=("HOSTS", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.add:
        print(json.dumps(_added(int(arguments.add[0]), arguments.blocks, Path(arguments.add[1]))))
        return
    if arguments.follow:
        print(
            json.dumps(paced(int(arguments.follow[0]), Path(arguments.follow[1]), seconds=arguments.seconds))
        )
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as passing:
        folder = arguments.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        counts = [int(n) for n in arguments.hosts.split(",")]
        lines = [_provenance(arguments.blocks, arguments.note), ""]
        if arguments.seconds:
            lines += [*_followed(counts, arguments.seconds, folder), ""]
        lines += _table(counts, arguments.blocks, folder)
        text = "\n".join(lines)
    if arguments.write:
        put(arguments.write, "fleet", text)
    else:
        print(text)


def _followed(counts: list[int], seconds: float, folder: Path) -> Iterator[str]:
    yield "| hosts | blocks a second | coordinator, of one core | CPU a block |"
    yield "| --- " * 4 + "|"
    for count in counts:
        _tell(f"following {count:,} hosts for {seconds:g} s")
        found = _child("--seconds", str(seconds), "--follow", str(count), str(folder))
        yield (
            f"| {count:,} | {found['blocks'] / found['wall_s']:,.0f} | {found['cpu_s'] / found['wall_s']:.1%} "
            f"| {1e3 * found['cpu_s'] / found['blocks']:.2f} ms |"
        )


def _table(counts: list[int], blocks: int, folder: Path) -> Iterator[str]:
    yield (
        "| hosts | runs stored | adding: wall | CPU a block | memory at most | store | first report: wall | CPU | memory "
        "| next report |"
    )
    yield "| --- " * 10 + "|"
    for count in counts:
        store = folder / f"fleet-{count}-{blocks}.db"
        store.with_suffix(".analysed").unlink(missing_ok=True)
        added = _adding(count, blocks, store)
        _tell(f"reporting {count:,} hosts, anew and once more")
        first, again = (_reported(store, folder) for _ in range(2))
        runs, size = added["runs"], added["bytes"]
        yield (
            f"| {count:,} | {runs:,.0f} | {added['wall_s']:.1f} s "
            f"| {1e3 * added['cpu_s'] / (count * blocks):.2f} ms | {added['memory_mib']:.0f} MiB "
            f"| {size / 2**20:,.0f} MiB "
            f"| {first[0]:.1f} s | {first[1]:.1f} s | {first[2]:.0f} MiB | {again[0]:.1f} s |"
        )
        _tell(f"{count:,} hosts done: {1e3 * added['cpu_s'] / (count * blocks):.2f} ms of CPU a block")


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _provenance(blocks: int, note: str) -> str:
    cpu = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    also = f" {note}" if note else ""
    return (
        f"{datetime.now(UTC):%d %B %Y}, {cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python "
        f"{platform.python_version()}; {blocks:,} blocks a host; each figure measured once.{also}"
    )


def _adding(hosts: int, blocks: int, store: Path) -> dict[str, float]:
    """Add the hosts in a separate process, or return the earlier result if the same code has already made the store."""
    told, code = store.with_suffix(".added.json"), _code()
    if store.exists() and told.exists():
        found: dict[str, float] = json.loads(told.read_text())
        if found.get("code") == code:
            return found
    for old in store.parent.glob(f"{store.stem}.*"):
        old.unlink()
    _tell(f"adding {hosts * blocks:,} blocks of {hosts:,} hosts")
    found = _child("--blocks", str(blocks), "--add", str(hosts), str(store))
    told.write_text(json.dumps({**found, "code": code}))
    return found


def _child(*words: str) -> dict[str, float]:
    """Run this program in a separate process and return its result; show its progress output."""
    done = subprocess.run(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    found: dict[str, float] = json.loads(done)
    return found


def _code() -> str:
    """Return a hash of the code that adds."""
    root = Path(iotrial.__file__).parent
    files = sorted(file for folder in WORKS for file in (root / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _added(hosts: int, blocks: int, path: Path) -> dict[str, float]:
    """Add the packed trials of all hosts. Making them is not counted."""
    made = templates(blocks)
    wall = cpu = runs = 0.0
    shown = time.monotonic()
    with Store.open(path) as store:
        collector = Collector(store, FLEET, NAME)
        for host in range(hosts):
            template = made[host % TEMPLATES]
            order = Order(FLEET, f"h{host}", seed_of(FLEET, f"h{host % TEMPLATES}"), NAME)
            packed = template.packed(host)
            began, used = time.perf_counter(), time.process_time()
            added = collector.add(order, packed)
            wall += time.perf_counter() - began
            cpu += time.process_time() - used
            runs += sum(kind == "run" for kind, _ in template.lines)
            assert added.blocks == blocks
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                _tell(
                    f"{host + 1:,} of {hosts:,} hosts, {1e3 * cpu / (host + 1) / blocks:.2f} ms of CPU a block"
                )
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "runs": runs,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bytes": float(path.stat().st_size),
    }


# Measure from a small process: a child's peak memory starts with what its parent had when it forked.
_WATCHED = """
import os, sys, time
began = time.monotonic()
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
spent = used.ru_utime + used.ru_stime
print(time.monotonic() - began, spent, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))
"""


def _reported(store: Path, folder: Path) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and peak MiB of a report with its page."""
    words = ["fleet", "report", FLEET, "--html", str(folder / "fleet.html")]
    output = subprocess.run(
        [sys.executable, "-S", "-c", _WATCHED, sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "IOTRIAL_STORE": str(store)},
    ).stdout.split()
    assert output[3] == "0", output
    return float(output[0]), float(output[1]), float(output[2])


if __name__ == "__main__":
    main()
