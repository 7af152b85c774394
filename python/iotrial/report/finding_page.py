"""The page of one finding: a trial of a catalogue study on one screen, as Markdown.

The page answers the study's question: the answer, one figure, one table, why, what limits it, and published claims.
Everything else is in the packed trial, which ``iotrial report --full`` prints. All of it comes from the trial except
one section: the explanation is written by hand, in a file next to the packed trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from iotrial.report.blocks import Table, View
from iotrial.report.claims import NOT_COMPARABLE, NOT_MEASURED, Outcome
from iotrial.report.claims_page import Judged, found, merged, reasons
from iotrial.report.document import OTHER_CLAIMS, Document
from iotrial.report.figure import Figure
from iotrial.report.effect_figures import forest_of
from iotrial.report.markdown import code, escaped, table_lines
from iotrial.report.matrix_figures import matrix_figures
from iotrial.report.notation import counted, joined, percent, some, utc
from iotrial.report.rows import EffectRow
from iotrial.report.sentences import ELSEWHERE, SIMULATED, controls_line
from iotrial.report.trial_blocks import effect_table, fact_tables, matrix_counts, rank_of
from iotrial.terminal import escape
from iotrial.units import format_duration

MOST_ROWS = 12
MOST_LEVELS = 4
MOST_CLAIMS = 2
NO_MECHANISM = "*Nobody has written down yet why.*"
#: from a page to the folder of the documentation
_DOCS = "../.."


def page(document: Document, *, packed: str, figure: str, mechanism: str | None, changed: bool) -> str:
    """Return the whole page, ending in a newline.

    ``packed`` is the path of the packed trial from the root of the sources; ``figure`` is the name of the picture next
    to the page; ``changed`` says whether the catalogue's study has changed since.
    """
    lines = _lines(document, packed, figure, mechanism, changed=changed)
    return "\n".join(lines).rstrip() + "\n"


def page_figure(document: Document) -> Figure | None:
    """Return the figure of the page; None if it has none, because facts are shown as a table."""
    if document.facts:
        return None
    if matrices := matrix_figures(document):
        return matrices[0].maps
    rows = shown_effects(document)
    return forest_of(document, rows) if rows else None


def shown_effects(document: Document) -> tuple[EffectRow, ...]:
    """Return the primary effects of the page's table: all, or the most decisive ones in their order."""
    rows = document.primary
    ranked = sorted(range(len(rows)), key=lambda place: (rank_of(rows[place].effect), place))
    return tuple(rows[place] for place in sorted(ranked[:MOST_ROWS]))


def claims_in_brief(document: Document) -> str:
    """Count the outcomes of the published claims: "2 confirmed, 1 cannot say"."""
    outcomes = Counter(held.outcome for held in document.claims)
    return ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])


def _lines(
    document: Document, packed: str, figure: str, mechanism: str | None, *, changed: bool
) -> Iterator[str]:
    study, summary = document.trial.header.study, document.summary
    yield from (f"# {escaped(study.question)}", "", f"**{escaped(summary.answer)}**", "")
    if summary.risk:
        yield from (f"⚠ {escaped(summary.risk)}", "")
    if summary.by_level and not document.facts:
        yield from (*(f"- {escaped(text)}" for text in summary.by_level[:MOST_LEVELS]), "")
    yield from (escaped(_how_sure(document)), "")
    if (drawn := page_figure(document)) is not None:
        yield from (f"![{escaped(drawn.sentence)}]({figure})", "")
    yield from _tables(document)
    yield from ("## Why", "", (mechanism or NO_MECHANISM).strip(), "")
    yield from ("## Limits", "", *(f"- {escaped(text)}" for text in _limits(document, changed=changed)), "")
    if document.claims:
        yield from ("## Published claims", "", *_claims(document), "")
    again = code(document.rerun)
    yield from ("## Everything else", "", f"{code(f'iotrial report {packed} --full')} shows all that was measured,")
    yield f"{again} repeats the trial."


def _how_sure(document: Document) -> str:
    trial, header = document.trial, document.trial.header
    blocks = sorted({row.effect.blocks for row in document.primary})
    number = f"{blocks[0]:,} to {blocks[-1]:,}" if len(blocks) > 1 else f"{blocks[0]:,}" if blocks else "no"
    runs = f"{len(document.data.runs):,} runs in {format_duration(trial.duration_s)}"
    measured = f"Measured in {number} blocks a comparison ({runs})."
    if not document.valid:
        return measured
    return (
        f"{measured} Brackets hold intervals that are correct together with {percent(1 - header.alpha)} probability. "
        f"The margin, below which an effect does not matter, is {percent(header.margin)}."
    )


def _tables(document: Document) -> Iterator[str]:
    if document.facts:
        yield from _facts(document)
    elif document.matrices:
        for table in matrix_counts(document):
            yield from table_lines(table)
    elif document.primary:
        shown = shown_effects(document)
        yield from table_lines(effect_table(shown, valid=document.valid))
        if left := [row for row in document.primary if row not in shown]:
            words = Counter(row.effect.conclusion.words for row in left)
            kinds = joined(f"{number:,} {word}" for word, number in words.most_common())
            yield from (escaped(f"{counted(len(left), 'more comparison')}: {kinds}."), "")


def _facts(document: Document) -> Iterator[str]:
    tables: list[Table] = []
    every = tuple(fact_tables(document))
    for table in every:
        if tables and sum(len(one.rows) for one in (*tables, table)) > MOST_ROWS:
            break
        tables.append(table)
    for table in tables:
        yield from table_lines(table)
    if left := [table.title for table in every[len(tables) :]]:
        yield from (escaped(f"{counted(len(left), 'more table')}: {'; '.join(left)}."), "")


def _limits(document: Document, *, changed: bool) -> Iterator[str]:
    yield _machine(document)
    if document.summary.outlook:
        yield f"Undecided: {document.summary.outlook[:1].lower()}{document.summary.outlook[1:]}"
    if line := controls_line(document.analysis.controls, document.trial.header.study) if document.valid else "":
        yield f"Controls: {line}."
    elif not document.with_controls:
        yield "Controls: none, switched off."
    for note in document.summary.limits:
        elsewhere = note.text.startswith((ELSEWHERE, SIMULATED, OTHER_CLAIMS))
        if note.view & View.SHORT and not elsewhere:
            yield note.text
    if changed:
        yield "The study has changed since; the packed trial holds it as it was run."


def _machine(document: Document) -> str:
    """E.g. "One trial, 2026-11-22, on a virtual machine (AMD EPYC, 2 processors, kernel 6.18); ext4 in an image file."."""
    header = document.trial.header
    host, lab = header.host, header.lab
    began = datetime.fromisoformat(utc(header.started)).strftime("%Y-%m-%d")
    guest = lab.get("kind") == "guest"
    kind = "QEMU guest with an emulated processor" if guest else "virtual machine" if host.get("virtual") else "machine"
    processors = host.get("processors")
    number = counted(processors, "processor") if isinstance(processors, int) else ""
    facts = [*(() if guest else (str(host.get("processor", "")),)), number, f"kernel {host.get('kernel', '')}"]
    what = escape(", ".join(filter(None, facts)))
    return f"One trial, {began}, on a {kind} ({what}); {_places(lab.get('places'), guest=guest)}."


def _places(places: object, *, guest: bool) -> str:
    known = [one for one in places if isinstance(one, Mapping)] if isinstance(places, list | tuple) else []
    systems = joined(dict.fromkeys(escape(str(one["filesystem"])) for one in known if one.get("filesystem")))
    names = [str(one["modelled"]).partition(":")[0] for one in known if one.get("modelled")]
    disks = joined(dict.fromkeys(map(escape, names)))
    where = f"on simulated {disks}" if disks else "on a virtual disk" if guest else "in an image file"
    if disks and len(names) < len(known):
        where += " and in an image file"
    return f"{systems or 'files'} {where}"


def _claims(document: Document) -> Iterator[str]:
    study = document.trial.header.study
    judged = [Judged(study.name, study, held) for held in document.claims]
    for outcome in Outcome:
        members = [one for one in judged if one.held.outcome is outcome]
        if outcome is not Outcome.CANNOT_SAY:
            for _, group in groupby(members, key=lambda one: one.held.claim.source):
                alike = list(group)
                text = merged([one.held.claim.text for one in alike])
                here = merged([found(one) for one in alike])
                yield f"- {escaped(text)}: **{outcome.value}**. Here: {escaped(here)}."
        elif members:
            texts = list(dict.fromkeys(one.held.claim.text for one in members))
            quoted = joined(some([f"“{text}”" for text in texts], MOST_CLAIMS))
            why = "; ".join(reasons([one.held for one in members]))
            yield f"- {escaped(quoted)}: **cannot say**, {escaped(why)}."
            measured = [one for one in members if one.held.here not in (NOT_COMPARABLE, NOT_MEASURED)]
            if measured:
                yield f"  Found here: {escaped(merged([found(one) for one in measured]))}."
    yield from ("", f"[All claims and their sources]({_DOCS}/findings.md)")
