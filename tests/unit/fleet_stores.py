"""Stores that hold a fleet: one trial with random run times per host, as a coordinator stores them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from store_examples import header, planned_runs

from iotrial.store import Store
from iotrial.store.exchange import Part
from iotrial.store.model import BlockEnd, TrialState
from iotrial.store.packed.records import PackedRun, PackedState
from values import replace

FLEET = "f1ee7" + "0" * 27


def add_host(
    store: Store,
    number: int,
    *,
    ratio: float = 0.8,
    blocks: int = 30,
    fleet: str = FLEET,
    name: str | None = None,
    state: TrialState = TrialState.DONE,
    reason: str | None = None,
    copy_slower: float = 1.0,
    failing: bool = False,
    facts: Mapping[str, object] | None = None,
    filesystem: str = "ext4",
) -> int:
    """Store the trial of a host whose level b takes ``ratio`` times as long as a. Return the trial's number.

    ``copy_slower``: ratio of the negative control, which fails if this is far from 1. ``failing``: b fails in
    block 3.
    """
    of = replace(
        header(f"{number:032x}", controls=True, blocks=blocks),
        seed=f"{number + 1:032x}",
        host={"kernel": "6.1", "processors": 4, **(facts or {})},
        lab={"kind": "directory", "places": [{"filesystem": filesystem}]},
    )
    draw = random.Random(number)
    runs: list[PackedRun] = []
    ends: list[BlockEnd] = []
    for planned, end in planned_runs(of, blocks):
        level = math.exp(draw.gauss(0, 0.2))
        for run in planned:
            slowed = {"positive": 1.06, "negative": copy_slower}.get(
                run.kind, ratio if run.arm == "b" else 1.0
            )
            wall = 2e-3 * level * slowed * math.exp(draw.gauss(0, 0.01))
            failed = "it ended with status 1" if failing and run.block == 3 and run.arm == "b" else None
            responses = {} if failed else {"wall": wall, "cpu": wall / 2}
            runs.append(PackedRun(replace(run, responses=responses, failure=failed), 1, 1e9 + run.started_s))
        ends.append(end)
    states = [PackedState(1e9, TrialState.RUNNING, None)]
    if state is not TrialState.RUNNING:
        states.append(PackedState(1e9 + 60, state, reason))
    part = Part(states=tuple(states), runs=tuple(runs), ends=tuple(ends))
    made = store.gathering().begin(of, fleet, name or f"h{number}", part)
    if state is TrialState.RUNNING:
        store.set_state(of.id, state)  # under this process
    return made
