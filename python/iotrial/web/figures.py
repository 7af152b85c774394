"""Draw intervals as inline SVG, as plain text: matplotlib would use tenths of a second of CPU during a running trial.

A figure is drawn twice, for wide and for narrow windows; the style sheet shows one. Colours and strokes are
CSS classes, so the page needs no inline style. An end that is unbounded, or lies beyond the axis, is drawn as
an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from iotrial.report.notation import elided, quantity
from iotrial.report.plots.canvas import linear_ticks, ratio_ticks

WIDE, NARROW = 960, 360
_FARTHEST = 3.0  # how far an axis extends for ends of intervals, in multiples of the range of the estimates
_MOST_LOG, _MOST = math.log(1e9), 1e100  # larger values are clipped
_TONES = frozenset({"faster", "better", "slower", "worse", "equivalent", "higher", "lower", "probable"})

Scale = Callable[[float], float]  # from positions to pixels


@dataclass(frozen=True, slots=True)
class Mark:
    """One interval: its unscaled numbers (ratios or differences), and its labels.

    ``tone``: a verdict, or "" for none; ``href`` links to the trial; ``word`` follows the numbers if there is
    room.
    """

    value: float | None
    low: float | None
    high: float | None
    tone: str
    name: str
    numbers: str
    href: str = ""
    word: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to positions from 0 to 1, logarithmically for ratios."""

    low: float
    high: float
    log: bool
    unit: str
    margin: float

    @classmethod
    def of(cls, marks: Iterable[Mark], *, log: bool, unit: str, margin: float) -> Axis:
        """Fit an axis to all estimates, the null value and the margin, and to the interval ends up to a limit."""
        marks = list(marks)
        estimates = _usable((mark.value for mark in marks), log=log)
        ends = _usable((end for mark in marks for end in (mark.low, mark.high)), log=log)
        least = math.log1p(margin) if log else 0.0
        low, high = min([-least, *estimates]), max([least, *estimates])
        reach = _FARTHEST * (max(high - low, 1e-9) if high > low else 1.0)
        low, high = max(min([low, *ends]), low - reach), min(max([high, *ends]), high + reach)
        pad = 0.05 * ((high - low) or 1.0)
        return cls(low - pad, high + pad, log, unit, margin if log else 0.0)

    def place(self, value: float | None) -> float | None:
        """Return the position: 0 at the low end, 1 at the high one, outside if off the axis; None if not plottable."""
        scaled = _scaled(value, log=self.log)
        return None if scaled is None else (scaled - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and labels."""
        if self.log:
            values = ratio_ticks(math.exp(self.low), math.exp(self.high))
            return [(self.place(value) or 0.0, f"{value:g}") for value in values]
        values = linear_ticks(self.low, self.high)
        return [(self.place(value) or 0.0, quantity(value, self.unit)) for value in values]


def both_widths(draw: Callable[[int], Markup]) -> tuple[Markup, Markup]:
    """Draw the figure for wide and for narrow windows."""
    return draw(WIDE), draw(NARROW)


def timeline(marks: Sequence[Mark], axis: Axis, *, changes: Sequence[int], width: int, label: str) -> Markup:
    """Draw trials from left to right in time order, equally spaced. ``changes``: marks before which the level changes."""
    left, top, height = 52, 10, 220
    inner = width - left - 10

    def x(i: float) -> float:
        return left + inner * (i + 0.5) / max(1, len(marks))

    def y(place: float) -> float:
        return top + height * (1 - min(1.0, max(0.0, place)))

    parts = _frame(axis, y, left, inner, upright=True)
    parts += [f'<path class="change" d="M{x(i - 0.5):.1f} {top}v{height}"/>' for i in changes]
    parts += [_interval(mark, axis, y, x(i), upright=True) for i, mark in enumerate(marks)]
    every = max(1, math.ceil(len(marks) * 76 / inner))
    for i in range(0, len(marks), every):
        parts.append(_text(x(i), top + height + 18, marks[i].name, "middle", "tick"))
    return _svg(width, top + height + 26, parts, label)


def forest(groups: Sequence[tuple[str, Sequence[Mark]]], axis: Axis, *, width: int, label: str) -> Markup:
    """Draw comparisons one below the other, each with one line per mark: name, interval, numbers."""
    named = any(mark.name for _, marks in groups for mark in marks)
    wide = width == WIDE
    left, right = (70 if named else 12, 250) if wide else (34 if named else 8, 156)
    inner = width - left - right
    line, head, room = 20, 26, 40 if wide else 21
    height = sum(head + line * len(marks) for _, marks in groups)

    def x(place: float) -> float:
        return left + inner * min(1.0, max(0.0, place))

    parts = _frame(axis, x, 0, height, upright=False, every=1 if wide else 2)
    at = 0
    for title, marks in groups:
        parts.append(_text(0, at + 18, elided(title, 110 if wide else 46), "start", "title paper"))
        at += head
        for mark in marks:
            middle = at + line / 2
            numbers = mark.numbers
            if len(numbers) > room:
                numbers = elided(numbers.split(" [")[0], room)
            parts.append(_interval(mark, axis, x, middle, upright=False))
            parts.append(_text(left - 10, middle + 4, elided(mark.name, 10 if wide else 4), "end"))
            parts.append(_text(left + inner + 12, middle + 4, numbers, "start"))
            if mark.word and wide:
                parts.append(_text(width, middle + 4, mark.word, "end"))
            at += line
    return _svg(width, height + 26, parts, label)


def _frame(
    axis: Axis, scale: Scale, start: float, length: float, *, upright: bool, every: int = 1
) -> list[str]:
    """Draw the margin as a band, labelled lines at the ticks, and the null line. ``upright``: the axis is vertical."""
    null = 1.0 if axis.log else 0.0

    def rule(place: float, kind: str) -> str:
        at = scale(place)
        return f'<path class="{kind}" d="' + (
            f'M{start} {at:.1f}h{length}"/>' if upright else f'M{at:.1f} {start}v{length}"/>'
        )

    parts = []
    if axis.margin > 0:
        low, high = sorted(scale(axis.place(end) or 0.0) for end in (1 / (1 + axis.margin), 1 + axis.margin))
        x, y, width, height = (
            (start, low, length, high - low) if upright else (low, start, high - low, length)
        )
        parts.append(
            f'<rect class="band" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        )
    for place, label in axis.ticks()[::every]:
        parts.append(rule(place, "line"))
        if upright:
            parts.append(_text(start - 6, scale(place) + 3.5, label, "end", "tick"))
        else:
            parts.append(_text(scale(place), start + length + 18, label, "middle", "tick"))
    return [*parts, rule(axis.place(null) or 0.0, "null")]


def _interval(mark: Mark, axis: Axis, scale: Scale, at: float, *, upright: bool) -> str:
    """Draw an interval with its ends or arrows, and its estimate as a dot. ``at``: position across the axis, in pixels."""

    def point(along: float, across: float = 0.0) -> str:
        x, y = (at + across, along) if upright else (along, at + across)
        return f"{x:.1f} {y:.1f}"

    drawn = []
    if mark.low is not None or mark.high is not None:
        low, high = axis.place(mark.low), axis.place(mark.high)
        first, last = scale(0.0 if low is None else low), scale(1.0 if high is None else high)
        ahead = math.copysign(6, scale(1.0) - scale(0.0))
        drawn.append(f'<path d="M{point(first)}L{point(last)}"/>')
        for end, back, goes_on in (
            (first, first + ahead, low is None or low <= 0),
            (last, last - ahead, high is None or high >= 1),
        ):
            if goes_on:
                drawn.append(f'<path d="M{point(back, -3.5)}L{point(end)}L{point(back, 3.5)}"/>')
            else:
                drawn.append(f'<path d="M{point(end, -3)}L{point(end, 3)}"/>')
    estimate = axis.place(mark.value)
    if estimate is not None:
        x, y = point(scale(estimate)).split()
        drawn.append(f'<circle cx="{x}" cy="{y}" r="4"/>')
    tone = mark.tone if mark.tone in _TONES else "none"
    title = ": ".join(filter(None, (mark.name, mark.numbers, mark.word)))
    group = f'<g class="mark {tone}"><title>{escape(title)}</title>{"".join(drawn)}</g>'
    return f'<a href="{escape(mark.href)}">{group}</a>' if mark.href else group


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, height: float, parts: Iterable[str], label: str) -> Markup:
    kind = "wide" if width == WIDE else "narrow"
    # all text in it has been escaped
    return Markup(
        f'<svg class="figure {kind}" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _usable(values: Iterable[float | None], *, log: bool) -> list[float]:
    return [scaled for value in values if (scaled := _scaled(value, log=log)) is not None]


def _scaled(value: float | None, *, log: bool) -> float | None:
    if value is None or not math.isfinite(value) or (log and value <= 0):
        return None
    scaled, most = (math.log(value), _MOST_LOG) if log else (value, _MOST)
    return max(-most, min(most, scaled))
