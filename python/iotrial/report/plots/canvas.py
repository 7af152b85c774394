"""One figure: matplotlib in, inline SVG out, so that the page's style sheet decides its colours.

matplotlib draws in *inks*: colours that stand for a role and that become CSS variables afterwards, so one
drawing serves light and dark pages. Ids get a prefix, since several figures share one page; coordinates are rounded
and repeated styles hoisted, which makes the file a third as long. Text stays text. No global state of
matplotlib is changed for longer than a drawing takes, and the output is the same for the same input.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, BAND, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505"
VERDICT_INKS = {
    "faster": "#060001",
    "better": "#060001",
    "slower": "#060002",
    "worse": "#060002",
    "equivalent": "#060003",
    "higher": "#060004",
    "lower": "#060004",
    "inconclusive": MUTED,
}
ARM_COLOURS = 8
_ARMS = tuple(f"#07000{i}" for i in range(ARM_COLOURS))
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    BAND: "var(--band)",
    PAPER: "var(--card)",
    "#060001": "var(--faster)",
    "#060002": "var(--slower)",
    "#060003": "var(--equivalent)",
    "#060004": "var(--moved)",
    **{ink: f"var(--arm-{i})" for i, ink in enumerate(_ARMS)},
}

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
_INK = re.compile("|".join(re.escape(ink) for ink in _VARIABLES), re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_MARKS = re.compile(r'<g (clip-path="[^"]+")>\s*((?:<use [^>]*/>\s*){2,})</g>')
_STYLE = re.compile(r' style="([^"]*)"')


def arm_ink(position: int) -> str:
    """The ink of an arm; they repeat after eight, then the marker tells."""
    return _ARMS[position % ARM_COLOURS]


def arm_marker(position: int) -> str:
    """The marker of an arm: shifted by one at every round of colours, so that no pair repeats."""
    return MARKERS[(position + position // ARM_COLOURS) % len(MARKERS)]


def draw(
    name: str, size_in: tuple[float, float], paint: Callable[[Figure], None], *, description: str
) -> str:
    """The SVG of one figure. ``name`` is unique in the page, ``description`` what a screen reader says."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": FONT_PT,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "text.parse_math": False,
        "path.simplify": True,
        "path.simplify_threshold": 0.2,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # A label in a script that the measuring font lacks is drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=size_in)
        figure.patch.set_visible(False)
        paint(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _inlined(text.getvalue(), name, description)


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
