"""The report as Markdown, short enough for a pull request; details fold away.

Labels from a study are escaped so that they can neither make markup, tables or links, nor call people by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from iotrial.analysis.model import Conclusion
from iotrial.lab.knob import Safety
from iotrial.legible import shown
from iotrial.report.claims import grouped, not_run_in_brief
from iotrial.report.document import Document
from iotrial.report.facts import FactTable
from iotrial.report.findings import QUIET
from iotrial.report.matrices import LEGEND, Matrix, said
from iotrial.report.matrix_figures import tables
from iotrial.report.metrics import words_of
from iotrial.report.notation import counted, quantity
from iotrial.report.page_figures import page_rows
from iotrial.report.phrases import interval, interval_title, reason_in_words, spoken
from iotrial.report.rows import EffectRow
from iotrial.report.screens import arms_are_rows

_SPECIAL = frozenset("\\`*_[]|~$")
# The comment splits "@name" and "#12", which code hosts look for after rendering, escaped or not.
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "@<!-- -->", "#": "#<!-- -->"}
# What becomes a link without any brackets, and what would begin a list, a heading or a quotation.
_LINKED = re.compile(r"(\bwww|\b(?:https?|ftp|xmpp|mailto)|\bGH)([.:-])", re.IGNORECASE)
_STARTS = re.compile(r"^([0-9]{1,9}(?=[.)]\s)|)([-+=.)])")
#: characters of a part that folds away; a comment on GitHub holds 65,536 in all
_MOST_FOLDED = 5_000
_MOST_FAILURES = 10
_MOST_INTERACTIONS = 40
_MOST_EFFECTS = 60


def markdown_report(document: Document) -> str:
    """The whole report as GitHub-flavoured Markdown, ending in a newline."""
    return "\n".join(_lines(document)) + "\n"


def escaped(text: str) -> str:
    """The text as Markdown shows it literally."""
    plain = "".join(_REPLACED.get(c, f"\\{c}" if c in _SPECIAL else c) for c in shown(text).strip())
    plain = _LINKED.sub(lambda found: f"{found[1]}<!-- -->{found[2]}", plain)
    return _STARTS.sub(lambda found: f"{found[1]}\\{found[2]}", plain)


def _lines(document: Document) -> Iterator[str]:
    header = document.trial.header
    yield f"### {escaped(document.title)}"
    yield ""
    yield f"**{escaped(document.summary.headline)}**"
    yield ""
    yield f"> {escaped(header.study.question)}"
    yield ""
    details = [f"- {escaped(detail)}" for detail in document.summary.details]
    if not document.valid:  # why it is so is the first thing to know
        yield from details
        yield ""
    groups = grouped(document.claims)
    for words in [group.sentence for group in groups if not group.not_run] + not_run_in_brief(groups):
        yield f"**Claim**: {escaped(words)}"
        yield ""
    yield from safety_list(document.safety)
    for facts in document.facts:
        yield from fact_table(facts)
    for matrix in document.matrices:
        yield from matrix_tables(document, matrix)
    if document.matrices:
        yield from brief("All effects", list(effect_rows(document.primary)))
    elif document.primary:
        yield from effect_rows(document.primary)
        yield ""
    if document.valid and details:
        yield from brief("What belongs to it", details)
    if document.pages:
        yield from brief("Pages that gain most and least", list(_pages(document)))
    if document.interactions:
        yield from brief("Interactions", list(_interactions(document.interactions)))
    if document.pooled:
        yield from brief("Means over conditions (pooled)", list(effect_rows(document.pooled)))
    if document.exploratory:
        yield from brief("Other responses (exploratory)", list(effect_rows(document.exploratory)))
    if document.evidence:
        by_level = arms_are_rows(header.study)
        title = "Evidence: what moved, by level" if by_level else "Evidence: medians by treatment"
        yield from brief(title, list(_evidence(document)))
    if document.controls:
        yield from brief(
            "Controls", [f"- {escaped(r.condition.text)}: {escaped(r.sentence)}" for r in document.controls]
        )
    if document.carry_over:
        yield from brief("Does a run depend on the one before?", list(_carry_over(document)))
    if document.void or document.failures:
        yield from brief("Void blocks and failed runs", list(_losses(document)))
    about = [f"- {escaped(name)}: {escaped(value)}" for name, value in (*document.plan, *document.machine)]
    yield from brief("Plan and machine", about)
    yield f"Run again: {code(document.rerun)}"


def brief(title: str, lines: Sequence[str]) -> Iterator[str]:
    """As ``folded``, with as many lines as a comment has room for."""
    room = _MOST_FOLDED
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 and number:
            more = counted(len(lines) - number, "more line")
            yield from folded(title, [*lines[:number], "", f"and {more}, in the JSON and HTML reports"])
            return
    yield from folded(title, lines)


def _carry_over(document: Document) -> Iterator[str]:
    for row in document.carry_over:
        yield f"- {escaped(row.condition.text)}: {escaped(row.sentence)}"
        yield from (f"  - {escaped(sentence)}" for sentence in row.unaffected)


def safety_list(lines: Sequence[tuple[Safety, str]]) -> Iterator[str]:
    """What settings do to the safety of data: what puts it at risk stands open, the rest folds away."""
    risks = [line for safety, line in lines if safety is Safety.DATA_AT_RISK]
    rest = [
        f"- {safety.value}: {escaped(line)}" for safety, line in lines if safety is not Safety.DATA_AT_RISK
    ]
    for line in risks:
        yield f"⚠ **Data at risk**: {escaped(line)}"
        yield ""
    if rest:
        yield from brief("What the settings cost besides", rest)


def fact_table(table: FactTable) -> Iterator[str]:
    """Names that have the same words are in one row."""
    yield f"**{escaped(table.title)}** ({escaped(table.said)})"
    yield ""
    yield from table_head(("", *table.columns))
    for row in table.groups:
        yield table_row(", ".join(row.names), *row.cells)
    yield ""


def matrix_tables(document: Document, matrix: Matrix) -> Iterator[str]:
    """A table for each test; file sizes downwards, record sizes to the right."""
    if matrix.title:
        yield f"#### {escaped(matrix.title)}"
        yield ""
    yield f"{escaped(said(matrix))}. {escaped(LEGEND)}."
    yield ""
    for head, *rows in tables(document, matrix):
        yield from table_head(head)
        for row in rows:
            yield table_row(*row)
        yield ""


def effect_rows(rows: Sequence[EffectRow]) -> Iterator[str]:
    """All effects; where they are many, those that are not equivalent, and how many others there are."""
    kept = rows
    if len(rows) > _MOST_EFFECTS:
        kept = [row for row in rows if not row.effect.conclusion.equivalent][:_MOST_EFFECTS]
    yield from effect_table(kept)
    if len(kept) < len(rows):
        yield ""
        yield f"and {len(rows) - len(kept)} more, in the JSON and HTML reports"


def effect_table(rows: Sequence[EffectRow]) -> Iterator[str]:
    """Effects with their intervals and verdicts."""
    numbers = interval_title(row.effect.scale for row in rows)
    yield from table_head(("condition", "comparison", "response", numbers, "blocks", "verdict"))
    for row in rows:
        effect = row.effect
        verdict = row.verdict
        if effect.detectably and effect.conclusion is not Conclusion.VARIES:
            verdict += f", detectably {effect.detectably}"
        if row.risk:
            verdict += f", ⚠ {row.risk}"
        if effect.conclusion is Conclusion.UNDECIDED and effect.reason:
            verdict += f": {reason_in_words(effect.reason)}"
        yield table_row(
            row.place,
            row.comparison,
            spoken(effect.response),
            interval(effect),
            f"{effect.blocks:,}",
            verdict,
        )


def _interactions(rows: Sequence[EffectRow]) -> Iterator[str]:
    """Those that are there in words, then all as a table; the numbers in it are half differences."""
    for row in rows:
        if row.effect.verdict not in QUIET:
            yield f"- {escaped(row.condition.text)}: {escaped(row.sentence)}"
            for one in row.at_levels:
                yield f"  - {escaped(one.text)}"
            if row.aliases:
                yield f"  - {escaped(row.aliases)}"
    yield ""
    yield from effect_table(rows[:_MOST_INTERACTIONS])
    if len(rows) > _MOST_INTERACTIONS:
        yield ""
        yield f"and {len(rows) - _MOST_INTERACTIONS} smaller ones"


def _evidence(document: Document) -> Iterator[str]:
    yield from table_head(("condition", "metric", "treatment", "median", "moved"))
    by_level = arms_are_rows(document.trial.header.study)
    for row in document.evidence:
        if by_level and row.moved is None:
            continue
        value = quantity(row.value, row.unit)
        yield table_row(row.condition.text, words_of(row.metric), row.treatment, value, row.moved or "")
    for why in document.data.not_accounted:
        yield ""
        yield escaped(why)


def _pages(document: Document) -> Iterator[str]:
    yield from table_head(
        ("condition", "level", "gains", "page", "at the reference", "at the level", "ratio")
    )
    for row in page_rows(document.pages):
        yield table_row(*row)


def _losses(document: Document) -> Iterator[str]:
    for count in document.analysis.void:
        yield f"- {counted(count.count, 'block')} void by rule {escaped(count.rule)} ({escaped(count.level or '–')})"
    for run in document.failures[:_MOST_FAILURES]:
        yield f"- {escaped(run.arm)}, {escaped(run.condition.text)}, block {run.block}: {escaped(run.message)}"
    if len(document.failures) > _MOST_FAILURES:
        yield f"- {len(document.failures) - _MOST_FAILURES} more failed runs"


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that a reader unfolds."""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""


def table_head(names: Sequence[str]) -> Iterator[str]:
    """The first two lines of a table."""
    yield table_row(*names)
    yield "|" + "---|" * len(names)


def table_row(*cells: str) -> str:
    """A line of a table; the cells are escaped."""
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def code(text: str) -> str:
    """A code span that its content cannot leave."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"
