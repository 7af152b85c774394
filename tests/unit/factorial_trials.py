"""Simulated factorial and screening trials: study file, runs with known effects, and their analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.report.document import Document, build_document
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.store.model import BlockEnd, RunRecord, StoredTrial, TrialData, TrialHeader, TrialState
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.select import select

SEED = "00112233445566778899aabbccddeeff"
LogTime = Callable[[Mapping[str, str]], float]


def screen_text(factors: int, *, design: str = 'kind = "plackett-burman"', extra: str = "") -> str:
    """Return a study file with two-level factors ``f01``, ``f02`` ..., each with levels off and on."""
    tables = "\n".join(
        f'[[factor]]\nname = "f{i:02d}"\nknob = "environment.variable"\nvariable = "F{i:02d}"\nlevels = ["off", "on"]\n'
        for i in range(1, factors + 1)
    )
    return f"""\
# the author's own words
[study]
name = "family/screen"
question = "Which of these matter?"   # a question

[budget]
time = "90 s"

[design]
{design}

{tables}
[[workload]]
name = "probe"
kind = "command"
argv = ["true"]
{extra}"""


def conducted(
    text: str | Study,
    log_time: LogTime,
    *,
    blocks: int = 40,
    sd: float = 0.02,
    sets: Mapping[str, list[str]] | None = None,
    controls: bool = True,
    origin: str = "screen.toml",
) -> Document:
    """Return the document of a simulated trial.

    Times are log-normal, with large changes from block to block that all arms share, plus the treatment's
    ``log_time``. Stretched arms take longer by the injected ratio. The counter ``reads`` doubles while f01 is
    on.
    """
    declared = read_study(text, origin, trusted=False) if isinstance(text, str) else text
    study = select(declared, sets=sets)
    plan = Plan(study, SEED, controls=controls)
    spec = Spec.from_plan(plan)
    rng = np.random.default_rng(5)
    observed: list[ObservedBlock] = []
    records: list[RunRecord] = []
    ends: list[BlockEnd] = []
    clock = 0.0
    for index in range(blocks):
        for condition in plan.conditions:
            block = plan.block(condition, index)
            level = rng.normal(0.0, 0.5)
            found = []
            for run in block.runs:
                arm = run.arm
                stretched = arm.stretched or arm.kind is ArmKind.POSITIVE
                wall = math.exp(
                    -7.0
                    + level
                    + log_time({**arm.treatment, **condition.levels})
                    + stretched * math.log(spec.injected)
                    + rng.normal(0.0, sd)
                )
                responses = {"wall": wall, "cpu": wall / 2}
                reads = 200.0 if arm.treatment.get("f01") == "on" else 100.0
                found.append(Observation(arm.name, arm.kind, arm.treatment, run.slot, clock, responses))
                records.append(
                    RunRecord(
                        condition.key, index, run.slot, arm.name, arm.kind.value, arm.treatment, clock, None, responses,
                        evidence={"reads": reads + rng.normal(), "faults": 3.0},
                    )
                )  # fmt: skip
                clock += 0.01
            observed.append(ObservedBlock(condition.key, index, tuple(found)))
            ends.append(BlockEnd(condition.key, index, index, block.controls))
    data = TrialData(stored(study, controls=controls), tuple(observed), tuple(records), tuple(ends))
    return build_document(data, analyse(spec, data.blocks))


def stored(study: Study, *, controls: bool = True) -> StoredTrial:
    """Return a trial of this study as the store lists it."""
    header = TrialHeader(
        id="t-0001",
        study=study,
        seed=SEED,
        seed_chosen=False,
        alpha=study.alpha,
        margin=study.margin,
        started="2026-03-01T10:00:00+00:00",
        lab={"kind": "directory"},
        host={"kernel": "6.18.0"},
        options={"controls": controls},
        version="0.1.0",
    )
    return StoredTrial(7, header, TrialState.DONE, 61.0)


def on(treatment: Mapping[str, str], factor: str) -> bool:
    """Return whether a factor is on."""
    return treatment.get(factor) == "on"
