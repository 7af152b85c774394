"""Figures of factorials: half-normal plot of effects, main effects, interaction of two factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.design.lenth import half_normal_quantiles, lenth_pse
from iotrial.report.notation import elided, quantity
from iotrial.report.plots.canvas import (
    DASHES,
    FONT_PT,
    INK,
    LINE,
    MUTED,
    PAPER,
    RISK_INK,
    VERDICT_INKS,
    Drawing,
    arm_ink,
    arm_marker,
    calm,
    draw,
    linear_ticks,
    log_ratio_ticks,
    ratio_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_IN, NARROW_IN = 7.6, 4.1
_HALF_NORMAL_HIGH_IN = 3.6
CELLS_IN = (4.1, 2.6)
MOST_BARS = 48
_LABELLED = 8


@dataclass(frozen=True, slots=True)
class Point:
    """One effect on the contrast's scale: ``size`` is its absolute value; ``crossed`` marks an interaction."""

    label: str
    size: float
    crossed: bool
    verdict: str
    #: whether the faster level puts data at risk
    risk: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One factor of a main-effect plot: ``places`` are its levels' means on the contrast's scale, ``labels`` their names."""

    name: str
    labels: tuple[str, ...]
    places: tuple[float, ...]
    verdict: str
    #: whether the faster level puts data at risk
    risk: bool = False


def half_normal(
    name: str, points: Sequence[Point], *, log: bool, description: str, narrow: bool = False
) -> Drawing:
    """Draw effect sizes in ascending order over the half-normal quantiles, with Lenth's line as a guide."""
    ordered = sorted(points, key=lambda point: point.size)
    quantiles = half_normal_quantiles(len(ordered))
    pse = lenth_pse([point.size for point in ordered])

    def paint(figure: Figure) -> None:
        axes = figure.add_axes((0.17, 0.15, 0.8, 0.8) if narrow else (0.09, 0.15, 0.88, 0.8))
        calm(axes)
        most = ordered[-1].size or 1.0
        right = quantiles[-1]
        axes.set_xlim(0, right * 1.32)
        axes.set_ylim(-0.02 * max(most, pse), max(most, pse) * 1.1)
        axes.set_xlabel("quantile of the half-normal distribution", color=MUTED, fontsize=FONT_PT - 0.5)
        axes.set_ylabel("size of the effect", color=MUTED, fontsize=FONT_PT - 0.5)
        if log:
            ticks = [tick for tick in ratio_ticks(1.0, math.exp(max(most, pse) * 1.1)) if tick >= 1]
            axes.set_yticks([math.log(tick) for tick in ticks], [f"× {tick:g}" for tick in ticks])
        axes.grid(axis="y", color=LINE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.plot(
            [0, right * 1.3],
            [0, pse * right * 1.3],
            color=MUTED,
            linewidth=1.0,
            linestyle=DASHES[2],
            zorder=2,
        )
        top = max(most, pse) * 1.1
        end = min(right * 1.3, top / pse if pse else right)
        foot = min(pse * end, top)
        # The names of the largest points are next to them; the guide's text would overlap a point if the line is flat.
        if any(
            abs(point.size - foot) < 0.07 * top for point in ordered[-_LABELLED:] if point.size > 2.5 * pse
        ):
            foot += 0.06 * top
        axes.text(
            end, foot, "guide: no effects  ", color=MUTED, fontsize=FONT_PT - 1,
            ha="right", va="bottom", zorder=3,
        )  # fmt: skip
        for quantile, point in zip(quantiles, ordered, strict=True):
            ink = RISK_INK if point.risk else VERDICT_INKS.get(point.verdict, INK)
            axes.plot(
                [quantile], [point.size], marker="D" if point.crossed else "o", linewidth=0, markersize=4.5, color=ink,
                markerfacecolor=PAPER if point.verdict == "undecided" else ink, markeredgewidth=1.0, zorder=4,
            )  # fmt: skip
        _labels(axes, quantiles, ordered, least=2.5 * pse, top=top, longest=18 if narrow else 34)

    return draw(
        name, (NARROW_IN if narrow else WIDE_IN, _HALF_NORMAL_HIGH_IN), paint, description=description
    )


def _labels(
    axes: Axes,
    quantiles: Sequence[float],
    ordered: Sequence[Point],
    *,
    least: float,
    top: float,
    longest: int,
) -> None:
    """Label the largest points, to the right of their marks and without overlap."""
    above = math.inf
    for quantile, point in list(zip(quantiles, ordered, strict=True))[: -_LABELLED - 1 : -1]:
        if point.size <= least:  # points along the guide are not effects
            break
        y = min(point.size, above - 0.055 * top)
        if y < 0:
            break
        axes.text(
            quantile + 0.016 * axes.get_xlim()[1], y, elided(point.label, longest), color=INK, fontsize=FONT_PT - 0.5,
            ha="left", va="center",
            zorder=5,
        )  # fmt: skip
        above = y


def main_effects(
    name: str, lines: Sequence[Line], *, log: bool, description: str, narrow: bool = False
) -> Drawing:
    """Draw for each factor the mean response at each of its levels, relative to the mean of all."""
    drawn = lines[:MOST_BARS]
    height = 0.5 + 0.21 * len(drawn)

    def paint(figure: Figure) -> None:
        left = 0.4 if narrow else 0.27
        axes = figure.add_axes((left, 0.42 / height, 0.97 - left, 1 - 0.5 / height))
        calm(axes)
        every = [place for line in drawn for place in line.places] + [0.0]
        pad = (max(every) - min(every)) * 0.08 or 0.01
        low, high = min(every) - pad, max(every) + pad
        axes.set_xlim(low, high)
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.set_yticks([])
        if log:
            axes.set_xticks(*log_ratio_ticks(low, high))
            axes.set_xlabel("ratio to the mean of all treatments", color=MUTED, fontsize=FONT_PT - 0.5)
        else:
            axes.set_xticks(linear_ticks(low, high))
            axes.set_xlabel("difference to the mean of all treatments", color=MUTED, fontsize=FONT_PT - 0.5)
        axes.axvline(0.0, color=MUTED, linewidth=0.8, zorder=1)
        for row, line in enumerate(drawn):
            axes.axhline(row + 0.5, color=LINE, linewidth=0.4, zorder=0)
            ink = RISK_INK if line.risk else VERDICT_INKS.get(line.verdict, INK)
            axes.plot(line.places, [row] * len(line.places), color=ink, linewidth=2.0, zorder=3)
            axes.plot(
                line.places[:1], [row], marker="o", color=ink, markerfacecolor=PAPER, markersize=5, linewidth=0,
                markeredgewidth=1.2, zorder=4,
            )  # fmt: skip
            axes.plot(
                line.places[1:],
                [row] * (len(line.places) - 1),
                marker="o",
                color=ink,
                markersize=5,
                linewidth=0,
                zorder=4,
            )
            words = f"{line.name}: {', '.join(line.labels)}"
            axes.text(
                -0.012, row, elided(words, 24 if narrow else 30), transform=axes.get_yaxis_transform(), color=INK, ha="right",
                va="center", fontsize=FONT_PT - 0.5,
            )  # fmt: skip

    return draw(name, (NARROW_IN if narrow else WIDE_IN, height), paint, description=description)


def interaction(
    name: str,
    across: tuple[str, tuple[str, str]],
    by: tuple[str, tuple[str, str]],
    cells: Sequence[Sequence[float]],
    *,
    unit: str,
    log: bool,
    description: str,
) -> Drawing:
    """Draw two lines, one for each level of ``by``, over the levels of ``across``.

    ``cells[i][j]`` is the value at level i of ``by`` and level j of ``across``, in the response's unit.
    """
    places = [[math.log(value) if log else value for value in row] for row in cells]

    def paint(figure: Figure) -> None:
        axes = figure.add_axes((0.17, 0.17, 0.55, 0.78))
        calm(axes)
        every = [place for row in places for place in row]
        pad = (max(every) - min(every)) * 0.12 or abs(every[0]) * 0.02 or 0.01
        low, high = min(every) - pad, max(every) + pad
        axes.set_ylim(low, high)
        axes.set_xlim(-0.25, 1.08)
        axes.set_xticks([0, 1], [elided(label, 16) for label in across[1]])
        axes.set_xlabel(elided(across[0], 32), color=MUTED, fontsize=FONT_PT - 0.5)
        ticks = [math.exp(low), math.exp(high)] if log else [low, high]
        inside = linear_ticks(*ticks)
        axes.set_yticks(
            [math.log(tick) if log else tick for tick in inside], [quantity(tick, unit) for tick in inside]
        )
        axes.grid(axis="y", color=LINE, linewidth=0.5)
        axes.set_axisbelow(True)
        for position, row in enumerate(places):
            axes.plot(
                [0, 1], row, color=arm_ink(position), linewidth=1.8, linestyle=DASHES[position],
                marker=arm_marker(position), markersize=5,
            )  # fmt: skip
        _line_ends(axes, places, [f"{elided(by[0], 14)} {elided(label, 14)}" for label in by[1]], low, high)

    return draw(name, CELLS_IN, paint, description=description)


def _line_ends(
    axes: Axes, places: Sequence[Sequence[float]], names: Sequence[str], low: float, high: float
) -> None:
    """Write the name of each line at its right end, moved apart if they would overlap."""
    ends = [row[1] for row in places]
    least = 0.09 * (high - low)
    gap = ends[1] - ends[0]
    if abs(gap) < least:
        shift = (least - abs(gap)) / 2 * (1 if gap >= 0 else -1)
        ends = [ends[0] - shift, ends[1] + shift]
    for position, (end, name) in enumerate(zip(ends, names, strict=True)):
        axes.text(1.1, end, name, color=arm_ink(position), fontsize=FONT_PT - 0.5, ha="left", va="center")
