"""Charts of ``serve``, by the report's renderer, each for a wide window and for a phone; the style sheet shows one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from iotrial.report.axes import Axis, fitted_axis, time_axis
from iotrial.report.chart import (
    BAND,
    MUTED,
    NARROW,
    WIDE,
    Chart,
    Curve,
    Entry,
    Interval,
    Mark,
    Points,
    Rect,
    Rule,
    arm_ink,
    arm_marker,
    plot,
    text_width,
)
from iotrial.report.interval_charts import IntervalGroup, IntervalRow, interval_axis, interval_chart
from iotrial.report.notation import percent
from iotrial.report.progress import WindowLine
from iotrial.terminal import escape

Pair = tuple[Markup, Markup]
_INKS = {
    **dict.fromkeys(("faster", "better"), "faster"),
    **dict.fromkeys(("slower", "worse"), "slower"),
    "equivalent": "equivalent",
    **dict.fromkeys(("higher", "lower", "probable"), "moved"),
}


def tone_ink(tone: str) -> str:
    """Return the ink of a verdict's tone."""
    return _INKS.get(tone, MUTED)


def both_widths(draw: Callable[[bool], Chart]) -> Pair:
    """Draw a chart for wide windows and for phones (``draw(True)``)."""
    # all text in a chart has been escaped
    wide, narrow = (
        Markup(f'<div class="{"narrow" if on else "wide"}">{draw(on).inline}</div>') for on in (False, True)
    )
    return wide, narrow


def intervals(rows: Sequence[IntervalRow], *, margin: float, what: str) -> Pair:
    """Draw ratios with their intervals, one below the other."""
    title = f"ratio to the reference (band: within {percent(margin)})"
    axis = interval_axis(rows, log=True, unit="", margin=margin, title=title)
    groups = [IntervalGroup(rows)]
    return both_widths(
        lambda narrow: interval_chart(
            f"intervals{'-narrow' * narrow}", groups, axis, margin=margin, description=what, narrow=narrow
        )
    )


def trials_over_time(
    name: str, rows: Sequence[IntervalRow], axis: Axis, *, changes: Sequence[int], margin: float, what: str
) -> Pair:
    """Draw trials from left to right, at equal distances; a dashed line before those at which the level changes."""
    down: list[Mark] = [Rule(1.0 if axis.log else 0.0, level=True)]
    if axis.log and margin > 0:
        down.insert(0, Rect(None, None, 1 / (1 + margin), 1 + margin, BAND))
    down += [Rule(at - 0.5, ink="moved", width=1.6, dash="5 4") for at in changes]
    for at, row in enumerate(rows):
        words = ": ".join(filter(None, (row.label, row.numbers)))
        mark = Interval(at, row.low, row.value, row.high, row.ink, hollow=row.hollow, dotted=row.dotted, upright=True,
                        words=words, href=row.href)  # fmt: skip
        down.append(mark)

    def draw(narrow: bool) -> Chart:
        width, kind = (NARROW, "narrow") if narrow else (WIDE, "wide")
        room = max((text_width(row.label) for row in rows), default=0.0) + 12
        every = max(1, math.ceil(len(rows) * room / (width - 80)))
        ticks = tuple((float(at), row.label) for at, row in enumerate(rows) if at % every == 0)
        across = Axis(-0.5, max(len(rows), 1) - 0.5, ticks=ticks, grid=False)
        return plot(
            f"{name}{'-narrow' * narrow}", across, axis, down, description=what, width=width, height=260, kind=kind
        )  # fmt: skip

    return both_widths(draw)


def windows_over_time(windows: Sequence[WindowLine], *, what: str) -> Pair:
    """Draw the metric in the windows of a live trial over time; a dashed line at each switch of the setting."""
    known = [(one, one.value) for one in windows if one.value is not None]
    settings = list(dict.fromkeys(one.setting for one, _ in known))
    at = [one.began_s for one, _ in known]
    values = [value for _, value in known]
    y = fitted_axis(np.asarray(values), known[-1][0].unit, "judged metric")
    x = time_axis(at[-1], first_s=at[0])
    marks: list[Mark] = [Curve(at, values, MUTED, 1.0, opacity=0.6)]
    for before, (here, _) in pairwise(known):
        if before[0].setting != here.setting:
            marks.append(Rule((before[0].began_s + here.began_s) / 2, ink="moved", width=1.2, dash="5 4"))
    for n, setting in enumerate(settings):
        own = [(one.began_s, value) for one, value in known if one.setting == setting]
        marks.append(Points([x for x, _ in own], [y for _, y in own], arm_ink(n), arm_marker(n), 4))
    entries = [
        Entry(escape(setting), arm_ink(n), arm_marker(n), line=False) for n, setting in enumerate(settings)
    ]
    return both_widths(
        lambda narrow: plot(
            f"windows{'-narrow' * narrow}",
            x,
            y,
            marks,
            description=what,
            width=NARROW if narrow else WIDE,
            height=260,
            entries=entries,
            kind="narrow" if narrow else "wide",
        )
    )
