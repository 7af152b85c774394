"""The forest plot: every effect with its interval, on one axis, with the margin as a band.

An end that is unbounded, or lies outside the axis, is an arrow. The shape of the mark shows the verdict, as does its
colour: triangles point in the direction of the effect, a full dot is equivalent, a hollow one inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iotrial.report.notation import elided, percent
from iotrial.report.phrases import interval, null_value, spoken
from iotrial.report.plots.canvas import (
    BAND,
    FONT_PT,
    INK,
    LINE,
    MUTED,
    PAPER,
    RISK_INK,
    VERDICT_INKS,
    Drawing,
    draw,
)
from iotrial.report.plots.intervals import draw_effect, effect_axis, limits_of, write_in_line
from iotrial.report.rows import EffectRow
from iotrial.stats.model import QUIET, Verdict
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 80
_WIDE_IN, _NARROW_IN = 7.6, 4.1
_ROW_IN, _TALL_ROW_IN, _HEAD_IN, _FOOT_IN = 0.25, 0.4, 0.12, 0.46
#: fraction of the height of a row
_NARROW_TITLE = 0.7


def forest(name: str, rows: Sequence[EffectRow], *, margin: float, narrow: bool) -> Drawing:
    """Draw these effects (all of one scale); ``narrow`` puts the labels above the intervals."""
    rows = sorted(rows, key=lambda row: _order(rows, row))[:MOST_ROWS]
    row_in = _TALL_ROW_IN if narrow else _ROW_IN
    single = len({row.condition.key for row in rows}) == 1
    titled = [None] * len(rows) if single else _titles(rows)
    title_line = _NARROW_TITLE if narrow else 1.0
    lines = len(rows) + title_line * sum(title is not None for title in titled)
    height = _HEAD_IN + row_in * lines + _FOOT_IN
    width = _NARROW_IN if narrow else _WIDE_IN

    def paint(figure: Figure) -> None:
        left, right = (0.03, 0.97) if narrow else (0.3, 0.62)
        axes = figure.add_axes((left, _FOOT_IN / height, right - left, row_in * lines / height))
        _axis(axes, rows, lines, margin=margin)
        line = 0.0
        axes.axhline(-0.5, color=LINE, linewidth=0.4, zorder=0)
        for row, title in zip(rows, titled, strict=True):
            if title is not None:
                middle = line + (title_line - 1) / 2
                write_in_line(
                    figure,
                    axes,
                    left if narrow else 0.0,
                    middle,
                    elided(title, 60),
                    INK,
                    align="left",
                    bold=True,
                )
                line += title_line
                axes.axhline(line - 0.5, color=LINE, linewidth=0.4, zorder=0)
            axes.axhline(line + 0.5, color=LINE, linewidth=0.4, zorder=0)
            hollow = row.effect.verdict is Verdict.INCONCLUSIVE
            y = line + (0.22 if narrow else 0.0)
            draw_effect(axes, row.effect, y, _ink(row), marker=_marker(row), hollow=hollow)
            if narrow:
                label = elided(
                    f"{row.comparison}{_of_response(rows, row)}" if single else row.condition.text, 42
                )
                for x, text, align in ((0.0, label, "left"), (1.0, interval(row.effect), "right")):
                    axes.text(
                        x,
                        line - 0.22,
                        text,
                        transform=axes.get_yaxis_transform(),
                        color=INK,
                        fontsize=FONT_PT - 0.5,
                        ha=align,
                        va="center",
                        bbox={"facecolor": PAPER, "linewidth": 0, "pad": 0.6},
                    )
            else:
                text = f"{row.comparison}{_of_response(rows, row)}" if single else row.condition.text
                write_in_line(figure, axes, 0.012, line, elided(text, 36), INK, align="left")
                write_in_line(figure, axes, 0.635, line, interval(row.effect), INK, align="left")
                write_in_line(figure, axes, 1.0, line, _verdict(row), _ink(row), align="right")
            line += 1.0

    words = "; ".join(f"{row.condition.text}: {row.sentence}" for row in rows[:12])
    return draw(name, (width, height), paint, description=f"Forest plot. {words}")


def _order(rows: Sequence[EffectRow], row: EffectRow) -> tuple[int, tuple[int, ...]]:
    """Sort comparisons together, in the order of their first row, with conditions in the study's order."""
    pairs = list(dict.fromkeys(other.comparison + other.effect.response for other in rows))
    return pairs.index(row.comparison + row.effect.response), row.condition.order


def _titles(rows: Sequence[EffectRow]) -> list[str | None]:
    """Return the comparison as a title for the first of its rows, None for the others."""
    titles: list[str | None] = []
    above = None
    for row in rows:
        title = f"{row.comparison}{_of_response(rows, row)}"
        titles.append(title if title != above else None)
        above = title
    return titles


def _of_response(rows: Sequence[EffectRow], row: EffectRow) -> str:
    return f" ({spoken(row.effect.response)})" if len({r.effect.response for r in rows}) > 1 else ""


def _verdict(row: EffectRow) -> str:
    return f"{'⚠ ' * bool(row.risk)}{elided(row.verdict, 24)}"


def _ink(row: EffectRow) -> str:
    return RISK_INK if row.risk else VERDICT_INKS.get(row.effect.conclusion.words, INK)


def _axis(axes: Axes, rows: Sequence[EffectRow], lines: float, *, margin: float) -> None:
    log = rows[0].effect.scale is Scale.LOG
    band = math.log1p(margin) if log else 0.0
    low, high = limits_of([row.effect for row in rows], band)
    note = f" (band: within {percent(margin)})"
    effect_axis(axes, low, high, lines=lines, log=log, unit=rows[0].effect.unit, note=note)
    if log:
        axes.axvspan(-band, band, color=BAND, linewidth=0, zorder=0)
    axes.axvline(0.0, color=MUTED, linewidth=0.8, zorder=1)


def _marker(row: EffectRow) -> str:
    effect = row.effect
    if effect.verdict in QUIET or effect.value is None:
        return "o"
    return "<" if effect.value < null_value(effect) else ">"
