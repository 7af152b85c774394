"""Simulated matrix trials with a fixed time for every test of every cell, so that rates, ratios and verdicts are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from factorial_trials import SEED, stored

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.report.document import Document, build_document
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.store.model import BlockEnd, RunRecord, TrialData
from iotrial.study.reader import read_study
from iotrial.workloads.matrix import MatrixWork, response_of

KIB = 1024
#: seconds of a test by treatment, file and record size in KiB
Time = Callable[[str, str, int, int], float]


def text(
    tests: str = '["write", "read", "fread"]',
    files: str = '["64 KiB", "256 KiB", "1 MiB"]',
    records: str = '["4 KiB", "64 KiB", "512 KiB"]',
    primary: str = "write read fread",
    extra: str = "",
) -> str:
    responses = "\n".join(f'[[response]]\nname = "{name}_time"\nprimary = true' for name in primary.split())
    return f"""
[study]
name = "own/matrix"
question = "Which cells differ?"
margin = "5 %"
[[factor]]
name = "journal"
knob = "mount.option"
levels = ["data=ordered", "data=journal"]
[[factor]]
name = "file_size"
knob = "matrix.file_size"
levels = {files}
role = "condition"
[[factor]]
name = "record_size"
knob = "matrix.record_size"
levels = {records}
role = "condition"
[[workload]]
name = "cells"
kind = "matrix"
tests = {tests}
{extra}
{responses}
"""


def conducted(
    study_text: str, time: Time, *, blocks: int = 40, sd: float = 0.01, stretches: str = "all"
) -> Document:
    """Return the document of a simulated trial. ``stretches``: tests with a stretched positive control, or "all"."""
    study = read_study(study_text, "own.toml", trusted=False)
    plan = Plan(study, SEED)
    spec = Spec.from_plan(plan)
    rng = np.random.default_rng(3)
    work = study.workloads[0].work
    assert isinstance(work, MatrixWork)
    observed, records, ends = [], [], []
    clock = 0.0
    for index in range(blocks):
        for condition in plan.conditions:
            file, record = (
                int(level.removesuffix(" KiB")) if "KiB" in level else int(level.removesuffix(" MiB")) * KIB
                for level in (condition.levels["file_size"], condition.levels["record_size"])
            )
            block = plan.block(condition, index)
            common = rng.normal(0.0, 0.3)
            found = []
            for run in block.runs:
                responses = {}
                for test in work.tests:
                    longer = run.arm.kind is ArmKind.POSITIVE and stretches in ("all", test)
                    seconds = time(run.arm.treatment["journal"], test, file, record) * math.exp(
                        common + rng.normal(0.0, sd)
                    )
                    responses[response_of(test)] = seconds * (spec.injected if longer else 1.0)
                responses["wall"] = sum(responses.values())
                treatment = run.arm.treatment
                found.append(Observation(run.arm.name, run.arm.kind, treatment, run.slot, clock, responses))
                records.append(
                    RunRecord(
                        condition.key, index, run.slot, run.arm.name, run.arm.kind.value, treatment, clock, None, responses
                    )
                )  # fmt: skip
                clock += 0.01
            observed.append(ObservedBlock(condition.key, index, tuple(found)))
            ends.append(BlockEnd(condition.key, index, index, block.controls))
    data = TrialData(stored(study), tuple(observed), tuple(records), tuple(ends))
    return build_document(data, analyse(spec, data.blocks))
