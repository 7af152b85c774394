"""Hand-made trials for the report tests: what a store would return, with an analysis.

Nothing here comes from the analysis code. Effects are stated; runs are drawn from simple distributions with a
fixed seed, so that figures have something to show.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from iotrial.design.model import ArmKind
from iotrial.report.document import Document, build_document
from iotrial.stats.model import (
    Analysis,
    Control,
    Diagnostic,
    Effect,
    Observation,
    ObservedBlock,
    Verdict,
    VoidCount,
)
from iotrial.store.model import BlockEnd, RunRecord, StoredTrial, TrialData, TrialHeader, TrialState
from iotrial.study.model import (
    Better,
    Budget,
    Claim,
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

SEED = "00112233445566778899aabbccddeeff"
NEGATIVE, POSITIVE = "control:negative", "control:positive"


def factor(name: str, labels: Sequence[str], *, role: Role, reference: str | None = None) -> Factor:
    levels = tuple(Level(label, (Setting(f"file.{name}", label),)) for label in labels)
    return Factor(name, role, levels, reference or labels[0], tuple(labels))


def study(
    *,
    name: str = "files/permissions",
    title: str = "Permission bits",
    question: str = "Does mode 0444 make reading a small file faster?",
    treatment: Factor | None = None,
    conditions: Sequence[Factor] | None = None,
    claims: Sequence[Claim] = (),
    margin: float = 0.03,
) -> Study:
    if treatment is None:
        treatment = factor("mode", ["0777", "0444"], role=Role.TREATMENT, reference="0777")
    if conditions is None:
        conditions = (
            factor("cache", ["cold", "warm"], role=Role.CONDITION),
            factor("size", ["4 KiB", "10 KiB"], role=Role.CONDITION),
        )
    work = FilesWork(operations=("open", "read-to-end", "close"), files=20, size_bytes=10240)
    return Study(
        name=name,
        title=title,
        question=question,
        why="A published script found 12 %.",
        margin=margin,
        alpha=0.05,
        lab=LabSpec(kind="image"),
        budget=Budget(time_s=300.0, blocks=2000),
        factors=(treatment, *conditions),
        fixed=(),
        workloads=(Workload("probe", "files", work),),
        responses=(
            Response("probe", "wall", "s", Scale.LOG, Better.LOWER, primary=True),
            Response("probe", "cpu", "s", Scale.LOG, Better.LOWER, primary=False),
        ),
        claims=tuple(claims),
        text="",
        origin=name,
    )


def effect(
    verdict: Verdict,
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    level: str = "0444",
    reference: str = "0777",
    condition: Mapping[str, str] | None = None,
    **changes: object,
) -> Effect:
    plain = Effect(
        kind="main",
        factor="mode",
        level=level,
        reference=reference,
        condition=condition or {},
        workload="probe",
        response="wall",
        unit="s",
        scale=Scale.LOG,
        better=Better.LOWER,
        primary=True,
        value=value,
        low=low,
        high=high,
        family_alpha=0.0125,
        p_anytime=1.0 if verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE) else 0.001,
        verdict=verdict,
        detectably=None,
        reason=None,
        detectable=None,
        blocks=120,
        failures=0,
        decided=True,
        block_sd=0.04,
        margin=0.03,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


CONDITIONS = tuple(
    {"cache": cache, "size": size} for cache in ("cold", "warm") for size in ("4 KiB", "10 KiB")
)


def key(condition: Mapping[str, str]) -> str:
    pairs = sorted({**condition, "workload": "probe"}.items())
    return ",".join(f"{name}={label}" for name, label in pairs)


def controls(conditions: Sequence[Mapping[str, str]] = CONDITIONS) -> tuple[Control, ...]:
    found = []
    for condition in conditions:
        named = {**condition, "workload": "probe"}
        found.append(Control("negative", named, "wall", 1.0, 1.001, 0.985, 1.017, True, False, 60))
        found.append(Control("positive", named, "wall", 1.06, 1.058, 1.041, 1.076, True, True, 60))
    return tuple(found)


def diagnostics(conditions: Sequence[Mapping[str, str]] = CONDITIONS) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic({**condition, "workload": "probe"}, "wall", 120, 0.004, 0.3, 0.38, 0.21, 0.41, 0.62)
        for condition in conditions
    )


def measured(
    of: Study,
    *,
    conditions: Sequence[Mapping[str, str]] = CONDITIONS,
    blocks: int = 40,
    ratios: Mapping[str, float] | None = None,
    void: Mapping[tuple[int, int], str] | None = None,
    failing: str | None = None,
    gap_at: int | None = None,
    histograms: bool = True,
    spread: float = 0.06,
) -> tuple[tuple[ObservedBlock, ...], tuple[RunRecord, ...], tuple[BlockEnd, ...]]:
    """Return simulated blocks of every condition in turn. ``void`` maps (condition index, block) to a rule."""
    draw = random.Random(7)
    treatment = of.treatment_factors[0]
    found: list[ObservedBlock] = []
    runs: list[RunRecord] = []
    ends: list[BlockEnd] = []
    clock = 0.0
    labels = [level.label for level in treatment.levels]
    for index in range(blocks):
        for position, condition in enumerate(conditions):
            with_controls = index % 2 == 0
            arms: list[tuple[str, ArmKind, str, float]] = [
                (label, ArmKind.TREATMENT, label, (ratios or {}).get(label, 1.0)) for label in labels
            ]
            if with_controls:
                arms += [(NEGATIVE, ArmKind.NEGATIVE, treatment.reference, 1.0)]
                arms += [(POSITIVE, ArmKind.POSITIVE, treatment.reference, 1.06)]
            draw.shuffle(arms)
            if gap_at == index and position == 0:
                clock += 40.0
            rule = (void or {}).get((position, index))
            base = 2e-4 * (1 + 3 * position) * math.exp(0.002 * index + draw.gauss(0, spread))
            observations = []
            for slot, (arm, kind, label, ratio) in enumerate(arms):
                failure = "md5sum ended with status 1" if failing == arm and index % 13 == 5 else None
                wall = base * ratio * math.exp(draw.gauss(0, spread))
                responses = {} if failure else {"wall": wall, "cpu": wall * 0.6}
                levels = {treatment.name: label}
                observations.append(Observation(arm, kind, levels, slot, clock, responses, failure))
                read = 40960.0 * (1 if position < len(conditions) / 2 else 0)
                middle = wall * 1e9 / 40
                histogram = [
                    [int(middle * 1.03**step), max(1, round(60 * math.exp(-0.002 * step * step)))]
                    for step in range(-40, 60)
                ]
                runs.append(
                    RunRecord(
                        key(condition),
                        index,
                        slot,
                        arm,
                        kind.value,
                        levels,
                        clock,
                        failure,
                        responses,
                        evidence={"device_read_bytes": read, "faults_minor": 3.0, "open_time": wall * 0.3},
                        histograms={"open": histogram, "read-to-end": histogram} if histograms else {},
                    )
                )
                clock += wall * 3
            gap = gap_at == index and position == 0
            level = labels[-1] if rule else None
            found.append(ObservedBlock(key(condition), index, tuple(observations), rule, level, gap))
            ends.append(BlockEnd(key(condition), index, index, with_controls, rule, level, gap))
    return tuple(found), tuple(runs), tuple(ends)


def trial(of: Study, *, state: TrialState = TrialState.DONE, reason: str | None = None) -> StoredTrial:
    header = TrialHeader(
        id="t-0001",
        study=of,
        seed=SEED,
        seed_chosen=False,
        alpha=0.05,
        margin=of.margin,
        started="2026-03-01T10:00:00+01:00",
        lab={"kind": "image", "filesystem": "ext4", "places": [{"device": "loop3", "direct_io": True}]},
        host={"kernel": "6.18.0", "cpu": {"model": "Some CPU", "count": 2}, "memory_bytes": 4 << 30},
        options={"controls": True, "time_s": 300.0},
        version="0.1.0",
    )
    return StoredTrial(12, header, state, 151.0, reason)


def document(
    effects: Sequence[Effect],
    *,
    of: Study | None = None,
    state: TrialState = TrialState.DONE,
    reason: str | None = None,
    control: Sequence[Control] | None = None,
    valid: bool = True,
    void: Sequence[VoidCount] = (),
    options: Mapping[str, object] | None = None,
    runs: Mapping[str, object] | None = None,
) -> Document:
    """Return a document with the given effects; ``runs`` is passed to :func:`measured`."""
    declared = of or study()
    blocks, records, ends = measured(declared, **{"blocks": 6, **(runs or {})})  # type: ignore[arg-type]
    stored = trial(declared, state=state, reason=reason)
    if options is not None:
        stored = replace(stored, header=replace(stored.header, options=options))
    analysis = Analysis(
        effects=tuple(effects),
        controls=controls() if control is None else tuple(control),
        void=tuple(void),
        diagnostics=diagnostics(),
        valid=valid,
    )
    return build_document(TrialData(stored, blocks, records, ends), analysis)


def all_equivalent() -> list[Effect]:
    intervals = ((1.001, 0.992, 1.010), (1.002, 0.985, 1.021), (0.999, 0.991, 1.008), (1.004, 0.996, 1.012))
    return [
        effect(Verdict.EQUIVALENT, *numbers, condition=condition)
        for numbers, condition in zip(intervals, CONDITIONS, strict=True)
    ]
