"""Build the report of a fleet: headline, means, then the hosts of each comparison, notable ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iotrial.fleet.report.figure import caption, caterpillar
from iotrial.fleet.report.words import (
    claims,
    comparison_details,
    danger,
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
from iotrial.report.blocks import (
    DECISIVE,
    EQUIVALENT,
    SELF_CONTAINED,
    UNDECIDED,
    Block,
    Cell,
    Code,
    Column,
    Drawn,
    Group,
    Note,
    Report,
    Row,
    Section,
    Table,
    View,
    Words,
    heads,
)
from iotrial.report.html import html
from iotrial.report.markdown import markdown
from iotrial.report.notation import bracketed, counted, day_and_time, elided
from iotrial.report.phrases import interval, null_value
from iotrial.report.text import print_blocks
from iotrial.stats.fleet.model import HostGroup, Moderator
from iotrial.stats.model import Verdict
from iotrial.study.model import Scale
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.report.text import Console

#: comparisons with a figure and a table of hosts; others show only the mean
MOST_DRAWN, _MOST_FULL, _MOST_SHORT = 12, 6, 3
#: longest table of hosts shown unfolded on a page; with more, notable hosts first and all of them folded
MOST_OPEN = 60
#: when a table is shortened, this many of the lowest and highest unremarkable hosts are kept longest
_ENDS = 5
_MOST_GROUPS = 20


def print_fleet(
    report: FleetReport, console: Console, *, full: bool = False, html_path: str | None = None
) -> None:
    """Print the report, on one screen unless ``full``; ``html_path`` is named at the end if a page was written."""
    print_blocks(fleet_blocks(report, html_path=html_path), console, full=full)


def fleet_markdown(report: FleetReport) -> str:
    """Return GitHub-flavoured Markdown, ending in a newline."""
    return markdown(fleet_blocks(report))


def fleet_html(report: FleetReport) -> str:
    """Return one self-contained HTML page that works offline."""
    made = fleet_blocks(report, figures=True)
    return html(lambda _: made)


def fleet_blocks(report: FleetReport, *, figures: bool = False, html_path: str | None = None) -> Report:
    """Build the report of a fleet, with ``figures`` for a page."""
    main = primary(report)
    word, tone = ("data at risk", "risk") if danger(report) else _tone(main)
    began = min((one.started for one in report.hosts), default="")
    name = f"{escape(report.study)} on {counted(len(report.hosts), 'host')}"
    return Report(
        title=name,
        headline=headline(report),
        tone=tone,
        question=escape(report.question),
        badges=(Words(word, tone, badge=True),),
        kind="iotrial",
        top=(name, f"fleet {report.id[:12]}, begun {day_and_time(began)} UTC"),
        footer=SELF_CONTAINED,
        blocks=tuple(_blocks(report, main, html_path, figures=figures)),
    )


def _blocks(
    report: FleetReport, main: Sequence[FleetComparison], html_path: str | None, *, figures: bool
) -> Iterator[Block]:
    if len(main) > 1:
        note = (
            f"The hosts of the last {len(main) - MOST_DRAWN} are in the JSON report."
            if len(main) > MOST_DRAWN
            else ""
        )
        yield Section("Means over hosts", (_means(main, report, note),), id="means")
    yield from map(Note, details(report))
    first = notable(main)
    for number, one in enumerate(main[:MOST_DRAWN]):
        view = View.ALL if one in first else View.LONG if number < _MOST_FULL else View.PAGE
        blocks: list[Block] = []
        if len(main) > 1:
            blocks += [Note(sentence, view=View.LONG) for sentence in comparison_details(report, one)]
        if figures and (wide := caterpillar(f"hosts{number}", one, margin=report.margin, narrow=False)):
            narrow = caterpillar(f"hosts{number}n", one, margin=report.margin, narrow=True)
            blocks.append(Drawn((wide,), narrow, caption=f"{caption(one)} {outliers_sought(one)}"))
        blocks += _hosts(one)
        blocks.append(Note(outliers_sought(one), tone="dim", view=View.TEXT))
        blocks += _properties(one, alone=len(main) == 1)
        yield Section(
            title(one) if len(main) > 1 else "Hosts", tuple(blocks), id=f"hosts-{number}", view=view
        )
    if len(first) < len(main):
        rest = counted(len(main) - len(first), "further comparison")
        yield Note(f"Hosts of {rest}: --full, --html, --markdown and --json.", tone="dim", view=View.SHORT)
    parts = tuple(Note(claim, view=View.LONG) for claim in claims(report))
    own = Note(
        "Each host's trial has its own report: iotrial report TRIAL, with the number in its row.",
        view=View.PAGE,
    )
    yield Section("What this shows, and what it does not", (*parts, own), id="claims", view=View.LONG)
    yield Note(f"A host's own report: iotrial report {_example(report)}", tone="dim", view=View.TEXT)
    if html_path is not None:
        yield Code(html_path, "All hosts, figures, limits", view=View.TEXT)


def notable(main: Sequence[FleetComparison]) -> tuple[FleetComparison, ...]:
    """Return the comparisons of which the hosts are listed.

    All if they are few, else those with an outlying host or a verdict, in order; the first if there are none.
    """
    if len(main) <= _MOST_SHORT:
        return tuple(main)
    looked = [
        one
        for one in main
        if one.found.outliers or (one.mean is not None and one.mean.verdict is not Verdict.INCONCLUSIVE)
    ]
    return tuple((looked or list(main[:1]))[:_MOST_SHORT])


def _means(comparisons: Sequence[FleetComparison], report: FleetReport, note: str) -> Table:
    """Build the table of means: one row per comparison, grouped by condition."""
    groups: dict[str, list[Row]] = {}
    for one in comparisons:
        word, risk = mean_verdict(one, report)
        tone = "invalid" if one.mean is None else one.mean.conclusion.tone
        verdict = [Words(word, tone, badge=True), *([Words(risk, "risk")] if risk else [])]
        rank = EQUIVALENT if one.mean is None or one.mean.conclusion.equivalent else DECISIVE
        cells = (elided(short_title(one), 60), mean_words(one), tuple(verdict), f"{len(one.averaged):,}")
        groups.setdefault(place_words(one), []).append(Row(cells, rank, word))
    made = tuple(Group(tuple(rows), place) for place, rows in groups.items())
    return Table(
        heads("~comparison", "mean over hosts", "~verdict", ">hosts averaged"),
        made,
        note=note,
        noun="comparison",
    )


def _hosts(one: FleetComparison) -> Iterator[Block]:
    """Build the tables of hosts, notable ones first; on a page with many, the full table is folded."""
    rows = one.ordered
    look = [row for row in rows if row.outlier is not None or row.why is not None]
    many = len(rows) > MOST_OPEN
    mean = () if one.mean is None else (_mean(one),)
    everyone = tuple(
        _host(row, place, len(rows) - len(look)) for place, row in enumerate(rows, start=-len(look))
    )
    columns = (
        *heads("~host", "effect", "~verdict", ">blocks", ">trial"),
        Column("note", wide=True, view=View.LONG),
    )
    every = Table(
        columns, (Group((*everyone, *mean)),), noun="host", view=View.ALL if not many else View.TEXT
    )
    yield every
    if many:
        if look:
            first = tuple(_host(row, 0, 0) for row in look[:MOST_OPEN])
            yield Table(columns, (Group(first),), title="Hosts that need a look", view=View.PAGE)
        whole = Table(columns, every.groups, view=View.PAGE)
        yield Section(f"All {len(rows):,} hosts", (whole,), folded=True, view=View.PAGE)


def _host(row: HostRow, place: int, others: int) -> Row:
    """Build one row. ``place`` counts unremarkable hosts from 0; the lowest and the highest of them are kept longest."""
    effect = "–" if row.effect is None else interval(row.effect)
    word, _, rest = host_verdict(row).partition(", ")
    tone = "invalid" if word == "no verdict" else "probable" if word.startswith("probably") else word
    look = "outlying" if row.outlier is not None else "not averaged" if row.why is not None else ""
    marks = [Words(rest)] if rest else []
    marks += [Words(look, "risk", view=View.SHORT)] if look else []
    verdict = (Words(word, tone, badge=True), *marks)
    cells: tuple[Cell, ...] = (
        host_name(row),
        effect,
        verdict,
        f"{row.part.blocks:,}",
        str(row.trial.number),
        note_of(row),
    )
    rank = DECISIVE if place < 0 else UNDECIDED if place < _ENDS or place >= others - _ENDS else EQUIVALENT
    return Row(cells, rank)


def _mean(one: FleetComparison) -> Row:
    assert one.mean is not None
    verdict = Words(one.mean.conclusion.words, one.mean.conclusion.tone, badge=True)
    return Row(("mean over hosts", mean_words(one), verdict, "", "", ""))


def _properties(one: FleetComparison, *, alone: bool) -> Iterator[Section]:
    if not one.found.moderators:
        return
    groups = []
    for found in one.found.moderators:
        rows = [
            Row((f"{escape(found.name)}: {elided(escape(group.value), 34)}", *_group(found, group, one)))
            for group in found.groups[:_MOST_GROUPS]
        ]
        if len(found.groups) > _MOST_GROUPS:
            rows.append(Row((f"and {len(found.groups) - _MOST_GROUPS} more groups", "", "", "")))
        groups.append(Group(tuple(rows)))
    columns = heads("~property", ">hosts", "mean", "against the largest group")
    number = one.found.comparisons
    lede = "Properties that all hosts share, or that only one host has, are left out."
    note = ""
    if number:
        lede += " Groups of at least 3 hosts are compared with the largest."
        note = (
            f"{counted(number, 'difference')} between groups of 3 hosts or more, {one.found.alpha:g} in all."
        )
    table = Table(columns, tuple(groups), note=note)
    name = "Properties of hosts (observational)"
    yield Section(name, (table,), lede=lede, folded=True, open=alone, view=View.LONG)


def _group(found: Moderator, group: HostGroup, one: FleetComparison) -> tuple[str, str, str]:
    """Return the number of hosts, their mean, and its difference from the mean of the largest group."""
    numbers = [on_scale(end, one.like) for end in (group.mean, group.low, group.high)]
    text = bracketed(*numbers, null=null_value(one.like), unit=one.like.unit).replace(
        " [no interval yet]", ""
    )
    against = next((one_ for one_ in found.differences if one_.other == group.value), None)
    words = "" if against is None else difference_words(one, against.value, against.low, against.high)
    return f"{group.hosts:,}", text, words


def difference_words(one: FleetComparison, value: float, low: float, high: float) -> str:
    """Format a difference between groups: a factor for ratios, a difference for differences."""
    if one.like.scale is Scale.LOG:
        numbers = [on_scale(end, one.like) for end in (value, low, high)]
        return f"× {bracketed(*numbers)}"
    return bracketed(value, low, high, null=0.0, unit=one.like.unit)


def _example(report: FleetReport) -> str:
    numbers = [one.number for one in report.hosts if one.problem is None]
    if len(numbers) == 1:
        return str(numbers[0])
    return f"TRIAL (the column trial, e.g. {numbers[0]})" if numbers else "TRIAL"


def _tone(comparisons: Sequence[FleetComparison]) -> tuple[str, str]:
    """Return one word for the whole report, and its colour class."""
    found = {
        (one.mean.conclusion.words, one.mean.conclusion.tone) for one in comparisons if one.mean is not None
    }
    if not found:
        return "no verdict", "invalid"
    return found.pop() if len(found) == 1 else ("mixed", "mixed")
