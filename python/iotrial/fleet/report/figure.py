"""Chart of one comparison over hosts: one row per host, sorted by effect, with the mean and the range of another host.

Up to forty hosts are labelled; with more, lines are thin and only outlying hosts are labelled. Intervals are the hosts' own.
Hosts that are not averaged are not drawn: the table gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from iotrial.fleet.report.words import host_name, host_verdict, mean_words, title
from iotrial.fleet.verdict import FleetComparison, HostRow
from iotrial.report.axes import Axis
from iotrial.report.chart import (
    BAND,
    INK,
    MUTED,
    NARROW,
    VERDICT_INKS,
    WIDE,
    Chart,
    Interval,
    Mark,
    Rect,
    Rule,
    Text,
    plot,
)
from iotrial.report.interval_charts import IntervalGroup, IntervalRow, interval_axis, interval_chart
from iotrial.report.notation import percent
from iotrial.report.phrases import interval
from iotrial.stats.model import Conclusion
from iotrial.study.model import Scale

MOST_NAMED = 40
_MANY, _LEAST_MANY, _MOST_MANY = 1.1, 300, 600


def caterpillar(name: str, one: FleetComparison, *, margin: float, narrow: bool) -> Chart | None:
    """Return the chart of one comparison; None if no host is averaged."""
    hosts = sorted(one.averaged, key=_place)
    if not hosts:
        return None
    log = one.like.scale is Scale.LOG

    def value(place: float | None) -> float | None:
        return None if place is None else math.exp(min(place, 700.0)) if log else place

    rows = [
        IntervalRow(
            host_name(host),
            value(host.part.low),
            value(_place(host)),
            value(host.part.high),
            interval(host.effect) if host.effect is not None else "",
            host_verdict(host).partition(",")[0],
            VERDICT_INKS.get(host.effect.conclusion.words, MUTED) if host.effect is not None else MUTED,
            undecided=host.part.low is None or host.part.high is None,
            label_ink=INK if host.outlier is None else VERDICT_INKS["slower"],
        )
        for host in hosts
    ]
    found, mean = one.found.mean, one.mean
    marks: list[Rule] = []
    band = None
    inside = list(rows)
    if log:
        marks += [Rule(end, dash="1 3") for end in (1 / (1 + margin), 1 + margin)]
    groups = [IntervalGroup(rows)]
    if found is not None and mean is not None:
        ink = VERDICT_INKS.get(mean.conclusion.words, INK)
        low, high = value(found.low), value(found.high)
        last = IntervalRow(
            "mean over hosts",
            low,
            value(found.value),
            high,
            mean_words(one),
            mean.conclusion.words,
            ink,
            shape="D",
        )
        if mean.conclusion is Conclusion.VARIES:  # a mean over differing conditions has no place on an axis
            last = replace(last, low=None, high=None, value=None)
        else:
            marks += [Rule(end, ink=ink) for end in (low, high) if end is not None]
            if found.new_host_low is not None and found.new_host_high is not None:
                band = (value(found.new_host_low) or 0.0, value(found.new_host_high) or 0.0)
                inside.append(IntervalRow("", band[0], None, band[1]))
        groups.append(IntervalGroup([last]))
    label = (
        f"ratio to the reference (dotted: {percent(margin)} either way)"
        if log
        else "difference to the reference"
    )
    axis = interval_axis(inside, log=log, unit=one.like.unit, margin=margin, title=label)
    text = f"Intervals of hosts. {title(one)}: {len(rows)} hosts, mean {mean_words(one)}"
    if len(rows) > MOST_NAMED:
        return _many(name, hosts, rows, axis, [*marks], band, text, narrow=narrow)
    return interval_chart(
        name, groups, axis, margin=0.0, description=text, narrow=narrow, band=band, rules=marks
    )  # fmt: skip


def _many(
    name: str,
    hosts: Sequence[HostRow],
    rows: Sequence[IntervalRow],
    axis: Axis,
    rules: Sequence[Mark],
    band: tuple[float, float] | None,
    description: str,
    *,
    narrow: bool,
) -> Chart:
    """Draw thin lines without labels but for outlying hosts."""
    marks: list[Mark] = [Rect(*band, None, None, BAND)] if band else []
    marks += [Rule(1.0 if axis.log else 0.0), *rules]
    for at, (host, row) in enumerate(zip(hosts, rows, strict=True)):
        marks.append(Interval(at, row.low, row.value, row.high, row.ink, thin=True))
        if host.outlier is not None and row.value is not None:
            left = axis.share(row.value) > 0.5
            text = Text(
                row.value, at, row.label, anchor="end" if left else "start", dx=-8 if left else 8, halo=True
            )
            marks.append(text)
    height = min(max(_LEAST_MANY, _MANY * len(rows)), _MOST_MANY) + 60
    width, kind = (NARROW, "narrow") if narrow else (WIDE, "wide")
    down = Axis(len(rows) - 0.5, -0.5, grid=False)
    return plot(name, axis, down, marks, description=description, width=width, height=height, kind=kind)


def _place(row: HostRow) -> float:
    return row.part.estimate if row.part.estimate is not None else 0.0


def caption(one: FleetComparison) -> str:
    """Return the caption, which explains the bands of the figure."""
    mean = one.found.mean
    if mean is None:
        return "One line per host, with its own interval."
    text = (
        "One line per host, with its own interval, sorted by effect; thin vertical lines: the interval of the mean over "
        "hosts"
    )
    if mean.new_host_low is None:
        return f"{text}."
    return f"{text}; shaded: expected range of another host like these."
