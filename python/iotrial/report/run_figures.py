"""Figures of runs: in order of time, as distributions, latencies of single operations, and samples within a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.report.figure import Figure, Row, headed, stem
from iotrial.report.notation import capitalised, counted
from iotrial.report.phrases import spoken
from iotrial.report.plots.small import (
    distributions,
    latencies,
    quantile_curve,
    runs_in_time,
    within_run,
)
from iotrial.report.run_sentences import distribution_seen, latency_seen, runs_seen, within_seen
from iotrial.report.series import Arm, LatencyPanel, Panel
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
            parts=(runs_in_time(f"runs-{index}", panel, most_points=most_marks, changes_s=changes_s),),
            key=key,
        ),
        distribution=Figure(
            stem=stem("distribution", title),
            title=headed("How are the runs distributed?", title),
            sentence=distribution_seen(panel),
            reading=DISTRIBUTIONS_READING,
            columns=("arm", "share of runs", measured),
            rows=_distribution(panel),
            parts=(distributions(f"ecdf-{index}", panel),),
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
        for share, value in zip(*quantile_curve(series), strict=True)
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
        parts=(latencies(f"latency-{index}", panel),),
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
        parts=(within_run(f"within-{index}", panel),),
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
            within_run(f"curves-{index}", panel, title=panel.what.partition(", ")[0])
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
