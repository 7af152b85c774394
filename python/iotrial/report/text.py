"""The report for a terminal: the verdict first, then a compact table, all readable without colour.

Everything is built from rich's Text and Table, never from markup, so that a label such as "[red]" stays a label.
Colour repeats what a word says already. Widths follow the console given; 80 columns are enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from iotrial.analysis.model import Conclusion
from iotrial.lab.knob import Safety
from iotrial.legible import shown
from iotrial.report.claims import grouped, not_run_in_brief
from iotrial.report.diagnostics import change_sentence
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.fact_text import facts_lines
from iotrial.report.findings import QUIET
from iotrial.report.matrices import LEGEND, MARKS, said
from iotrial.report.matrix_figures import tables
from iotrial.report.metrics import is_system_wide, words_of
from iotrial.report.notation import counted, elided, joined, percent, quantity
from iotrial.report.pages_text import pages_text
from iotrial.report.phrases import (
    TIME_UNITS,
    VERDICT_STYLES,
    interval,
    interval_title,
    reason_in_words,
    spoken,
)
from iotrial.report.requests import COUNT, KINDS, SHARES
from iotrial.report.rows import EffectRow
from iotrial.report.sentences import Tone
from iotrial.report.within import changes_within
from iotrial.store.model import with_checks
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_MARKED = {
    mark: VERDICT_STYLES[conclusion] for conclusion, mark in MARKS.items() if conclusion in VERDICT_STYLES
}
_MOST_MOVED = 6
_MOST_TRADE_OFFS = 2
_MOST_FAILURES = 3
_MOST_REQUESTS = 3
#: requests whose times are not worth a line
_FEW = 10
#: of one request, and of several
_KINDS = {
    "read": ("read", "reads"),
    "write": ("write", "writes"),
    "flush": ("flush", "flushes"),
    "discard": ("discard", "discards"),
    "other": ("other", "others"),
}
_MOST_ROWS = 60
_MOST_INTERACTIONS = 8


def print_report(document: Document, console: Console, *, html_path: str | None = None) -> None:
    """Write the report to ``console``; ``html_path`` is named at the end where a file was written."""
    from rich.text import Text

    trial = document.trial
    console.print(Text(document.summary.headline, style=_headline_style(document.summary.tone)))
    console.print()
    for detail in document.summary.details:
        console.print(Text(detail))
    console.print()
    for line in facts_lines(document.facts):
        console.print(line)
    for line in _matrices(document):
        console.print(line)
    if document.primary:
        apart = {
            id(row) for matrix in document.matrices for grid in matrix.tests for row in grid.cells.values()
        }
        others = tuple(row for row in document.primary if id(row) not in apart)
        rows, folded = _folded((*others, *document.pooled))
        console.print(effects_table(rows, valid=document.valid))
        for line in folded:
            console.print(line)
    for line in _interactions(document):
        console.print(line)
    for line in pages_text(document.pages):
        console.print(line)
    for line in _safety(document):
        console.print(line)
    for line in _claims(document):
        console.print(line)
    for line in _notes(document):
        console.print(line)
    console.print()
    named = f"Trial {trial.number}" if trial.number else "A packed trial"  # which is in no store
    console.print(Text(f"{named}, {document.title}, {format_duration(trial.duration_s)}.", style="dim"))
    console.print(Text("Again: ", style="dim").append(document.rerun), soft_wrap=True)
    if html_path is not None:
        console.print(
            Text("Figures and everything else: ", style="dim").append(shown(html_path)), soft_wrap=True
        )


def effects_table(rows: tuple[EffectRow, ...], *, valid: bool = True) -> Table:
    """One line an effect: by condition where there is one comparison, else under a line for each condition."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    comparisons = {row.comparison for row in rows}
    several = len({row.effect.response for row in rows}) > 1
    single = len(comparisons) == 1 and not several
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    first = elided(comparisons.pop(), 40) if single else "comparison"
    table.add_column(Text(first), overflow="fold", max_width=40)
    table.add_column(Text(interval_title(row.effect.scale for row in rows)), justify="right", no_wrap=True)
    table.add_column("blocks", justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    grouped = groupby(
        rows, key=lambda row: (row.condition.key, row.effect.kind == "pooled", row.effect.response)
    )
    for _, members in grouped:
        group = list(members)
        title = group[0].place
        if several:
            title += f": {spoken(group[0].effect.response)}"
        if not single:
            table.add_row(Text(elided(title, 60), style="bold"), "", "", "")
        for row in group:
            effect = row.effect
            table.add_row(
                Text(elided(title if single else f"  {row.comparison}", 60)),
                Text(interval(effect)),
                f"{effect.blocks:,}",
                verdict_text(row) if valid else Text("no verdict", style="bold red"),
            )
    return table


def verdict_text(row: EffectRow) -> Text:
    """The verdict word, "detectably ..." and why it is inconclusive."""
    from rich.text import Text

    effect = row.effect
    text = Text(row.verdict, style="yellow" if row.risk else VERDICT_STYLES.get(effect.conclusion.words, ""))
    if effect.detectably and effect.conclusion is not Conclusion.VARIES:
        text.append(f", detectably {shown(effect.detectably)}", style="")
    if row.risk:
        text.append(f", {row.risk}", style="yellow")
    if effect.conclusion is Conclusion.UNDECIDED and effect.reason not in (None, "budget_spent"):
        text.append(f": {reason_in_words(str(effect.reason))}", style="")
    return text


def _folded(rows: tuple[EffectRow, ...]) -> tuple[tuple[EffectRow, ...], list[Text]]:
    """All rows; where they are too many to be read, without those that are equivalent, which are then counted."""
    from rich.text import Text

    if len(rows) <= _MOST_ROWS:
        return rows, []
    kept = tuple(row for row in rows if not row.effect.conclusion.equivalent)
    if len(kept) > _MOST_ROWS:
        kept = tuple(row for row in kept if row.effect.conclusion is not Conclusion.UNDECIDED)[:_MOST_ROWS]
    more = Counter(row.effect.conclusion.words for row in rows if row not in kept)
    said = joined(f"{number} {verdict}" for verdict, number in more.most_common())
    return kept or rows[:_MOST_ROWS], [Text(f"and {said}, in the JSON and HTML reports", style="dim")]


def _matrices(document: Document) -> Iterator[Table | Text]:
    """A small table for each test of each matrix: file sizes downwards, record sizes to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for matrix in document.matrices:
        if matrix.title:
            yield Text(matrix.title, style="bold")
        yield Text(f"{said(matrix)}.")
        for head, *rows in tables(document, matrix):
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
            for place, name in enumerate(head):
                table.add_column(Text(name), justify="right" if place else "left", no_wrap=True)
            for row in rows:
                table.add_row(*(Text(cell, style=_MARKED.get(cell[-1], "")) for cell in row))
            yield table
    if document.matrices:
        yield Text(f"Ratios of times; {LEGEND}. Rows are file sizes, columns record sizes.", style="dim")
        yield Text("")


def _interactions(document: Document) -> Iterator[Text]:
    """What one setting does to the effect of another: the interactions that are there, with all four effects."""
    from rich.text import Text

    rows = document.interactions
    if not rows or not document.valid:
        return
    loud = [row for row in rows if row.effect.verdict not in QUIET]
    named = sum(row.effect.primary for row in rows)
    more = len(rows) - named
    asked = f"{counted(named, 'interaction')} asked for" if named else "No interaction asked for"
    others = f", {more} others as a family of their own" if more else ""
    yield Text("Interactions", style="bold").append(
        f"  {asked}{others}: {len(loud)} shown to be there", style=""
    )
    for row in loud[:_MOST_INTERACTIONS]:
        # what the study asked for stands in full above the table
        asked_for = f"  {row.comparison}: {row.verdict}"
        yield Text(asked_for if row.effect.primary else f"  {row.sentence} (not asked for)")
        for one in row.at_levels:
            yield Text(f"    {one.text}", style="dim")
        if row.aliases:
            yield Text(f"    but {row.aliases}", style="yellow")
    if len(loud) > _MOST_INTERACTIONS:
        yield Text(f"  and {len(loud) - _MOST_INTERACTIONS} more, in the JSON and HTML reports", style="dim")


def _headline_style(tone: Tone) -> str:
    return "bold red" if tone is Tone.INVALID else "bold"


def _claims(document: Document) -> Iterator[Text]:
    from rich.text import Text

    groups = grouped(document.claims)
    for words in [group.sentence for group in groups if not group.not_run] + not_run_in_brief(groups):
        yield Text("Claim  ", style="bold").append(words, style="")


def _safety(document: Document) -> Iterator[Text]:
    """What settings do to the safety of data: all that put it at risk or are not judged, and some trade-offs."""
    from rich.text import Text

    lesser = [line for safety, line in document.safety if safety is Safety.TRADE_OFF]
    for safety, line in document.safety:
        if safety is not Safety.TRADE_OFF or line in lesser[:_MOST_TRADE_OFFS]:
            style = "bold yellow" if safety is Safety.DATA_AT_RISK else "bold"
            yield Text(safety.value.capitalize(), style=style).append(f"  {line}", style="")
    if len(lesser) > _MOST_TRADE_OFFS:
        more = counted(len(lesser) - _MOST_TRADE_OFFS, "more trade-off")
        yield Text(f"and {more}, in the JSON and HTML reports", style="dim")


def _notes(document: Document) -> Iterator[Text]:
    """Controls, evidence, exploratory findings, voids and failures, a line each."""
    from rich.text import Text

    def line(name: str, words: str) -> Text:
        return Text(name, style="bold").append(f"  {words}", style="")

    if moved := _moved(document):
        yield line("Evidence", moved)
    for words in _requests(document):
        yield line("Requests", words)
    found = [row for row in document.exploratory if row.effect.discovery]
    if found:
        every = list(dict.fromkeys(f"{spoken(r.effect.response)} ({_level(r)})" for r in found))
        named = every[:_MOST_MOVED]
        if len(every) > len(named):
            named.append(f"{len(every) - len(named)} more")
        yield line("Exploratory", f"{joined(named)} may differ too; a new trial would have to show it")
    for row in document.diagnostics:
        if row.diagnostic.changes and (sentence := change_sentence(row.diagnostic)):
            yield line("Change", f"{row.condition.text}: {sentence}" if row.condition.text else sentence)
    for within in changes_within(document.data, document.conditions)[:_MOST_FAILURES]:
        yield line(
            "Change",
            f"within a run of {shown(within.arm)}, {within.what}: after {format_duration(within.at_s)} from "
            f"{quantity(within.before, within.unit)} to {quantity(within.after, within.unit)}",
        )
    if document.void:
        rules = joined(dict.fromkeys(block.rule for block in document.void))
        yield line("Void", f"{counted(len(document.void), 'block')} left out whole ({rules})")
    if document.failures:
        shown_ = "; ".join(
            f"{run.arm}: {elided(run.message, 60)}" for run in document.failures[:_MOST_FAILURES]
        )
        more = len(document.failures) - _MOST_FAILURES
        yield line(
            "Failed",
            f"{counted(len(document.failures), 'run')}: {shown_}{f'; {more} more' if more > 0 else ''}",
        )
    for note in (*document.analysis.notes, *document.data.not_accounted):
        yield line("Note", shown(note))


def _requests(document: Document) -> Iterator[str]:
    """What the device was asked for in accounted repetitions, a line for each condition, where these are few."""
    conditions: dict[str, dict[str, dict[str, EvidenceRow]]] = {}
    for row in document.evidence:
        if row.metric.partition(".")[0] in (COUNT, *SHARES):
            by_treatment = conditions.setdefault(row.condition.text, {})
            by_treatment.setdefault(row.treatment, {})[row.metric] = row
    if len(conditions) > _MOST_REQUESTS:
        return
    for condition, by_treatment in conditions.items():
        parts = [f"{shown(arm)} {_asked_for(rows)}" for arm, rows in by_treatment.items()]
        where = f"{condition}: " if len(conditions) > 1 else ""
        checks = ", with the checks after the work" if with_checks(document.data.requests) else ""
        yield f"{where}{'; '.join(parts)}. Traced apart, not in the timed runs{checks}"


def _asked_for(rows: Mapping[str, EvidenceRow]) -> str:
    """E.g. "400 reads (half within 60 µs, 99 % within 90 µs), 1 flush"."""
    parts = []
    for kind in KINDS:
        count = rows.get(f"{COUNT}.{kind}")
        if count is None or not count.value:
            continue
        times = [
            f"{share} within {quantity(row.value, 's')}"
            for name, share in (("accounted_request_p50", "half"), ("accounted_request_p99", "99 %"))
            if (row := rows.get(f"{name}.{kind}")) is not None
        ]
        words = f"{count.value:,.10g} {_KINDS[kind][count.value != 1]}"
        parts.append(f"{words} ({', '.join(times)})" if times and count.value >= _FEW else words)
    return ", ".join(parts) or "none"


def _level(row: EffectRow) -> str:
    """The level alone where its factor goes without saying."""
    level = shown(row.effect.level)
    return level if len(level) > 3 else f"{shown(row.effect.factor)} {level}"


def _moved(document: Document) -> str | None:
    """What moved with the treatment, besides the primary responses."""
    if not document.evidence:
        return None
    primary = {row.effect.response for row in document.primary}
    moved: dict[tuple[str, str, str], int] = {}
    for row in document.evidence:
        if row.moved and row.metric not in primary:
            key = (row.metric, row.moved, row.treatment)
            moved[key] = moved.get(key, 0) + 1
    if not moved:
        margin = percent(document.trial.header.margin)
        return f"nothing else that was counted moved with the treatment by more than {margin}"
    timed = {row.metric for row in document.evidence if row.unit in TIME_UNITS}
    # what was counted says more of the mechanism than what else was timed
    # and what others on the machine are in says less
    ordered = sorted(moved, key=lambda key: (is_system_wide(key[0]), key[0] in timed, -moved[key]))
    texts = [f"{words_of(metric)} {way} with {shown(arm)}" for metric, way, arm in ordered]
    more = f" and {len(texts) - _MOST_MOVED} more" if len(texts) > _MOST_MOVED else ""
    return f"{', '.join(texts[:_MOST_MOVED])}{more}"
