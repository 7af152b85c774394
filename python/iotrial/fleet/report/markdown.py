"""A fleet as Markdown, short enough for a pull request; what is long folds away."""

from __future__ import annotations

from collections.abc import Iterator

from iotrial.fleet.report.text import condensed, difference_words, left_out
from iotrial.fleet.report.words import (
    claims,
    comparison_details,
    details,
    headline,
    host_name,
    host_verdict,
    mean_verdict,
    mean_words,
    note_of,
    primary,
    title,
)
from iotrial.fleet.verdict import FleetComparison, FleetReport, on_scale
from iotrial.legible import shown
from iotrial.report.markdown import brief, escaped, table_head, table_row
from iotrial.report.notation import bracketed
from iotrial.report.phrases import interval, null_value

_MOST_ROWS = 60
_MOST_TABLES = 6


def fleet_markdown(report: FleetReport) -> str:
    """GitHub-flavoured Markdown, ending in a newline."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: FleetReport) -> Iterator[str]:
    yield f"### {escaped(shown(report.study))} on {len(report.hosts):,} hosts"
    yield ""
    yield f"**{escaped(headline(report))}**"
    yield ""
    for detail in details(report):
        yield f"- {escaped(detail)}"
    yield ""
    main = primary(report)
    if len(main) > 1:
        yield from table_head(("comparison", "mean over hosts", "verdict", "hosts averaged"))
        for one in main:
            verdict = ", ".join(filter(None, mean_verdict(one, report)))
            yield table_row(title(one), mean_words(one), verdict, str(len(one.averaged)))
        yield ""
    for one in main[:_MOST_TABLES]:
        yield from brief(f"Hosts: {title(one)}", list(_hosts(report, one)))
        if one.found.moderators:
            yield from brief(f"Properties (observational): {title(one)}", list(_properties(one)))
    yield from brief("What this can claim", [f"- {escaped(claim)}" for claim in claims(report)])


def _hosts(report: FleetReport, one: FleetComparison) -> Iterator[str]:
    yield from table_head(("host", "trial", "effect", "verdict", "blocks", "note"))
    for row in condensed(one, _MOST_ROWS):
        effect = "–" if row.effect is None else interval(row.effect)
        yield table_row(
            host_name(row),
            str(row.trial.number),
            effect,
            host_verdict(row),
            f"{row.part.blocks:,}",
            note_of(row),
        )
    if more := left_out(one, _MOST_ROWS):
        yield ""
        yield escaped(more)
    if len(primary(report)) > 1:
        yield ""
        yield from (f"- {escaped(sentence)}" for sentence in comparison_details(report, one))


def _properties(one: FleetComparison) -> Iterator[str]:
    yield from table_head(("property", "value", "hosts", "mean", "against the largest group"))
    null = null_value(one.like)
    for table in one.found.moderators:
        differences = {found.other: found for found in table.differences}
        for group in table.groups[:12]:
            numbers = [on_scale(end, one.like) for end in (group.mean, group.low, group.high)]
            against = differences.get(group.value)
            yield table_row(
                shown(table.name),
                shown(group.value),
                str(group.hosts),
                bracketed(*numbers, null=null, unit=one.like.unit).replace(" [no interval yet]", ""),
                "" if against is None else difference_words(one, against.value, against.low, against.high),
            )
