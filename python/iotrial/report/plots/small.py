"""Small panels, one per condition: runs in order of time, distributions, latencies of single operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from iotrial.report.notation import elided, percent
from iotrial.report.phrases import spoken
from iotrial.report.plots.canvas import (
    FONT_PT,
    LINE,
    MUTED,
    Drawing,
    Floats,
    Scale,
    arm_dashes,
    arm_ink,
    arm_marker,
    calm,
    draw,
    scale_of,
)
from iotrial.report.series import Arm, ArmSeries, LatencyPanel, Panel
from iotrial.report.within import WithinPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (4.1, 2.35)
_BOX = (0.17, 0.2, 0.77, 0.74)
#: one of three in a row, each with a title
_THIRD_IN = (2.55, 1.75)
_THIRD_BOX = (0.25, 0.22, 0.7, 0.62)
_MEDIANS = 30
#: line style for a change of level: dots
CHANGE = (0, (1, 1.5))
_FEWEST_FOR_MEDIANS = 24
_ECDF_POINTS = 160
_LATENCY_BINS = 70
_NARROWEST_BIN = 1.08


def runs_in_time(name: str, panel: Panel, *, most_points: int, changes_s: Sequence[float] = ()) -> Drawing:
    """Draw every run (or every n-th) over its start time, with running medians of the treatments.

    Lines mark the times ``changes_s`` at which the level of the blocks changes.
    """
    values = np.concatenate([series.value for series in panel.series])
    scale = scale_of(values, panel.unit)
    last = max(float(series.at_s[-1]) for series in panel.series)
    unit, seconds = ("min", 60.0) if last >= 180 else ("s", 1.0)
    step = max(1, -(-panel.runs // most_points))

    def paint(figure: Figure) -> None:
        axes = _axes(figure, scale)
        axes.set_ylabel(elided(spoken(panel.response), 28), color=MUTED, fontsize=FONT_PT - 0.5)
        axes.set_xlabel(f"{unit} since the trial began", color=MUTED, fontsize=FONT_PT - 0.5)
        for gap in panel.gaps_s:
            axes.axvline(gap / seconds, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
        for change in changes_s:
            axes.axvline(change / seconds, color=MUTED, linewidth=1.0, linestyle=CHANGE)
        for series in sorted(panel.series, key=lambda s: not s.arm.is_control):
            _points(axes, series, scale, seconds=seconds, step=step)
        for series in panel.series:
            if not series.arm.is_control and series.counted.size >= _FEWEST_FOR_MEDIANS:
                _medians(axes, series, scale, seconds=seconds, gaps_s=panel.gaps_s)

    return draw(name, SIZE_IN, paint, description=f"Runs in order of time, {panel.condition.text}")


def distributions(name: str, panel: Panel) -> Drawing:
    """Draw the share of runs that took no longer than x, by arm."""
    every = np.concatenate([series.counted for series in panel.series])
    if every.size == 0:
        every = np.concatenate([series.value for series in panel.series])
    scale = scale_of(every, panel.unit)

    def paint(figure: Figure) -> None:
        axes = _across(figure, scale)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel(elided(spoken(panel.response), 40), color=MUTED, fontsize=FONT_PT - 0.5)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.set_ylabel("share of runs", color=MUTED, fontsize=FONT_PT - 0.5)
        for series in sorted(panel.series, key=lambda s: not s.arm.is_control):
            if series.counted.size:
                share, values = quantile_curve(series)
                _line(axes, series.arm, scale.place(values), share)

    return draw(name, SIZE_IN, paint, description=f"Distribution by arm, {panel.condition.text}")


def quantile_curve(series: ArmSeries) -> tuple[Floats, Floats]:
    """Return shares from 0 to 1, and the values that this share of the runs does not exceed."""
    share = np.linspace(0, 1, min(_ECDF_POINTS, series.counted.size))
    return share, np.quantile(series.counted, share)


def latencies(name: str, panel: LatencyPanel) -> Drawing:
    """Draw the distribution of one operation's latencies, as the share of operations in each bin."""
    low = min(float(latency[0]) for _, latency, _ in panel.arms)
    high = max(_upper(latency, counts) for _, latency, counts in panel.arms)
    scale = Scale(max(low, 1.0) * 0.9, max(high, low * 1.2, 2.0) * 1.1, log=True, unit="ns")
    # Bins narrower than the histograms' own buckets would show spurious gaps.
    bins = max(4, min(_LATENCY_BINS, int(np.log(scale.high / scale.low) / np.log(_NARROWEST_BIN))))
    edges = np.geomspace(scale.low, scale.high, bins + 1)

    def paint(figure: Figure) -> None:
        axes = _across(figure, scale)
        most = 0.0
        for arm, latency, counts in panel.arms:
            inside, _ = np.histogram(np.clip(latency, scale.low, scale.high), bins=edges, weights=counts)
            share = inside / counts.sum()
            most = max(most, float(share.max()))
            _line(axes, arm, scale.place(np.repeat(edges, 2)[1:-1]), np.repeat(share, 2))
        axes.set_ylim(0, most * 1.08)
        axes.set_xlabel(f"latency of {elided(panel.operation, 28)}", color=MUTED, fontsize=FONT_PT - 0.5)
        ticks = [0.0, most / 2, most]
        axes.set_yticks(ticks, [percent(tick) for tick in ticks])
        axes.set_ylabel("share of operations", color=MUTED, fontsize=FONT_PT - 0.5)

    return draw(name, SIZE_IN, paint, description=f"Latency of {panel.operation}, {panel.condition.text}")


def within_run(name: str, panel: WithinPanel, *, title: str = "") -> Drawing:
    """Draw a sampled metric over the time of a run: medians, and the interquartile range of the runs as a band.

    With a ``title`` the drawing is smaller, to stand in a row.
    """
    values = np.concatenate([part for curve in panel.curves for part in (curve.low, curve.high)])
    low, high = min(0.0, float(values.min())), float(values.max())
    if low < 0.9 * float(values.min()) and high < 1.5 * float(values.min()):
        low = float(values.min())  # without zero, since only the change of a large level is of interest
    pad = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    scale = Scale(low - pad if low > 0 else low, high + pad, log=False, unit=panel.unit)

    def paint(figure: Figure) -> None:
        axes = _axes(figure, scale, _THIRD_BOX if title else _BOX)
        axes.set_xlabel("s since the run began", color=MUTED, fontsize=FONT_PT - 0.5)
        if title:
            figure.text(0.02, 0.97, title, color=MUTED, fontsize=FONT_PT - 0.5, ha="left", va="top")
        for curve in panel.curves:
            ink = arm_ink(curve.arm.position)
            axes.fill_between(curve.at_s, curve.low, curve.high, color=ink, alpha=0.14, linewidth=0)
            _line(axes, curve.arm, curve.at_s, curve.middle)
            for at_s, _, _ in curve.changes:
                axes.axvline(at_s, color=ink, linewidth=0.9, linestyle=CHANGE, zorder=1)

    size_in = _THIRD_IN if title else SIZE_IN
    return draw(name, size_in, paint, description=f"Within a run: {panel.what}, {panel.condition.text}")


def _upper(latency: Floats, counts: Floats) -> float:
    """Return the latency within which 99.95 % of the operations complete; the rest would compress the plot."""
    running = np.cumsum(counts)
    return float(latency[min(int(np.searchsorted(running, 0.9995 * running[-1])), latency.size - 1)])


def _axes(figure: Figure, scale: Scale, box: tuple[float, float, float, float] = _BOX) -> Axes:
    """Make axes with time horizontally and the response vertically."""
    axes = figure.add_axes(box)
    calm(axes)
    axes.set_ylim(*scale.limits)
    axes.set_yticks(*scale.ticks())
    axes.grid(axis="y", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    return axes


def _across(figure: Figure, scale: Scale) -> Axes:
    """Make axes with the response horizontally."""
    axes = figure.add_axes(_BOX)
    calm(axes)
    axes.set_xlim(*scale.limits)
    axes.set_xticks(*scale.ticks())
    axes.grid(axis="both", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    return axes


def _points(axes: Axes, series: ArmSeries, scale: Scale, *, seconds: float, step: int) -> None:
    arm = series.arm
    ink = MUTED if arm.is_control else arm_ink(arm.position)
    at, value, void = series.at_s[::step] / seconds, series.value[::step], series.void[::step]
    marker = arm_marker(arm.position)
    common = {"linewidth": 0, "marker": marker, "markeredgewidth": 0.5, "color": ink, "alpha": 0.4}
    if arm.is_control:
        common["markerfacecolor"] = "none"
    axes.plot(at[~void], scale.place(value[~void]), markersize=2.2, **common)  # type: ignore[arg-type]
    if void.any():
        axes.plot(
            at[void],
            scale.place(value[void]),
            linewidth=0,
            marker="x",
            markersize=3.5,
            markeredgewidth=0.8,
            color=ink,
        )


def _medians(axes: Axes, series: ArmSeries, scale: Scale, *, seconds: float, gaps_s: Sequence[float]) -> None:
    """Draw a line through the medians of up to thirty successive periods, broken where the trial was interrupted."""
    at, value = series.at_s[~series.void], series.counted
    length = max(8, -(-value.size // _MEDIANS))
    for part in np.split(np.arange(value.size), np.searchsorted(at, gaps_s)):
        pieces = np.array_split(part, max(1, part.size // length)) if part.size else []
        x = [float(np.median(at[piece])) / seconds for piece in pieces]
        y = np.asarray([float(np.median(value[piece])) for piece in pieces])
        axes.plot(x, scale.place(y), color=arm_ink(series.arm.position), linewidth=1.8, zorder=4)


def _line(axes: Axes, arm: Arm, x: Floats, y: Floats) -> None:
    dashes = arm_dashes(arm)
    if arm.is_control:
        axes.plot(x, y, color=MUTED, linewidth=0.9, linestyle=dashes, alpha=0.8, zorder=2)
    else:
        axes.plot(x, y, color=arm_ink(arm.position), linewidth=1.5, linestyle=dashes, zorder=3)
