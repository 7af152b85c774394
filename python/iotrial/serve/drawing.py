"""Intervals as inline SVG, drawn from nothing but text: no library is loaded for them and no thread waits for another.

A figure is drawn twice, for wide and for narrow windows; the style sheet shows one. Colours and strokes are classes, so that
the page needs no style of its own. An end that is not bounded, or lies beyond the axis, is an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.report.notation import elided, quantity

if TYPE_CHECKING:
    from markupsafe import Markup

WIDE, NARROW = 960, 360
_FARTHEST = 3.0  # how much farther than the estimates an axis reaches for the ends of intervals
_MOST_LOG, _MOST = math.log(1e9), 1e100  # what nobody reads from a figure
_TONES = frozenset({"faster", "better", "slower", "worse", "equivalent", "higher", "lower", "probable"})


@dataclass(frozen=True, slots=True)
class Mark:
    """One interval: its numbers as they are (ratios or differences), and the words around it.

    ``tone``: a verdict, or "" for none; ``href`` leads to the trial.
    """

    value: float | None
    low: float | None
    high: float | None
    tone: str
    name: str
    said: str
    href: str = ""
    word: str = ""  # after the numbers, where there is room


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to places in 0 to 1, in logarithms where it holds ratios."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, marks: Iterable[Mark], *, log: bool, margin: float) -> Axis:
        """Holds all estimates, no effect, the margin, and as much of the ends as leaves the estimates legible."""
        found = list(marks)
        usable = [v for mark in found if (v := _scaled(mark.value, log=log)) is not None]
        least = math.log1p(margin) if log else 0.0
        low, high = min([-least, *usable]), max([least, *usable])
        span = max(high - low, 1e-9) if high > low else 1.0
        ends = [
            v for mark in found for end in (mark.low, mark.high) if (v := _scaled(end, log=log)) is not None
        ]
        low = max(min([low, *ends]), low - _FARTHEST * span)
        high = min(max([high, *ends]), high + _FARTHEST * span)
        pad = 0.05 * ((high - low) or 1.0)
        return cls(low - pad, high + pad, log)

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one; beyond these for what is not on the axis."""
        scaled = _scaled(value, log=self.log)
        if scaled is None:
            return -1.0
        return (scaled - self.low) / (self.high - self.low)

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Places and labels."""
        from iotrial.report.plots.canvas import linear_ticks, ratio_ticks

        if self.log:
            return [(self.place(t), f"{t:g}") for t in ratio_ticks(math.exp(self.low), math.exp(self.high))]
        return [(self.place(t), quantity(t, unit)) for t in linear_ticks(self.low, self.high)]


def _scaled(value: float | None, *, log: bool) -> float | None:
    if value is None or not math.isfinite(value) or (log and value <= 0):
        return None
    scaled, most = (math.log(value), _MOST_LOG) if log else (value, _MOST)
    return max(-most, min(most, scaled))


def timeline(
    marks: Sequence[Mark],
    axis: Axis,
    *,
    unit: str,
    margin: float,
    changes: Sequence[int],
    width: int,
    said: str,
) -> Markup:
    """Trials from left to right in order of time, at equal distances; ``changes``: before which mark a level changes."""
    left, right, top, height = 52, 10, 10, 220
    inner = width - left - right

    def x(i: float) -> float:
        return left + inner * (i + 0.5) / max(1, len(marks))

    def y(place: float) -> float:
        return top + height * (1 - min(1.0, max(0.0, place)))

    parts = [_band(left, inner, y, axis, margin)]
    for place, label in axis.ticks(unit):
        parts.append(f'<path class="line" d="M{left} {y(place):.1f}h{inner}"/>')
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{y(place) + 3.5:.1f}" text-anchor="end">{_e(label)}</text>'
        )
    null = 1.0 if axis.log else 0.0
    parts.append(f'<path class="null" d="M{left} {y(axis.place(null)):.1f}h{inner}"/>')
    parts += [f'<path class="change" d="M{x(i - 0.5):.1f} {top}v{height}"/>' for i in changes]
    for i, mark in enumerate(marks):
        ends = _ends(mark, axis)
        drawn = []
        if ends is not None:
            (low, open_low), (high, open_high) = ends
            at = x(i)
            drawn.append(f'<path d="M{at:.1f} {y(low):.1f}V{y(high):.1f}"/>')
            drawn.append(
                _arrow(at, y(low), 0, 1) if open_low else f'<path d="M{at - 3:.1f} {y(low):.1f}h6"/>'
            )
            drawn.append(
                _arrow(at, y(high), 0, -1) if open_high else f'<path d="M{at - 3:.1f} {y(high):.1f}h6"/>'
            )
        if (spot := _place(mark, axis)) is not None:
            drawn.append(f'<circle cx="{x(i):.1f}" cy="{y(spot):.1f}" r="4"/>')
        parts.append(_linked(mark, "".join(drawn)))
    every = max(1, math.ceil(len(marks) * 76 / inner))
    for i in range(0, len(marks), every):
        parts.append(
            f'<text class="tick" x="{x(i):.1f}" y="{top + height + 18}" text-anchor="middle">{_e(marks[i].name)}</text>'
        )
    return _svg(width, top + height + 26, parts, said)


def forest(
    groups: Sequence[tuple[str, Sequence[Mark]]],
    axis: Axis,
    *,
    unit: str,
    margin: float,
    width: int,
    said: str,
) -> Markup:
    """Comparisons below each other, in each a line a trial: its name, its interval, its numbers."""
    named = any(mark.name for _, marks in groups for mark in marks)
    left, right = (70 if named else 12, 250) if width == WIDE else (34 if named else 8, 156)
    inner = width - left - right
    line, head, foot = 20, 26, 26
    height = sum(head + line * len(marks) for _, marks in groups)

    def x(place: float) -> float:
        return left + inner * min(1.0, max(0.0, place))

    parts = []
    if axis.log and margin > 0:
        a, b = x(axis.place(1 / (1 + margin))), x(axis.place(1 + margin))
        parts.append(f'<rect class="band" x="{a:.1f}" y="0" width="{b - a:.1f}" height="{height}"/>')
    for place, label in axis.ticks(unit)[:: 1 if width == WIDE else 2]:
        parts.append(f'<path class="line" d="M{x(place):.1f} 0v{height}"/>')
        parts.append(
            f'<text class="tick" x="{x(place):.1f}" y="{height + 18}" text-anchor="middle">{_e(label)}</text>'
        )
    null = 1.0 if axis.log else 0.0
    parts.append(f'<path class="null" d="M{x(axis.place(null)):.1f} 0v{height}"/>')
    at = 0
    for title, marks in groups:
        shown_title = elided(title, 110 if width == WIDE else 46)
        parts.append(f'<text class="title paper" x="0" y="{at + 18}">{_e(shown_title)}</text>')
        at += head
        for mark in marks:
            middle = at + line / 2
            drawn = []
            ends = _ends(mark, axis)
            if ends is not None:
                (low, open_low), (high, open_high) = ends
                drawn.append(f'<path d="M{x(low):.1f} {middle}H{x(high):.1f}"/>')
                drawn.append(
                    _arrow(x(low), middle, -1, 0) if open_low else f'<path d="M{x(low):.1f} {middle - 3}v6"/>'
                )
                drawn.append(
                    _arrow(x(high), middle, 1, 0)
                    if open_high
                    else f'<path d="M{x(high):.1f} {middle - 3}v6"/>'
                )
            if (spot := _place(mark, axis)) is not None:
                drawn.append(f'<circle cx="{x(spot):.1f}" cy="{middle}" r="4"/>')
            parts.append(_linked(mark, "".join(drawn)))
            name = elided(mark.name, 10 if width == WIDE else 4)
            parts.append(f'<text x="{left - 10}" y="{middle + 4}" text-anchor="end">{_e(name)}</text>')
            room = 40 if width == WIDE else 21
            numbers = mark.said if len(mark.said) <= room else elided(mark.said.split(" [")[0], room)
            parts.append(f'<text x="{left + inner + 12}" y="{middle + 4}">{_e(numbers)}</text>')
            if mark.word and width == WIDE:
                parts.append(f'<text x="{width}" y="{middle + 4}" text-anchor="end">{_e(mark.word)}</text>')
            at += line
    return _svg(width, height + foot, parts, said)


def _place(mark: Mark, axis: Axis) -> float | None:
    return None if _scaled(mark.value, log=axis.log) is None else axis.place(float(mark.value or 0.0))


def _ends(mark: Mark, axis: Axis) -> tuple[tuple[float, bool], tuple[float, bool]] | None:
    """Places of the ends within the axis, and whether each is no end but goes on; None where neither is known."""
    if mark.low is None and mark.high is None:
        return None
    low = 0.0 if mark.low is None or (axis.log and mark.low <= 0) else axis.place(mark.low)
    high = 1.0 if mark.high is None else axis.place(mark.high)
    return (max(0.0, low), mark.low is None or low <= 0), (min(1.0, high), mark.high is None or high >= 1)


def _arrow(x: float, y: float, dx: int, dy: int) -> str:
    """A head that points to (dx, dy)."""
    back = [(x - 6 * dx + 3.5 * dy * s, y - 6 * dy + 3.5 * dx * s) for s in (1, -1)]
    return f'<path d="M{back[0][0]:.1f} {back[0][1]:.1f}L{x:.1f} {y:.1f}L{back[1][0]:.1f} {back[1][1]:.1f}"/>'


def _band(left: float, inner: float, y: object, axis: Axis, margin: float) -> str:
    if not axis.log or margin <= 0:
        return ""
    assert callable(y)
    top, bottom = y(axis.place(1 + margin)), y(axis.place(1 / (1 + margin)))
    return f'<rect class="band" x="{left}" y="{top:.1f}" width="{inner}" height="{bottom - top:.1f}"/>'


def _linked(mark: Mark, drawn: str) -> str:
    tone = mark.tone if mark.tone in _TONES else "none"
    told = ": ".join(filter(None, (mark.name, mark.said, mark.word)))
    group = f'<g class="mark {tone}"><title>{_e(told)}</title>{drawn}</g>'
    return f'<a href="{_e(mark.href)}">{group}</a>' if mark.href else group


def _svg(width: int, height: float, parts: Iterable[str], said: str) -> Markup:
    from markupsafe import Markup

    where = "wide" if width == WIDE else "narrow"
    # every text in it has gone through _e
    return Markup(
        f'<svg class="figure {where}" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{_e(said)}">'
        f"{''.join(parts)}</svg>"
    )


def _e(text: object) -> str:
    from markupsafe import escape

    return str(escape(text))
