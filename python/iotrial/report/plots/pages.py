"""The paired plot of pages: one point a page, its response time at a level over that at the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from iotrial.report.notation import elided
from iotrial.report.pages import PagesPanel
from iotrial.report.plots.axis import scale_of
from iotrial.report.plots.canvas import FONT_PT, LINE, MUTED, Drawing, arm_ink, arm_marker, calm, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_IN = (4.1, 3.6)
_BOX = (0.17, 0.14, 0.79, 0.82)


def paired(name: str, panels: Sequence[PagesPanel], positions: Mapping[str, int]) -> Drawing:
    """All levels of one condition against its reference; ``positions`` of the arms by label, which give their colours.
    Points below the diagonal are pages that come faster."""
    times = np.array([(page.reference_s, page.level_s) for panel in panels for page in panel.pages])
    scale = scale_of(times.ravel(), "s")

    def paint(figure: Figure) -> None:
        axes = figure.add_axes(_BOX)
        calm(axes)
        axes.set_xlim(*scale.limits)
        axes.set_ylim(*scale.limits)
        axes.set_xticks(*scale.ticks())
        axes.set_yticks(*scale.ticks())
        axes.grid(axis="both", color=LINE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.plot(scale.limits, scale.limits, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
        for panel in panels:
            position = positions.get(panel.level, 0)
            axes.plot(
                scale.place(np.array([page.reference_s for page in panel.pages])),
                scale.place(np.array([page.level_s for page in panel.pages])),
                linewidth=0,
                marker=arm_marker(position),
                markersize=3.4,
                markeredgewidth=0.5,
                color=arm_ink(position),
                alpha=0.65,
            )
        axes.set_xlabel(
            f"response time at {elided(panels[0].reference, 30)}", color=MUTED, fontsize=FONT_PT - 0.5
        )
        axes.set_ylabel("at the level", color=MUTED, fontsize=FONT_PT - 0.5)

    return draw(name, SIZE_IN, paint, description=f"Response times by page, {panels[0].condition.text}")
