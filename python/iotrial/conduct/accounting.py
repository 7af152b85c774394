"""System calls of each arm, counted in repetitions of their own after the last block.

Nothing that is traced is timed: these repetitions are in no block, and nothing of them but their calls is kept. They go
through the same transitions as a run, in blocks that are drawn by the plan like all others, so that arms stay comparable.
Where the kernel does not let us count, the trial is as good without, and a note says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from iotrial.conduct.progress import Watcher
from iotrial.conduct.runner import Runner
from iotrial.conduct.signals import StopSignals
from iotrial.conduct.works import driver
from iotrial.design.model import ArmKind, Condition
from iotrial.design.plan import Plan
from iotrial.errors import IotrialError
from iotrial.store import Store
from iotrial.store.model import AccountedCall
from iotrial.study.model import DesignKind, Study

REPETITIONS = 3
#: a further repetition of all arms begins only while those before it have taken less than this
ENOUGH_S = 5.0
NOT_ACCOUNTED = "not-accounted"


def accounts(study: Study) -> tuple[str, ...]:
    """The workloads whose system calls are counted after the last block: commands, unless the study says no. Screens
    of many factors are left out: they have dozens of arms, and no two that differ in one factor."""
    if not study.account or study.design.kind is not DesignKind.FULL:
        return ()
    return tuple(w.name for w in study.workloads if driver(w.work).accountable)


def account(
    plan: Plan,
    conditions: Iterable[tuple[Condition, int]],
    runner: Runner,
    store: Store,
    trial: str,
    watcher: Watcher,
    signals: StopSignals,
) -> None:
    """Count the calls of every treatment of these conditions, each with the number of a block that was not run.

    Raises Stopped on a signal; whatever else goes wrong is noted in the trial.
    """
    wanted = accounts(plan.study)
    conditions = [(condition, block) for condition, block in conditions if condition.workload in wanted]
    if not conditions:
        return
    watcher.say("counting the system calls of each arm, in repetitions that are not timed")
    began = time.monotonic()
    try:
        for repetition in range(REPETITIONS):
            for condition, block in conditions:
                _repetition(plan, condition, block, repetition, runner, store, trial, signals)
            if time.monotonic() - began > ENOUGH_S:
                break
    except IotrialError as error:
        watcher.say(f"system calls were not counted: {error.message}")
        store.note(trial, NOT_ACCOUNTED, error.message)


def _repetition(
    plan: Plan,
    condition: Condition,
    block: int,
    repetition: int,
    runner: Runner,
    store: Store,
    trial: str,
    signals: StopSignals,
) -> None:
    for planned in plan.block(condition, block + repetition).runs:
        if planned.arm.kind is not ArmKind.TREATMENT or planned.arm.stretched:
            continue
        with signals.interruptible():
            found = runner.account(condition, planned, block=block + repetition)
        store.append_calls(
            trial,
            [
                _call(condition, planned.arm.name, planned.arm.treatment, repetition, name, call)
                for name, call in found.items()
            ],
        )
        signals.check()


def _call(
    condition: Condition,
    arm: str,
    treatment: Mapping[str, str],
    repetition: int,
    name: str,
    call: Mapping[str, object],
) -> AccountedCall:
    histogram, errors = call["histogram"], call["errors"]
    count, total = call["count"], call["total_ns"]
    assert isinstance(histogram, list)
    assert isinstance(errors, dict)
    assert isinstance(count, int)
    assert isinstance(total, int)
    return AccountedCall(
        condition=condition.key,
        arm=arm,
        treatment=dict(treatment),
        repetition=repetition,
        name=name,
        count=count,
        errors=errors,
        total_ns=total,
        histogram=histogram,
    )
