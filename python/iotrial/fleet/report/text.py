"""A fleet for a terminal: what it comes to, then its hosts, those that need a look first; 80 columns do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from iotrial.analysis.model import Verdict
from iotrial.fleet.report.words import (
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
from iotrial.report.notation import bracketed, counted, elided
from iotrial.report.phrases import VERDICT_STYLES, interval, null_value
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: beyond these a table shows hosts that need a look, and of all others the lowest and the highest
MOST_ROWS = 40
_ENDS, _MOST_FIRST = 5, 20
#: comparisons whose hosts are listed; the means of all stand in one table
_MOST_COMPARISONS = 3


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
