"""Synthetic fleet hosts: the packed trial that each would return.

Rows are as wide as real ones: responses, evidence and checks of a real run of the catalogue, with only the time
drawn at random. ``TEMPLATES`` hosts have a seed and an effect each, and stand in for all.
"""

from __future__ import annotations

import io
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iotrial.design.plan import Plan
from iotrial.fleet.order import seed_of
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader, TrialState
from iotrial.store.packed import PackedRecord, open_packed, read_packed
from iotrial.store.packed.reading import COUNTS
from iotrial.store.packed.records import PackedRun, PackedState, to_value
from iotrial.store.packed.stream import write_lines
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
TEMPLATES = 20  # synthetic hosts
EFFECT, SPREAD, NOISE, STRETCH = 0.9, 0.03, 0.08, 1.06


@dataclass(frozen=True, slots=True)
class Made:
    """One synthetic host: the records of its packed trial, as they are written."""

    lines: tuple[tuple[str, Any], ...]

    def packed(self, host: int) -> bytes:
        """Return the packed trial of a host that differs in the id of its trial."""
        kind, header = self.lines[0]
        lines = [(kind, {**header, "id": f"{host:032x}"}), *self.lines[1:]]
        counted = Counter(kind for kind, _ in lines)
        file = io.BytesIO()
        write_lines(file, lines, {name: counted[kind] for kind, name in COUNTS.items()})
        return file.getvalue()


def templates(blocks: int) -> list[Made]:
    """Make the synthetic hosts."""
    real = _real_run()
    study = read_study(STUDY, "example.toml", trusted=True)
    found = []
    for number in range(TEMPLATES):
        draw = random.Random(number)
        header = TrialHeader(
            id=f"{number:032x}",
            study=study,
            seed=seed_of(FLEET, f"h{number}"),
            seed_chosen=False,
            alpha=0.05,
            margin=0.03,
            started="2026-11-01T12:00:00Z",
            lab={"kind": "directory", "places": [{"filesystem": draw.choice(["ext4", "xfs"])}]},
            host={"kernel": draw.choice(["6.1.0", "6.12.1"]), "system": "Linux", "processors": 8},
            options={"controls": True, "blocks": blocks},
            version="0.1.0",
        )
        found.append(Made(tuple(map(to_value, _records(header, real, blocks, draw)))))
    return found


def _real_run() -> RunRecord:
    with open_packed(REAL) as file, Store.in_memory() as store:
        data = store.data(store.unpack(read_packed(file, "it"), source="it").number)
    return next(run for run in data.runs if run.failure is None)


def _records(
    header: TrialHeader, real: RunRecord, blocks: int, draw: random.Random
) -> Iterator[PackedRecord]:
    plan = Plan(header.study, header.seed, controls=True)
    (condition,) = plan.conditions
    ratio = EFFECT * math.exp(draw.gauss(0, SPREAD))
    began = 1.7e9
    ends: list[BlockEnd] = []
    yield header
    yield PackedState(began, TrialState.RUNNING, None)
    yield PackedState(began + blocks, TrialState.DONE, None)
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
            yield PackedRun(run, 1, began + run.started_s)
        ends.append(BlockEnd(condition.key, index, index, controls=block.controls))
    yield from ends
