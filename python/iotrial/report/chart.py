"""Charts: marks with values and axes, and the one renderer that turns them into SVG.

A :class:`Chart` is a few panes, rectangles with two axes and the marks in them. It is drawn in two ways: for a page, where
colours are variables of its style sheet (so that it follows a dark screen), and as a file of its own in light colours. One
unit is one CSS pixel, and all text has 12 pixels: a page never shows a chart larger than it is.

Text is laid out by estimated widths, those of DejaVu Sans, the widest of the usual fonts: a reader's own font is narrower.
Nothing leaves its pane: lines are cut at the edge, a point beyond it is a small triangle there.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from iotrial.report.axes import Axis, Floats
from iotrial.terminal import escape as visible

if TYPE_CHECKING:
    from iotrial.report.series import Arm

#: widths in pixels: a page's, a phone's, and one of two side by side
WIDE, NARROW, PANEL = 900, 336, 370
FONT, LINE = 12, 15
INK, MUTED, RULE, BAND, PAPER = "ink", "muted", "line", "band", "card"
#: an effect whose faster level puts data at risk has the ink of a change without a direction
RISK_INK = _MOVED = "moved"
#: inks by the words of a conclusion
VERDICT_INKS = {
    "faster": "faster",
    "better": "faster",
    "slower": "slower",
    "worse": "slower",
    "equivalent": "equivalent",
    "typical runs equivalent": "equivalent",
    "higher": _MOVED,
    "lower": _MOVED,
    "undecided": MUTED,
    "not tried": MUTED,
    **dict.fromkeys(
        (f"probably {word}" for word in ("faster", "slower", "better", "worse", "higher", "lower")), _MOVED
    ),
    "differs by condition": _MOVED,
}
ARM_COLOURS = 8
_FONTS = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"
DASHES = ("", "8 3", "3 2", "8 3 2 3", "12 4", "2 2", "12 4 2 4 2 4", "5 5")
_MARKERS = "os^DvPXp"


@cache
def light_colours() -> Mapping[str, str]:
    """Return the colour of each ink on a light screen, as the page's style sheet declares it."""
    css = resources.files("iotrial.report").joinpath("templates/report.css").read_text("utf-8")
    return dict(re.findall(r"--([\w-]+):(#\w+)", css.partition("@media")[0]))


def arm_ink(position: int) -> str:
    """Return the ink of an arm. Inks repeat after eight; then the shape of its marks distinguishes it."""
    return f"arm-{position % ARM_COLOURS}"


def arm_marker(position: int) -> str:
    """Return the shape of an arm's marks, shifted by one at every round of colours, so that no pair repeats."""
    return _MARKERS[(position + position // ARM_COLOURS) % len(_MARKERS)]


def arm_dashes(arm: Arm) -> str:
    """Return the dashes of an arm's line: controls have two kinds of their own."""
    return DASHES[2 + arm.position % 2 if arm.is_control else arm.position % len(DASHES)]


# text

# fmt: off
_WIDTHS = (318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636,
    636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748,
    787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,
    635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838)
# fmt: on
_BOLD = 1.13


def text_width(text: str, *, bold: bool = False) -> float:
    """Return the estimated width of a text in pixels."""
    total = 0.0
    for letter in text:
        code = ord(letter)
        if 32 <= code < 127:
            total += _WIDTHS[code - 32]
        elif unicodedata.east_asian_width(letter) in "WF" or letter == "…":
            total += 1000
        elif not unicodedata.combining(letter):
            total += 700
    return total * FONT / 1000 * (_BOLD if bold else 1.0)


def shortened(text: str, room: float, *, share: float = 0.5, bold: bool = False) -> str:
    """Return the text, with an ellipsis if it is wider than ``room``; ``share`` of what is kept is its beginning."""
    if len(text) <= room and text_width(text, bold=bold) <= room:
        return text
    kept = min(len(text), int(room / 3))
    while kept > 1:
        head = round(kept * share)
        found = f"{text[:head].rstrip()}…{text[len(text) - (kept - head) :].lstrip() if kept > head else ''}"
        if text_width(found, bold=bold) <= room:
            return found
        kept -= 1
    return "…"


def distinct(texts: Sequence[str], room: float, *, bold: bool = False) -> list[str]:
    """Shorten each text to ``room`` pixels so that different texts stay different; numbers them if nothing else helps."""
    different = len(set(texts))
    for share in (0.5, 0.7, 0.3, 0.9, 0.1):
        found = [shortened(text, room, share=share, bold=bold) for text in texts]
        if len(set(found)) == different:
            return found
    numbers = {text: f" #{n}" for n, text in enumerate(dict.fromkeys(texts), 1)}
    least = room - max(text_width(number, bold=bold) for number in numbers.values())
    return [shortened(text, least, bold=bold) + numbers[text] for text in texts]


def wrapped(text: str, room: float, *, bold: bool = False) -> list[str]:
    """Break a text into lines of at most ``room`` pixels: at blanks, and within words that are too long."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if text_width(longer, bold=bold) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while (
            len(word) > 1 and text_width(word[: int(room)], bold=bold) > room
        ):  # no letter is narrower than a pixel
            fits = next(
                n
                for n in range(min(len(word), int(room)), 0, -1)
                if n == 1 or text_width(word[:n], bold=bold) <= room
            )
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    return [*lines, line]


def fitted(texts: Sequence[str], room: float, most: int, *, bold: bool = False) -> list[list[str]]:
    """Return each text as at most ``most`` lines of ``room`` pixels; longer ones are shortened, and stay different."""
    share = 1.0
    lines = [wrapped(text[: int(most * room)], room, bold=bold) for text in texts]
    while any(len(one) > most for one in lines) and share > 0.2:
        share -= 0.08
        lines = [wrapped(text, room, bold=bold) for text in distinct(texts, share * most * room, bold=bold)]
    return [one[:most] for one in lines]


# marks


@dataclass(frozen=True, slots=True)
class Text:
    """A text at a value of each axis, moved by ``dx`` and ``dy`` pixels. ``halo``: on a patch of paper."""

    x: float
    y: float
    text: str
    ink: str = INK
    anchor: str = "start"
    bold: bool = False
    italic: bool = False
    halo: bool = False
    dx: float = 0.0
    dy: float = 0.0


@dataclass(frozen=True, slots=True)
class Points:
    """Marks of one kind. ``shape``: one of o s ^ v D P X p < > x; ``size`` is the radius in pixels."""

    x: Sequence[float] | Floats
    y: Sequence[float] | Floats
    ink: str
    shape: str = "o"
    size: float = 4.0
    hollow: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, cut at the edges of the pane; NaN interrupts it. ``fill``: an area instead."""

    x: Sequence[float] | Floats
    y: Sequence[float] | Floats
    ink: str
    width: float = 1.6
    dash: str = ""
    opacity: float = 1.0
    fill: str = ""


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; None is the edge of the pane. ``shrink``: pixels left free on each side."""

    left: float | None
    right: float | None
    low: float | None
    high: float | None
    fill: str
    opacity: float = 1.0
    edge: str = ""
    shrink: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the pane, at a value of the horizontal axis, or of the vertical one (``level``)."""

    at: float
    level: bool = False
    ink: str = MUTED
    width: float = 1.0
    dash: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval with its estimate, ``at`` a value of the other axis.

    An end that is None has no bound: an arrow. A finite end beyond the axis is cut by two strokes. A pointer over
    it shows the ``words``.
    """

    at: float
    low: float | None
    value: float | None
    high: float | None
    ink: str
    shape: str = "o"
    hollow: bool = False
    dotted: bool = False
    upright: bool = False
    words: str = ""
    href: str = ""
    thin: bool = False


Mark = Text | Points | Curve | Rect | Rule | Interval


@dataclass(frozen=True, slots=True)
class Pane:
    """A rectangle of a chart, in pixels from its upper left corner, with axes and marks. Marks are drawn in their order."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its name is unique in a page, its description is for screen readers. In a template it is its SVG."""

    name: str
    width: float
    height: float
    panes: tuple[Pane, ...]
    description: str
    kind: str = ""

    @property
    def inline(self) -> str:
        """The SVG for a page, coloured by the page's style sheet."""
        kind = f"figure {self.kind}".strip()
        return (
            f'<svg role="img" aria-label="{_safe(self.description)}" id="{_safe(self.name)}" class="{kind}" '
            f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" width="{_n(self.width)}" font-size="{FONT}">\n'
            f"{_content(self, lambda ink: f'var(--{ink})')}</svg>"
        )

    def __html__(self) -> str:
        return self.inline


def sheet(width: float, height: float, marks: Iterable[Mark]) -> Pane:
    """Return a pane of pixels, for marks with a place instead of values."""
    return Pane(0, 0, width, height, Axis(0, width), Axis(height, 0), tuple(marks))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a key: what an ink, a shape and dashes stand for."""

    text: str
    ink: str
    shape: str = ""
    dash: str = ""
    hollow: bool = False
    line: bool = True


def arm_entries(arms: Sequence[Arm]) -> tuple[Entry, ...]:
    """Return the key of these arms; the first is the reference."""
    return tuple(
        Entry(
            arm.label + (" (reference)" if not place else ""),
            MUTED if arm.is_control else arm_ink(arm.position),
            arm_marker(arm.position),
            arm_dashes(arm),
            arm.is_control,
        )
        for place, arm in enumerate(arms)
    )


def swatch(arm: Arm) -> str:
    """Return an arm's line and mark as a small SVG, for a key written in HTML."""
    (entry,) = arm_entries((arm,))
    marks = (
        Curve((0, 34), (6, 6), entry.ink, dash=entry.dash),
        Points((17,), (6,), entry.ink, entry.shape, 3.5, entry.hollow),
    )
    drawn = _content(Chart("", 34, 12, (sheet(34, 12, marks),), ""), lambda ink: f"var(--{ink})")
    return f'<svg viewBox="0 0 34 12" aria-hidden="true">{drawn}</svg>'


_SAMPLE, _KEY_LINE = 30, 18


def key(entries: Sequence[Entry], left: float, top: float, width: float) -> tuple[list[Mark], float]:
    """Return the marks of a key within ``width`` pixels (on a :func:`sheet`), and its height."""
    if not entries:
        return [], 0.0
    names = distinct([entry.text for entry in entries], width - _SAMPLE - 8)
    column = max(map(text_width, names)) + _SAMPLE + 22
    columns = max(1, min(len(entries), int((width + 14) / column)))
    marks: list[Mark] = []
    for place, (entry, name) in enumerate(zip(entries, names, strict=True)):
        line, at = divmod(place, columns)
        x, y = left + at * column, top + (line + 0.5) * _KEY_LINE
        if entry.line:
            marks.append(Curve((x, x + _SAMPLE), (y, y), entry.ink, dash=entry.dash))
        if entry.shape:
            marks.append(Points((x + _SAMPLE / 2,), (y,), entry.ink, entry.shape, 3.5, entry.hollow))
        marks.append(Text(x + _SAMPLE + 8, y, name))
    return marks, _KEY_LINE * (-(-len(entries) // columns))


def thinned(axis: Axis, room: float, size: float | None = None) -> Axis:
    """Return the axis with as few labels as fit into ``room``: each takes the widest label's width, or ``size``."""
    if len(axis.ticks) < 2:
        return axis
    needs = size or max(text_width(label) for _, label in axis.ticks) + 10
    places = np.sort(axis.shares([value for value, _ in axis.ticks])) * room
    kept = axis.ticks
    for step in range(1, len(axis.ticks) + 1):
        middle = next((i for i, (_, label) in enumerate(axis.ticks) if label == "1"), 0) if axis.log else 0
        kept = tuple(tick for i, tick in enumerate(axis.ticks) if (i - middle) % step == 0)
        places = axis.shares([value for value, _ in kept]) * room
        if len(kept) < 2 or float(np.min(np.abs(np.diff(places)))) >= needs:
            break
    return replace(axis, ticks=kept)


def plot(
    name: str,
    x: Axis,
    y: Axis,
    marks: Iterable[Mark],
    *,
    description: str,
    width: float = PANEL,
    height: float = 220,
    right: float = 14,
    entries: Sequence[Entry] = (),
    kind: str = "",
) -> Chart:
    """Return a chart of one pane: the title of the vertical axis above it, that of the other below, and then the key.

    The ``height`` is without the key. ``right`` is left free on the right.
    """
    heading = wrapped(y.title, width) if y.title else []
    top = 10 + LINE * len(heading)
    below = 22 + (LINE + 3 if x.title else 0)
    tall = height - top - below
    y = thinned(y, tall, 20)
    left = max([8.0, *(text_width(label) + 8 for _, label in y.ticks if y.labelled)])
    wide = width - left - right
    x = thinned(x, wide)
    texts: list[Mark] = [Text(0, 8 + LINE * at, line, MUTED) for at, line in enumerate(heading)]
    if x.title:
        room = shortened(x.title, width)
        middle = min(max(left + wide / 2, text_width(room) / 2), width - text_width(room) / 2)
        texts.append(Text(middle, height - 8, room, MUTED, "middle"))
    listed, more = key(entries, 0, height + 2, width)
    whole = height + (more + 4 if more else 0)
    panes = (Pane(left, top, wide, tall, x, y, tuple(marks)), sheet(width, whole, [*texts, *listed]))
    return Chart(name, width, whole, panes, description, kind)


# rendering

Paint = Callable[[str], str]
Corners = tuple[tuple[float, float], ...]
_POLYGONS: Mapping[str, Corners] = {
    "s": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "^": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "v": ((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
    "<": ((-1.2, 0), (0.9, -1.1), (0.9, 1.1)),
    ">": ((1.2, 0), (-0.9, -1.1), (-0.9, 1.1)),
    "D": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "p": tuple((1.1 * math.sin(math.radians(72 * n)), -1.1 * math.cos(math.radians(72 * n))) for n in range(5)),
    "P": ((-.3, -1), (.3, -1), (.3, -.3), (1, -.3), (1, .3), (.3, .3),
          (.3, 1), (-.3, 1), (-.3, .3), (-1, .3), (-1, -.3), (-.3, -.3)),
    "X": ((-1, -1), (-.3, -1), (0, -.5), (.3, -1), (1, -1), (.5, 0), (1, 1), (.3, 1), (0, .5), (-.3, 1), (-1, 1), (-.5, 0)),
}  # fmt: skip


def _n(number: float) -> str:
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _safe(text: str) -> str:
    """Escape a text for SVG; characters that are invisible or steer a terminal are written as their codes."""
    return escape(visible(text))


def _tag(name: str, content: str | None = None, **attributes: float | str | None) -> str:
    """Return an element; attributes that are None or "" are left out, those of Python keywords end in an underscore."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{value if isinstance(value, str) else _n(value)}"'
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{written}/>" if content is None else f"<{name}{written}>{content}</{name}>"


def _through(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _shape(shape: str, x: float, y: float, size: float) -> str:
    r, d = _n(size), _n(2 * size)
    if shape == "x":
        return f"M{_n(x - size)} {_n(y - size)}l{d} {d}m0-{d}l-{d} {d}"
    if shape in _POLYGONS:
        dx, dy = _POLYGONS[shape][0]
        return f"M{_n(x + size * dx)} {_n(y + size * dy)}{_outline(shape, size)}"
    return f"M{_n(x - size)} {_n(y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0z"


@cache
def _outline(shape: str, size: float) -> str:
    """Return the path of a polygon from its first corner, in relative steps: the same for every mark."""
    corners = np.round(size * np.array(_POLYGONS[shape]), 1)
    steps = ((_n(dx), _n(dy)) for dx, dy in np.diff(corners, axis=0))
    return (
        "".join(f"v{dy}" if dx == "0" else f"h{dx}" if dy == "0" else f"l{dx} {dy}" for dx, dy in steps) + "z"
    )


def _content(chart: Chart, paint: Paint) -> str:
    return "".join(f"{part}\n" for pane in chart.panes for part in _Painter(chart, pane, paint).parts())


class _Painter:
    """Turns one pane into SVG."""

    def __init__(self, chart: Chart, pane: Pane, paint: Paint) -> None:
        self._chart, self._pane, self._paint = chart, pane, paint
        self._right, self._bottom = pane.left + pane.width, pane.top + pane.height

    def parts(self) -> Iterator[str]:
        """Yield the elements: bands, lines of the grid, then all other marks in their order."""
        bands = [mark for mark in self._pane.marks if isinstance(mark, Rect) and mark.fill == BAND]
        for band in bands:
            yield self._rect(band)
        yield from self._grid()
        for mark in self._pane.marks:
            match mark:
                case Text():
                    yield self._text(mark)
                case Points():
                    yield from self._points(mark)
                case Curve():
                    yield from self._curve(mark)
                case Rule():
                    yield from self._rule(mark)
                case Interval():
                    yield self._interval(mark)
                case Rect() if mark.fill != BAND:
                    yield self._rect(mark)

    def _xs(self, values: Sequence[float] | Floats) -> Floats:
        return self._pane.left + self._pane.width * self._pane.x.shares(values)

    def _ys(self, values: Sequence[float] | Floats) -> Floats:
        return self._bottom - self._pane.height * self._pane.y.shares(values)

    def _within(self, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
        return np.clip(xs, self._pane.left, self._right), np.clip(ys, self._pane.top, self._bottom)

    def _grid(self) -> Iterator[str]:
        pane = self._pane
        xs = self._xs([value for value, _ in pane.x.ticks]).tolist()
        ys = self._ys([value for value, _ in pane.y.ticks]).tolist()
        lines = [f"M{_n(x)} {_n(pane.top)}V{_n(self._bottom)}" for x in xs if pane.x.grid]
        lines += [f"M{_n(pane.left)} {_n(y)}H{_n(self._right)}" for y in ys if pane.y.grid]
        if xs and pane.x.labelled:
            lines.append(f"M{_n(pane.left)} {_n(self._bottom)}H{_n(self._right)}")
        if lines:
            yield _tag("path", class_="grid", d="".join(lines), fill="none", stroke=self._paint(RULE))
        for x, (_, label) in zip(xs, pane.x.ticks, strict=True) if pane.x.labelled else ():
            half = text_width(label) / 2
            at = min(max(x, half), self._chart.width - half)
            yield self._words(at, self._bottom + 13, label, MUTED, "middle", class_="tick")
        for y, (_, label) in zip(ys, pane.y.ticks, strict=True) if pane.y.labelled else ():
            yield self._words(pane.left - 6, y, label, MUTED, "end", class_="tick")

    def _words(self, x: float, y: float, text: str, ink: str, anchor: str, **more: str | None) -> str:
        """Write a text whose middle is at this height."""
        side = None if anchor == "start" else anchor
        return _tag("text", _safe(text), x=x, y=y + 4.2, fill=self._paint(ink), text_anchor=side, **more)

    def _text(self, mark: Text) -> str:
        (x,), (y,) = self._xs([mark.x]), self._ys([mark.y])
        halo = (
            {"stroke": self._paint(PAPER), "stroke_width": "4", "paint_order": "stroke"} if mark.halo else {}
        )
        weight, style = "600" if mark.bold else None, "italic" if mark.italic else None
        return self._words(
            x + mark.dx, y + mark.dy, mark.text, mark.ink, mark.anchor, font_weight=weight, font_style=style, **halo
        )  # fmt: skip

    def _points(self, mark: Points) -> Iterator[str]:
        """Draw all marks as one path; those beyond the pane are triangles at its edge."""
        xs, ys = self._xs(mark.x), self._ys(mark.y)
        known = np.isfinite(xs) & np.isfinite(ys)
        xs, ys = xs[known], ys[known]
        at, level = self._within(xs, ys)
        inside = (np.abs(xs - at) < 0.6) & (np.abs(ys - level) < 0.6)
        ink, opacity = self._paint(mark.ink), f"{mark.opacity:g}" if mark.opacity < 1 else None
        drawn = [
            _shape(mark.shape, x, y, mark.size)
            for x, y in zip(at[inside].tolist(), level[inside].tolist(), strict=True)
        ]
        if drawn and mark.shape != "x" and not mark.hollow:
            yield _tag("path", class_="points", d="".join(drawn), fill=ink, opacity=opacity)
        elif drawn:
            fill = "none" if mark.shape == "x" else self._paint(PAPER)
            yield _tag(
                "path",
                class_="points",
                d="".join(drawn),
                fill=fill,
                stroke=ink,
                stroke_width=1.3,
                opacity=opacity,
            )
        edges = [
            _shape("^" if y < edge else "v" if y > edge else "<" if x < side else ">", side, edge, 3)
            for x, y, side, edge in np.column_stack([xs, ys, at, level])[~inside].tolist()
        ]
        if edges:
            yield _tag("path", class_="beyond", d="".join(edges), fill="none", stroke=ink, opacity=opacity)

    def _curve(self, mark: Curve) -> Iterator[str]:
        xs, ys = self._xs(mark.x), self._ys(mark.y)
        stroke = self._paint(mark.ink) if mark.ink else "none"
        look = {"stroke": stroke, "stroke_width": f"{mark.width:g}", "stroke_dasharray": mark.dash}
        if mark.fill:
            known = np.isfinite(xs) & np.isfinite(ys)
            d = (
                _through(zip(*(part.tolist() for part in self._within(xs[known], ys[known])), strict=True))
                + "z"
            )
            yield _tag("path", d=d, fill=self._paint(mark.fill), fill_opacity=f"{mark.opacity:g}", **look)
            return
        pieces = "".join(
            map(_through, _clipped(list(zip(xs.tolist(), ys.tolist(), strict=True)), self._pane))
        )
        if pieces:
            opacity = f"{mark.opacity:g}" if mark.opacity < 1 else None
            yield _tag(
                "path", class_="line", d=pieces, fill="none", stroke_linejoin="round", opacity=opacity, **look
            )

    def _rect(self, mark: Rect) -> str:
        x, y = self._pane.x, self._pane.y
        ends = [x.low if mark.left is None else mark.left, x.high if mark.right is None else mark.right]
        levels = [y.low if mark.low is None else mark.low, y.high if mark.high is None else mark.high]
        xs, ys = self._within(self._xs(ends), self._ys(levels))
        left, top = float(xs.min()) + mark.shrink, float(ys.min()) + mark.shrink
        return _tag(
            "rect",
            class_="band" if mark.fill == BAND else None,
            x=left,
            y=top,
            width=max(0.0, float(xs.max()) - left - mark.shrink),
            height=max(0.0, float(ys.max()) - top - mark.shrink),
            fill=self._paint(mark.fill) if mark.fill else "none",
            fill_opacity=f"{mark.opacity:.2f}" if mark.opacity < 1 else None,
            stroke=self._paint(mark.edge) if mark.edge else None,
        )

    def _rule(self, mark: Rule) -> Iterator[str]:
        pane = self._pane
        if not -1e-6 <= (pane.y if mark.level else pane.x).share(mark.at) <= 1 + 1e-6:
            return
        if mark.level:
            d = f"M{_n(pane.left)} {_n(self._ys([mark.at])[0])}h{_n(pane.width)}"
        else:
            d = f"M{_n(self._xs([mark.at])[0])} {_n(pane.top)}v{_n(pane.height)}"
        ink, dash = self._paint(mark.ink), mark.dash
        yield _tag(
            "path",
            class_="rule",
            d=d,
            fill="none",
            stroke=ink,
            stroke_width=mark.width,
            stroke_dasharray=dash,
        )

    def _interval(self, mark: Interval) -> str:
        pane, ink = self._pane, self._paint(mark.ink)
        axis = pane.y if mark.upright else pane.x
        middle = float((self._xs if mark.upright else self._ys)([mark.at])[0])
        first, length = (self._bottom, -pane.height) if mark.upright else (pane.left, pane.width)
        ahead = math.copysign(1.0, length)

        def point(along: float, aside: float = 0.0) -> tuple[float, float]:
            return (middle + aside, along) if mark.upright else (along, middle + aside)

        def inside(value: float | None) -> bool:
            return value is not None and 0.0 <= axis.share(value) <= 1.0

        def place(value: float) -> float:
            return first + length * min(1.0, max(0.0, axis.share(value)))

        known = [end for end in (mark.low, mark.value, mark.high) if end is not None]
        if not known:
            return self._words(
                *point(first + length / 2), "no interval yet", MUTED, "middle", font_style="italic"
            )
        low = first if mark.low is None else place(mark.low)
        high = first + length if mark.high is None else place(mark.high)
        parts, ends = [], []
        if mark.low is not None or mark.high is not None:
            if abs(high - low) < 1.0 and not any(map(inside, known)):  # all of it is beyond the axis
                low, high = (low - 14 * ahead, high) if axis.share(known[0]) > 1 else (low, high + 14 * ahead)
            wide, dots = 1 if mark.thin or mark.dotted else 2, "2 3" if mark.dotted else None
            line = _through([point(low), point(high)])
            parts.append(
                _tag(
                    "path",
                    class_="interval",
                    d=line,
                    fill="none",
                    stroke=ink,
                    stroke_width=wide,
                    stroke_dasharray=dots,
                )
            )
            for end, at, inward in ((mark.low, low, ahead), (mark.high, high, -ahead)):
                if end is None:
                    ends.append(_through([point(at + 6 * inward, -4), point(at), point(at + 6 * inward, 4)]))
                elif not inside(end):
                    ends += [
                        _through([point(at + n * inward, 5), point(at + (n + 4) * inward, -5)])
                        for n in (0, 4)
                    ]
                elif not mark.thin:
                    ends.append(_through([point(at, -3.5), point(at, 3.5)]))
        if ends:
            parts.append(
                _tag("path", class_="ends", d="".join(ends), fill="none", stroke=ink, stroke_width=1.6)
            )
        if mark.value is not None and not mark.dotted and inside(mark.value):
            x, y = point(place(mark.value))
            size, look = (
                1.5 if mark.thin else 4.5,
                {"fill": self._paint(PAPER) if mark.hollow else ink, "stroke": ink},
            )
            if mark.shape == "o":
                parts.append(_tag("circle", cx=x, cy=y, r=size, **look))
            else:
                parts.append(_tag("path", class_="estimate", d=_shape(mark.shape, x, y, size), **look))
        title = _tag("title", _safe(mark.words)) if mark.words else ""
        group = _tag("g", title + "".join(parts), class_="mark")
        return _tag("a", group, href=_safe(mark.href)) if mark.href else group


def _clipped(points: Sequence[tuple[float, float]], pane: Pane) -> Iterator[list[tuple[float, float]]]:
    """Yield the pieces of a line that lie within the pane (Liang and Barsky, 1984)."""
    piece: list[tuple[float, float]] = []
    edges = (pane.left, pane.left + pane.width, pane.top, pane.top + pane.height)
    for (x0, y0), (x1, y1) in pairwise(points):
        enter, leave, dx, dy = 0.0, 1.0, x1 - x0, y1 - y0
        for step, room in (
            (-dx, x0 - edges[0]),
            (dx, edges[1] - x0),
            (-dy, y0 - edges[2]),
            (dy, edges[3] - y0),
        ):
            if not math.isfinite(step) or not math.isfinite(room) or (step == 0 and room < -1e-6):
                enter = 2.0
            elif step < 0:
                enter = max(enter, room / step)
            elif step > 0:
                leave = min(leave, room / step)
        if enter > leave:
            if piece:
                yield piece
            piece = []
            continue
        start, end = (x0 + enter * dx, y0 + enter * dy), (x0 + leave * dx, y0 + leave * dy)
        if not piece:
            piece = [start]
        piece.append(end)
        if leave < 1.0:
            yield piece
            piece = []
    if piece:
        yield piece


_PAD = 12


def standalone(title: str, about: str, charts: Sequence[Chart], entries: Sequence[Entry] = ()) -> bytes:
    """Return charts side by side as an SVG file: title and key above them, light colours, no reference to anything else."""
    wide, tall = sum(chart.width for chart in charts), max(chart.height for chart in charts)
    lines = wrapped(title, wide, bold=True)
    if len(lines) > 3:
        lines = fitted([title], wide, 3, bold=True)[0]
    top = _PAD + LINE * len(lines) + 6
    listed, more = key(entries, _PAD, top, wide)
    width, height = wide + 2 * _PAD, top + more + 6 + tall + _PAD
    head: list[Mark] = [
        Text(_PAD, _PAD + LINE * (at + 0.5), line, bold=True) for at, line in enumerate(lines)
    ]
    above = Chart("head", width, height, (sheet(width, height, [*head, *listed]),), "")
    paint = light_colours().__getitem__
    parts, left = [_content(above, paint)], float(_PAD)
    for chart in charts:
        parts.append(
            f'<g transform="translate({_n(left)} {_n(top + more + 6)})">\n{_content(chart, paint)}</g>\n'
        )
        left += chart.width
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" '
        f'font-family="{_FONTS}" font-size="{FONT}">\n<title>{_safe(title)}</title>\n<desc>{_safe(about)}</desc>\n'
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="{light_colours()[PAPER]}"/>\n{"".join(parts)}</svg>\n'
    )
    return text.encode("utf-8", "replace")
