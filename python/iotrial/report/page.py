"""The page of one finding: a trial of a shipped study as Markdown, to stand among the documentation.

Everything in it comes from the trial but one section: why it is so is written by hand, beside the packed trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from iotrial.legible import shown
from iotrial.report.claims import HeldClaim
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.markdown import (
    code,
    effect_rows,
    escaped,
    fact_table,
    folded,
    matrix_tables,
    safety_list,
    table_head,
    table_row,
)
from iotrial.report.metrics import is_system_wide, words_of
from iotrial.report.moments import utc
from iotrial.report.notation import counted, quantity
from iotrial.report.sentences import ELSEWHERE, controls_line
from iotrial.units import format_duration

MOST_MOVED = 24
NO_MECHANISM = "*Nobody has written down yet why.*"
_MACHINE = ("processor", "processors", "memory", "kernel", "system", "virtual")


def page(document: Document, *, packed: str, mechanism: str | None, changed: bool) -> str:
    """The whole page, ending in a newline. ``packed`` is the name of the packed trial beside it, ``changed`` whether the
    study that ships is another one by now."""
    return "\n".join(_lines(document, packed, mechanism, changed=changed)).rstrip() + "\n"


def claims_in_brief(document: Document) -> str:
    """Each claim with how it stands: "noatime halves the time in read(): confirmed". A text said of several levels names
    each."""
    levels: dict[str, set[str]] = {}
    for held in document.claims:
        levels.setdefault(held.claim.text, set()).add(held.claim.level)
    said = []
    for held in document.claims:
        of = f" ({shown(held.claim.level)})" if len(levels[held.claim.text]) > 1 else ""
        said.append(f"{held.claim.text}{of}: {held.outcome.value}")
    return "; ".join(said)


def _lines(document: Document, packed: str, mechanism: str | None, *, changed: bool) -> Iterator[str]:
    header = document.trial.header
    study = header.study
    yield f"# {escaped(document.title)}"
    yield ""
    yield f"> {escaped(study.question)}"
    yield ""
    yield f"**{escaped(document.summary.headline)}**"
    yield ""
    for detail in document.summary.details:
        if not detail.startswith(ELSEWHERE):  # it was: on the machine that the page names
            yield f"- {escaped(detail)}"
    yield ""
    yield from safety_list(document.safety)
    if study.why.strip():
        yield "## The question"
        yield ""
        yield from (escaped(line) for line in study.why.strip().splitlines())
        yield ""
    if document.claims:
        yield "## Published, and found"
        yield ""
        yield from _claims(document.claims)
    yield "## What was found"
    yield ""
    for table in document.facts:
        yield from fact_table(table)
    for matrix in document.matrices:
        yield from matrix_tables(document, matrix)
    if document.matrices or document.facts:
        yield from folded("All effects", list(effect_rows(document.primary)))
    else:
        yield from effect_rows(document.primary)
        yield ""
    if document.pooled:
        yield from folded("Means over conditions (pooled)", list(effect_rows(document.pooled)))
    yield "## Why"
    yield ""
    yield (mechanism or NO_MECHANISM).strip()
    yield ""
    yield from _moved(document)
    yield "## The trial"
    yield ""
    yield from (f"- {line}" for line in _trial(document, changed=changed))
    yield ""
    drawn = code(f"iotrial report {packed} --html FILE")
    yield f"Packed: [{packed}]({packed}). {drawn} draws all of it, and {code(document.rerun)}"
    yield "puts the study on trial again on another machine, in the same order."


def _claims(claims: tuple[HeldClaim, ...]) -> Iterator[str]:
    yield from table_head(("published", "by", "here", "verdict"))
    for held in claims:
        where = f" ({held.condition.text})" if held.condition is not None and held.condition.parts else ""
        verdict = f"{held.outcome.value}: {held.why}"
        in_words = held.claim.ratio is None and held.claim.value is None
        published = held.published if in_words else f"{held.claim.text} ({held.published})"
        yield table_row(published, held.claim.source, f"{held.here}{where}", verdict)
    yield ""
    notes = dict.fromkeys(held.claim.note for held in claims if held.claim.note)
    yield from (f"- {escaped(note)}" for note in notes)
    if notes:
        yield ""


def _moved(document: Document) -> Iterator[str]:
    """What was counted and moved, the machine's own counters last: what the mechanism can be held against."""
    primary = {row.effect.response for row in document.primary}
    references: dict[tuple[str, str], EvidenceRow] = {}
    for row in document.evidence:
        if row.is_reference:
            references.setdefault((row.condition.key, row.metric), row)
    moved = [row for row in document.evidence if row.moved and row.metric not in primary]
    if not moved:
        yield "Nothing else that was counted moved with the treatment."
        yield ""
        return
    moved.sort(key=lambda row: (is_system_wide(row.metric), -row.e_value))
    lines = list(table_head(("condition", "what moved", "with", "median", "at the reference")))
    for row in moved[:MOST_MOVED]:
        reference = references.get((row.condition.key, row.metric))
        before = "–" if reference is None else quantity(reference.value, reference.unit)
        lines.append(
            table_row(
                row.condition.text,
                words_of(row.metric),
                row.treatment,
                f"{quantity(row.value, row.unit)} ({row.moved})",
                before,
            )
        )
    if len(moved) > MOST_MOVED:
        lines += ["", f"and {len(moved) - MOST_MOVED} more"]
    yield from folded("What moved with the treatment besides", lines)


def _trial(document: Document, *, changed: bool) -> Iterator[str]:
    trial, header = document.trial, document.trial.header
    began = datetime.fromisoformat(utc(header.started)).strftime("%Y-%m-%d")
    blocks = sum(block.void is None for block in document.data.blocks)
    measured = f"{counted(blocks, 'block')}, {counted(len(document.data.runs), 'run')}"
    yield f"{began}, iotrial {escaped(header.version)}, {format_duration(trial.duration_s)}: {measured}"
    if line := controls_line(document.analysis.controls, header.study) if document.valid else "":
        yield f"controls: {line}"
    elif not document.with_controls:
        yield "controls: none, switched off"
    if document.void:
        rules = ", ".join(sorted({block.rule for block in document.void}))
        yield f"{counted(len(document.void), 'block')} left out whole ({escaped(rules)})"
    if document.failures:
        yield counted(len(document.failures), "failed run")
    machine = [f"{name} {value}" for name, value in document.machine if name.startswith(_MACHINE)]
    yield f"machine: {escaped(', '.join(machine))}"
    lab = [
        f"{name} {value}" for name, value in document.lab if name in ("kind",) or name.startswith("places")
    ]
    yield f"lab: {escaped(', '.join(lab))}"
    yield f"seed: {shown(header.seed)}"
    if changed:
        yield "the study that ships has changed since; what was run is in the packed trial"
