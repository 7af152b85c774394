"""The page of one finding: a trial of a catalogue study as Markdown, for the documentation.

Everything in it comes from the trial except one section: the explanation is written by hand, in a file next to the
packed trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from iotrial.report.blocks import Block, Note, Section, Table, table
from iotrial.report.claims import HeldClaim
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.markdown import block_lines, code, escaped
from iotrial.report.metrics import is_system_wide, words_of
from iotrial.report.notation import counted, quantity, utc
from iotrial.report.sentences import ELSEWHERE, controls_line
from iotrial.report.trial_blocks import effect_table, fact_blocks, matrix_blocks, safety_blocks
from iotrial.terminal import escape
from iotrial.units import format_duration

MOST_MOVED = 24
NO_MECHANISM = "*Nobody has written down yet why.*"
_MACHINE = ("processor", "processors", "memory", "kernel", "system", "virtual")


def page(document: Document, *, packed: str, mechanism: str | None, changed: bool) -> str:
    """Return the whole page, ending in a newline.

    ``packed`` is the name of the packed trial next to it; ``changed`` says whether the catalogue's study has changed
    since.
    """
    return "\n".join(_lines(document, packed, mechanism, changed=changed)).rstrip() + "\n"


def claims_in_brief(document: Document) -> str:
    """Summarise each claim with its outcome: "noatime halves the time in read(): confirmed".

    If several claims share a text, each names its level.
    """
    levels: dict[str, set[str]] = {}
    for held in document.claims:
        levels.setdefault(held.claim.text, set()).add(held.claim.level)
    said = []
    for held in document.claims:
        of = f" ({escape(held.claim.level)})" if len(levels[held.claim.text]) > 1 else ""
        said.append(f"{held.claim.text}{of}: {held.outcome.value}")
    return "; ".join(said)


def _lines(document: Document, packed: str, mechanism: str | None, *, changed: bool) -> Iterator[str]:
    study = document.trial.header.study
    yield from (f"# {escaped(document.title)}", "", f"> {escaped(study.question)}", "")
    yield from (f"**{escaped(document.summary.headline)}**", "")
    # it was measured elsewhere, on the machine that the page names
    details = tuple(Note(text) for text in document.summary.details if not text.startswith(ELSEWHERE))
    yield from block_lines((*details, *safety_blocks(document)), heading="##")
    if study.why.strip():
        yield from ("## The question", "", *map(escaped, study.why.strip().splitlines()), "")
    yield from block_lines(tuple(_answer(document)), heading="##")
    yield from ("## Why", "", (mechanism or NO_MECHANISM).strip(), "")
    yield from block_lines(tuple(_support(document, changed=changed)), heading="##")
    drawn = code(f"iotrial report {packed} --html FILE")
    yield f"Packed: [{packed}]({packed}). {drawn} draws all of it, and {code(document.rerun)}"
    yield "puts the study on trial again on another machine, in the same order."


def _answer(document: Document) -> Iterator[Block]:
    if document.claims:
        notes = dict.fromkeys(held.claim.note for held in document.claims if held.claim.note)
        yield Section("Published, and found", (_claims(document.claims), *map(Note, notes)))
    effects = effect_table(document.primary, valid=document.valid)
    blocks: list[Block] = [*fact_blocks(document), *matrix_blocks(document)]
    blocks.append(Section("All effects", (effects,), folded=True) if blocks else effects)
    if document.pooled:
        pooled = effect_table(document.pooled, valid=document.valid)
        blocks.append(Section("Means over conditions (pooled)", (pooled,), folded=True))
    yield Section("What was found", tuple(blocks))


def _support(document: Document, *, changed: bool) -> Iterator[Block]:
    moved = _moved(document)
    if moved.rows:
        yield Section("What moved with the treatment besides", (moved,), folded=True)
    else:
        yield Note("Nothing else that was counted moved with the treatment.")
    yield Section("The trial", tuple(map(Note, _trial(document, changed=changed))))


def _claims(claims: tuple[HeldClaim, ...]) -> Table:
    rows = []
    for held in claims:
        where = f" ({held.condition.text})" if held.condition is not None and held.condition.parts else ""
        in_words = held.claim.ratio is None and held.claim.value is None
        published = held.published if in_words else f"{held.claim.text} ({held.published})"
        rows.append(
            (published, held.claim.source, f"{held.here}{where}", f"{held.outcome.value}: {held.why}")
        )
    return table(("published", "by", "here", "verdict"), rows)


def _moved(document: Document) -> Table:
    """Return a table of the counters that moved, system-wide ones last, as evidence for a mechanism."""
    primary = {row.effect.response for row in document.primary}
    references: dict[tuple[str, str], EvidenceRow] = {}
    for row in document.evidence:
        if row.is_reference:
            references.setdefault((row.condition.key, row.metric), row)
    moved = [row for row in document.evidence if row.moved and row.metric not in primary]
    moved.sort(key=lambda row: (is_system_wide(row.metric), -row.e_value))
    rows = []
    for row in moved[:MOST_MOVED]:
        reference = references.get((row.condition.key, row.metric))
        before = "–" if reference is None else quantity(reference.value, reference.unit)
        value = f"{quantity(row.value, row.unit)} ({row.moved})"
        rows.append((row.condition.text, words_of(row.metric), row.treatment, value, before))
    more = f"and {len(moved) - MOST_MOVED} more" if len(moved) > MOST_MOVED else ""
    return table(("condition", "what moved", "with", "median", "at the reference"), rows, note=more)


def _trial(document: Document, *, changed: bool) -> Iterator[str]:
    trial, header = document.trial, document.trial.header
    began = datetime.fromisoformat(utc(header.started)).strftime("%Y-%m-%d")
    blocks = sum(block.void is None for block in document.data.blocks)
    measured = f"{counted(blocks, 'block')}, {counted(len(document.data.runs), 'run')}"
    yield f"{began}, iotrial {header.version}, {format_duration(trial.duration_s)}: {measured}"
    if line := controls_line(document.analysis.controls, header.study) if document.valid else "":
        yield f"controls: {line}"
    elif not document.with_controls:
        yield "controls: none, switched off"
    if document.void:
        rules = ", ".join(sorted({block.rule for block in document.void}))
        yield f"{counted(len(document.void), 'block')} left out whole ({rules})"
    if document.failures:
        yield counted(len(document.failures), "failed run")
    machine = [f"{name} {value}" for name, value in document.machine if name.startswith(_MACHINE)]
    yield f"machine: {', '.join(machine)}"
    lab = [
        f"{name} {value}" for name, value in document.lab if name in ("kind",) or name.startswith("places")
    ]
    yield f"lab: {', '.join(lab)}"
    yield f"seed: {escape(header.seed)}"
    if changed:
        yield "the study that ships has changed since; what was run is in the packed trial"
