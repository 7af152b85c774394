"""A fleet for a terminal, as Markdown, and as JSON: what it comes to, then its hosts, those that need a look first.

80 columns do for the terminal. The Markdown is short enough for a pull request; what is long folds away. The JSON is schema 1
(``schemas/fleet-report.schema.json``): numbers are unrounded, what is not bounded is null, labels are those of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from iotrial.analysis.model import Verdict
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
    outliers_sought,
    place_words,
    primary,
    short_title,
    title,
)
from iotrial.fleet.verdict import FleetComparison, FleetReport, HostRow, on_scale
from iotrial.legible import shown
from iotrial.report.markdown import brief, escaped, table_head, table_row
from iotrial.report.notation import bracketed, counted, elided
from iotrial.report.phrases import VERDICT_STYLES, interval, null_value
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SCHEMA = 1
#: beyond these a table shows hosts that need a look, and of all others the lowest and the highest
MOST_ROWS = 40
_ENDS, _MOST_FIRST = 5, 20
#: comparisons whose hosts are listed; the means of all stand in one table
_MOST_COMPARISONS = 3
#: in Markdown
_MOST_FOLDED_ROWS = 60
_MOST_FOLDED_TABLES = 6


def print_fleet(report: FleetReport, console: Console, *, html_path: str | None = None) -> None:
    """Write it to ``console``; ``html_path`` is named at the end where a page was written."""
    from rich.text import Text

    console.print(Text(headline(report), style="bold"))
    console.print()
    for detail in details(report):
        console.print(Text(detail))
    main = primary(report)
    if len(main) > 1:
        console.print()
        console.print(_means(main, report))
    told = told_apart(main)
    for one in told:
        if len(main) > 1:
            console.print(Text(title(one), style="bold"))
            for sentence in comparison_details(report, one):
                console.print(Text(sentence))
        for line in _hosts(one):
            console.print(line)
        if more := left_out(one):
            console.print(Text(more, style="dim"))
        console.print(Text(outliers_sought(one), style="dim"))
        for table in _moderators(one):
            console.print(table)
        if len(main) > 1:
            console.print()
    if len(told) < len(main):
        rest = counted(len(main) - len(told), "further comparison")
        console.print(Text(f"Hosts of {rest}: --html, --markdown and --json.", style="dim"))
    console.print(Text(f"A host's own report: iotrial report {_example(report)}", style="dim"))
    if html_path is not None:
        console.print(
            Text("All hosts, figures, what this can claim: ", style="dim").append(shown(html_path)),
            soft_wrap=True,
        )


def told_apart(main: Sequence[FleetComparison]) -> tuple[FleetComparison, ...]:
    """The comparisons whose hosts are listed: all where they are few, else those with an outlying host or a verdict, in their
    order, and the first where there is no such."""
    if len(main) <= _MOST_COMPARISONS:
        return tuple(main)
    looked = [
        one
        for one in main
        if one.found.outliers or (one.mean is not None and one.mean.verdict is not Verdict.INCONCLUSIVE)
    ]
    return tuple((looked or list(main[:1]))[:_MOST_COMPARISONS])


def condensed(one: FleetComparison, most: int = MOST_ROWS) -> tuple[HostRow, ...]:
    """All hosts where they fit; else those that need a look, and of the others the lowest and the highest."""
    rows = one.ordered
    if len(rows) <= most:
        return rows
    first = [row for row in rows if row.outlier is not None or row.why is not None]
    rest = rows[len(first) :]
    kept = first[:_MOST_FIRST]
    return (*kept, *(rest if len(rest) <= 2 * _ENDS else (*rest[:_ENDS], *rest[-_ENDS:])))


def left_out(one: FleetComparison, most: int = MOST_ROWS) -> str:
    """How many hosts the condensed table leaves out, and what there is of them."""
    missing = len(one.rows) - len(condensed(one, most))
    if not missing:
        return ""
    return f"and {missing:,} more hosts, in --html and --json; shown of the averaged: lowest and highest"


def _means(comparisons: Sequence[FleetComparison], report: FleetReport) -> Table:
    """A line a comparison, under one for each condition."""
    table = _table(("comparison", "mean over hosts", "verdict", "hosts"), right=(3,))
    place = ""
    for one in comparisons:
        if (here := place_words(one)) != place:
            place = here
            table.add_row(*_texts(elided(place, 34), "", "", ""))
        verdict, risk = mean_verdict(one, report)
        told = _styled(verdict)
        if risk:
            told.append(f", {risk}", style="yellow")
        table.add_row(
            *_texts(elided(f"{'  ' if place else ''}{short_title(one)}", 34), mean_words(one)),
            told,
            *_texts(f"{len(one.averaged):,}"),
        )
    return table


def _hosts(one: FleetComparison) -> Iterator[Text]:
    """A line a host, and below it what there is to note."""
    from rich.text import Text

    rows = condensed(one)
    names = [elided(host_name(row), 24) for row in rows]
    effects = [
        "–" if row.effect is None else interval(row.effect).replace("no interval yet", "?") for row in rows
    ]
    verdicts = [host_verdict(row).partition(",")[0] for row in rows]
    means = [] if one.mean is None else [mean_words(one)]
    wide = [max(map(len, column), default=0) for column in (["host", *names], ["effect", *effects, *means])]

    def line(name: str, effect: str, verdict: str, blocks: str, trial: str) -> Text:
        told = Text(f"  {name:<{wide[0]}}  {effect:<{wide[1]}}  ")
        told.append(f"{verdict:<15}", style=VERDICT_STYLES.get(verdict, "dim"))
        return told.append(f"  {blocks:>6}  {trial:>5}".rstrip())

    yield Text("")
    yield Text(line("host", "effect", "verdict", "blocks", "trial").plain, style="dim")
    for row, name, effect, verdict in zip(rows, names, effects, verdicts, strict=True):
        yield line(name, effect, verdict, f"{row.part.blocks:,}", str(row.trial.number))
        if note := note_of(row):
            yield Text(f"      {elided(note, 74)}", style="dim")
    if one.mean is not None:
        yield Text(line("mean", mean_words(one), one.mean.conclusion.words, "", "").plain, style="bold")
    yield Text("")


def _moderators(one: FleetComparison) -> Iterator[Table | Text]:
    from rich.text import Text

    tables = one.found.moderators
    if not tables:
        return
    table = _table(("property (observational)", "hosts", "mean", "against the largest group"), right=(1,))
    null = null_value(one.like)
    for found in tables:
        differences = {difference.other: difference for difference in found.differences}
        for place, group in enumerate(found.groups[:8]):
            name = f"{shown(found.name)}: {elided(shown(group.value), 34)}"
            numbers = [on_scale(end, one.like) for end in (group.mean, group.low, group.high)]
            said = bracketed(*numbers, null=null, unit=one.like.unit).replace(" [no interval yet]", "")
            against = differences.get(group.value)
            words = "" if against is None else difference_words(one, against.value, against.low, against.high)
            table.add_row(*_texts(name if not place else f"  {name}", f"{group.hosts:,}", said, words))
        if len(found.groups) > 8:
            table.add_row(*_texts(f"  and {len(found.groups) - 8} more groups", "", "", ""))
    yield table
    if one.found.comparisons:
        yield Text(
            f"{counted(one.found.comparisons, 'difference')} between groups of 3 hosts or more, {one.found.alpha:g} in all.",
            style="dim",
        )


def difference_words(one: FleetComparison, value: float, low: float, high: float) -> str:
    """A difference between groups: a factor of ratios, or a difference of differences."""
    if one.like.scale is Scale.LOG:
        numbers = [on_scale(end, one.like) for end in (value, low, high)]
        return f"× {bracketed(*numbers)}"
    return bracketed(value, low, high, null=0.0, unit=one.like.unit)


def _example(report: FleetReport) -> str:
    numbers = [one.number for one in report.hosts if one.problem is None]
    return (
        str(numbers[0])
        if len(numbers) == 1
        else f"TRIAL (the column trial, e.g. {numbers[0]})"
        if numbers
        else "TRIAL"
    )


def _styled(word: str) -> Text:
    from rich.text import Text

    return Text(word, style=VERDICT_STYLES.get(word, ""))


def _table(names: Sequence[str], *, right: Sequence[int] = ()) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for place, name in enumerate(names):
        side: Literal["left", "right"] = "right" if place in right else "left"
        table.add_column(Text(name), justify=side, overflow="fold")
    return table


def _texts(*cells: str) -> Iterator[Text]:
    from rich.text import Text

    return (Text(cell) for cell in cells)


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
    for one in main[:_MOST_FOLDED_TABLES]:
        yield from brief(f"Hosts: {title(one)}", list(_folded_hosts(report, one)))
        if one.found.moderators:
            yield from brief(f"Properties (observational): {title(one)}", list(_properties(one)))
    yield from brief("What this can claim", [f"- {escaped(claim)}" for claim in claims(report)])


def _folded_hosts(report: FleetReport, one: FleetComparison) -> Iterator[str]:
    yield from table_head(("host", "trial", "effect", "verdict", "blocks", "note"))
    for row in condensed(one, _MOST_FOLDED_ROWS):
        effect = "–" if row.effect is None else interval(row.effect)
        yield table_row(
            host_name(row),
            str(row.trial.number),
            effect,
            host_verdict(row),
            f"{row.part.blocks:,}",
            note_of(row),
        )
    if more := left_out(one, _MOST_FOLDED_ROWS):
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


def fleet_json(report: FleetReport) -> dict[str, object]:
    """All of it as plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    return {
        "schema": SCHEMA,
        "fleet": {
            "id": report.id,
            "study": report.study,
            "question": report.question,
            "alpha": report.alpha,
            "margin": report.margin,
            "hosts": len(report.hosts),
            "running": report.running,
            "replaced": list(report.replaced),
        },
        "headline": headline(report),
        "details": list(details(report)),
        "claims": list(claims(report)),
        "hosts": [
            {
                "host": one.host,
                "trial": one.number,
                "id": one.id,
                "state": one.state.value,
                "started": one.started,
                "duration_s": one.duration_s,
                "blocks": one.blocks,
                "void": one.void,
                "valid": one.problem is None and not one.invalid and one.state.value != "invalid",
                "invalid_reasons": list(one.invalid),
                "problem": one.problem,
                "controls": one.controlled,
                "properties": dict(one.properties),
            }
            for one in report.hosts
        ],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def _comparison(one: FleetComparison) -> dict[str, object]:
    like, found = one.like, one.found
    return {
        "kind": like.kind,
        "factor": like.factor,
        "level": like.level,
        "reference": like.reference,
        "condition": dict(like.condition),
        "workload": like.workload,
        "response": like.response,
        "unit": like.unit,
        "scale": like.scale.value,
        "better": like.better.value,
        "alpha": found.alpha,
        "averaged": len(one.averaged),
        "verdict": None if one.mean is None else one.mean.verdict.value,
        "conclusion": None if one.mean is None else one.mean.conclusion.value,
        "mean": _mean(one),
        "evidence": {
            "hosts": found.evidence.hosts,
            "log_e": _number(found.evidence.log_e),
            "log_e_product": _number(found.evidence.log_product),
            "log_e_mean": _number(found.evidence.log_mean),
            "excluded": found.evidence.excluded,
            "least_hosts_with_an_effect": found.evidence.least,
        },
        "outliers": [{"host": out.host, "distance": out.distance, "p": out.p} for out in found.outliers],
        "outliers_sought": found.outliers_sought,
        "moderators": [
            {
                "name": table.name,
                "groups": [
                    {
                        "value": group.value,
                        "hosts": group.hosts,
                        "mean": on_scale(group.mean, like),
                        "low": on_scale(group.low, like),
                        "high": on_scale(group.high, like),
                    }
                    for group in table.groups
                ],
                "differences": [
                    {
                        "base": apart.base,
                        "other": apart.other,
                        "value": on_scale(apart.value, like),
                        "low": on_scale(apart.low, like),
                        "high": on_scale(apart.high, like),
                        "shown": apart.shown,
                    }
                    for apart in table.differences
                ],
            }
            for table in found.moderators
        ],
        "differences_sharing_alpha": found.comparisons,
        "hosts": [_host(row) for row in one.rows],
    }


def _mean(one: FleetComparison) -> dict[str, object] | None:
    mean, like = one.found.mean, one.like
    if mean is None:
        return None
    name = "ratio" if like.scale is Scale.LOG else "difference"
    spread = [mean.spread, mean.spread_low, mean.spread_high]
    if like.scale is Scale.LOG:
        spread = [math.exp(min(end, 690.0)) for end in spread]
    return {
        name: on_scale(mean.value, like),
        "low": on_scale(mean.low, like),
        "high": on_scale(mean.high, like),
        "spread": spread[0],
        "spread_low": spread[1],
        "spread_high": spread[2],
        "new_host_low": on_scale(mean.new_low, like),
        "new_host_high": on_scale(mean.new_high, like),
    }


def _host(row: HostRow) -> dict[str, object]:
    effect, part = row.effect, row.part
    if effect is None:
        return {"host": row.trial.host, "verdict": None, "not_averaged": row.why}
    name = "ratio" if effect.scale is Scale.LOG else "difference"
    return {
        "host": row.trial.host,
        "verdict": None if part.distrusted is not None else effect.verdict.value,
        "conclusion": None if part.distrusted is not None else effect.conclusion.value,
        name: _number(effect.value),
        "low": _number(effect.low),
        "high": _number(effect.high),
        "blocks": effect.blocks,
        "failures": effect.failures,
        "mean_contrast": _number(part.estimate),
        "standard_error": _number(part.error),
        "log_e": _number(part.log_e),
        "not_averaged": row.why,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
