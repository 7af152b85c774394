"""One drawing: matplotlib in, inline SVG out, so that the page's style sheet decides its colours.

matplotlib draws in the palette's inks, which become CSS variables afterwards, so one drawing serves light and dark
pages. Ids get a prefix, since several figures share one page; coordinates are rounded and repeated styles hoisted, which
makes the file a third as long. Text stays text. No global state of matplotlib is changed for longer than a drawing
takes, and the output is the same for the same input.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from iotrial.report.plots.palette import (
    ARM_COLOURS,
    BAND,
    INK,
    LINE,
    MARKS,
    MUTED,
    PAPER,
    RISK_INK,
    VERDICT_INKS,
    arm_ink,
    inks,
    variable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ARM_COLOURS", "BAND", "DASHES", "FONT_PT", "INK", "LINE", "MARKERS", "MUTED", "PAPER", "RISK_INK", "VERDICT_INKS",
    "Drawing",
    "arm_ink", "arm_marker", "calm", "draw",
]  # fmt: skip

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[tuple[float, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 1.5)),
    (0, (2, 1)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 2)),
    (0, (1, 1)),
    (0, (8, 2, 1, 2, 1, 2)),
    (0, (3, 3)),
)

FONT_PT = 8.0
_VARIABLES = {mark: variable(ink) for ink, mark in MARKS.items()}
_INK = re.compile("|".join(re.escape(mark) for mark in _VARIABLES), re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_MARKS = re.compile(r'<g (clip-path="[^"]+")>\s*((?:<use [^>]*/>\s*){2,})</g>')
_STYLE = re.compile(r' style="([^"]*)"')


def arm_marker(position: int) -> str:
    """The marker of an arm: shifted by one at every round of colours, so that no pair repeats."""
    return MARKERS[(position + position // ARM_COLOURS) % len(MARKERS)]


@dataclass(frozen=True)
class Drawing:
    """What can be drawn: in a page, or alone. ``name`` is unique in the page, ``description`` what a screen reader says.

    In a template it stands for its inline SVG, which is made when it is first asked for.
    """

    name: str
    size_in: tuple[float, float]
    paint: Callable[[Any], None]
    description: str

    @cached_property
    def inline(self) -> str:
        """The SVG within a page, coloured by the page's style sheet."""
        from matplotlib.figure import Figure

        with settings(self.name, MARKS):
            figure = Figure(figsize=self.size_in)
            figure.patch.set_visible(False)
            self.paint(figure)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
        return _inlined(text.getvalue(), self.name, self.description)

    def __html__(self) -> str:
        return self.inline


def draw(
    name: str, size_in: tuple[float, float], paint: Callable[[Any], None], *, description: str
) -> Drawing:
    """What :class:`Drawing` holds; nothing is drawn yet."""
    return Drawing(name, size_in, paint, description)


@contextmanager
def settings(name: str, colours: Mapping[str, str]) -> Iterator[None]:
    """matplotlib as figures need it: their font and inks, ids that depend on ``name`` alone."""
    import matplotlib as mpl

    chosen: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": FONT_PT,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "text.parse_math": False,
        "path.simplify": True,
        "path.simplify_threshold": 0.2,
    }
    with inks(colours), mpl.rc_context(chosen), warnings.catch_warnings():
        # A label in a script that the measuring font lacks is drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def calm(axes: Axes) -> None:
    """Axes without a frame: a line below, quiet ticks and labels."""
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=MUTED, length=2.5, width=0.6, labelcolor=MUTED, labelsize=FONT_PT - 0.5)
    axes.tick_params(axis="y", length=0)


def _inlined(svg: str, name: str, description: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)
    svg = _MARKS.sub(_hoisted, svg)
    svg = _TAG.sub(lambda tag: _tag(tag[0], name), svg)
    view = re.search(r'viewBox="[^"]+"', svg)
    opening = f'<svg role="img" aria-label="{escape(description)}" {view[0] if view else ""}>'
    svg = re.sub(r"^<svg[^>]*>", lambda _: opening, svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()


def _tag(tag: str, name: str) -> str:
    tag = _LONG.sub(r"\1", tag).replace("xlink:href=", "href=")
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = tag.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = re.sub(r"\s*\n\s*", " ", tag)
    return _INK.sub(lambda ink: _VARIABLES[ink[0].lower()], tag)


def _hoisted(group: re.Match[str]) -> str:
    """Many marks of one style: the style once, on their group."""
    styles = set(_STYLE.findall(group[2]))
    if len(styles) != 1:
        return group[0]
    return f'<g {group[1]} style="{styles.pop()}">{_STYLE.sub("", group[2])}</g>'
