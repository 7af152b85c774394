"""A fleet as one HTML page that opens offline: no script, nothing loaded, as the report of a trial.

Labels go through jinja2's autoescape; only figures made by the plots are inserted as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from iotrial.fleet.report.caterpillar import caption, caterpillar
from iotrial.fleet.report.text import difference_words
from iotrial.fleet.report.words import (
    claims,
    comparison_details,
    danger,
    details,
    headline,
    host_verdict,
    mean_words,
    note_of,
    outliers_sought,
    place_words,
    primary,
    short_title,
    title,
)
from iotrial.fleet.verdict import FleetComparison, FleetReport, HostRow, on_scale
from iotrial.legible import shown
from iotrial.report.moments import day_and_time
from iotrial.report.notation import bracketed
from iotrial.report.phrases import interval, null_value
from iotrial.report.templating import environment

if TYPE_CHECKING:
    from jinja2 import Template

    from iotrial.analysis.fleet.model import Group, Moderator
    from iotrial.report.plots.canvas import Drawing

#: hosts in a table that is open; of more, those that need a look, and all of them behind a fold
MOST_OPEN = 60
#: comparisons with a figure and a table of hosts; of further ones only the mean is told
MOST_DRAWN = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One comparison on the page. ``first`` are the hosts that need a look, where there are too many to show all at once."""

    title: str
    one: FleetComparison
    details: tuple[str, ...]
    wide: Drawing | None
    narrow: Drawing | None
    caption: str
    first: tuple[HostRow, ...]
    rows: tuple[HostRow, ...]
    outliers: str


def fleet_html(report: FleetReport) -> str:
    """The whole page."""
    main = primary(report)
    page = _template().render(
        r=report,
        headline=headline(report),
        details=tuple(details(report)),
        tone=("data at risk", "risk") if danger(report) else _tone(main),
        sections=tuple(_sections(report, main[:MOST_DRAWN])),
        means=main if len(main) > 1 else (),
        undrawn=max(0, len(main) - MOST_DRAWN),
        claims=tuple(claims(report)),
        started=min((one.started for one in report.hosts), default=""),
    )
    return page.replace(" %", "\u00a0%")


def _sections(report: FleetReport, comparisons: Sequence[FleetComparison]) -> Iterator[Section]:
    for number, one in enumerate(comparisons):
        rows = one.ordered
        many = len(rows) > MOST_OPEN
        first = tuple(row for row in rows if row.outlier is not None or row.why is not None)[:MOST_OPEN]
        yield Section(
            title=title(one),
            one=one,
            details=tuple(comparison_details(report, one)) if len(comparisons) > 1 else (),
            wide=caterpillar(f"hosts{number}", one, margin=report.margin, narrow=False),
            narrow=caterpillar(f"hosts{number}n", one, margin=report.margin, narrow=True),
            caption=caption(one),
            first=first if many else rows,
            rows=rows if many else (),
            outliers=outliers_sought(one),
        )


def _tone(comparisons: Sequence[FleetComparison]) -> tuple[str, str]:
    """A word for the whole, and the class that colours it."""
    found = {
        (one.mean.conclusion.words, one.mean.conclusion.tone) for one in comparisons if one.mean is not None
    }
    if not found:
        return "no verdict", "invalid"
    return found.pop() if len(found) == 1 else ("mixed", "mixed")


def _group(group: Group, one: FleetComparison) -> str:
    numbers = [on_scale(end, one.like) for end in (group.mean, group.low, group.high)]
    said = bracketed(*numbers, null=null_value(one.like), unit=one.like.unit)
    return said.replace(" [no interval yet]", "")


def _against(table: Moderator, group: Group, one: FleetComparison) -> str:
    for found in table.differences:
        if found.other == group.value:
            return difference_words(one, found.value, found.low, found.high)
    return ""


def _effect(row: HostRow) -> str:
    return "–" if row.effect is None else interval(row.effect)


@cache
def _template() -> Template:
    made = environment(
        "iotrial.report",
        shown=shown,
        effect_of=_effect,
        verdict_of=host_verdict,
        note_of=note_of,
        mean_of=mean_words,
        short_title_of=short_title,
        place_of=place_words,
        moment=day_and_time,
    )
    made.globals.update(group_words=_group, against=_against)
    return made.get_template("fleet.html.j2")
