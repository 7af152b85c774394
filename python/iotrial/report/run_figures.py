"""Figures of runs: in order of time, as distributions, latencies of single operations, and samples within a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.report.axes import Axis, Floats, fitted_axis, share_axis, time_axis, value_axis
from iotrial.report.chart import (
    MUTED,
    Chart,
    Curve,
    Mark,
    Points,
    Rule,
    arm_dashes,
    arm_ink,
    arm_marker,
    plot,
)
from iotrial.report.figure import Figure, Row, headed, stem
from iotrial.report.notation import capitalised, counted
from iotrial.report.phrases import axis_name, spoken
from iotrial.report.run_sentences import distribution_seen, latency_seen, runs_seen, within_seen
from iotrial.report.series import Arm, ArmSeries, LatencyPanel, Panel
from iotrial.report.within import WithinPanel
from iotrial.stats.model import Diagnostic

DISTRIBUTIONS_READING = (
    "Cumulative distribution of run times, by arm. Curves on top of each other mean equal arms; a curve further "
    "right is a slower arm; a long flat end is a tail. Runs of different blocks are mixed here, so the curves "
    "are wider than the comparison within blocks."
)
LATENCY_READING = (
    "All operations of all valid runs, by arm, on a logarithmic axis. A second peak means a second mechanism (a "
    "cache miss, a timestamp that had to be written)."
)
WITHIN_READING = (
    "Activity during runs, each treatment on its own time axis: median of its runs, and the middle half as a "
    "band. A curve ends when half of its runs have ended. Processors and memory are those of the whole machine."
)


@dataclass(frozen=True, slots=True)
class PanelFigures:
    """One condition: its runs over time and their distribution. ``marks`` describes what else is drawn over time."""

    title: str
    runs: Figure
    distribution: Figure
    marks: str


def panel_figures(
    index: int,
    panel: Panel,
    arms: Sequence[Arm],
    *,
    most_marks: int,
    diagnostic: Diagnostic | None,
    reading: str,
) -> PanelFigures:
    """Build the figures of one panel; ``diagnostic`` is that of its condition."""
    changes_s = tuple(one.at_s for one in diagnostic.changes) if diagnostic is not None else ()
    title = panel.condition.text
    measured = f"{spoken(panel.response)} [{panel.unit}]"
    key = tuple(arms)
    return PanelFigures(
        title=title,
        runs=Figure(
            stem=stem("runs", title),
            title=headed("Did the level of the runs change during the trial?", title),
            sentence=runs_seen(panel, diagnostic),
            reading=reading,
            columns=("arm", "control", "started [s]", measured, "void block"),
            rows=_runs(panel),
            parts=(_runs_in_time(f"runs-{index}", panel, most_points=most_marks, changes_s=changes_s),),
            key=key,
        ),
        distribution=Figure(
            stem=stem("distribution", title),
            title=headed("How are the runs distributed?", title),
            sentence=distribution_seen(panel),
            reading=DISTRIBUTIONS_READING,
            columns=("arm", "share of runs", measured),
            rows=_distribution(panel),
            parts=(_distributions(f"ecdf-{index}", panel),),
            key=key,
        ),
        marks=_marks(panel, changes_s),
    )


def _marks(panel: Panel, changes_s: Sequence[float]) -> str:
    parts = [counted(panel.runs, "run")]
    if panel.void_blocks:
        parts.append(f"{counted(panel.void_blocks, 'void block')} (×)")
    if panel.gaps_s:
        parts.append("dashed: the trial was resumed here after an interruption")
    if changes_s:
        parts.append("dotted: the level of the blocks changes")
    return f"{', '.join(parts)}."


def _runs(panel: Panel) -> tuple[Row, ...]:
    return tuple(
        (series.arm.label, _yes(series.arm.is_control), float(at), float(value), _yes(bool(void)))
        for series in panel.series
        for at, value, void in zip(series.at_s, series.value, series.void, strict=True)
    )


def _distribution(panel: Panel) -> tuple[Row, ...]:
    return tuple(
        (series.arm.label, float(share), float(value))
        for series in panel.series
        if series.counted.size
        for share, value in zip(*_quantile_curve(series), strict=True)
    )


def latency_figure(index: int, panel: LatencyPanel, arms: Sequence[Arm]) -> Figure:
    """Build the figure of one operation in one condition."""
    return Figure(
        stem=stem("latency", panel.operation, panel.condition.text),
        title=headed(f"How long does each {panel.operation} take?", panel.condition.text),
        sentence=latency_seen(panel),
        reading=LATENCY_READING,
        columns=("arm", "latency [ns]", "operations"),
        rows=tuple(
            (arm.label, float(at), int(count))
            for arm, latency, counts in panel.arms
            for at, count in zip(latency, counts, strict=True)
        ),
        parts=(_latencies(f"latency-{index}", panel),),
        key=tuple(arm for arm in arms if not arm.is_control),
    )


_MIDDLE_HALF = ("median", "first quartile", "third quartile")


def within_figure(index: int, panel: WithinPanel, arms: Sequence[Arm]) -> Figure:
    """Build the figure of one metric sampled within the runs of one condition."""
    runs = sum(curve.runs for curve in panel.curves)
    names = (f"{part} [{panel.unit}]" for part in _MIDDLE_HALF)
    return Figure(
        stem=stem("within", panel.what, panel.condition.text),
        title=headed(f"How does this change within a run: {panel.what}?", panel.condition.text),
        sentence=f"Medians and middle halves of {counted(runs, 'run')}. {within_seen(panel)}",
        reading=WITHIN_READING,
        columns=("arm", "since the run began [s]", *names),
        rows=tuple(_within(panel)),
        parts=(_within_run(f"within-{index}", panel),),
        key=tuple(arm for arm in arms if not arm.is_control),
    )


def curves_figure(panels: Sequence[WithinPanel], arms: Sequence[Arm], reading: str) -> Figure:
    """Build one figure of several metrics sampled within the runs of one condition, side by side."""
    condition = panels[0].condition
    return Figure(
        stem=stem("curves", condition.text),
        title=headed("What does the machine do during a run?", condition.text),
        sentence=" ".join(f"{capitalised(panel.what)}. {within_seen(panel)}" for panel in panels),
        reading=reading,
        columns=("metric", "unit", "arm", "since the run began [s]", *_MIDDLE_HALF),
        rows=tuple((panel.what, panel.unit, *row) for panel in panels for row in _within(panel)),
        parts=tuple(
            _within_run(f"curves-{index}", panel, title=panel.what.partition(", ")[0])
            for index, panel in enumerate(panels)
        ),
        key=tuple(arm for arm in arms if not arm.is_control),
    )


def _within(panel: WithinPanel) -> Iterator[Row]:
    for curve in panel.curves:
        for numbers in np.column_stack([curve.at_s, curve.middle, curve.low, curve.high]):
            yield (curve.arm.label, *(float(number) for number in numbers))


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


# charts

_MEDIANS, _FEWEST_FOR_MEDIANS = 30, 24
_ECDF_POINTS = 160
_LATENCY_BINS, _NARROWEST_BIN = 70, 1.08
#: dashes of a line at a change of level, and of one where the trial was resumed
_CHANGE, _RESUMED = "1 2", "4 3"


def _runs_in_time(name: str, panel: Panel, *, most_points: int, changes_s: Sequence[float]) -> Chart:
    """Draw every run (or every n-th) over its start time, with running medians of the treatments."""
    y = fitted_axis(
        np.concatenate([series.value for series in panel.series]), panel.unit, axis_name(panel.response)
    )
    x = time_axis(max(float(series.at_s[-1]) for series in panel.series))
    step = max(1, -(-panel.runs // most_points))
    size, opacity = (1.7, 0.45) if panel.runs > 500 else (2.6, 0.7)
    marks: list[Mark] = [Rule(gap, dash=_RESUMED) for gap in panel.gaps_s]
    marks += [Rule(change, dash=_CHANGE, width=1.3) for change in changes_s]
    for series in sorted(panel.series, key=lambda s: not s.arm.is_control):
        arm = series.arm
        ink = MUTED if arm.is_control else arm_ink(arm.position)
        at, value, void = series.at_s[::step], series.value[::step], series.void[::step]
        shape = arm_marker(arm.position)
        if not void.all():
            marks.append(Points(at[~void], value[~void], ink, shape, size, arm.is_control, opacity))
        if void.any():
            marks.append(Points(at[void], value[void], ink, "x", size + 0.8, opacity=opacity))
    for series in panel.series:
        if not series.arm.is_control and series.counted.size >= _FEWEST_FOR_MEDIANS:
            marks += _medians(series, panel.gaps_s)
    return plot(name, x, y, marks, description=f"Runs in order of time, {panel.condition.text}")


def _medians(series: ArmSeries, gaps_s: Sequence[float]) -> Iterator[Curve]:
    """Yield a line through the medians of up to thirty successive periods, broken where the trial was interrupted."""
    at, value = series.at_s[~series.void], series.counted
    length = max(8, -(-value.size // _MEDIANS))
    for part in np.split(np.arange(value.size), np.searchsorted(at, gaps_s)):
        pieces = np.array_split(part, max(1, part.size // length)) if part.size else []
        x = [float(np.median(at[piece])) for piece in pieces]
        yield Curve(
            x, [float(np.median(value[piece])) for piece in pieces], arm_ink(series.arm.position), 2.2
        )


def _line(arm: Arm, x: Floats, y: Floats) -> Curve:
    if arm.is_control:
        return Curve(x, y, MUTED, 1.1, arm_dashes(arm), opacity=0.8)
    return Curve(x, y, arm_ink(arm.position), 1.8, arm_dashes(arm))


def _distributions(name: str, panel: Panel) -> Chart:
    """Draw the share of runs that took no longer than x, by arm."""
    every = np.concatenate([series.counted for series in panel.series])
    if every.size == 0:
        every = np.concatenate([series.value for series in panel.series])
    x = fitted_axis(every, panel.unit, axis_name(panel.response))
    marks = []
    for series in sorted(panel.series, key=lambda s: not s.arm.is_control):
        if series.counted.size:
            share, values = _quantile_curve(series)
            marks.append(_line(series.arm, values, share))
    quarters = tuple((n / 4, f"{25 * n} %") for n in range(5))
    y = Axis(-0.02, 1.02, ticks=quarters, title="share of runs")
    return plot(name, x, y, marks, description=f"Distribution by arm, {panel.condition.text}")


def _quantile_curve(series: ArmSeries) -> tuple[Floats, Floats]:
    """Return shares from 0 to 1, and the values that this share of the runs does not exceed."""
    share = np.linspace(0, 1, min(_ECDF_POINTS, series.counted.size))
    return share, np.quantile(series.counted, share)


def _latencies(name: str, panel: LatencyPanel) -> Chart:
    """Draw the distribution of one operation's latencies, as the share of operations in each bin."""
    least = min(float(latency[0]) for _, latency, _ in panel.arms)
    most = max(_upper(latency, counts) for _, latency, counts in panel.arms)
    low, high = max(least, 1.0) * 0.9, max(most, least * 1.2, 2.0) * 1.1
    # Bins narrower than the histograms' own buckets would show spurious gaps.
    bins = max(4, min(_LATENCY_BINS, int(np.log(high / low) / np.log(_NARROWEST_BIN))))
    edges = np.geomspace(low, high, bins + 1)
    marks, top = [], 0.0
    for arm, latency, counts in panel.arms:
        inside, _ = np.histogram(np.clip(latency, low, high), bins=edges, weights=counts)
        share = inside / counts.sum()
        top = max(top, float(share.max()))
        marks.append(_line(arm, np.repeat(edges, 2)[1:-1], np.repeat(share, 2)))
    x = value_axis(low, high, "ns", f"latency of {panel.operation}", log=True)
    y = share_axis(top, "share of operations")
    return plot(name, x, y, marks, description=f"Latency of {panel.operation}, {panel.condition.text}")


def _upper(latency: Floats, counts: Floats) -> float:
    """Return the latency within which 99.95 % of the operations complete; the rest would compress the plot."""
    running = np.cumsum(counts)
    return float(latency[min(int(np.searchsorted(running, 0.9995 * running[-1])), latency.size - 1)])


def _within_run(name: str, panel: WithinPanel, *, title: str = "") -> Chart:
    """Draw a sampled metric over the time of a run: medians, and the middle half of the runs as a band."""
    values = np.concatenate([part for curve in panel.curves for part in (curve.low, curve.high)])
    name_of = title or panel.what.partition(", ")[0]
    y = fitted_axis(values, panel.unit, name_of, spread=math.inf)
    if 0.0 < y.low < 0.4 * y.high:  # from zero, unless only the change of a large level is of interest
        y = value_axis(0.0, y.high, panel.unit, name_of)
    x = time_axis(max(float(curve.at_s[-1]) for curve in panel.curves), "the run began")
    marks: list[Mark] = []
    for curve in panel.curves:
        ink = arm_ink(curve.arm.position)
        around = np.concatenate([curve.at_s, curve.at_s[::-1]]), np.concatenate([curve.high, curve.low[::-1]])
        marks.append(Curve(*around, "", opacity=0.14, fill=ink))
        marks += [Rule(at_s, ink=ink, dash=_CHANGE) for at_s, _, _ in curve.changes]
        marks.append(_line(curve.arm, curve.at_s, curve.middle))
    return plot(name, x, y, marks, description=f"Within a run: {panel.what}, {panel.condition.text}")
