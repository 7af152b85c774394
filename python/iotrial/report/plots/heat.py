"""Heat maps of a matrix: one small map per test; each cell has its ratio and a mark that shows the verdict without colour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iotrial.report.matrices import Matrix, TestGrid, mark
from iotrial.report.plots.canvas import FONT_PT, INK, LINE, MUTED, VERDICT_INKS, Drawing, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_IN, NARROW_IN = 7.6, 4.1
_CELL_HIGH_IN = 0.25
_FAINTEST, _STRONGEST = 0.10, 0.55
#: a ratio of two (or a half) has the full colour
_FULL = math.log(2.0)
_MOST_TEXT = 7


def heat_maps(name: str, matrix: Matrix, *, valid: bool, description: str, narrow: bool = False) -> Drawing:
    """Draw all tests of a matrix side by side: rows are file sizes (the smallest at the bottom), columns record sizes."""
    columns = _columns(matrix, narrow=narrow)
    lines = math.ceil(len(matrix.tests) / columns)
    width = NARROW_IN if narrow else WIDE_IN
    map_high = _CELL_HIGH_IN * len(matrix.files)
    line_high = map_high + 0.56
    height = lines * line_high + 0.06

    def paint(figure: Figure) -> None:
        left_in, gap_in = 0.62, 0.12
        map_wide = (width - left_in - gap_in * columns) / columns
        for number, grid in enumerate(matrix.tests):
            line, column = divmod(number, columns)
            x = left_in + column * (map_wide + gap_in)
            y = height - (line + 1) * line_high + 0.32
            axes = figure.add_axes((x / width, y / height, map_wide / width, map_high / height))
            _map(axes, matrix, grid, valid=valid, named=column == 0, fits=map_wide / len(matrix.records))

    return draw(name, (width, height), paint, description=description)


def _columns(matrix: Matrix, *, narrow: bool) -> int:
    room = (NARROW_IN if narrow else WIDE_IN) - 0.62
    wanted = max(1.1, 0.46 * len(matrix.records) + 0.12)
    return max(1, min(len(matrix.tests), int(room / wanted)))


def _map(axes: Axes, matrix: Matrix, grid: TestGrid, *, valid: bool, named: bool, fits: float) -> None:
    from matplotlib.patches import Rectangle

    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlim(0, len(matrix.records))
    axes.set_ylim(0, len(matrix.files))
    small = FONT_PT - 1.5
    axes.set_title(grid.test, fontsize=FONT_PT, color=INK, loc="left", y=1.0, pad=3)
    axes.set_xticks([j + 0.5 for j in range(len(matrix.records))], matrix.record_labels)
    axes.set_yticks([i + 0.5 for i in range(len(matrix.files))], matrix.file_labels if named else [])
    axes.tick_params(length=0, colors=MUTED, labelcolor=MUTED, labelsize=small, pad=2)
    if fits < 0.42:
        axes.tick_params(axis="x", labelrotation=35)
    for i in range(len(matrix.files)):
        for j in range(len(matrix.records)):
            row = grid.cells.get((i, j))
            if row is None:
                continue
            verdict = row.effect.conclusion.words if valid and not row.effect.conclusion.open else "undecided"
            ink = VERDICT_INKS.get(verdict, MUTED)
            equal = valid and row.effect.conclusion.equivalent
            quiet = equal or verdict == "undecided"
            axes.add_patch(
                Rectangle(
                    (j + 0.02, i + 0.04), 0.96, 0.92, linewidth=0.8 if equal else 0.5,
                    edgecolor=ink if verdict != "undecided" else LINE,
                    facecolor=(ink, strength(row.effect.value, quiet=quiet)),
                    fill=not quiet or equal, zorder=1,
                )
            )  # fmt: skip
            text = _text(row.effect.value, mark(row) if valid else "")
            axes.text(
                j + 0.5, i + 0.46, text, ha="center", va="center", fontsize=small, zorder=2,
                color=MUTED if verdict == "undecided" else INK,
            )  # fmt: skip


def strength(ratio: float | None, *, quiet: bool) -> float:
    """Return the opacity of a cell: by the logarithm of its ratio, full at a factor of two; quiet ones are faint."""
    if quiet or ratio is None or ratio <= 0:
        return _FAINTEST
    share = min(1.0, abs(math.log(ratio)) / _FULL)
    return _FAINTEST + (_STRONGEST - _FAINTEST) * share


def _text(ratio: float | None, sign: str) -> str:
    if ratio is None:
        return f"? {sign}".rstrip()
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f} {sign}".rstrip()[:_MOST_TEXT]
