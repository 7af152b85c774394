"""Paired plots of pages with their captions, and the tables of the pages that gain most and least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from iotrial.report.figure import Figure, headed, stem
from iotrial.report.notation import counted, elided, quantity
from iotrial.report.pages import PagesPanel, PageTime
from iotrial.report.series import Arm
from iotrial.units import format_ratio

MOST_FIGURES = 12
#: of those that gain most, and of those that gain least
MOST_ROWS = 10
READING = (
    "One point a page: its response time at a level over that at the reference, medians of the blocks. Below the "
    "dashed line a page comes faster than at the reference. Verdicts are of the sum over all pages; this shows which of "
    "them it comes from."
)


def page_figures(panels: Sequence[PagesPanel], arms: Sequence[Arm]) -> tuple[Figure, ...]:
    """One figure for each condition, with all its levels."""
    from iotrial.report.plots.pages import paired

    treatments = tuple(arm for arm in arms if not arm.is_control)
    positions = {arm.label: arm.position for arm in treatments}
    found = []
    for index, (_, members) in enumerate(groupby(panels, key=lambda panel: panel.condition.key)):
        group = list(members)
        title = group[0].condition.text
        found.append(
            Figure(
                stem=stem("pages", title),
                title=headed("Pages", title),
                sentence=_seen(group),
                reading=READING,
                columns=("level", "page", "at the reference [s]", "at the level [s]", "ratio"),
                rows=tuple(
                    (panel.level, page.page, page.reference_s, page.level_s, page.ratio)
                    for panel in group
                    for page in panel.pages
                ),
                parts=(paired(f"pages-{index}", group, positions),),
                key=treatments,
            )
        )
    return tuple(found[:MOST_FIGURES])


def _seen(group: Sequence[PagesPanel]) -> str:
    parts = [f"{elided(panel.level, 24)}: {_share(panel)}" for panel in group]
    return f"{counted(len(group[0].pages), 'page')}, medians of {counted(group[0].blocks, 'block')}; {'; '.join(parts)}."


def _share(panel: PagesPanel) -> str:
    """E.g. "2 of them come faster than at off, most so /a (0.25 times its time), least so /b (1.02)"."""
    faster = sum(page.ratio < 1.0 for page in panel.pages)
    text = f"{faster:,} of them come faster than at {elided(panel.reference, 24)}"
    if len(panel.pages) < 2:
        return text
    most, least = panel.pages[0], panel.pages[-1]
    return (
        f"{text}, most so {elided(most.page, 40)} ({format_ratio(most.ratio)} times its time), least so "
        f"{elided(least.page, 40)} ({format_ratio(least.ratio)})"
    )


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
