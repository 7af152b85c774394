"""The summary of one trial without its runs: small enough to store for thousands of trials and to compare side by side.

A comparison of several trials analyses each at a fraction of its alpha (``share``), so that all intervals hold
simultaneously.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from msgspec import Meta, structs, to_builtins

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.report.document import Document, answers, flattened
from iotrial.report.evidence import sound_runs
from iotrial.report.safety import Risks
from iotrial.stats.model import Analysis, Effect
from iotrial.stats.questions import Answered, answered
from iotrial.stats.run_statistics import quantile_bounds
from iotrial.stats.spec import Spec
from iotrial.store.states import TrialState
from iotrial.study.model import Setting, Study
from iotrial.terminal import escape


@dataclass(frozen=True, slots=True)
class Level:
    """The median of one response over the valid runs of one arm. Across trials it is observational: it gives no verdict.

    ``low`` and ``high`` bound it at the trial's ``alpha / share``, both together, if its runs are alike; None: no bound yet.
    """

    condition: Mapping[str, str]
    workload: str
    arm: str
    response: str
    unit: str
    median: float
    runs: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Analysed:
    """One trial, analysed at ``alpha / share``. ``number`` is 0 for a packed trial that is not in the store.

    ``effects`` holds the primary effects of every kind, cells before the main effect that they answer, and the pooled
    effects. ``machine`` and ``lab`` map names to facts in words. ``alpha`` is the trial's own, undivided. ``does``
    describes, by name, what the workloads do and what the levels set: two trials may use the same labels for different
    things. ``risks`` lists the levels that put data at risk, and how. ``answered``: the questions that the trial asks of the
    account of errors, with their evidence, which is 0 if the trial is invalid; none of a trial from elsewhere.
    """

    id: str
    number: int
    study: str
    title: str
    question: str
    state: TrialState
    valid: Annotated[bool, Meta(description="False: the trial gives no verdicts and is not compared.")]
    started: str
    duration_s: float
    seed: str
    alpha: Annotated[float, Meta(description="The trial's own.")]
    margin: float
    share: int
    version: str
    imported: str | None
    headline: str
    tone: str
    machine: Mapping[str, str]
    lab: Mapping[str, str]
    effects: tuple[Effect, ...]
    levels: tuple[Level, ...]
    blocks: int
    runs: int
    void: int
    failures: int
    does: Mapping[str, str] = field(default_factory=dict)
    risks: Risks = field(default_factory=dict)
    answered: tuple[Answered, ...] = ()


def analysed(document: Document, analysis: Analysis | None = None, *, share: int = 1) -> Analysed:
    """Summarise a document, from ``analysis`` (made at ``alpha / share``) if given, else from the document's own analysis."""
    trial, data = document.trial, document.data
    header = trial.header
    return Analysed(
        id=header.id,
        number=trial.number,
        study=header.study.name,
        title=document.title,
        question=header.study.question,
        state=trial.state,
        valid=document.valid,
        started=header.started,
        duration_s=trial.duration_s,
        seed=header.seed,
        alpha=header.alpha,
        margin=header.margin,
        share=share,
        version=header.version,
        imported=trial.imported,
        headline=document.summary.headline,
        tone=document.summary.tone.value,
        machine=dict(document.machine),
        lab=dict(flattened(header.lab)),
        effects=tuple(_kept(document, analysis or document.analysis, share)),
        levels=tuple(_levels(document, header.alpha / share)),
        blocks=len(data.ends),
        runs=len(data.runs),
        void=len(document.void),
        failures=len(document.failures),
        does=dict(_does(header.study)),
        risks=document.risks,
        answered=tuple(_answered(document)),
    )


def _answered(document: Document) -> Iterator[Answered]:
    header = document.trial.header
    if document.trial.imported is not None or document.trial.number == 0:
        return
    try:
        plan = Plan.stored(header.study, header.seed, header.options)
    except ValueError:  # a header that nobody here has written
        return
    spec = Spec.from_plan(plan, header.options, alpha=header.alpha, margin=header.margin)
    for one in answered(spec, document.data.blocks):
        yield one if document.valid else replace(one, e_value=0.0)


def _kept(document: Document, analysis: Analysis, share: int) -> Iterator[Effect]:
    cells = {
        id(one.main): one.cells for one in answers(document.data, analysis, document.adjusted, share=share)
    }
    for effect in analysis.effects:
        if id(effect) in cells:
            yield from (cell for _, cell in cells[id(effect)] if cell.kind == "cell")
            yield replace(effect, averaged=True)
        elif effect.primary or effect.kind == "pooled":
            yield effect


def _levels(document: Document, alpha: float) -> Iterator[Level]:
    """Yield medians of primary responses by condition and treatment, in the order in which they were first measured."""
    study = document.trial.header.study
    responses = {(one.workload, one.name): one for one in study.responses if one.primary}
    names = {name for _, name in responses}
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in sound_runs(document.data):
        if run.kind == ArmKind.TREATMENT.value:
            for name, value in run.responses.items():
                if name in names:
                    values.setdefault((run.condition, run.arm, name), []).append(value)
    for (key, arm, name), of_arm in values.items():
        condition = document.conditions.of_key(key)
        response = responses.get((condition.workload, name))
        if response is not None:
            at = (dict(condition.levels), condition.workload, arm)
            low, high = (
                bound if math.isfinite(bound) else None
                for bound in quantile_bounds(np.sort(np.asarray(of_arm)), 0.5, alpha)
            )
            yield Level(*at, name, response.unit, float(np.median(of_arm)), len(of_arm), low, high)


def _does(study: Study) -> Iterator[tuple[str, str]]:
    for workload in study.workloads:
        name = f"workload {workload.name}"
        yield name, workload.work.kind
        yield from flattened(to_builtins(structs.asdict(workload.work)), name)
    for factor in study.factors:
        for level in factor.levels:
            yield (
                escape(f"{factor.name} {level.label}"),
                ", ".join(_set(setting) for setting in level.settings),
            )
    for setting in study.fixed:
        yield escape(f"pinned {setting.knob}"), _set(setting)


def _set(setting: Setting) -> str:
    options = "".join(f", {name} {value}" for name, value in setting.options)
    return escape(f"{setting.knob} = {setting.value}{options}")
