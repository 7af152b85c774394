"""Activity within a run, over time, as median and interquartile range of the runs of each treatment.

Processors, memory and the device are sampled; a work may also report what it did in each second. Runs of one treatment
have different durations: at each moment the curve covers those still running, and it ends when half of them have ended.
Processor and memory values are those of the whole machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind
from iotrial.documents import Unbounded
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import sound_runs
from iotrial.report.series import Arm, arms_of
from iotrial.stats.change_points import changes
from iotrial.store.checks import BY_SECOND, SERIES
from iotrial.store.model import TrialData
from iotrial.units import is_number

Floats = npt.NDArray[np.float64]
Kind = tuple[str, str, str, float]

POINTS = 80
_LARGEST = 1e18
_LONGEST = 4096

# Name, title in the drawing, unit, factor to convert to it.
KINDS: tuple[Kind, ...] = (
    ("cpu_user", "processors working for programs, system-wide", "%", 100.0),
    ("cpu_sys", "processors working for the kernel, system-wide", "%", 100.0),
    ("cpu_iowait", "processors waiting for I/O, system-wide", "%", 100.0),
    ("device_read_rate", "read from the device", "bytes/s", 1.0),
    ("device_write_rate", "written to the device", "bytes/s", 1.0),
    ("device_busy", "device busy", "%", 100.0),
    ("cached_bytes", "page cache, system-wide", "bytes", 1.0),
    ("dirty_bytes", "dirty pages, system-wide", "bytes", 1.0),
    ("write_back_bytes", "pages being written back, system-wide", "bytes", 1.0),
)
OPERATIONS: tuple[Kind, ...] = (
    ("operations_rate", "operations completed in each second", "1/s", 1.0),
    ("latency_p50", "median latency in each second", "s", 1.0),
    ("latency_p99", "99th percentile of latency in each second", "s", 1.0),
    ("latency_max", "longest latency in each second", "s", 1.0),
)
_SOURCES = {BY_SECOND: OPERATIONS, SERIES: KINDS}


@dataclass(frozen=True, slots=True)
class Curve:
    """One treatment: seconds since the timed part began, median, first and third quartile, and the number of runs."""

    arm: Arm
    at_s: Floats
    middle: Floats
    low: Floats
    high: Floats
    runs: int
    changes: tuple[tuple[float, float, float], ...] = ()
    """Where its level changes: when, and the levels before and behind."""


@dataclass(frozen=True, slots=True)
class WithinPanel:
    """One sampled metric in one condition: its name as stored, and what it is in words."""

    condition: ConditionText
    metric: str
    what: str
    unit: str
    curves: tuple[Curve, ...]


def within_of(
    data: TrialData,
    conditions: Conditions,
    arms: Sequence[Arm],
    by: str | None = None,
    *,
    points: int = POINTS,
) -> tuple[WithinPanel, ...]:
    """Return one panel for each condition and metric that was ever above zero.

    ``by``: a factor; its levels replace the arms, as in ``arms_of``. ``points``: the most points of a curve.
    """
    found: dict[tuple[str, str], dict[str, list[Mapping[str, Floats]]]] = {}
    treatment = ArmKind.TREATMENT.value
    for run in sound_runs(data):
        if run.kind != treatment or _SOURCES.keys().isdisjoint(run.checks):
            continue
        for source, kinds in _SOURCES.items():
            series = _series(run.checks.get(source), kinds)
            if series is not None:
                name = run.arm if by is None else run.treatment.get(by, "")
                found.setdefault((run.condition, source), {}).setdefault(name, []).append(series)
    panels = []
    for (key, source), by_arm in found.items():
        for name, what, unit, factor in _SOURCES[source]:
            curves = tuple(
                curve
                for arm in arms
                if (curve := _curve(arm, by_arm.get(arm.name, ()), name, factor, points)) is not None
            )
            if any(curve.high.any() for curve in curves):
                panels.append(WithinPanel(conditions.of_key(key), name, what, unit, curves))
    return tuple(sorted(panels, key=lambda panel: panel.condition.order))


def _series(value: object, kinds: Sequence[Kind]) -> Mapping[str, Floats] | None:
    """Return the stored samples of a run; None if they have an unexpected shape: a packed trial may contain anything.

    A missing number (null) is NaN.
    """
    if not isinstance(value, Mapping):
        return None
    columns: dict[str, Floats] = {}
    for name in ("at_s", *(kind[0] for kind in kinds)):
        column = value.get(name)
        if isinstance(column, list) and all(
            number is None or is_number(number, _LARGEST) for number in column
        ):
            columns[name] = np.asarray(column, dtype=np.float64)
    at_s = columns.get("at_s")
    if at_s is None or not 1 < at_s.size <= _LONGEST or not (np.diff(at_s) > 0).all():
        return None
    return {name: column for name, column in columns.items() if column.size == at_s.size}


def _curve(
    arm: Arm, runs: Sequence[Mapping[str, Floats]], name: str, factor: float, points: int
) -> Curve | None:
    own = [run for run in runs if name in run]
    if not own:
        return None
    end = float(np.median([run["at_s"][-1] for run in own]))
    start = float(np.median([run["at_s"][0] for run in own]))
    grid = np.linspace(start, max(end, start), points)
    table = np.array([np.interp(grid, run["at_s"], run[name], left=np.nan, right=np.nan) for run in own])
    there = np.isfinite(table).sum(axis=0) * 2 >= len(own)
    if not there.any():
        return None
    low, middle, high = np.nanquantile(table[:, there] * factor, (0.25, 0.5, 0.75), axis=0)
    return Curve(arm, grid[there], middle, low, high, len(own), _changes(own, name, factor))


def _changes(
    runs: Sequence[Mapping[str, Floats]], name: str, factor: float
) -> tuple[tuple[float, float, float], ...]:
    """Return the changes of level of the median of the runs.

    The median is taken at the moments of the longest run, as far as half of the runs last. A finer grid is not used:
    interpolated values would resemble their neighbours too much.
    """
    at_s = max((run["at_s"] for run in runs), key=len)
    if not np.allclose(np.diff(at_s), np.diff(at_s).mean(), rtol=0.25):
        return ()
    table = np.array([np.interp(at_s, run["at_s"], run[name], left=np.nan, right=np.nan) for run in runs])
    there = np.isfinite(table).sum(axis=0) * 2 >= len(runs)
    if not there.any():
        return ()
    moments, middle = at_s[there], np.nanmedian(table[:, there] * factor, axis=0)
    return tuple((float(moments[one.place]), one.before, one.after) for one in changes(middle))


@dataclass(frozen=True, slots=True)
class ChangeWithin:
    """A change of level of one metric within the runs of one arm."""

    condition: ConditionText
    what: str
    unit: str
    arm: str
    at_s: Unbounded
    before: Unbounded
    after: Unbounded


def changes_within(data: TrialData, conditions: Conditions) -> tuple[ChangeWithin, ...]:
    """Return every change within the runs of any arm."""
    return tuple(
        ChangeWithin(panel.condition, panel.what, panel.unit, curve.arm.name, *change)
        for panel in within_of(data, conditions, arms_of(data))
        for curve in panel.curves
        for change in curve.changes
    )
