"""Studies with many factors, and simulated runs of their plans. Times are products of known effects and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pydoe

from iotrial.design.plan import Plan
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.study.model import (
    Better,
    Budget,
    Design,
    DesignKind,
    Factor,
    LabSpec,
    Level,
    Response,
    Role,
    Scale,
    Setting,
    Study,
    Workload,
)
from iotrial.workloads.files import FilesWork
from values import replace

SEED = "5eed" * 8


def factor(name: str, labels: str = "off on", role: Role = Role.TREATMENT, *, whole: bool = False) -> Factor:
    names = labels.split()
    levels = tuple(Level(label, (Setting(f"knob.{name}", label),)) for label in names)
    return Factor(name, role, levels, reference=names[0], default=tuple(names), whole_plot=whole)


def response(name: str, *, workload: str = "w", primary: bool = True) -> Response:
    """A time, of which less is better."""
    return Response(workload, name, "s", Scale.LOG, Better.LOWER, primary)


def reading(name: str = "w", *, only: Mapping[str, tuple[str, ...]] | None = None, **work: Any) -> Workload:
    """A workload that reads files of the lab; ``work`` are fields of FilesWork."""
    return Workload(name, "files", FilesWork(operations=("read",), **work), only=only or {})


TIME = response("wall")


def study(*factors: Factor, **changes: Any) -> Study:
    """A study of these factors, in which one file is read and timed, with these fields changed."""
    base = Study(
        name="many",
        title="",
        question="",
        why="",
        margin=0.05,
        alpha=0.05,
        lab=LabSpec(),
        budget=Budget(),
        factors=factors,
        fixed=(),
        workloads=(reading(files=1, pool=1),),
        responses=(TIME,),
        claims=(),
        text="",
        origin="test",
        design=Design(),
    )
    return replace(base, **changes)


def many(count: int, design: Design) -> Study:
    return study(*(factor(f"f{number:02d}") for number in range(count)), design=design)


def stored_definitive(made: Study, ordered: int = 0) -> Plan:
    """The plan of a stored trial with a definitive screening design, whose first factors have three ordered levels."""
    rows = pydoe.definitive_screening_design(ordered, len(made.factors) - ordered + 2)
    texts = ["".join("-0+"[int(code) + 1] for code in row) for row in rows]
    return Plan.stored(
        replace(made, design=Design(DesignKind.DEFINITIVE)), SEED, {"controls": True, "design_rows": texts}
    )


def simulated(
    plan: Plan,
    blocks: int,
    log_time: Callable[[Mapping[str, str]], float],
    *,
    sd: float = 0.03,
    stretch_sd: float = 0.0,
    injected: float | None = None,
    seed: int | None = 1,
) -> list[ObservedBlock]:
    """Return the plan's blocks with simulated times.

    The log of a time is the sum of the treatment's ``log_time``, a random level per block, a random level per
    stretch, and noise per run. Stretched arms take ``injected`` times as long (default: from the plan's
    margin). ``seed`` None: fresh noise.
    """
    rng = np.random.default_rng(seed)
    found = []
    ratio = 1.0 + 2.0 * plan.study.margin if injected is None else injected
    for index in range(blocks):
        for condition in plan.conditions:
            block = plan.block(condition, index)
            level = rng.normal(0, 0.5)
            stretches = rng.normal(0, stretch_sd, size=64)
            observations = [
                Observation(
                    arm=run.arm.name,
                    kind=run.arm.kind,
                    treatment=run.arm.treatment,
                    slot=run.slot,
                    started_s=float(run.slot),
                    responses={
                        "wall": math.exp(
                            level
                            + stretches[run.plot or 0]
                            + log_time({**run.arm.treatment, **condition.levels})
                            + rng.normal(0, sd)
                            + math.log(ratio) * run.arm.stretched
                        )
                    },
                )
                for run in block.runs
            ]
            found.append(ObservedBlock(condition.key, index, tuple(observations)))
    return found
