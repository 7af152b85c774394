"""The forest plot of several trials: a group of lines for every comparison, with one line per trial, all on one axis.

Colour, mark and a letter distinguish the trials. An end that is unbounded, or lies outside the axis, is an arrow.
Trials that are not compared (invalid ones, ones with failures) are hollow and pale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iotrial.report.comparison import (
    Comparison,
    Row,
    agreement_words,
    cell_numbers,
    cell_verdict,
    title,
)
from iotrial.report.notation import elided, percent
from iotrial.report.phrases import spoken
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
    arm_ink,
    arm_marker,
    draw,
)
from iotrial.report.plots.intervals import draw_effect, effect_axis, limits_of, write_in_line
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 150
_WIDE_IN, _NARROW_IN = 7.6, 4.1
_LINE_IN, _TALL_LINE_IN, _HEAD_IN, _FOOT_IN = 0.22, 0.34, 0.12, 0.46
#: gap between groups, in lines
_GAP = 0.35


def fitting(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return as many leading rows as fit into one figure."""
    kept: list[Row] = []
    lines = 0
    for row in rows:
        lines += 1 + len(row.has)
        if kept and lines > MOST_LINES:
            break
        kept.append(row)
    return tuple(kept)


def trials_forest(name: str, comparison: Comparison, rows: Sequence[Row], *, narrow: bool) -> Drawing:
    """Draw these rows, all of one scale; ``narrow`` puts the words above the intervals."""
    line_in = _TALL_LINE_IN if narrow else _LINE_IN
    lines = sum(1 + len(row.has) for row in rows) + _GAP * (len(rows) - 1)
    height = _HEAD_IN + line_in * lines + _FOOT_IN
    width = _NARROW_IN if narrow else _WIDE_IN
    several = len({row.like.response for row in rows}) > 1

    def paint(figure: Figure) -> None:
        left, right = (0.07, 0.97) if narrow else (0.31, 0.63)
        axes = figure.add_axes((left, _FOOT_IN / height, right - left, line_in * lines / height))
        _axis(axes, comparison, rows, lines)

        def write(x: float, line: float, text: str, ink: str, align: str, *, bold: bool = False) -> None:
            write_in_line(
                figure,
                axes,
                x,
                line,
                text,
                ink,
                align=align,
                bold=bold,
                fontsize=FONT_PT - (0.5 if narrow else 0),
                bbox={"facecolor": PAPER, "linewidth": 0, "pad": 0.6},
            )

        line = 0.0
        for row in rows:
            place = comparison.place(row) + (f", {spoken(row.like.response)}" if several else "")
            head = title(row) if place == "all conditions" else f"{title(row)}, {place}"
            write(0.0, line, elided(head, 54 if narrow else 76), INK, "left", bold=True)
            agreement = agreement_words(comparison, row)
            if not narrow:
                write(
                    1.0,
                    line,
                    elided(agreement, 36),
                    INK if row.apart else MUTED,
                    "right",
                    bold=bool(row.apart),
                )
            line += 1
            for position in row.has:
                cell = row.cells[position]
                assert cell is not None
                y, colour = line + (0.24 if narrow else 0.0), arm_ink(1 + position) if cell.counts else MUTED
                marker = arm_marker(position)
                draw_effect(axes, cell.effect, y, colour, marker=marker, hollow=not cell.counts)
                verdict = cell_verdict(cell)
                ink = VERDICT_INKS.get(cell.effect.conclusion.words, INK) if cell.valid else MUTED
                if cell.risk and cell.valid:
                    verdict, ink = f"⚠ {verdict}", RISK_INK
                mark, words = comparison.columns[position].mark, cell_numbers(cell)
                if narrow:
                    write(0.0, line - 0.2, f"{mark}  {words}", INK, "left")
                    write(1.0, line - 0.2, elided(verdict, 24), ink, "right")
                else:
                    named = f"{mark}  {comparison.columns[position].name}"
                    write(0.012, line, elided(named, 36), INK, "left")
                    write(0.645, line, words, INK, "left")
                    write(1.0, line, elided(verdict.partition(":")[0].partition(",")[0], 22), ink, "right")
                line += 1
            line += _GAP

    sentence = "; ".join(
        f"{title(row)}, {comparison.place(row)}: {_row_text(comparison, row)}" for row in rows[:12]
    )
    return draw(name, (width, height), paint, description=f"Forest plot of trials. {sentence}")


def _row_text(comparison: Comparison, row: Row) -> str:
    cells = [
        f"{comparison.columns[i].mark} {cell_numbers(cell)}"
        for i, cell in enumerate(row.cells)
        if cell is not None
    ]
    return f"{', '.join(cells)} ({agreement_words(comparison, row)})"


def _axis(axes: Axes, comparison: Comparison, rows: Sequence[Row], lines: float) -> None:
    log = rows[0].like.scale is Scale.LOG
    margins = {column.trial.margin for column in comparison.columns}
    band = math.log1p(margins.pop()) if len(margins) == 1 and log else 0.0
    effects = [cell.effect for row in rows for cell in row.cells if cell is not None]
    low, high = limits_of(effects, band)
    note = f" (band: within {percent(math.expm1(band))})" if band else ""
    effect_axis(axes, low, high, lines=lines, log=log, unit=rows[0].like.unit, note=note)
    if band:
        axes.axvspan(-band, band, color=BAND, linewidth=0, zorder=0)
    axes.axvline(0.0, color=LINE, linewidth=1.0, zorder=1)
