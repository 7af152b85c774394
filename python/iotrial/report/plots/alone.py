"""A figure as a standalone picture, SVG or PNG: with title and key above it and its own light colours.

The SVG's text stays text, in a font that most machines have or one of the same width, so that it can be searched,
edited and read in any script. The PNG has 192 dots per inch, twice the resolution of a screen.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from iotrial.report.notation import elided
from iotrial.report.plots.canvas import (
    FONT_PT,
    INK,
    LIGHT,
    MUTED,
    PAPER,
    Drawing,
    arm_dashes,
    arm_ink,
    arm_marker,
    settings,
)

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

    from iotrial.report.figure import Figure
    from iotrial.report.series import Arm

DOTS_AN_INCH = 192
_PAD_IN, _LINE_IN, _ENTRY_IN = 0.12, 0.165, 0.165
#: widths in inches: a letter of the title, a letter of the key, a mark of the key
_TITLE_LETTER_IN, _KEY_LETTER_IN, _KEY_MARK_IN = 0.095, 0.068, 0.5
_LONGEST_LABEL, _MOST_LINES = 40, 3
_FONTS = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"


def svg_of(figure: Figure) -> bytes:
    """Return the picture as SVG: one root element, no external reference, no document type."""
    text = _saved(figure, "svg", metadata={"Date": None, "Creator": None}).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("'DejaVu Sans', sans-serif", _FONTS)
    head = f"<title>{escape(figure.title)}</title>\n <desc>{escape(f'{figure.sentence} {figure.reading}')}</desc>"
    text = re.sub(r"(<svg[^>]*>)", lambda root: f"{root[1]}\n {head}", text, count=1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'.encode("utf-8", "replace")


def png_of(figure: Figure) -> bytes:
    """Return the picture as PNG, on a paper-coloured background."""
    return _saved(figure, "png", dpi=DOTS_AN_INCH, metadata={"Software": None})


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    from matplotlib.figure import Figure as Canvas

    parts = figure.parts
    wide = sum(part.size_in[0] for part in parts)
    high = max(part.size_in[1] for part in parts)
    title = _wrapped(figure.title, wide)
    columns, rows = _key_shape(figure.key, wide)
    head = 1.5 * _PAD_IN + _LINE_IN * len(title) + _ENTRY_IN * rows
    with settings(figure.drawing.name, LIGHT):
        canvas = Canvas(figsize=(wide + 2 * _PAD_IN, head + high + _PAD_IN), facecolor=PAPER)
        grid = canvas.add_gridspec(
            3,
            len(parts) + 2,
            height_ratios=(head, high, _PAD_IN),
            width_ratios=(_PAD_IN, *(part.size_in[0] for part in parts), _PAD_IN),
            left=0, right=1, bottom=0, top=1, wspace=0, hspace=0,
        )  # fmt: skip
        _head(canvas.add_subfigure(grid[0, 1:-1]), figure, title, columns, head)
        for number, part in enumerate(parts):
            _part(canvas.add_subfigure(grid[1, number + 1]), part)
        out = io.BytesIO()
        canvas.savefig(out, format=kind, facecolor=canvas.get_facecolor(), **options)
    return out.getvalue()


def _part(place: SubFigure, part: Drawing) -> None:
    place.patch.set_visible(False)
    part.paint(place)


def _head(place: SubFigure, figure: Figure, title: Sequence[str], columns: int, high: float) -> None:
    place.patch.set_visible(False)
    place.text(
        0.0, 1 - _PAD_IN / high, "\n".join(title), fontsize=FONT_PT + 1, weight="bold", color=INK, ha="left",
        va="top", linespacing=1.25,
    )  # fmt: skip
    if figure.key:
        place.legend(
            handles=[_mark(arm) for arm in figure.key],
            labels=[_label(arm, figure.key) for arm in figure.key],
            ncols=columns, loc="lower left", bbox_to_anchor=(0.0, 0.0), borderaxespad=0.0, borderpad=0.0, frameon=False,
            labelcolor=INK, fontsize=FONT_PT - 0.5, handlelength=2.8, columnspacing=1.6,
        )  # fmt: skip


def _mark(arm: Arm) -> Any:
    """Draw an arm's line and marker as the figures do."""
    from matplotlib.lines import Line2D

    ink = MUTED if arm.is_control else arm_ink(arm.position)
    line: Any = arm_dashes(arm)
    return Line2D(
        [], [], color=ink, linestyle=line, linewidth=1.3, marker=arm_marker(arm.position), markersize=4,
        markerfacecolor="none" if arm.is_control else ink,
    )  # fmt: skip


def _label(arm: Arm, key: Sequence[Arm]) -> str:
    name = elided(arm.label, _LONGEST_LABEL)
    return f"{name} (reference)" if arm is key[0] else name


def _key_shape(key: Sequence[Arm], wide: float) -> tuple[int, int]:
    """Return the number of columns and rows in which the key fits."""
    if not key:
        return 1, 0
    longest = max(len(_label(arm, key)) for arm in key) * _KEY_LETTER_IN + _KEY_MARK_IN
    columns = max(1, min(len(key), int(wide / longest)))
    return columns, -(-len(key) // columns)


def _wrapped(title: str, wide: float) -> list[str]:
    letters = max(20, int(wide / _TITLE_LETTER_IN))
    return textwrap.wrap(title, letters, max_lines=_MOST_LINES, placeholder=" …")
