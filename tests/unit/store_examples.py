"""A small study, with headers and runs, for the store tests."""

from __future__ import annotations

from collections.abc import Iterator

from iotrial.design.plan import Plan
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader, TrialState
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from values import replace

STUDY = """\
[study]
name = "example"
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


def study() -> Study:
    """Return the study that all these trials share."""
    return read_study(STUDY, "example.toml", trusted=True)


def header(trial_id: str = "0123456789abcdef", **options: object) -> TrialHeader:
    """Return a header with made-up facts."""
    return TrialHeader(
        id=trial_id,
        study=study(),
        seed="00" * 16,
        seed_chosen=False,
        alpha=0.05,
        margin=0.03,
        started="2024-05-01T12:00:00Z",
        lab={"kind": "directory", "places": [{"path": "/x"}]},
        host={"kernel": "6.1", "memory_bytes": 2**40},
        options=options,
        version="0.1.0",
    )


def run(block: int = 0, slot: int = 0, *, condition: str = "workload=w", arm: str | None = None) -> RunRecord:
    """Return a run whose numbers are derived from its position."""
    arm = arm or "ab"[slot % 2]
    return RunRecord(
        condition=condition,
        block=block,
        slot=slot,
        arm=arm,
        kind="treatment",
        treatment={"f": arm},
        started_s=block + slot / 10,
        responses={"wall": 0.1 + block / 7, "cpu": 1e-9},
        evidence={"faults_minor": 12.0},
        histograms={"read": [[1000, 5], [2000, 1]]},
        checks={"cache": "warm", "bytes": [1, None, True]},
        files=(slot, block + 100),
    )


def planned_runs(of: TrialHeader, blocks: int = 3) -> Iterator[tuple[tuple[RunRecord, ...], BlockEnd]]:
    """Yield what a conductor would store: the runs of each block of the plan, and the block's end."""
    plan = Plan(of.study, of.seed, controls=bool(of.options.get("controls", True)))
    for index in range(blocks):
        for condition in plan.conditions:
            block = plan.block(condition, index)
            runs = tuple(
                replace(
                    run(index, planned.slot, condition=condition.key, arm=planned.arm.name),
                    kind=planned.arm.kind.value,
                    treatment=dict(planned.arm.treatment),
                    files=planned.files,
                )
                for planned in block.runs
            )
            yield runs, BlockEnd(condition.key, index, index, controls=block.controls)


def filled(store: Store, of: TrialHeader | None = None, *, blocks: int = 3) -> TrialHeader:
    """Store a complete, finished trial of the plan. Return its header."""
    of = of or header(controls=True, time_s=60.0, blocks=blocks)
    store.create_trial(of)
    for runs, end in planned_runs(of, blocks):
        for record in runs:
            store.append_run(of.id, record)
        store.end_block(of.id, end)
    store.note(of.id, "host", "the machine throttled")
    store.set_state(of.id, TrialState.DONE)
    return of
