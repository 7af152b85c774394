"""Synthetic fleet hosts: the batches each would send, as text in files and as blocks in memory.

Rows are as wide as real ones: responses, evidence and checks of a real run of the catalogue, with only the time
drawn at random. ``TEMPLATES`` hosts have a seed and an effect each, and stand in for all.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from iotrial.design.plan import Plan
from iotrial.fleet.batch import Batch, Position, Stage
from iotrial.fleet.order import seed_of
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader, TrialState
from iotrial.store.packed import open_packed, read_packed
from iotrial.store.packed.records import PackedRun, PackedState
from iotrial.study.reader import read_study

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
NAME = "fleet/example"
TEMPLATES, BATCH = 20, 20  # synthetic hosts; blocks per batch
EFFECT, SPREAD, NOISE, STRETCH = 0.9, 0.03, 0.08, 1.06


@dataclass(frozen=True, slots=True)
class Made:
    """One host in memory: serialised records of its start and of each block."""

    header: str
    state: str
    runs: tuple[tuple[str, ...], ...]
    ends: tuple[str, ...]

    def text(
        self, host: int, position: Position, blocks: int, stage: Stage, *, interrupted: bool = False
    ) -> str:
        """Return the batch that this host sends after a position once it has finished ``blocks`` blocks."""
        own = self.header.replace(self.header[: self.header.index(",", 20)], f'["trial",{{"id":"{host:032x}"')
        begun = [own, self.state] if position.states == 0 else []
        ended = [self.state.replace('"running"', '"interrupted"')] if interrupted else []
        fresh = slice(position.blocks, blocks)
        runs = [run for block in self.runs[fresh] for run in block]
        since = f"[{position.states},{position.blocks},{position.events}]"
        records = ",".join([*begun, *ended, *runs, *self.ends[fresh]])
        return (
            f'{{"since":{since},"stage":"{stage}","records":[{records}],"more":false,"problem":"","left":0}}'
        )


def made(folder: Path, template: int, blocks: int) -> Made:
    """Load the host of this template from its file."""
    header = state = ""
    runs: dict[int, list[str]] = {}
    ends: list[str] = []
    for line in (folder / f"made-{template}-{blocks}.jsonl").open():
        for record in json.loads(line)["records"]:
            # same form as written by an agent
            text = msgspec.json.encode(record).decode()
            match record[0]:
                case "trial":
                    header = text
                case "state":
                    state = state or text
                case "run":
                    runs.setdefault(record[1]["block"], []).append(text)
                case "block_end":
                    ends.append(text)
    return Made(header, state, tuple(tuple(block) for block in runs.values()), tuple(ends))


def templates(folder: Path, blocks: int) -> None:
    """Write a file for each synthetic host, with a batch per line."""
    real = _real_run()
    study = read_study(STUDY, "example.toml", trusted=True)
    for number in range(TEMPLATES):
        path = folder / f"made-{number}-{blocks}.jsonl"
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
