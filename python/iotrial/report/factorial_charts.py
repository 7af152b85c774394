"""Charts of factorials: half-normal plot of effects, main effects, interaction of two factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iotrial.design.lenth import half_normal_quantiles, lenth_pse
from iotrial.report.axes import Axis, difference_axis, ends_of, ratio_axis, ratio_ticks, value_axis
from iotrial.report.chart import (
    DASHES,
    INK,
    LINE,
    MUTED,
    NARROW,
    RISK_INK,
    VERDICT_INKS,
    WIDE,
    Chart,
    Curve,
    Mark,
    Points,
    Text,
    arm_ink,
    arm_marker,
    distinct,
    plot,
    text_width,
)
from iotrial.report.interval_charts import IntervalGroup, IntervalRow, interval_chart

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

    @property
    def ink(self) -> str:
        """The ink of its verdict."""
        return RISK_INK if self.risk else VERDICT_INKS.get(self.verdict, INK)


@dataclass(frozen=True, slots=True)
class Line:
    """One factor of a main-effect plot: ``places`` are its levels' means on the contrast's scale, ``labels`` their names."""

    name: str
    labels: tuple[str, ...]
    places: tuple[float, ...]
    verdict: str
    #: whether the faster level puts data at risk
    risk: bool = False

    @property
    def ink(self) -> str:
        """The ink of its verdict."""
        return RISK_INK if self.risk else VERDICT_INKS.get(self.verdict, INK)


def half_normal(
    name: str, points: Sequence[Point], *, log: bool, description: str, narrow: bool = False
) -> Chart:
    """Draw effect sizes in ascending order over the half-normal quantiles, with Lenth's line as a guide."""
    ordered = sorted(points, key=lambda point: point.size)
    quantiles = half_normal_quantiles(len(ordered))
    pse = lenth_pse([point.size for point in ordered])
    top = max(ordered[-1].size, pse) * 1.1 or 1.0
    right = float(quantiles[-1]) * (1.9 if narrow else 1.45)
    if log:
        ticks = [
            (math.log(tick), f"× {tick:g}")
            for tick in ratio_ticks(1.0, math.exp(min(top, 20.0)))
            if tick >= 1
        ]
        y = Axis(-0.02 * top, top, ticks=tuple(ticks), title="size of the effect")
    else:
        y = difference_axis(-0.02 * top, top, "", "size of the effect")
    x = value_axis(0.0, right, "1", "quantile of the half-normal distribution")
    marks: list[Mark] = [Curve((0, right), (0, pse * right), MUTED, 1.2, DASHES[2])]
    for hollow in (True, False):
        for crossed in (True, False):
            for ink in dict.fromkeys(point.ink for point in ordered):
                own = [
                    (float(quantile), point.size)
                    for quantile, point in zip(quantiles, ordered, strict=True)
                    if (point.verdict == "undecided", point.crossed, point.ink) == (hollow, crossed, ink)
                ]
                if own:
                    xs, ys = zip(*own, strict=True)
                    marks.append(Points(xs, ys, ink, "D" if crossed else "o", 4, hollow))
    width, height = (NARROW if narrow else WIDE), 340
    pixels = top * 1.02 / (height - 80)  # of the vertical axis, roughly
    room = (width - 60) * (1 - float(quantiles[-1]) / right) - 14
    loudest = [
        (float(q), p) for q, p in list(zip(quantiles, ordered, strict=True))[: -_LABELLED - 1 : -1] if p.size > 2.5 * pse
    ]  # fmt: skip
    above = math.inf
    for (quantile, point), label in zip(loudest, distinct([p.label for _, p in loudest], room), strict=True):
        at = min(point.size, above - LINE * pixels)
        if at < 0:
            break
        marks.append(Text(quantile, at, label, dx=10))
        above = at
    guide = "guide: no effects"
    end = min(right, top / pse) if pse else right
    foot = pse * end
    if all(abs(foot - mark.y) > 2 * LINE * pixels for mark in marks if isinstance(mark, Text)):
        marks.append(
            Text(end, foot, guide, MUTED, "end", dx=-6, dy=-10 if foot < 0.9 * top else 10, halo=True)
        )
    return plot(
        name, x, y, marks, description=description, width=width, height=height, kind="narrow" if narrow else "wide"
    )  # fmt: skip


def main_effects(
    name: str, lines: Sequence[Line], *, log: bool, description: str, narrow: bool = False
) -> Chart:
    """Draw for each factor the mean response at each of its levels, relative to the mean of all."""
    drawn = lines[:MOST_BARS]
    low, high = ends_of([0.0, *(place for line in drawn for place in line.places)], 0.08)
    if log:
        axis = ratio_axis(math.exp(low), math.exp(high), "ratio to the mean of all treatments")
    else:
        axis = difference_axis(low, high, "", "difference to the mean of all treatments")
    rows = [
        IntervalRow(
            f"{line.name}: {', '.join(line.labels)}",
            None,
            None,
            None,
            ink=line.ink,
            levels=tuple(math.exp(place) if log else place for place in line.places),
        )
        for line in drawn
    ]
    return interval_chart(
        name, [IntervalGroup(rows)], axis, margin=0.0, description=description, narrow=narrow
    )  # fmt: skip


def interaction(
    name: str,
    across: tuple[str, tuple[str, str]],
    by: tuple[str, tuple[str, str]],
    cells: Sequence[Sequence[float]],
    *,
    unit: str,
    log: bool,
    description: str,
) -> Chart:
    """Draw two lines, one for each level of ``by``, over the levels of ``across``.

    ``cells[i][j]`` is the value at level i of ``by`` and level j of ``across``, in the response's unit.
    """
    low, high = ends_of([value for row in cells for value in row], 0.12, log=log)
    y = value_axis(low, high, unit, log=log)
    names = distinct([f"{by[0]} {label}" for label in by[1]], 130)
    ends = [y.share(row[1]) for row in cells]
    apart = abs(ends[1] - ends[0]) * 150  # pixels, roughly
    push = max(0.0, LINE - apart) / 2 * (1 if ends[1] >= ends[0] else -1)
    levels = distinct(across[1], 100)
    x = Axis(-0.25, 1.1, ticks=((0.0, levels[0]), (1.0, levels[1])), title=across[0], grid=False)
    marks: list[Mark] = []
    for position, (row, text) in enumerate(zip(cells, names, strict=True)):
        ink = arm_ink(position)
        marks.append(Curve((0, 1), row, ink, 2.0, DASHES[position]))
        marks.append(Points((0, 1), row, ink, arm_marker(position), 4.5))
        marks.append(Text(1.0, row[1], text, ink, dx=12, dy=push if position == 0 else -push))
    right = max(map(text_width, names)) + 16
    return plot(name, x, y, marks, description=description, right=right, height=230)
