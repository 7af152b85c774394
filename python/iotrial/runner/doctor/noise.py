"""The noise floor of a machine: a blind A/A trial of two identical arms, run like any other trial.

It is a built-in study that no list shows: a directory lab, no knob set, the trial kept in memory. The scatter
of its blocks gives the smallest effect that one minute, five minutes and an hour can resolve, for a study of
two levels with this work and its controls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from iotrial.design.plan import Plan
from iotrial.documents import Amount, Count, JsonObject
from iotrial.lab.machine.neighbours import shares, ticks
from iotrial.paths import state_folder
from iotrial.runner.pilot import Pilot, conduct_pilot, line_of, rules_of
from iotrial.runner.planning import default_folder, make_plan
from iotrial.runner.progress import Watcher
from iotrial.runner.resolve import resolve
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.forecast import control_sd, resolvable
from iotrial.stats.model import Analysis, Scatter
from iotrial.study.model import Study
from iotrial.study.reader import read_study

HORIZONS_S = (60.0, 300.0, 3600.0)


class Resolvable(JsonObject, frozen=True):
    """The smallest relative effect that is resolved in this many seconds; null: none."""

    seconds: float
    margin: float | None


class WorkloadNoise(JsonObject, frozen=True):
    """The A/A of one workload.

    ``told_apart``: the two identical arms differed significantly, at the study's alpha divided among the
    workloads.
    """

    workload: str
    blocks: Count
    block_s: float | None
    scatter: Annotated[
        Scatter | None,
        Meta(
            description="Of one comparison, in log units; sd is what planning uses, low to high its 90 % range."
        ),
    ]
    told_apart: bool
    resolvable: list[Resolvable]


class NoiseFloor(JsonObject, frozen=True):
    """The blind A/A. ``failed_controls``: reasons for which a trial would be invalid."""

    seconds: Amount
    blocks: Count
    void: Count
    failures: Count
    alpha: Annotated[float, Meta(gt=0, le=0.5)]
    failed_controls: tuple[str, ...]
    workloads: list[WorkloadNoise]


@dataclass(frozen=True, slots=True)
class Noise:
    """Result of the A/A trial.

    ``stolen``: share of all processors' time that the host gave to other guests meanwhile (None: not
    reported).
    """

    floor: NoiseFloor
    signal: int | None
    stolen: float | None


def twin_study() -> Study:
    """Return the built-in study of two identical arms."""
    text = (files(__package__) / "noise.toml").read_text("utf-8")
    return read_study(text, "doctor", trusted=True)


def measure_noise(watcher: Watcher, *, root: bool, time_s: float, on: str | None) -> Noise:
    """Run the A/A trial for about ``time_s`` seconds. Raises what a trial raises; removes what it made."""
    resolved = resolve(twin_study(), root=root, lab="directory")
    plan = make_plan(resolved, None, controls=True)
    new = _missing_folders()
    before = _ticks()
    try:
        pilot = conduct_pilot(resolved, plan, watcher, time_s=time_s, folder=default_folder(resolved, on))
    finally:
        _remove_empty(new)
    after = _ticks()
    return Noise(
        floor=_floor(pilot, plan),
        signal=pilot.ended.signal,
        stolen=shares(before, after)[1] if before and after else None,
    )


def _ticks() -> dict[str, int] | None:
    try:
        return ticks(Path("/proc/stat").read_text())
    except OSError:
        return None


def _floor(pilot: Pilot, plan: Plan) -> NoiseFloor:
    spec = Spec.from_plan(plan)
    analysis = analyse(spec, pilot.data.blocks)
    return NoiseFloor.of(
        pilot,
        alpha=spec.alpha,
        failed_controls=analysis.invalid_reasons,
        workloads=[_workload(condition.key, pilot, spec, analysis) for condition in plan.conditions],
    )


def _workload(key: str, pilot: Pilot, spec: Spec, analysis: Analysis) -> WorkloadNoise:
    condition = spec.condition(key)
    line = line_of(pilot, spec, condition)
    comparison = line.comparisons[0]
    # as for a study with this workload only, which has the whole alpha
    rules = replace(rules_of(spec, budget_s=0.0, budget_blocks=0), effect_alpha=spec.alpha)

    def margin(horizon: float) -> float | None:
        if comparison.scatter is None or not line.block_s:
            return None
        return resolvable(comparison, int(horizon / line.block_s), rules, control_sd(line, rules))

    effects = [e for e in analysis.effects if e.primary and e.workload == condition.workload]
    return WorkloadNoise(
        workload=condition.workload,
        blocks=sum(b.condition == key and b.void is None for b in pilot.data.blocks),
        block_s=line.block_s,
        scatter=comparison.scatter,
        told_apart=any(e.p_anytime <= e.family_alpha for e in effects),
        resolvable=[Resolvable(seconds, margin(seconds)) for seconds in HORIZONS_S],
    )


def _missing_folders() -> list[Path]:
    """Return the folders that a session will make, deepest first."""
    found = []
    for folder in (state_folder() / "lab", state_folder() / "journal"):
        while not folder.exists() and folder not in found:
            found.append(folder)
            folder = folder.parent
    return sorted(found, key=lambda path: -len(path.parts))


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            continue  # not made after all, or no longer empty
