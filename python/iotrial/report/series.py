"""Data of the figures: runs by arm in order of time, and latency histograms merged by arm.

Runs come from the complete blocks, with void ones marked and kept apart. This module has only numbers; plots decide how
they look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import arm_order, sound_runs
from iotrial.stats.model import ObservedBlock
from iotrial.store.model import TrialData
from iotrial.study.model import Response, Study
from iotrial.terminal import escape

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_CONTROL_NAMES = {ArmKind.NEGATIVE: "copy of the reference", ArmKind.POSITIVE: "slowed copy"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm in a figure. ``position`` selects colour and marker; the reference is 0."""

    name: str
    label: str
    kind: ArmKind
    position: int

    @property
    def is_control(self) -> bool:
        """Whether it is a control arm, drawn behind the treatments."""
        return self.kind is not ArmKind.TREATMENT


@dataclass(frozen=True, slots=True)
class ArmSeries:
    """The runs of one arm in one condition, in order of time. ``void`` marks those of void blocks."""

    arm: Arm
    at_s: Floats
    value: Floats
    void: Flags

    @property
    def counted(self) -> Floats:
        """The values of valid blocks."""
        return self.value[~self.void]


@dataclass(frozen=True, slots=True)
class Panel:
    """One condition's main response over time. ``gaps_s``: when an interrupted trial was resumed."""

    condition: ConditionText
    response: str
    unit: str
    series: tuple[ArmSeries, ...]
    gaps_s: tuple[float, ...]
    void_blocks: int

    @property
    def runs(self) -> int:
        """The number of runs in the panel."""
        return sum(series.value.size for series in self.series)


@dataclass(frozen=True, slots=True)
class LatencyPanel:
    """The latencies of one operation in one condition: by arm, (nanoseconds, count) in ascending order."""

    condition: ConditionText
    operation: str
    arms: tuple[tuple[Arm, Floats, Floats], ...]


def arms_of(data: TrialData, by: str | None = None) -> tuple[Arm, ...]:
    """Return all arms of the trial: reference, treatments in the study's order, controls.

    ``by`` names a factor; its levels replace the arms if there are too many to distinguish.
    """
    if by is not None:
        factor = data.trial.header.study.factor(by)
        return tuple(
            Arm(label, f"{escape(by)} {escape(label)}", ArmKind.TREATMENT, i)
            for i, label in enumerate((factor.reference, *factor.others))
        )
    treatments: dict[str, Mapping[str, str]] = {}
    controls: dict[ArmKind, str] = {}
    for block in data.blocks:
        for run in block.observations:
            if run.kind is ArmKind.TREATMENT:
                treatments.setdefault(run.arm, run.treatment)
            else:
                controls.setdefault(run.kind, run.arm)
    names = arm_order(data.trial.header.study, treatments)
    arms = [Arm(name, escape(name), ArmKind.TREATMENT, i) for i, name in enumerate(names)]
    arms += [
        Arm(controls[kind], _CONTROL_NAMES[kind], kind, len(names) + i)
        for i, kind in enumerate(kind for kind in _CONTROL_NAMES if kind in controls)
    ]
    return tuple(arms)


def panels_of(
    data: TrialData, conditions: Conditions, arms: Sequence[Arm], by: str | None = None
) -> tuple[Panel, ...]:
    """Return one panel per condition, in the study's order, omitting conditions without a value. ``by`` as in ``arms_of``."""
    by_condition: dict[str, list[ObservedBlock]] = {}
    for block in data.blocks:
        by_condition.setdefault(block.condition, []).append(block)
    gaps_s = _gaps(data.blocks)
    found = []
    for key, blocks in by_condition.items():
        condition = conditions.of_key(key)
        response = main_response(data.trial.header.study, condition.workload)
        if response is not None and (panel := _panel(condition, response, blocks, arms, gaps_s, by)).series:
            found.append(panel)
    return tuple(sorted(found, key=lambda panel: panel.condition.order))


def main_response(study: Study, workload: str) -> Response | None:
    """Return the first primary response of a workload, else its first response, else None."""
    own = [response for response in study.responses if response.workload == workload]
    return next((response for response in own if response.primary), own[0] if own else None)


def latencies_of(
    data: TrialData, conditions: Conditions, arms: Sequence[Arm], by: str | None = None
) -> tuple[LatencyPanel, ...]:
    """Return the stored histograms, merged by arm over the valid runs; treatments only. ``by`` as in ``arms_of``."""
    known = {arm.name: arm for arm in arms if not arm.is_control}
    # by condition and operation, then by arm: all buckets of all runs, as one list of latencies and one of counts
    merged: dict[tuple[str, str], dict[str, tuple[list[int], list[int]]]] = {}
    for run in sound_runs(data):
        name = run.arm if by is None else run.treatment.get(by, "")
        if name not in known or run.kind != ArmKind.TREATMENT.value:
            continue
        for operation, histogram in run.histograms.items():
            by_name = merged.setdefault((run.condition, operation), {})
            latencies_ns, counts = by_name.setdefault(name, ([], []))
            latencies_ns += [bar[0] for bar in histogram]
            counts += [bar[1] for bar in histogram]
    panels = []
    for (key, operation), by_arm in merged.items():
        drawn = []
        for arm in known.values():
            latencies_ns, counts = by_arm.get(arm.name, ([], []))
            if latencies_ns:
                drawn.append((arm, *_added_up(latencies_ns, counts)))
        if drawn:
            panels.append(LatencyPanel(conditions.of_key(key), escape(operation), tuple(drawn)))
    return tuple(sorted(panels, key=lambda panel: panel.condition.order))


def _added_up(latencies_ns: Sequence[int], counts: Sequence[int]) -> tuple[Floats, Floats]:
    """Merge buckets of the same latency, in ascending order."""
    latencies, places = np.unique(np.asarray(latencies_ns, dtype=np.float64), return_inverse=True)
    added = np.bincount(places, weights=np.asarray(counts, dtype=np.float64))
    return latencies, added.astype(np.float64)


def quantiles_of(values: Floats) -> tuple[float, ...]:
    """Return the quantiles at :data:`QUANTILES`."""
    return tuple(float(value) for value in np.quantile(values, QUANTILES))


def _gaps(blocks: Sequence[ObservedBlock]) -> tuple[float, ...]:
    """Return when an interrupted trial was resumed: after the longest pause before or within each block with a gap."""
    found = []
    before: float | None = None
    for block in blocks:
        starts = sorted(run.started_s for run in block.observations)
        if block.gap and starts:
            times = starts if before is None else [before, *starts]
            pauses = [later - earlier for earlier, later in pairwise(times)]
            found.append(times[pauses.index(max(pauses)) + 1] if pauses else starts[0])
        before = starts[-1] if starts else before
    return tuple(found)


def _panel(
    condition: ConditionText,
    response: Response,
    blocks: Sequence[ObservedBlock],
    arms: Sequence[Arm],
    gaps_s: tuple[float, ...],
    by: str | None = None,
) -> Panel:
    found: dict[str, list[tuple[float, float, bool]]] = {}
    for block in blocks:
        for run in sorted(block.observations, key=lambda run: run.started_s):
            value = run.responses.get(response.name)
            if value is None or run.failure is not None:
                continue
            if by is not None and run.kind is not ArmKind.TREATMENT:
                continue
            name = run.arm if by is None else run.treatment.get(by, "")
            found.setdefault(name, []).append((run.started_s, value, block.void is not None))
    series = []
    for arm in arms:
        if arm.name in found:
            at_s, values, void = zip(*found[arm.name], strict=True)
            series.append(ArmSeries(arm, np.asarray(at_s), np.asarray(values), np.asarray(void)))
    void_blocks = sum(block.void is not None for block in blocks)
    return Panel(condition, response.name, response.unit, tuple(series), gaps_s, void_blocks)
