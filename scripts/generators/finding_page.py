"""The page of one finding: a trial of a catalogue study on one screen, as Markdown.

The page answers the study's question: the answer, one figure, one table, why, what limits it, and published claims. A
trial with samples has a second figure, of the machine's activity within runs.
Everything else is in the packed trial, which ``iotrial report --full`` prints. All of it comes from the trial except
one section: the explanation is written by hand, in a file next to the packed trial. Its numbers are names of what the
trial measured, which the page fills in (``filled``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from generators.claims_page import Judged, alike, found, further_of, merged, reasons, sources_of
from iotrial.knobs.declaration import Safety
from iotrial.report.blocks import Table, View
from iotrial.report.claims import Outcome
from iotrial.report.conditions import EVERYWHERE
from iotrial.report.document import OTHER_CLAIMS, Document, times_continued, work_in_words
from iotrial.report.effect_figures import forest_of
from iotrial.report.facts import fact_tables
from iotrial.report.figure import Figure
from iotrial.report.figures import largest_factor
from iotrial.report.findings import strength
from iotrial.report.markdown import code, escaped, table_lines
from iotrial.report.matrices import matrix_counts
from iotrial.report.matrix_figures import matrix_figures
from iotrial.report.notation import counted, joined, percent, quantity, some, utc
from iotrial.report.phrases import label, size_of
from iotrial.report.rows import EffectRow
from iotrial.report.run_figures import curves_figure
from iotrial.report.sentences import ELSEWHERE, SIMULATED, controls_line, which_count
from iotrial.report.series import arms_of
from iotrial.report.trial_blocks import below_one, effect_table, rank_of
from iotrial.report.within import KINDS, WithinPanel, within_of
from iotrial.stats.model import Effect
from iotrial.store.model import objects_in
from iotrial.study import catalogue
from iotrial.study.model import Study
from iotrial.terminal import escape
from iotrial.units import format_duration

MOST_ROWS = 12
MOST_LEVELS = 4
MOST_CLAIMS, MOST_REASONS = 1, 2
#: of what was published, what ran here, and how they differ
MOST_SOURCES, MOST_WORKS, MOST_NOTES = 2, 3, 2
#: points of a curve within a run, half of those in a report: the picture is kept in the repository
CURVE_POINTS = 40
#: a number of the trial, in an explanation written by hand
_MEASURED = re.compile(r"\{([^{}]+)\}")
NO_MECHANISM = "*Nobody has written down yet why.*"
#: what a study's command is given, such as {dir} and {place.desk}
_PLACEHOLDER = re.compile(r"\{(?:place\.)?(\w+)\}")
#: from a page to the folder of the documentation
_DOCS = "../.."


def page(
    document: Document, *, packed: str, figure: str, curves: str, mechanism: str | None, changed: bool
) -> str:
    """Return the whole page, ending in a newline.

    ``packed`` is the path of the packed trial from the root of the sources; ``figure`` and ``curves`` are the names of the
    pictures next to the page; ``changed`` says whether the catalogue's study has changed since.
    """
    lines = _lines(document, packed, figure, curves, mechanism, changed=changed)
    return "\n".join(lines).rstrip() + "\n"


def page_figure(document: Document) -> Figure | None:
    """Return the figure of the page; None if it has none, because facts are shown as a table."""
    if document.facts:
        return None
    if matrices := matrix_figures(document):
        return matrices[0].maps
    rows = shown_effects(document)
    return forest_of(document, rows) if rows else None


def page_curves(document: Document) -> Figure | None:
    """Return the figure of activity within runs, with its caption as ``reading``; None if the trial has no samples.

    It shows the first condition that has samples, by the setting with the largest effect.
    """
    by = largest_factor(document)
    arms = arms_of(document.data, by)
    panels = few_of(within_of(document.data, document.conditions, arms, by, points=CURVE_POINTS))
    if not panels:
        return None
    condition = panels[0].condition.text
    where = "" if condition == EVERYWHERE else f" ({condition}, the first condition that has samples)"
    several = len(document.trial.header.study.treatment_factors) > 1
    rule = " (the setting with the largest effect)" if several else ""
    drawn = {curve.arm.label for panel in panels for curve in panel.curves}
    missing = [escape(arm.label) for arm in arms if not arm.is_control and arm.label not in drawn]
    too_short = f" Without a curve, as its runs are too short: {joined(missing)}." if missing else ""
    return curves_figure(
        panels,
        [arm for arm in arms if arm.label in drawn],
        reading=f"During a run{where}, by {'treatment' if by is None else escape(by)}{rule}: medians, and the middle half of "
        f"the runs as a band. Processors are those of the whole machine.{too_short}",
    )


def few_of(panels: Sequence[WithinPanel]) -> tuple[WithinPanel, ...]:
    """Return what a small figure shows of the samples: processors, I/O wait and the device's throughput.

    They are those of the first condition that has samples. Processors work for programs or for the kernel, and throughput is
    that of reads or of writes: of each pair the one that rises higher. A metric that stayed zero has no panel.
    """
    sampled = [panel for panel in panels if panel.metric in {name for name, *_ in KINDS}]
    own = {panel.metric: panel for panel in sampled if panel.condition.key == sampled[0].condition.key}

    def highest(*names: str) -> list[WithinPanel]:
        return sorted((own[name] for name in names if name in own), key=_peak)[-1:]

    return (
        *highest("cpu_user", "cpu_sys"),
        *highest("cpu_iowait"),
        *highest("device_read_rate", "device_write_rate"),
    )


def _peak(panel: WithinPanel) -> float:
    return max(float(curve.middle.max()) for curve in panel.curves)


def shown_effects(document: Document) -> tuple[EffectRow, ...]:
    """Return the primary effects of the page's table in their order: all, or the decided ones that are largest."""
    rows = document.primary
    ranked = sorted(
        range(len(rows)),
        key=lambda place: (rank_of(rows[place].effect), -strength(rows[place].effect), place),
    )
    return tuple(rows[place] for place in sorted(ranked[:MOST_ROWS]))


def _lines(
    document: Document, packed: str, figure: str, curves: str, mechanism: str | None, *, changed: bool
) -> Iterator[str]:
    summary = document.summary
    figure_shown, curves_shown = page_figure(document), page_curves(document)
    answer = figure_shown.sentence if figure_shown is not None and document.matrices else summary.answer
    if document.facts:
        answer = f"The tables below show it for each call. Counted: {answer}"
    name = packed.removeprefix("docs/catalogue/").removesuffix(".iotrial")
    yield from (
        f"# {escaped(question_of(document.trial.header.study, name))}",
        "",
        f"**{escaped(answer)}**",
        "",
    )
    if summary.risk:
        yield from (f"⚠ {escaped(summary.risk)}", "")
    if len(document.primary) > MOST_ROWS and len(summary.by_level) > 1 and not document.facts:
        yield from (*(f"- {escaped(text)}" for text in summary.by_level[:MOST_LEVELS]), "")
    yield from (escaped(_how_sure(document)), "")
    if figure_shown is not None:
        yield from (f"![Effects with their intervals]({figure})", "")
    yield from _tables(document)
    if curves_shown is not None:
        yield from (f"![Activity during a run]({curves})", "", escaped(curves_shown.reading), "")
    yield from ("## Why", "", filled(mechanism or NO_MECHANISM, document).strip(), "")
    yield from ("## Limits", "", *(f"- {escaped(text)}" for text in _limits(document, changed=changed)), "")
    if document.claims:
        yield from ("## Published claims", "", *_claims(document), "")
    yield f"- Everything that was measured: {code(f'iotrial report {packed} --full')}"
    yield f"- Repeat the trial: {code(document.rerun)}"


def filled(text: str, document: Document) -> str:
    """Replace each ``{metric | level | condition ...}`` by what the trial measured: the median, or "lowest to highest" of
    several. A part names a treatment, a level of it, a workload or a condition; ``treatment=1`` and
    ``clients=1`` name only a treatment and only a condition. ``{ratio | level | condition ...}`` is the
    size of the one primary effect that matches, with its interval. Raises ValueError if nothing matches.
    """

    def measured(match: re.Match[str]) -> str:
        metric, *parts = (part.strip() for part in match[1].split("|"))
        if metric == "ratio":
            sizes = [size_of(effect) for effect in _effects_of(document, parts)]
            if len(sizes) != 1:
                raise ValueError(f"{len(sizes)} effects are {match[0]}")
            return sizes[0]
        rows = [
            row
            for row in document.evidence
            if row.metric == metric
            and all(
                part
                in (
                    row.treatment,
                    *row.treatment.split("+"),
                    f"treatment={row.treatment}",
                    *row.condition.labels.values(),
                    *(f"{name}={label}" for name, label in row.condition.labels.items()),
                    row.condition.workload,
                )
                for part in parts
            )
        ]
        if not rows:
            raise ValueError(f"no run has {match[0]}")
        unit = "1" if rows[0].unit == "requests" else rows[0].unit
        low, high = (quantity(end(row.value for row in rows), unit) for end in (min, max))
        number, _, of_low = low.partition(" ")
        return low if low == high else f"{number if high.endswith(f' {of_low}') else low} to {high}"

    return _MEASURED.sub(measured, text)


def _effects_of(document: Document, parts: Sequence[str]) -> list[Effect]:
    """Return the primary effects, or their cells, of which each part names factor, level, response, workload or condition."""
    return [
        one.effect
        for row in document.primary
        for one in row.own_cells or (row,)
        if {*parts}
        <= {
            one.effect.factor,
            one.effect.level,
            label(one.effect.level),
            one.effect.response,
            one.condition.workload,
            *one.condition.labels.values(),
            *one.effect.condition.values(),
        }
    ]


def _how_sure(document: Document) -> str:
    trial, header = document.trial, document.trial.header
    blocks = sorted({row.effect.blocks for row in document.primary})
    number = f"{blocks[0]:,} to {blocks[-1]:,}" if len(blocks) > 1 else f"{blocks[0]:,}" if blocks else "no"
    runs = f"{len(document.data.runs):,} runs in {format_duration(trial.duration_s)}"
    measured = f"Measured in {number} blocks a comparison ({runs})."
    if not document.valid:
        return measured
    margin = which_count([row.effect for row in document.primary], header.margin)
    reading = (
        ""
        if document.matrices
        else below_one(document.analysis.effects).replace(": below 1", "A ratio below 1")
    )
    return (
        f"{measured} All intervals together hold with {percent(1 - header.alpha)} probability; {margin}. "
        f"{f'{reading}.' if reading else ''}"
    )


def _tables(document: Document) -> Iterator[str]:
    if document.facts:
        yield from _facts(document)
    elif document.matrices:
        for table in matrix_counts(document.matrices):
            yield from table_lines(replace(table, title=""), View.SHORT)
    elif document.primary:
        shown = shown_effects(document)
        yield from table_lines(_compact(effect_table(shown, valid=document.valid)), View.SHORT)
        if left := [row for row in document.primary if row not in shown]:
            words = Counter(row.effect.conclusion.words for row in left)
            kinds = joined(f"{number:,} {word}" for word, number in words.most_common())
            yield from (escaped(f"{counted(len(left), 'more comparison')}: {kinds}."), "")


def _compact(table: Table) -> Table:
    """Return the table without a heading above all rows."""
    titles = {group.title for group in table.groups}
    groups = [
        replace(one, title="" if titles == {EVERYWHERE} else one.title.removeprefix(f"{EVERYWHERE}: "))
        for one in table.groups
    ]
    return replace(table, groups=tuple(groups))


def _facts(document: Document) -> Iterator[str]:
    tables: list[Table] = []
    every = tuple(fact_tables(document.facts))
    for table in every:
        if tables and sum(len(one.rows) for one in (*tables, table)) > MOST_ROWS:
            break
        tables.append(table)
    for table in tables:
        last = table is tables[-1]
        yield from table_lines(table if last else replace(table, note=""), View.SHORT)
    if left := len(every) - len(tables):
        yield from (f"{counted(left, 'more table')} in the full report.", "")


def _limits(document: Document, *, changed: bool) -> Iterator[str]:
    yield _machine(document)
    yield from (
        f"{safety.value.capitalize()} with {line}."
        for safety, line in document.safety
        if safety is Safety.DATA_AT_RISK
    )
    if outlook := document.summary.outlook.partition(": `")[0].rstrip("."):  # without what to type
        yield f"Undecided: {outlook[:1].lower()}{outlook[1:]}."
    if (
        line := controls_line(document.analysis.controls, document.trial.header.study)
        if document.valid
        else ""
    ):
        yield f"Controls: {line}."
    elif not document.with_controls:
        yield "Controls: none, switched off."
    for note in document.summary.limits:
        elsewhere = note.text.startswith((ELSEWHERE, SIMULATED, OTHER_CLAIMS))
        if note.view & View.SHORT and not elsewhere:
            yield _in_brief(note.text)
    if changed:
        yield "The study has changed since; the packed trial holds it as it was run."


def _in_brief(text: str) -> str:
    """Return the first sentence, without advice."""
    first, more, _ = text.partition(". ")
    return f"{first}." if more else first


def _machine(document: Document) -> str:
    """E.g. "One trial, 2026-11-22, continued once, on a virtual machine (AMD EPYC, kernel 6.18); ext4 in an image file."."""
    header = document.trial.header
    host, lab = header.host, header.lab
    began = datetime.fromisoformat(utc(header.started)).strftime("%Y-%m-%d")
    guest = lab.get("kind") == "guest"
    kind = (
        "QEMU guest with an emulated processor"
        if guest
        else "virtual machine"
        if host.get("virtual")
        else "machine"
    )
    processors = host.get("processors")
    number = counted(processors, "processor") if isinstance(processors, int) else ""
    facts = [
        *(() if guest else (str(host.get("processor", "")),)),
        number,
        f"kernel {host.get('kernel', '')}",
    ]
    what = escape(", ".join(filter(None, facts)))
    again = times_continued(document.data)
    when = f"{began}, continued {again}" if again else began
    return f"One trial, {when}, on a {kind} ({what}); {_places(document, guest=guest)}."


def where(document: Document) -> str:
    """Return in two words what the trial ran on: a modelled disk, an emulated guest, a virtual disk or an own one."""
    header = document.trial.header
    if any(one.get("modelled") for one in objects_in(header.lab, "places")):
        return "modelled disk"
    if header.lab.get("kind") == "guest":
        return "emulated guest"
    return "virtual disk" if header.host.get("virtual") else "own disk"


def question_of(study: Study, name: str) -> str:
    """Return the question of a study, as the catalogue asks it today: one that promised more than was run is narrower.

    A further trial of a study, under a longer ``name``, has the rest of that name in parentheses.
    """
    known = study.name in catalogue.names() and study.origin == study.name
    question = catalogue.find(study.name).question if known else study.question
    further = further_of(study, name)
    return f"{question} ({further})" if further else question


def _places(document: Document, *, guest: bool) -> str:
    """E.g. "ext4 in an image file". A study that compares file systems names them itself; its lab records the first."""
    study, known = document.trial.header.study, objects_in(document.trial.header.lab, "places")
    compared = [
        level.label for factor in study.factors if factor.name == "filesystem" for level in factor.levels
    ]
    recorded = [str(one["filesystem"]) for one in known if one.get("filesystem")]
    systems = joined(dict.fromkeys(map(escape, compared or recorded)))
    names = [str(one["modelled"]).partition(":")[0] for one in known if one.get("modelled")]
    disks = joined(dict.fromkeys(map(escape, names)))
    where = f"on simulated {disks}" if disks else "on a virtual disk" if guest else "in an image file"
    if disks and len(names) < len(known):
        where += " and in an image file"
    return f"{systems or 'files'} {where}"


def _named(placeholder: re.Match[str]) -> str:
    return placeholder[1].upper()


def _against(document: Document) -> Iterator[str]:
    """Yield what was published, what ran here, and what to note in comparing the two."""
    header, claims = document.trial.header, [held.claim for held in document.claims]
    yield f"Published: {'; '.join(some(sources_of(claims), MOST_SOURCES))}."
    ran = {row.effect.workload for row in document.primary}
    works = [
        _PLACEHOLDER.sub(_named, work_in_words(one, header.study))
        for one in header.study.workloads
        if one.name in ran
    ]
    guest = header.lab.get("kind") == "guest"
    yield f"Here: {'; '.join(some(works, MOST_WORKS))}. {_places(document, guest=guest)}, blocks in random order."
    scales = [f"The work here is {claim.scale}." for claim in claims if claim.scale]
    notes = [claim.note for claim in claims if claim.note]
    if different := list(dict.fromkeys([*scales, *notes]))[:MOST_NOTES]:
        yield f"To note: {' '.join(different)}"


def _claims(document: Document) -> Iterator[str]:
    study = document.trial.header.study
    judged = [Judged(study.name, study, held) for held in document.claims]
    yield from (f"- {escaped(line)}" for line in _against(document))
    for outcome in Outcome:
        members = [one for one in judged if one.held.outcome is outcome]
        if outcome is not Outcome.CANNOT_SAY:
            for _, group in groupby(members, key=alike):
                together = list(group)
                text = merged([one.held.claim.text for one in together])
                here = merged([found(one) for one in together])
                yield f"- {escaped(text)}: **{outcome.value}**. Here: {escaped(here)}."
        elif members:
            texts = list(dict.fromkeys(one.held.claim.text for one in members))
            quoted = joined(some([f"“{text}”" for text in texts], MOST_CLAIMS))
            why = "; ".join(reasons([one.held for one in members])[:MOST_REASONS])
            yield f"- {escaped(quoted)}: **cannot say**, {escaped(why)}."
    yield from ("", f"[All claims and their sources]({_DOCS}/findings.md)")
