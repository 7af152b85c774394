"""Paired plots of pages with their captions, and the tables of the pages that gain most and least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from iotrial.report.notation import counted, elided, quantity
from iotrial.report.pages import PagesPanel, PageTime
from iotrial.report.series import Arm
from iotrial.units import format_ratio

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_FIGURES = 12
#: of those that gain most, and of those that gain least
MOST_ROWS = 10


@dataclass(frozen=True, slots=True)
class PagesFigure:
    """The pages of one condition."""

    title: str
    figure: Markup
    caption: str


def page_figures(panels: Sequence[PagesPanel], arms: Sequence[Arm]) -> tuple[PagesFigure, ...]:
    """One figure for each condition, with all its levels."""
    from markupsafe import Markup

    from iotrial.report.plots.pages import paired

    positions = {arm.label: arm.position for arm in arms if not arm.is_control}
    found = []
    for index, (_, members) in enumerate(groupby(panels, key=lambda panel: panel.condition.key)):
        group = list(members)
        parts = [f"{elided(panel.level, 24)}: {_share(panel)}" for panel in group]
        found.append(
            PagesFigure(
                group[0].condition.text,
                Markup(paired(f"pages-{index}", group, positions)),
                f"{counted(len(group[0].pages), 'page')}, medians of {counted(group[0].blocks, 'block')}; {'; '.join(parts)}",
            )
        )
    return tuple(found[:MOST_FIGURES])


def _share(panel: PagesPanel) -> str:
    faster = sum(page.ratio < 1.0 for page in panel.pages)
    return f"{faster:,} of them come faster than at {elided(panel.reference, 24)}"


def extremes(panel: PagesPanel, most: int = MOST_ROWS) -> tuple[tuple[PageTime, ...], tuple[PageTime, ...]]:
    """The pages that gain most, and those that gain least (or lose), each the most remarkable first; no page in both."""
    half = min(most, len(panel.pages) // 2)
    if not half:
        return panel.pages, ()
    return panel.pages[:half], tuple(reversed(panel.pages[-half:]))


def row_of(page: PageTime) -> tuple[str, str, str, str]:
    """Page, time at the reference, at the level, ratio, as a table says them."""
    return (
        elided(page.page, 60),
        quantity(page.reference_s, "s"),
        quantity(page.level_s, "s"),
        format_ratio(page.ratio),
    )


def page_rows(panels: Sequence[PagesPanel]) -> tuple[tuple[str, ...], ...]:
    """All extremes as rows: condition, level, whether they gain most or least, page, times, ratio."""
    return tuple(
        (panel.condition.text, panel.level, which, *row_of(page))
        for panel in panels[:MOST_FIGURES]
        for which, pages in zip(("most", "least"), extremes(panel), strict=True)
        for page in pages
    )
