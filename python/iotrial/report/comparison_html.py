"""A comparison of trials as one HTML page that opens offline: no script, nothing loaded, as the report.

Labels go through jinja2's autoescape; only figures made by the plots are inserted as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from iotrial.legible import shown
from iotrial.report.comparison import Agreement, Comparison, Row
from iotrial.report.comparison_words import (
    agreement_words,
    cell_numbers,
    cell_verdict,
    details,
    headline,
    least_words,
    title,
    verdict_words,
)
from iotrial.report.moments import day_and_time
from iotrial.report.notation import percent, quantity
from iotrial.report.phrases import interval, spoken
from iotrial.report.templating import environment
from iotrial.study.model import Scale
from iotrial.units import format_duration

if TYPE_CHECKING:
    from jinja2 import Template

    from iotrial.report.plots.canvas import Drawing

#: of columns, beyond which every trial has a row instead
MOST_COLUMNS = 12
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class Forest:
    """One figure, for wide pages and for phones, of rows that share a scale."""

    title: str
    wide: Drawing
    narrow: Drawing
    caption: str


def comparison_html(comparison: Comparison) -> str:
    """The whole page."""
    shared = [row for row in comparison.rows if row.shared]
    page = _template().render(
        c=comparison,
        headline=headline(comparison),
        details=tuple(details(comparison)),
        tone=_tone(shared),
        forests=tuple(forests(comparison)),
        rows=[row for row in shared if row.kind != "pooled"],
        pooled=[row for row in shared if row.kind == "pooled"],
        alone=[row for row in comparison.rows if not row.shared],
        levels=[row for row in comparison.levels if sum(m is not None for m in row.medians) > 1],
        by_column=len(comparison.columns) <= MOST_COLUMNS,
        most_listed=MOST_LISTED,
    )
    return page.replace(" %", "\u00a0%")


def forests(comparison: Comparison) -> Iterator[Forest]:
    """The figures of what several trials have: ratios together, differences by their response; pooled ones apart."""
    from iotrial.report.plots.trials import fitting, trials_forest

    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in comparison.rows:
        if row.shared:
            scale = ("ratio",) if row.scale is Scale.LOG else (row.response, row.unit)
            groups.setdefault((row.kind == "pooled", *scale), []).append(row)
    for number, ((pooled, what, *_), rows) in enumerate(groups.items()):
        drawn = fitting(rows)
        caption = (
            "One line a trial, with its interval; intervals that do not overlap show that the effect differs."
        )
        if len(drawn) < len(rows):
            caption += f" {len(rows) - len(drawn)} more comparisons are not drawn; the table has them."
        of = "Means over conditions" if pooled else "Effects"
        yield Forest(
            title="" if not number else of if what == "ratio" else f"{of}: {spoken(str(what))}",
            wide=trials_forest(f"trials{number}", comparison, drawn, narrow=False),
            narrow=trials_forest(f"trials{number}n", comparison, drawn, narrow=True),
            caption=caption,
        )


def _tone(rows: Sequence[Row]) -> tuple[str, str]:
    """A word for the whole, and the class that colours it."""
    if any(row.apart for row in rows):
        return "differs", "mixed"
    if any(row.agreement is Agreement.NOT_SHOWN for row in rows):
        return "no difference shown", "inconclusive"
    return "no verdict", "invalid"


@cache
def _template() -> Template:
    made = environment(
        "iotrial.report",
        shown=shown,
        spoken=spoken,
        title_of=title,
        interval=interval,
        percent=percent,
        numbers=cell_numbers,
        cell_verdict=cell_verdict,
        least=least_words,
        same=verdict_words,
        moment=day_and_time,
        duration=format_duration,
        quantity=quantity,
    )
    made.globals.update(agreement=agreement_words, zip=zip)
    return made.get_template("comparison.html.j2")
