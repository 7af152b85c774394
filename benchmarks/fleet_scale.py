"""How a store of many hosts grows, and what it costs to sum them up: so many simulated hosts with so many blocks each.

    python benchmarks/fleet_scale.py [--hosts 10,100,1000] [--folder FOLDER] [--write BENCHMARKS.md]

Hosts send batches of finished blocks as text, in turn, and the coordinator's own ``Collector`` reads, checks and stores them,
each batch one durable transaction: what is measured is all of the coordinator's work but the wire. Rows are as wide as real
ones (responses, evidence and checks of a real run of the catalogue; only the time is drawn). Twenty hosts are made up, with a
seed and an effect each, and stand in for all: host 21 sends what host 1 sent, under an id of its own. Then ``iotrial fleet
report`` is run on the store: anew, and once more when every host has been looked at. Adding and reporting are processes of
their own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "truth"))
from iotrial.design.plan import Plan
from iotrial.fleet.collect import Collector
from iotrial.fleet.link import Batch, Position, Stage
from iotrial.fleet.order import Order, seed_of
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader, TrialState
from iotrial.store.packed import open_packed, read_packed
from iotrial.store.packed.records import PackedRun, PackedState
from iotrial.study.reader import read_study
from marked import put

REAL = Path(__file__).parents[1] / "docs" / "catalogue" / "files" / "permissions.iotrial"
STUDY = """\
[study]
name = "fleet/example"
question = "Is b faster than a?"
[[factor]]
name = "f"
knob = "mount.atime"
levels = ["a", "b"]
[[workload]]
name = "w"
kind = "files"
operations = ["open", "read", "close"]
"""
FLEET = "f1ee7" + "0" * 27
TEMPLATES, BATCH = 20, 20  # hosts that are made up; blocks a batch
EFFECT, SPREAD, NOISE, STRETCH = 0.9, 0.03, 0.08, 1.06


def main() -> None:
    """Make the stores that are asked for, the smallest first, and print a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="10,100,1000")
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keeps the stores there (5 GB) for the next time")
    parser.add_argument("--write", type=Path, help="a document with a marked place for the table")
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--add", nargs=2, metavar=("HOSTS", "STORE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.add:
        print(json.dumps(_added(int(asked.add[0]), asked.blocks, Path(asked.add[1]))))
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as passing:
        folder = asked.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(_table([int(n) for n in asked.hosts.split(",")], asked.blocks, folder, asked.note))
    if asked.write:
        put(asked.write, "fleet", text)
    else:
        print(text)


def _table(counts: list[int], blocks: int, folder: Path, note: str) -> Iterator[str]:
    _templates(folder, blocks)
    yield _provenance(blocks, note)
    yield ""
    yield (
        "| hosts | runs stored | adding, wall | CPU | CPU a block | memory at most | store | a run | report, anew | CPU "
        "| memory | once more | memory |"
    )
    yield "| --- " * 13 + "|"
    for count in counts:
        store = folder / f"fleet-{count}.db"
        store.with_suffix(".analysed").unlink(missing_ok=True)
        added = _adding(count, blocks, store)
        first, again = (_reported(store, folder) for _ in range(2))
        runs, size = added["runs"], added["bytes"]
        yield (
            f"| {count:,} | {runs:,.0f} | {added['wall_s']:.1f} s | {added['cpu_s']:.1f} s "
            f"| {1e3 * added['cpu_s'] / (count * blocks):.2f} ms | {added['memory_mib']:.0f} MiB "
            f"| {size / 2**20:,.0f} MiB "
            f"| {size / runs:,.0f} bytes | {first[0]:.1f} s | {first[1]:.1f} s | {first[2]:.0f} MiB | {again[0]:.1f} s "
            f"| {again[2]:.0f} MiB |"
        )
        print(f"{count} hosts done", file=sys.stderr, flush=True)


def _provenance(blocks: int, note: str) -> str:
    cpu = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    also = f" {note}" if note else ""
    return (
        f"{datetime.now(UTC):%d %B %Y}, {cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python "
        f"{platform.python_version()}; {blocks:,} blocks a host, {BATCH} blocks a batch; each figure measured once.{also}"
    )


def _templates(folder: Path, blocks: int) -> None:
    """A file for each host that is made up, a batch a line."""
    real = _real_run()
    study = read_study(STUDY, "example.toml", trusted=True)
    for number in range(TEMPLATES):
        path = folder / f"host-{number}-{blocks}.jsonl"
        if path.exists():
            continue
        host = f"h{number}"
        draw = random.Random(number)
        header = TrialHeader(
            id=f"{number:032x}",
            study=study,
            seed=seed_of(FLEET, host),
            seed_chosen=False,
            alpha=0.05,
            margin=0.03,
            started="2026-11-01T12:00:00Z",
            lab={"kind": "directory", "places": [{"filesystem": draw.choice(["ext4", "xfs"])}]},
            host={"kernel": draw.choice(["6.1.0", "6.12.1"]), "system": "Linux", "processors": 8},
            options={"controls": True, "blocks": blocks},
            version="0.1.0",
        )
        with path.with_suffix(".making").open("w") as file:
            file.writelines(batch.to_json() + "\n" for batch in _batches(header, real, blocks, draw))
        path.with_suffix(".making").rename(path)


def _real_run() -> RunRecord:
    with open_packed(REAL) as file, Store.in_memory() as store:
        data = store.data(store.unpack(read_packed(file, "it"), source="it").number)
    return next(run for run in data.runs if run.failure is None)


def _batches(header: TrialHeader, real: RunRecord, blocks: int, draw: random.Random) -> Iterator[Batch]:
    plan = Plan(header.study, header.seed, controls=True)
    (condition,) = plan.conditions
    ratio = EFFECT * math.exp(draw.gauss(0, SPREAD))
    began, since = 1.7e9, Position()
    runs: list[PackedRun] = []
    ends: list[BlockEnd] = []
    states = [PackedState(began, TrialState.RUNNING, None)]
    for index in range(blocks):
        block = plan.block(condition, index)
        level = math.exp(draw.gauss(0, 0.2))
        for planned in block.runs:
            arm = planned.arm
            slowed = STRETCH if arm.kind.value == "positive" else ratio if arm.name == "b" else 1.0
            wall = 2e-3 * level * slowed * math.exp(draw.gauss(0, NOISE))
            run = replace(
                real,
                condition=condition.key,
                block=index,
                slot=planned.slot,
                arm=arm.name,
                kind=arm.kind.value,
                treatment=dict(arm.treatment),
                started_s=index * 0.1 + planned.slot * 0.01,
                responses={"wall": wall, "cpu": wall / 2},
                files=planned.files,
            )
            runs.append(PackedRun(run, 1, began + run.started_s))
        ends.append(BlockEnd(condition.key, index, index, controls=block.controls))
        last = index == blocks - 1
        if last:
            states.append(PackedState(began + index, TrialState.DONE, None))
        if last or len(ends) == BATCH:
            batch = Batch(
                since=since,
                stage=Stage.ENDED if last else Stage.GOING,
                header=header if not since.states else None,
                states=tuple(states),
                runs=tuple(runs),
                ends=tuple(ends),
            )
            yield batch
            since, runs, ends, states = batch.after, [], [], []


def _adding(hosts: int, blocks: int, store: Path) -> dict[str, float]:
    """By a process of its own; what it told before is taken where the store is there already."""
    told = store.with_suffix(".added.json")
    if not (store.exists() and told.exists()):
        for old in (store, told):
            old.unlink(missing_ok=True)
        words = [sys.executable, __file__, "--blocks", str(blocks), "--add", str(hosts), str(store)]
        told.write_text(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    found: dict[str, float] = json.loads(told.read_text())
    return found


def _added(hosts: int, blocks: int, path: Path) -> dict[str, float]:
    """Batches of all hosts, in turn. Reading the made-up batches from their files is not counted."""
    files = [(path.parent / f"host-{n}-{blocks}.jsonl").open() for n in range(TEMPLATES)]
    wall = cpu = runs = 0.0
    with Store.open(path) as store:
        collector = Collector(store, FLEET, "fleet/example")
        while lines := [line for file in files if (line := file.readline())]:
            for host in range(hosts):
                template = host % TEMPLATES
                line = lines[template].rstrip("\n").replace(f'"{template:032x}"', f'"{host:032x}"', 1)
                order = Order(FLEET, f"h{host}", seed_of(FLEET, f"h{template}"), "fleet/example")
                began, used = time.perf_counter(), time.process_time()
                batch = Batch.from_json(line)
                collector.add(order, batch)
                wall += time.perf_counter() - began
                cpu += time.process_time() - used
                runs += len(batch.runs)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "runs": runs,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bytes": float(path.stat().st_size),
    }


# A process that is small itself: what a child holds begins with what its parent held when it was forked.
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
    """Seconds, seconds of CPU, and MiB at most, of a report with its page."""
    words = ["fleet", "report", FLEET, "--html", str(folder / "fleet.html")]
    told = subprocess.run(
        [sys.executable, "-S", "-c", _WATCHED, sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "IOTRIAL_STORE": str(store)},
    ).stdout.split()
    assert told[3] == "0", told
    return float(told[0]), float(told[1]), float(told[2])


if __name__ == "__main__":
    main()
