"""Ways to reduce the scatter of blocks: tested on the packed trials, and on ten workloads on this machine.

    variance.py packed                     second reference, distance between runs, covariates
    variance.py lengths RECORD [--rounds N]   runs of 1, 4 and 16 times the work (pilots in random order)
    variance.py duet RECORD [--pairs N]       two arms at once on two processors, against one after the other
    variance.py summary RECORD             the tables of BENCHMARKS.md

All ratios are of variances: blocks to a verdict are proportional to them. A variance is that of the middle half
((interquartile range / 1.349) squared), because a bet's gain depends on typical blocks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from iotrial.design.model import ArmKind
from iotrial.report.opening import spec_of
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.model import Scale
from prediction import iotrial

CATALOGUE = Path(__file__).resolve().parents[2] / "docs" / "catalogue"
#: stored facts of a run that could explain its time without being caused by the setting
COVARIATES = ("system_cpu_pressure_some_time", "switches_involuntary")
FEWEST = 12
LENGTHS = (1, 4, 16)


def variance(values: list[float] | np.ndarray) -> float:
    """Return the variance of the middle half, scaled to that of normal values."""
    low, high = np.quantile(np.asarray(values), (0.25, 0.75))
    return float(((high - low) / 1.349) ** 2)


def quartiles(values: list[float]) -> str:
    """Format median and quartiles."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


# The packed trials


def packed() -> None:
    """Print the effect of three ways to reduce scatter in the packed trials."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in sorted(CATALOGUE.glob("*/*.iotrial")):
        own: dict[str, list[float]] = defaultdict(list)
        for one in _conditions(path):
            for name, ratio in _ratios(one):
                own[name].append(ratio)
        for name, ratios in own.items():
            found[name].append(statistics.median(ratios))
    print("| variance, against today's contrast | trials | median (quartiles) |\n| --- | --- | --- |")
    for name, ratios in sorted(found.items()):
        print(f"| {name} | {len(ratios)} | {quartiles(ratios)} |")


def _conditions(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield each condition's blocks, a mapping of arm to (ln response, kind, slot, covariates)."""
    with open_packed(path) as file, Store.in_memory() as store:
        trial = store.unpack(read_packed(file, path.name), source=path.name)
        data = store.data(trial.header.id)
        spec = spec_of(trial.header)
        for condition in spec.conditions:
            response = next(iter(spec.responses_of(condition, primary=True)), None)
            if response is None or response.scale is not Scale.LOG:
                continue
            blocks = []
            for block in data.blocks:
                if block.condition != condition.key or block.void:
                    continue
                runs = store.runs_of(trial.header.id, block.condition, block.index)
                arms = {
                    run.arm: (
                        math.log(run.responses[response.name]),
                        run.kind,
                        run.slot,
                        [run.evidence.get(name, math.nan) for name in COVARIATES],
                        run.treatment,
                    )
                    for run in runs
                    if run.failure is None and run.responses.get(response.name, 0.0) > 0.0
                }
                blocks.append(arms)
            if blocks:
                yield blocks


def _ratios(blocks: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    copies = {arm: run[4] for block in blocks for arm, run in block.items() if run[1] == ArmKind.NEGATIVE}
    arms = {arm: run[4] for block in blocks for arm, run in block.items() if run[1] == ArmKind.TREATMENT}
    treated = sorted(arms)
    if len(treated) < 2:
        return
    reference, other = treated[0], treated[1]
    if copies:
        copy = sorted(copies)[0]
        base = next((arm for arm, treatment in arms.items() if treatment == copies[copy]), "")
        another = next((arm for arm in treated if arm != base), None)
        with_copy = [b for b in blocks if base in b and copy in b and another in b]
        if another is not None and len(with_copy) >= FEWEST:
            single = [b[another][0] - b[base][0] for b in with_copy]
            double = [b[another][0] - (b[base][0] + b[copy][0]) / 2.0 for b in with_copy]
            if variance(single):
                yield "second reference, in blocks that hold the copy", variance(double) / variance(single)
                yield "blocks that hold the copy (share)", len(with_copy) / len(blocks)
            inside = [b[copy][0] - b[base][0] for b in with_copy]
            both = [(x, y) for x, y in itertools.pairwise(blocks) if base in x and base in y]
            across = [y[base][0] - x[base][0] for x, y in both]
            if variance(inside) and len(across) >= FEWEST:
                yield (
                    "the same arm in the next block, against its copy in this block",
                    variance(across) / variance(inside),
                )
    pairs = [b for b in blocks if reference in b and other in b]
    distances = [abs(b[other][2] - b[reference][2]) for b in pairs]
    contrasts = np.array([b[other][0] - b[reference][0] for b in pairs])
    if len(pairs) >= 2 * FEWEST and max(distances) > 1:
        near = contrasts[np.array(distances) <= 1]
        far = contrasts[np.array(distances) > 1]
        if min(len(near), len(far)) >= FEWEST and variance(far):
            yield "neighbours in the block, against runs further apart", variance(near) / variance(far)
    for index, name in enumerate(COVARIATES):
        changes = np.array([b[other][3][index] - b[reference][3][index] for b in pairs])
        if (
            len(pairs) >= 3 * FEWEST
            and np.isfinite(changes).all()
            and np.ptp(changes) > 0.0
            and variance(contrasts)
        ):
            left = contrasts.copy()
            for at in range(len(pairs)):
                past = slice(0, at)
                x = changes[past] - np.median(changes[past]) if at >= FEWEST else np.zeros(1)
                if at >= FEWEST and (x @ x) > 0.0:
                    left[at] -= (x @ contrasts[past]) / (x @ x) * changes[at]
            yield (
                f"less what `{name}` predicts (slope of earlier blocks)",
                variance(left[FEWEST:]) / variance(contrasts[FEWEST:]),
            )


# Longer runs

HEAD = """
[study]
account = false
name = "{name}"
question = "Is there a difference?"
margin = "3 %"
[lab]
kind = "{lab}"
size = "256 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "work"
"""
FILES = """kind = "files"
size = "{size}"
files = {files}
operations = {operations}
replicates = {n}
cache = "warm"
"""
COLD = FILES.replace("replicates = {n}\n", "").replace("warm", "cold").replace("{files}", "{more}")
COMMAND = """kind = "command"
size = "16 KiB"
files = 2
argv = ["cat", "{file}"]
replicates = {n}
cache = "warm"
"""
READ, WRITE = '["open", "read-to-end", "close"]', '["open-write", "write-all", "close"]'
SYNCED = '["open-write", "write-all", "fsync", "close"]'


def _work(work: str, operations: str = "", *, size: str = "16 KiB", files: int = 50) -> str:
    return work.replace("{operations}", operations).replace("{size}", size).replace("{files}", str(files))


#: lab and workload; ``{n}`` is how often a run repeats its work, ``{more}`` its number of files where it
#: cannot repeat
WORKS = {
    "stat": ("directory", _work(FILES, '["stat"]', size="4 KiB")),
    "read files": ("directory", _work(FILES, READ)),
    "read files, image": ("image", _work(FILES, READ)),
    "read files, cold": ("directory", _work(COLD, READ)),
    "read files, cold, image": ("image", _work(COLD, READ)),
    "open and close": ("directory", _work(FILES, '["open", "close"]', size="4 KiB")),
    "write files": ("directory", _work(FILES, WRITE)),
    "write files, image": ("image", _work(FILES, WRITE)),
    "command": ("directory", COMMAND),
    "write and fsync": ("image", _work(FILES, SYNCED, files=10)),
}


def lengths(record: Path, rounds: int) -> None:
    """Run pilots with runs of different lengths, in random order; write a line of JSON for each."""
    todo = [(name, n) for name in WORKS for n in LENGTHS]
    for _ in range(rounds):
        random.shuffle(todo)
        for name, n in todo:
            lab, work = WORKS[name]
            with tempfile.TemporaryDirectory(prefix="iotrial-variance-", dir="/var/tmp") as folder:
                study = Path(folder) / "study.toml"
                filled = work.replace("{n}", str(n)).replace("{more}", str(25 * n))
                study.write_text(HEAD.replace("{name}", "length").replace("{lab}", lab) + filled)
                plan = iotrial(
                    folder, "plan", str(study), "--time", "150s", "--json", "--pilot", "5s", "--rounds", "1"
                )
            line = {"what": "length", "work": name, "length": n, "load": os.getloadavg()[0]}
            if "error" in plan:
                line["error"] = plan["error"]
            else:
                line["predicted"] = plan["prediction"]
            with record.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(name, n, line.get("error", "done"), file=sys.stderr)


# Two arms at once


def _file(folder: Path) -> Path:
    path = folder / "data"
    if not path.exists():
        path.write_bytes(os.urandom(4 << 20))
    return path


def _small(folder: Path) -> list[Path]:
    paths = [folder / f"f{n}" for n in range(100)]
    for path in paths:
        if not path.exists():
            path.write_bytes(b"x" * 16384)
    return paths


def _stat(folder: Path) -> None:
    for path in _small(folder):
        path.stat()


def _read_small(folder: Path) -> None:
    for path in _small(folder):
        path.read_bytes()


def _read_big(folder: Path) -> None:
    for _ in range(4):
        _file(folder).read_bytes()


def _write(folder: Path) -> None:
    for n in range(50):
        (folder / f"w{n}").write_bytes(b"y" * 16384)


def _write_fsync(folder: Path) -> None:
    for n in range(2):
        with (folder / f"s{n}").open("wb") as file:
            file.write(b"z" * 65536)
            file.flush()
            os.fsync(file.fileno())


def _make_remove(folder: Path) -> None:
    for n in range(100):
        (folder / f"m{n}").touch()
    for n in range(100):
        (folder / f"m{n}").unlink()


def _list(folder: Path) -> None:
    _small(folder)
    for _ in range(50):
        list(folder.iterdir())


def _command(folder: Path) -> None:
    subprocess.run(["cat", str(_file(folder))], stdout=subprocess.DEVNULL, check=True)


def _cold(folder: Path) -> None:
    fd = os.open(_file(folder), os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(fd, 65536):
        pass
    os.close(fd)


def _compute(_: Path) -> None:
    sum(range(200_000))


DUET: dict[str, Callable[[Path], None]] = {
    "stat": _stat,
    "read small files": _read_small,
    "read a big file": _read_big,
    "write files": _write,
    "write and fsync": _write_fsync,
    "make and remove": _make_remove,
    "list a folder": _list,
    "command": _command,
    "cold read": _cold,
    "compute": _compute,
}


class Player:
    """A process on one processor that does a work on request, and reports the time."""

    def __init__(self, processor: int, folder: Path) -> None:
        self.told, child = os.pipe2(0)
        mine, self.tell = os.pipe2(0)
        self.pid = os.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {processor})
            folder.mkdir()
            while order := os.read(mine, 64):
                name, times, begin = order.decode().split("@")
                while time.monotonic() < float(begin):
                    pass
                start = time.perf_counter()
                for _ in range(int(times)):
                    DUET[name](folder)
                os.write(child, f"{time.perf_counter() - start:.9f}".encode())
            os._exit(0)
        os.close(mine)
        os.close(child)

    def start(self, name: str, begin: float, times: int = 1) -> None:
        """Start at this time of the monotonic clock, and do the work this often."""
        os.write(self.tell, f"{name}@{times}@{begin}".encode())

    def took(self) -> float:
        """Return the seconds of the last work."""
        return float(os.read(self.told, 64))


def duet(record: Path, pairs: int) -> None:
    """Run pairs at once and pairs in turn, chosen at random; write a line of JSON for each work.

    In a third of the pairs, drawn at random, one side does the work twice and the other three times, to check that the
    known ratio is recovered.
    """
    with tempfile.TemporaryDirectory(prefix="iotrial-duet-", dir="/var/tmp") as base:
        players = [Player(0, Path(base) / "a"), Player(1, Path(base) / "b")]
        for name in DUET:
            taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for player in players * 2:
                player.start(name, 0.0)
                player.took()
            for _ in range(3 * pairs):
                how, planted = random.choice(("at once", "in turn")), random.random() < 1 / 3
                times = (2, 3) if planted else (1, 1)
                seconds = (
                    _at_once(players, name, times) if how == "at once" else _in_turn(players, name, times)
                )
                taken[how + (", planted" if planted else "")].append(seconds)
            with record.open("a") as file:
                file.write(json.dumps({"what": "duet", "work": name, **taken}) + "\n")
            print(name, file=sys.stderr)


def _at_once(players: list[Player], name: str, times: tuple[int, int]) -> tuple[float, float]:
    one, two = players if times[0] == times[1] else random.sample(players, 2)
    begin = time.monotonic() + 0.002
    one.start(name, begin, times[0])
    two.start(name, begin, times[1])
    return one.took(), two.took()


def _in_turn(players: list[Player], name: str, times: tuple[int, int]) -> tuple[float, float]:
    player, found = random.choice(players), {}
    for side in random.sample((0, 1), 2):
        player.start(name, time.monotonic() + 0.002, times[side])
        found[side] = player.took()
    return found[0], found[1]


def summary(record: Path) -> None:
    """Print both tables."""
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    by: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        if line["what"] == "length" and "predicted" in line:
            found = line["predicted"]["conditions"][0]
            by[line["work"], line["length"]].append((found["blocks"]["likely"], found["block_s"]))
    if by:
        print(
            "| work | pilots | blocks, 4 times the work | seconds | blocks, 16 times | seconds |\n"
            + "|"
            + " --- |" * 6
        )
        for work in WORKS:
            cells = []
            base = by[work, 1]
            for n in LENGTHS[1:]:
                other = by[work, n]
                if base and other:
                    blocks = statistics.median(b for b, _ in other) / statistics.median(b for b, _ in base)
                    seconds = statistics.median(b * s for b, s in other) / statistics.median(
                        b * s for b, s in base
                    )
                    cells += [f"{blocks:.2f}", f"{seconds:.2f}"]
                else:
                    cells += ["-", "-"]
            print(f"| {work} | {min(len(by[work, n]) for n in LENGTHS)} | {' | '.join(cells)} |")
    duets = [line for line in lines if line["what"] == "duet"]
    if duets:
        print(
            "\n| work | pairs | slower at once | correlation at once | in turn | variance, at once / in turn | "
            "times seconds | planted ratio in turn | at once |\n" + "|" + " --- |" * 9
        )
        for line in duets:
            both = {how: np.log(np.array(line[how])) for how in ("at once", "in turn")}
            planted = [
                math.exp(np.median(np.diff(np.log(np.array(line[f"{how}, planted"])))))
                for how in ("in turn", "at once")
            ]
            slower = math.exp(np.median(both["at once"]) - np.median(both["in turn"]))
            # sides differ: their median difference is subtracted
            spread = {how: variance(values[:, 0] - values[:, 1]) for how, values in both.items()}
            related = {
                how: np.corrcoef(np.argsort(np.argsort(v[:, 0])), np.argsort(np.argsort(v[:, 1])))[0, 1]
                for how, v in both.items()
            }
            ratio = spread["at once"] / spread["in turn"]
            print(
                f"| {line['work']} | {min(map(len, both.values()))} | {slower:.2f} | {related['at once']:.2f} | "
                f"{related['in turn']:.2f} | {ratio:.2f} | {ratio * slower / 2:.2f} | {planted[0]:.2f} | {planted[1]:.2f} |"
            )


def main() -> None:
    """Parse the command line and run one verb."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("packed")
    for name, option, default in (("lengths", "--rounds", 3), ("duet", "--pairs", 200), ("summary", None, 0)):
        verb = verbs.add_parser(name)
        verb.add_argument("record", type=Path)
        if option:
            verb.add_argument(option, type=int, default=default)
    arguments = parser.parse_args()
    if arguments.verb == "packed":
        packed()
    elif arguments.verb == "lengths":
        lengths(arguments.record, arguments.rounds)
    elif arguments.verb == "duet":
        duet(arguments.record, arguments.pairs)
    else:
        summary(arguments.record)


if __name__ == "__main__":
    main()
