"""One drawing: from matplotlib to inline SVG, with colours from the page's style sheet.

matplotlib draws in the palette's inks, which are then replaced by CSS variables, so that one drawing serves light and
dark pages. Ids get a prefix, since several figures share one page. Rounding coordinates and hoisting repeated styles
reduces the size to a third. Text stays text. matplotlib's global state is changed only during a drawing, and the output
is deterministic.

Colours have roles. In a page the style sheet defines them; a standalone picture uses the light ones. matplotlib draws
in *inks*: named colours that are registered only while it draws. The palette defines their values: within a page a
marker colour that is replaced by a CSS variable afterwards, in a standalone picture the colour itself.

Scales and ticks use the units that people read: 200 µs, 1 ms; 0.95, 1, 1.05. Axes are drawn linear; a logarithmic one
is given logarithms, and its ticks are made here, which gives control over tick labels ("2 ms" instead of "2 × 10⁻³").
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape as escape_html
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from iotrial.report.notation import is_bytes, quantity, suited_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from iotrial.report.series import Arm

INK, MUTED, LINE, BAND, PAPER = (f"iotrial:{role}" for role in ("ink", "muted", "line", "band", "card"))
_FASTER, _SLOWER, _EQUIVALENT, _MOVED = (
    f"iotrial:{role}" for role in ("faster", "slower", "equivalent", "moved")
)
#: inks by the words of a conclusion
VERDICT_INKS = {
    "faster": _FASTER,
    "better": _FASTER,
    "slower": _SLOWER,
    "worse": _SLOWER,
    "equivalent": _EQUIVALENT,
    "typical runs equivalent": _EQUIVALENT,
    "higher": _MOVED,
    "lower": _MOVED,
    "undecided": MUTED,
    "not tried": MUTED,
    **dict.fromkeys(
        (f"probably {word}" for word in ("faster", "slower", "better", "worse", "higher", "lower")), _MOVED
    ),
    "differs by condition": _MOVED,
}
#: ink of an effect if its faster level puts data at risk
RISK_INK = _MOVED
ARM_COLOURS = 8
ARMS = tuple(f"iotrial:arm-{i}" for i in range(ARM_COLOURS))

#: the style sheet's colours on a light screen
LIGHT: Mapping[str, str] = {
    INK: "#1c2430",
    MUTED: "#5b6675",
    LINE: "#e1e5ea",
    BAND: "#e6eef6",
    PAPER: "#ffffff",
    _FASTER: "#00795a",
    _SLOWER: "#c2410c",
    _EQUIVALENT: "#2f5d9b",
    _MOVED: "#8a6100",
    **dict(
        zip(
            ARMS,
            ("#3c4656", "#0072b2", "#d55e00", "#009e73", "#b4558f", "#a87f00", "#3aa0d8", "#8c564b"),
            strict=True,
        )
    ),
}
#: unique marker colours that no figure uses otherwise, one per role
MARKS: Mapping[str, str] = {ink: f"#{0x070000 + place:06x}" for place, ink in enumerate(LIGHT)}
_ONE_AT_A_TIME = threading.RLock()
INSTALL = "pip install 'iotrial[figures]'"
_NOT_DRAWN = f'<p class="lede">Not drawn: this needs matplotlib (<code>{escape_html(INSTALL)}</code>).</p>'


def can_draw() -> bool:
    """Return whether matplotlib, an optional extra, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def arm_ink(position: int) -> str:
    """Return the ink of an arm. Inks repeat after eight; then the marker distinguishes arms."""
    return ARMS[position % ARM_COLOURS]


def variable(ink: str) -> str:
    """Return the CSS name of this ink: ``var(--arm-1)``."""
    return f"var(--{ink.removeprefix('iotrial:')})"


@contextmanager
def inks(colours: Mapping[str, str]) -> Iterator[None]:
    """Register the inks with these colours in matplotlib, under a lock: its settings are global, so only one thread draws."""
    from matplotlib.colors import get_named_colors_mapping

    with _ONE_AT_A_TIME:
        known = get_named_colors_mapping()
        known.update(colours)
        try:
            yield
        finally:
            for ink in colours:
                del known[ink]


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
    """Return the marker of an arm, shifted by one at every round of colours, so that no pair repeats."""
    return MARKERS[(position + position // ARM_COLOURS) % len(MARKERS)]


def arm_dashes(arm: Arm) -> tuple[float, tuple[float, ...] | None]:
    """Return the line style of an arm: controls have two of their own."""
    return DASHES[2 + arm.position % 2 if arm.is_control else arm.position % len(DASHES)]


@dataclass(frozen=True)
class Drawing:
    """A drawing for a page or a standalone picture.

    ``name`` is unique in the page; ``description`` is for screen readers. In a template it renders as its inline SVG,
    which is made lazily.
    """

    name: str
    size_in: tuple[float, float]
    paint: Callable[[Any], None]
    description: str

    @cached_property
    def inline(self) -> str:
        """The SVG for embedding in a page, coloured by the page's style sheet. Without matplotlib, a note that says so."""
        if not can_draw():
            return _NOT_DRAWN
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
    """Return a :class:`Drawing`; nothing is drawn yet."""
    return Drawing(name, size_in, paint, description)


@contextmanager
def settings(name: str, colours: Mapping[str, str]) -> Iterator[None]:
    """Configure matplotlib for figures: font, inks, and ids that depend on ``name`` alone."""
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
        # A glyph that the measuring font lacks is drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def calm(axes: Axes) -> None:
    """Style axes without a frame: a line below, unobtrusive ticks and labels."""
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
    opening = f'<svg role="img" aria-label="{escape_html(description)}" {view[0] if view else ""}>'
    svg = re.sub(r"^<svg[^>]*>", lambda _: opening, svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()


def _tag(tag: str, name: str) -> str:
    tag = _LONG.sub(r"\1", tag).replace("xlink:href=", "href=")
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = tag.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = re.sub(r"\s*\n\s*", " ", tag)
    return _INK.sub(lambda ink: _VARIABLES[ink[0].lower()], tag)


def _hoisted(group: re.Match[str]) -> str:
    """Move the style of many identical marks to their group."""
    styles = set(_STYLE.findall(group[2]))
    if len(styles) != 1:
        return group[0]
    return f'<g {group[1]} style="{styles.pop()}">{_STYLE.sub("", group[2])}</g>'


Floats = npt.NDArray[np.float64]

# The scale is logarithmic if the central 99 % of the values span more than this factor.
LARGE_SPREAD = 5.0
_MOST_TICKS = 6
#: ends of a logarithmic axis in a smaller ratio than this get the ticks of a linear one
_LEAST_LOG_SPAN = 3
_RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis from ``low`` to ``high`` in the values' unit; ``log`` says how values are placed."""

    low: float
    high: float
    log: bool
    unit: str

    def place(self, values: Floats) -> Floats:
        """Return positions on the drawn (linear) axis."""
        return (
            np.log(np.clip(values, self.low, self.high)) if self.log else np.clip(values, self.low, self.high)
        )

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the drawn axis."""
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return positions and labels of the ticks, which are round in the unit of their labels: 50 MiB, not 47.7."""
        size, _ = suited_unit(self.unit, [abs(self.low), abs(self.high)])
        if self.log and is_bytes(self.unit) and self.high / self.low >= _LEAST_LOG_SPAN:
            values = _powers_of_two(self.low, self.high)
        else:
            rounded = log_ticks if self.log else linear_ticks
            values = [tick * size for tick in rounded(self.low / size, self.high / size)]
        places = [math.log(value) if self.log else value for value in values]
        return places, [quantity(value, self.unit) for value in values]


def scale_of(values: Floats, unit: str) -> Scale:
    """Return the axis for the central 99.8 % of the values, logarithmic if their spread is large."""
    low, least, most, high = (float(v) for v in np.quantile(values, (0.001, 0.005, 0.995, 0.999)))
    log = least > 0 and most / least > LARGE_SPREAD
    if log:
        low = max(low, least / 10)
        pad = (high / low) ** 0.04
        return Scale(low / pad, high * pad, log, unit)
    pad = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return Scale(max(0.0, low - pad) if low >= 0 else low - pad, high + pad, log, unit)


def linear_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends: multiples of 1, 2, 2.5 or 5 times a power of ten, at least two if possible.

    The same numbers as matplotlib's ``MaxNLocator``, but web pages and reports need them where matplotlib is not installed.
    """
    span = high - low
    if not span > 1e-14 * max(abs(low), abs(high)):
        return [round(low, 12)]
    widest = span / (_MOST_TICKS - 1)
    decade = 10.0 ** math.floor(math.log10(widest))
    steps = [step * decade * scale for scale in (0.1, 1.0) for step in (1.0, 2.0, 2.5, 5.0)] + [10.0 * decade]
    first = next(place for place, step in enumerate(steps) if step >= widest)
    ticks: list[float] = []
    for step in reversed(steps[: first + 1]):
        least = low // step * step
        ticks = [tick for n in range(int(span / step) + 2) if low <= (tick := n * step + least) <= high]
        if len(ticks) >= 2:
            break
    return [round(tick, 12) for tick in ticks]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 or powers of ten between the ends; round numbers if they span less than ``_LEAST_LOG_SPAN``."""
    if high / low < _LEAST_LOG_SPAN:
        return linear_ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


def _powers_of_two(low: float, high: float) -> list[float]:
    """Return powers of two between the ends, such as 64 KiB and 128 KiB. If these are too many, skip evenly."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = math.ceil((last - first + 1) / _MOST_TICKS)
    return [2.0**power for power in range(first, last + 1) if power % step == 0]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return ratios around 1 between the ends, always including 1 if it fits."""
    if high / low < 2.2:
        return linear_ticks(low, high)
    every = sorted({*_RATIOS, *(1 / ratio for ratio in _RATIOS if ratio not in (0.3, 0.7)), 1.5, 3.0, 7.0})
    ticks = [tick for tick in every if low <= tick <= high]
    if len(ticks) > _MOST_TICKS + 1:
        ticks = [tick for tick in ticks if tick not in (0.3, 0.7, 1.5, 3.0, 7.0)]
    while len(ticks) > _MOST_TICKS + 1:
        ticks = _thinned(ticks)
    return ticks


def log_ratio_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return positions and labels of ratios on an axis of their logarithms, from ``low`` to ``high``."""
    ticks = ratio_ticks(math.exp(low), math.exp(high))
    return [math.log(tick) for tick in ticks], [f"{tick:g}" for tick in ticks]


def _thinned(ticks: Sequence[float]) -> list[float]:
    """Return every second tick, counted from the tick nearest to 1."""
    middle = min(range(len(ticks)), key=lambda i: abs(math.log(ticks[i])))
    return [tick for i, tick in enumerate(ticks) if (i - middle) % 2 == 0]
