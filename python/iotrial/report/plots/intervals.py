"""Effects with their intervals on one axis: what the forest plots of effects, trials and hosts share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iotrial.report.notation import suited_unit
from iotrial.report.plots.canvas import FONT_PT, MUTED, PAPER, calm, linear_ticks, log_ratio_ticks
from iotrial.study.model import Scale
from iotrial.terminal import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from iotrial.stats.model import Effect

#: how many times the farthest estimate the axis reaches at most, for the sake of wide intervals
FARTHEST = 3.0


def limits_of(effects: Sequence[Effect], band: float) -> tuple[float, float]:
    """Return the ends of an axis for effects of one scale: logarithms of ratios, or differences.

    All estimates are inside, and the ``band`` around no effect; ends of intervals only up to ``FARTHEST`` times the
    farthest estimate (or four bands).
    """
    places = _places([effect.value for effect in effects], effects[0].scale)
    ends = _places([end for effect in effects for end in (effect.low, effect.high)], effects[0].scale)
    reach = max(FARTHEST * max(map(abs, places), default=0.0), 4 * band) or 1.0
    inside = [0.0, *places, *(min(max(end, -reach), reach) for end in ends), -1.6 * band, 1.6 * band]
    low, high = min(inside), max(inside)
    pad = (high - low) * 0.05 or 1.0
    return low - pad, high + pad


def _places(values: Sequence[float | None], scale: Scale) -> list[float]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return [math.log(value) for value in known if value > 0] if scale is Scale.LOG else known


def effect_axis(
    axes: Axes, low: float, high: float, *, lines: float, log: bool, unit: str, note: str = ""
) -> None:
    """Set up the axis that effects of one scale share.

    It goes from ``low`` to ``high`` (logarithms if ``log``), with ``lines`` rows from the top; ``note`` follows its
    title.
    """
    calm(axes)
    axes.set_xlim(low, high)
    axes.set_ylim(lines - 0.5, -0.5)
    axes.set_yticks([])
    if log:
        axes.set_xticks(*log_ratio_ticks(low, high))
        label = f"ratio to the reference{note}"
    else:
        size, name = suited_unit(unit, (abs(low), abs(high)))
        ticks = linear_ticks(low / size, high / size)
        axes.set_xticks([tick * size for tick in ticks], [f"{tick:g}" for tick in ticks])
        label = "difference to the reference" + (f", {escape(name)}" if name not in ("", "1") else "")
    axes.set_xlabel(label, color=MUTED, fontsize=FONT_PT - 0.5)


def write_in_line(
    figure: Figure,
    axes: Axes,
    x: float,
    line: float,
    text: str,
    ink: str,
    *,
    align: str = "left",
    bold: bool = False,
    **style: Any,
) -> None:
    """Write text at a fraction of the figure's width, at the height of a line of these axes."""
    box = axes.get_position()
    lines = axes.get_ylim()[0] + 0.5
    y = box.y0 + box.height * (1 - (line + 0.5) / lines)
    weight = "bold" if bold else "normal"
    figure.text(x, y, text, color=ink, ha=align, va="center", weight=weight, **style)


def draw_effect(axes: Axes, effect: Effect, y: float, ink: str, *, marker: str, hollow: bool) -> None:
    """Draw an effect's interval and its estimate at this height; or say that there is no interval yet."""
    if effect.value is None and effect.low is None and effect.high is None:
        axes.text(
            sum(axes.get_xlim()) / 2, y, "no interval yet", color=MUTED, ha="center", va="center", style="italic",
            fontsize=FONT_PT - 1, bbox={"facecolor": PAPER, "linewidth": 0, "pad": 1},
        )  # fmt: skip
        return
    place = _interval(axes, effect, y, ink)
    if place is not None:
        axes.plot(
            [place], [y], marker=marker, color=ink, markerfacecolor=PAPER if hollow else ink, markersize=6, linewidth=0,
            markeredgewidth=1.2, zorder=5,
        )  # fmt: skip


def _interval(axes: Axes, effect: Effect, y: float, ink: str) -> float | None:
    """Draw an effect's interval at this height, with an arrow where it continues beyond the axis.

    Returns the position of the estimate, or None if there is none: for a mean of conditions that differ, only the span
    is drawn.
    """
    left, right = axes.get_xlim()
    log = effect.scale is Scale.LOG

    def place(value: float) -> float:
        if log and value <= 0:
            return left
        return min(max(math.log(value) if log else value, left), right)

    if effect.agree is False and effect.span is not None:
        ends = [place(end) for end in (effect.span.least, effect.span.most)]
        axes.plot(ends, [y, y], color=ink, linewidth=1.0, linestyle=":", marker="|", markersize=7, zorder=3)
        return None
    low = left if effect.low is None else place(effect.low)
    high = right if effect.high is None else place(effect.high)
    axes.plot([low, high], [y, y], color=ink, linewidth=2.0, solid_capstyle="butt", zorder=3)
    for end, marker in ((low, "<"), (high, ">")):
        if end in (left, right):
            axes.plot(
                [end], [y], marker=marker, color=ink, markersize=5, linewidth=0, clip_on=False, zorder=4
            )
    return None if effect.value is None or (log and effect.value <= 0) else place(effect.value)
