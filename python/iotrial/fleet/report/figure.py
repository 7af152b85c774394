"""Figure of one comparison over hosts: one line per host, sorted by effect; mean and prediction interval as bands.

Up to forty hosts are labelled; with more, lines are thin and only outlying hosts are labelled. Intervals are
the hosts' own. Hosts that are not averaged are not drawn: the table gives the reason.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iotrial.fleet.report.words import host_name, host_verdict, mean_words, title
from iotrial.fleet.verdict import FleetComparison, HostRow
from iotrial.report.notation import elided, percent
from iotrial.report.phrases import interval
from iotrial.report.plots.canvas import (
    BAND,
    FONT_PT,
    INK,
    LINE,
    MUTED,
    PAPER,
    VERDICT_INKS,
    Drawing,
    draw,
)
from iotrial.report.plots.intervals import FARTHEST, effect_axis, write_in_line
from iotrial.stats.model import Conclusion
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED = 40
_WIDE_IN, _NARROW_IN = 7.6, 4.1
_LINE_IN, _HEAD_IN, _FOOT_IN = 0.2, 0.1, 0.5
_MANY_IN, _LEAST_MANY_IN, _MOST_MANY_IN = 0.011, 3.0, 6.0


def caterpillar(name: str, one: FleetComparison, *, margin: float, narrow: bool) -> Drawing | None:
    """Return the SVG of one comparison; None if no host is averaged."""
    rows = sorted(one.averaged, key=_place)
    if not rows:
        return None
    named = len(rows) <= MOST_NAMED
    tail = 2 if one.found.mean is not None else 0
    lines = len(rows) + (tail if named else 0)
    tall = _LINE_IN * lines if named else min(max(_LEAST_MANY_IN, _MANY_IN * len(rows)), _MOST_MANY_IN)
    height, width = _HEAD_IN + tall + _FOOT_IN, _NARROW_IN if narrow else _WIDE_IN

    def paint(figure: Figure) -> None:
        left = 0.03 if not named else 0.3 if narrow else 0.24
        right = 0.97 if narrow or not named else 0.66
        axes = figure.add_axes((left, _FOOT_IN / height, right - left, tall / height))
        _axis(axes, one, rows, lines, margin)
        _bands(axes, one)
        _intervals(axes, rows, thin=not named)
        if not named:
            _outliers(axes, rows)
            return
        for line, row in enumerate(rows):
            ink = INK if row.outlier is None else VERDICT_INKS["slower"]
            write_in_line(figure, axes, 0.0, line, elided(host_name(row), 17 if narrow else 26), ink)
            if not narrow and row.effect is not None:
                verdict = host_verdict(row).partition(",")[0]
                write_in_line(figure, axes, 0.68, line, interval(row.effect), INK)
                write_in_line(
                    figure, axes, 1.0, line, verdict, VERDICT_INKS.get(verdict, MUTED), align="right"
                )
        if tail:
            _mean(figure, axes, one, lines - 1, narrow=narrow)

    text = f"{title(one)}: {len(rows)} hosts, mean {mean_words(one)}"
    return draw(name, (width, height), paint, description=f"Forest plot of hosts. {text}")


def _place(row: HostRow) -> float:
    return row.part.estimate if row.part.estimate is not None else 0.0


def _axis(axes: Axes, one: FleetComparison, rows: list[HostRow], lines: int, margin: float) -> None:
    log = one.like.scale is Scale.LOG
    band = math.log1p(margin) if log else 0.0
    low, high = _limits(one, rows, band)
    note = f" (dotted: {percent(margin)} either way)"
    effect_axis(axes, low, high, lines=lines, log=log, unit=one.like.unit, note=note)
    for end in (-band, band) if log else ():
        axes.axvline(end, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
    axes.axvline(0.0, color=MUTED, linewidth=0.8, zorder=2)


def _limits(one: FleetComparison, rows: list[HostRow], band: float) -> tuple[float, float]:
    """Return axis limits from the estimates; interval ends are clipped at three times the farthest estimate."""
    places = [_place(row) for row in rows]
    reach = max(FARTHEST * max(map(abs, places)), 4 * band) or 1.0
    ends = [end for row in rows for end in (row.part.low, row.part.high) if end is not None]
    mean = one.found.mean
    if mean is not None:
        ends += [
            mean.low,
            mean.high,
            *(end for end in (mean.new_low, mean.new_high) if end is not None),
        ]
    inside = [0.0, *places, *(min(max(end, -reach), reach) for end in ends), -1.4 * band, 1.4 * band]
    pad = (max(inside) - min(inside)) * 0.04 or 1.0
    return min(inside) - pad, max(inside) + pad


def _hides_conditions(one: FleetComparison) -> bool:
    """Return whether it is a mean over differing conditions, which has no place on an axis."""
    return one.mean is not None and one.mean.conclusion is Conclusion.VARIES


def _bands(axes: Axes, one: FleetComparison) -> None:
    mean = one.found.mean
    if mean is None or _hides_conditions(one):
        return
    left, right = axes.get_xlim()
    if mean.new_low is not None and mean.new_high is not None:
        axes.axvspan(max(left, mean.new_low), min(right, mean.new_high), color=BAND, linewidth=0, zorder=0)
    ink = VERDICT_INKS.get(one.mean.conclusion.words, INK) if one.mean is not None else INK
    for end in (mean.low, mean.high):
        axes.axvline(min(max(end, left), right), color=ink, linewidth=0.7, zorder=1)


def _intervals(axes: Axes, rows: list[HostRow], *, thin: bool) -> None:
    left, right = axes.get_xlim()
    by_ink: dict[str, list[tuple[int, HostRow]]] = {}
    for line, row in enumerate(rows):
        ink = VERDICT_INKS.get(row.effect.conclusion.words, MUTED) if row.effect is not None else MUTED
        by_ink.setdefault(ink, []).append((line, row))
    for ink, members in by_ink.items():
        lines = [line for line, _ in members]
        lows = [left if row.part.low is None else max(left, row.part.low) for _, row in members]
        highs = [right if row.part.high is None else min(right, row.part.high) for _, row in members]
        axes.hlines(lines, lows, highs, color=ink, linewidth=0.5 if thin else 1.8, zorder=3)
        axes.plot(
            [min(max(_place(row), left), right) for _, row in members],
            lines,
            marker="o",
            color=ink,
            markersize=1.2 if thin else 4.5,
            linewidth=0,
            zorder=5,
        )


def _outliers(axes: Axes, rows: list[HostRow]) -> None:
    left, right = axes.get_xlim()
    for line, row in enumerate(rows):
        if row.outlier is not None:
            place = min(max(_place(row), left), right)
            on_left = place > (left + right) / 2
            axes.annotate(
                elided(host_name(row), 20),
                (place, line),
                xytext=(-8 if on_left else 8, 0),
                textcoords="offset points",
                ha="right" if on_left else "left",
                va="center",
                color=INK,
                fontsize=FONT_PT - 1,
                zorder=6,
                bbox={"facecolor": PAPER, "linewidth": 0, "pad": 0.4},
            )


def _mean(figure: Figure, axes: Axes, one: FleetComparison, line: int, *, narrow: bool) -> None:
    mean = one.found.mean
    assert mean is not None
    assert one.mean is not None
    left, right = axes.get_xlim()
    ink = VERDICT_INKS.get(one.mean.conclusion.words, INK)
    low, high = max(left, mean.low), min(right, mean.high)
    axes.axhline(line - 1, color=LINE, linewidth=0.6, zorder=1)
    if not _hides_conditions(one):
        axes.fill(
            [low, mean.value, high, mean.value],
            [line, line - 0.38, line, line + 0.38],
            color=ink,
            linewidth=0,
            zorder=4,
        )
    write_in_line(figure, axes, 0.0, line, "mean over hosts" if not narrow else "mean", INK, bold=True)
    if not narrow:
        write_in_line(figure, axes, 0.68, line, mean_words(one), INK, bold=True)
        write_in_line(figure, axes, 1.0, line, one.mean.conclusion.words, ink, align="right", bold=True)


def caption(one: FleetComparison) -> str:
    """Return the caption, which explains the bands of the figure."""
    mean = one.found.mean
    if mean is None:
        return "One line per host, with its own interval."
    text = (
        "One line per host, with its own interval, sorted by effect; thin vertical lines: the interval of the mean over "
        "hosts"
    )
    if mean.new_low is None:
        return f"{text}."
    return f"{text}; shaded: expected range of another host like these."
