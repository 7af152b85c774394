"""Trials for the tests of comparison and export: built by hand, or stored with random run times."""

from __future__ import annotations

import math
import random

from report_fixtures import effect
from store_examples import header, planned_runs

from iotrial.report.analysed import Analysed, Level
from iotrial.stats.model import Effect, Verdict
from iotrial.store import Store
from iotrial.store.model import TrialHeader, TrialState
from values import replace

COLD = {"cache": "cold"}
FAST, SLOW = "fa57" * 8, "510e" * 8


def one(name: str, *effects: Effect, share: int = 2, **changes: object) -> Analysed:
    """Return an analysed trial with these effects; ``name`` is its id."""
    plain = Analysed(
        id=name,
        number=0,
        study="files/permissions",
        title="Permission bits",
        question="Does it?",
        state="done",
        valid=True,
        started="2026-03-01T10:00:00+01:00",
        duration_s=151.0,
        seed="00" * 16,
        alpha=0.05,
        margin=0.03,
        share=share,
        version="0.1.0",
        imported=None,
        headline="Yes.",
        tone="faster",
        machine={"kernel": "6.1"},
        lab={"kind": "image"},
        effects=effects,
        levels=(Level(COLD, "probe", "0444", "wall", "s", 2e-3, 40),),
        blocks=120,
        runs=480,
        void=0,
        failures=0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def faster(value: float, low: float | None, high: float | None, **changes: object) -> Effect:
    return effect(Verdict.FASTER, value, low, high, condition=COLD, **changes)


def measured_trial(
    store: Store, name: str, *, ratio: float, blocks: int = 60, seed: int = 1, failing: bool = False
) -> TrialHeader:
    """Store a trial whose level b takes ``ratio`` times as long as a. ``failing``: b fails in block 3."""
    of = replace(header(name, controls=True, time_s=60.0, blocks=blocks), seed=f"{seed:032x}")
    draw = random.Random(seed)
    store.create_trial(of)
    for runs, end in planned_runs(of, blocks):
        level = math.exp(draw.gauss(0, 0.2))
        for run in runs:
            slowed = 1.06 if run.kind == "positive" else ratio if run.arm == "b" else 1.0
            wall = 2e-3 * level * slowed * math.exp(draw.gauss(0, 0.01))
            failed = "it ended with status 1" if failing and run.block == 3 and run.arm == "b" else None
            responses = {} if failed else {"wall": wall, "cpu": wall / 2}
            store.append_run(of.id, replace(run, responses=responses, failure=failed))
        store.end_block(of.id, end)
    store.set_state(of.id, TrialState.DONE)
    return of
