"""The document: the content of a report, decided once, before any format is chosen.

Terminal, JSON, Markdown and HTML all use the same frozen ``Document``, so they cannot disagree. It holds the
measurements and the analysis unchanged (for JSON and figures), together with the words that people read. Control
characters in labels are escaped in the words; escaping for a format is the renderer's task.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten

from iotrial.design.interactions import mixed_into
from iotrial.design.keyed import SEED_DIGITS
from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.errors import RequestError
from iotrial.knobs.declaration import Safety
from iotrial.report.blocks import Note, View
from iotrial.report.claims import HeldClaim, Setup, claims_of, hold_claims
from iotrial.report.conditions import Conditions
from iotrial.report.designs import Design, design_of, design_rows
from iotrial.report.diagnostics import ArmState, diagnostic_sentences, steady_states
from iotrial.report.durability import DurabilityRow, durability_rows, harm_seen, risks_found
from iotrial.report.evidence import EvidenceRow, TypicalValues, gather, gather_by_level
from iotrial.report.facts import FactTable, facts_of
from iotrial.report.fidelity import Fidelity, fidelities
from iotrial.report.findings import arms_are_rows, is_screen
from iotrial.report.interactions import Adjusted, Split, adjust
from iotrial.report.matrices import Matrix, matrices_of
from iotrial.report.notation import counted, day_and_time, joined, percent
from iotrial.report.rows import (
    Described,
    EffectRow,
    FailedRun,
    VoidBlock,
    described,
    effect_rows,
    failed_runs,
    void_blocks,
)
from iotrial.report.safety import Risks, safety_lines
from iotrial.report.sentences import (
    Summary,
    answered_by_cells,
    carry_over_sentences,
    control_sentence,
    is_invalid,
    summarise,
    without_controls,
)
from iotrial.stats.analyse import Spec, cell_effects
from iotrial.stats.model import Analysis, CarryOver, Control, Diagnostic
from iotrial.stats.reasons import Reason, RunFacts, likely_reasons
from iotrial.store.checks import SERIES
from iotrial.store.event_records import MOST_BLOCKS
from iotrial.store.model import StoredTrial, TrialData, TrialHeader
from iotrial.study.model import Factor, Response, Study, Workload
from iotrial.study.work import FileSet
from iotrial.terminal import escape
from iotrial.units import format_bytes, format_duration, format_size

OTHER_CLAIMS = "The published claims are those of the study in this version of iotrial; those stored with the trial differ."
#: facts of the machine that only --json has
_NOT_SHOWN = ("machine", "clock_source", "probe")
_DEEPEST = 8  # facts of a host are two or three levels deep; an imported trial may contain anything


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a report of one trial."""

    data: TrialData
    analysis: Analysis
    conditions: Conditions
    summary: Summary
    reasons: tuple[Reason, ...]
    effects: tuple[EffectRow, ...]
    claims: tuple[HeldClaim, ...]
    evidence: tuple[EvidenceRow, ...]
    controls: tuple[Described[Control], ...]
    carry_over: tuple[Described[CarryOver], ...]
    with_controls: bool
    void: tuple[VoidBlock, ...]
    failures: tuple[FailedRun, ...]
    diagnostics: tuple[Described[Diagnostic], ...]
    plan: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str], ...]
    lab: tuple[tuple[str, str], ...]
    rerun: str
    #: the command as it was typed, without a seed
    typed: str = ""
    design: Design | None = None
    adjusted: Mapping[tuple[str, str], Adjusted] = field(default_factory=dict)
    matrices: tuple[Matrix, ...] = ()
    facts: tuple[FactTable, ...] = ()
    #: what the settings do to the safety of data, the most severe first: its class and a line of text
    safety: tuple[tuple[Safety, str], ...] = ()
    #: what power cuts did to each arm
    durability: tuple[DurabilityRow, ...] = ()
    #: the levels that put data at risk, by what their settings mean and by what power cuts showed
    risks: Risks = field(default_factory=dict)
    #: how well workloads stand for others, such as a replay for its application
    fidelities: tuple[Fidelity, ...] = ()
    #: whether the device was in steady state, by arm and condition; never part of a verdict
    steady: tuple[ArmState, ...] = ()

    @property
    def trial(self) -> StoredTrial:
        """The trial as the store lists it."""
        return self.data.trial

    @property
    def valid(self) -> bool:
        """Whether the trial may give verdicts."""
        return not is_invalid(self.trial, self.analysis)

    @property
    def title(self) -> str:
        """The study's title, or its name if it has none."""
        study = self.trial.header.study
        return escape(study.title or study.name)

    @property
    def primary(self) -> tuple[EffectRow, ...]:
        """The effects that the verdict is based on, and the interactions that the study names."""
        return tuple(row for row in self.effects if row.effect.primary)

    @property
    def interactions(self) -> tuple[EffectRow, ...]:
        """All interactions on primary responses, those that the study names first."""
        return tuple(row for row in self.effects if row.effect.kind == "interaction" and self._is_named(row))

    @property
    def pooled(self) -> tuple[EffectRow, ...]:
        """The means of primary effects over the conditions of a workload; they form a separate family."""
        return tuple(row for row in self.effects if row.effect.kind == "pooled")

    @property
    def exploratory(self) -> tuple[EffectRow, ...]:
        """Effects on the other responses: hints for the next study."""
        return tuple(
            row
            for row in self.effects
            if not row.effect.primary and row.effect.kind == "main" and not self._is_named(row)
        )

    def _is_named(self, row: EffectRow) -> bool:
        """Return whether the effect is on a primary response."""
        effect = row.effect
        return effect.primary or any(
            response.primary and (response.workload, response.name) == (effect.workload, effect.response)
            for response in self.trial.header.study.responses
        )


def build_document(data: TrialData, analysis: Analysis) -> Document:
    """Build the document of one trial. The only statistics computed here are medians and quartiles."""
    trial = data.trial
    header = trial.header
    conditions = Conditions(header.study)
    valid = not is_invalid(trial, analysis)
    adjusted = _adjusted(data, conditions)
    design = _design(header)
    reasons = () if valid else _reasons(data, analysis)
    evidence = (gather_by_level if arms_are_rows(header.study) else gather)(
        data, conditions, margin=header.margin
    )
    measured = harm_seen(data)
    risks = risks_found(header.study, measured)
    apart = answers(data, analysis, adjusted)
    effects = effect_rows(
        analysis.effects,
        conditions,
        header.study,
        adjusted,
        margin=header.margin,
        risks=risks,
        measured=measured,
        typical=TypicalValues.of(data, evidence),
        apart=apart,
    )
    failures = tuple(failed_runs(data, conditions))
    summary = summarise(
        trial,
        analysis,
        reasons,
        evidence,
        adjusted,
        failures=[run.message for run in failures],
        risks=risks,
        measured=measured,
        apart=apart,
    )
    claims, others = claims_of(header.study)
    return Document(
        data=data,
        analysis=analysis,
        conditions=conditions,
        summary=replace(
            summary,
            limits=(
                *summary.limits,
                *(Note(text, view=View.LONG) for text in _continued(data)),
                *map(Note, _without_curves(data)),
                *((Note(OTHER_CLAIMS, view=View.LONG),) if others else ()),
            ),
        ),
        reasons=reasons,
        effects=effects,
        claims=hold_claims(
            claims,
            analysis.effects,
            conditions,
            margin=header.margin,
            valid=valid,
            setup=Setup(header.study, header.lab, header.host),
            evidence=evidence,
            apart=apart,
        ),
        evidence=evidence,
        controls=described(
            analysis.controls,
            conditions,
            lambda one: [control_sentence(one, conditions.of_levels(one.condition).text)],
        ),
        carry_over=described(analysis.carry_over, conditions, carry_over_sentences),
        with_controls=not without_controls(trial, analysis),
        void=tuple(void_blocks(data, conditions)),
        failures=failures,
        diagnostics=described(analysis.diagnostics, conditions, diagnostic_sentences),
        plan=plan_rows(data, design),
        machine=tuple(flattened({name: header.host[name] for name in header.host if name not in _NOT_SHOWN})),
        lab=tuple(
            flattened({name: fact for name, fact in header.lab.items() if name != "busy"})
        ),  # on the screen
        rerun=rerun_command(trial),
        typed=rerun_command(trial, seeded=False),
        design=design,
        adjusted=adjusted,
        matrices=matrices_of(data, effects),
        facts=facts_of(data, conditions),
        safety=safety_lines(header.study),
        durability=durability_rows(data, conditions),
        risks=risks,
        fidelities=fidelities(header.study, effects, evidence, valid=valid),
        steady=steady_states(data, conditions),
    )


def _continued(data: TrialData) -> Iterator[str]:
    """Yield a sentence if the trial was continued after its end.

    The method allows that: its error level holds at any time. So the first screen leaves it out.
    """
    if times := times_continued(data):
        yield f"The trial was continued {times} after its end: {'; '.join(continued_in_words(data))}."


def _without_curves(data: TrialData) -> Iterator[str]:
    """Yield a sentence if runs were sampled (``--sample``), but too seldom for a curve of any."""
    period_s = data.trial.header.options.get("sample_s")
    if not isinstance(period_s, int | float) or all(run.failure is not None for run in data.runs):
        return
    if not any(SERIES in run.checks for run in data.runs):
        yield (
            f"No run lasted long enough for curves: each was sampled every {format_duration(period_s)}. A shorter "
            "--sample shows more."
        )


def _design(header: TrialHeader) -> Design | None:
    """Return the design as planned, which does not depend on the seed; None if a stored study can no longer be planned."""
    plan = _plan(header)
    return None if plan is None else design_of(plan)


def _adjusted(data: TrialData, conditions: Conditions) -> dict[tuple[str, str], Adjusted]:
    """Return the arms' means of every primary response by condition key and response, if several factors are crossed."""
    study = data.trial.header.study
    if len(study.treatment_factors) < 2:
        return {}
    found: dict[tuple[str, str], Adjusted] = {}
    for key in dict.fromkeys(block.condition for block in data.blocks):
        condition = conditions.of_key(key)
        own = [block for block in data.blocks if block.condition == key]
        for response in _primaries(study, condition.workload):
            means = adjust(own, response)
            if means is not None:
                found[condition.key, response.name] = means
    return found


def answers(
    data: TrialData, analysis: Analysis, adjusted: Mapping[tuple[str, str], Adjusted], *, share: int = 1
) -> tuple[Split, ...]:
    """Return the main effects of which the cells are the answer, with the interval and the verdict of each cell.

    ``analysis`` was made at the trial's alpha / ``share``, and so are the intervals. There are none if the study can no
    longer be planned.
    """
    header = data.trial.header
    apart = answered_by_cells(analysis, header.study, adjusted)
    plan = _plan(header) if apart else None
    if plan is None:
        return tuple(apart)
    spec = Spec.from_plan(plan, header.options, alpha=header.alpha / share, margin=header.margin)
    found = []
    for one in apart:
        places = [at for at, _ in one.cells]
        effects = cell_effects(spec, analysis, data.blocks, one.main, one.other, places)
        found.append(replace(one, cells=tuple(zip(places, effects, strict=True))) if effects else one)
    return tuple(found)


def _primaries(study: Study, workload: str) -> tuple[Response, ...]:
    return tuple(r for r in study.responses if r.workload == workload and r.primary)


def _reasons(data: TrialData, analysis: Analysis) -> tuple[Reason, ...]:
    """Return the likely reasons why the trial is invalid, from everything that its runs recorded."""
    header = data.trial.header
    facts = {}
    for run in data.runs:
        injected = run.checks.get("injected")
        known = float(injected) if isinstance(injected, int | float) and injected > 0 else None
        facts[run.condition, run.block, run.slot] = RunFacts(run.evidence, known, run.files)
    plan = _plan(header)
    return likely_reasons(
        analysis,
        data.blocks,
        header.study.responses,
        facts,
        weights=plan.control_weights if plan is not None else {},
        margin=header.margin,
        same_files=frozenset(w.name for w in header.study.workloads if w.work.pool == w.work.files),
        mixed=_mixed(plan) if plan is not None else {},
    )


def _plan(header: TrialHeader) -> Plan | None:
    """Return the plan with a dummy seed, for what does not depend on it; None if the study can no longer be planned."""
    try:
        return Plan.stored(header.study, "0" * SEED_DIGITS, header.options)
    except RequestError:
        return None


def _mixed(plan: Plan) -> dict[ArmKind, tuple[str, ...]]:
    """Return the interactions that a screening design mixes into the columns of its controls, by kind."""
    if not plan.control_columns:
        return {}
    return {
        kind: mixed_into(plan.study, plan.treatments, weights)
        for kind, weights in plan.control_weights.items()
    }


def rerun_command(trial: StoredTrial, *, seeded: bool = True) -> str:
    """Return the command that runs the same plan again: as the user typed it if known, ``seeded``: with the seed."""
    header = trial.header
    command = header.options.get("command_line", header.options.get("argv"))
    if isinstance(command, str):
        command = _words(command)
    known = [str(word) for word in command] if isinstance(command, Sequence) else []
    # An imported trial may contain anything here, and readers paste it: allow only `iotrial run`, and `iotrial try` with a
    # command of the user's own.
    typed = known[:2] in (["iotrial", "try"], ["iotrial", "best"], ["iotrial", "live"])
    if typed and not header.study.trusted:
        return "iotrial run --like FILE --on FOLDER"  # with the packed trial: its study has no file
    own = typed or known[:2] == ["iotrial", "run"]
    words = known if own else []
    words = words or ["iotrial", "run", header.study.origin or header.study.name]
    kept: list[str] = []
    skip = False
    at = words.index("--") if "--" in words else len(words)
    for word in words[:at]:
        if skip or word.startswith("--seed="):
            skip = False
            continue
        if word == "--seed":
            skip = True
            continue
        kept.append(word)
    seed = ["--seed", header.seed] if seeded else []
    return escape(shlex.join([*kept, *seed, *words[at:]]))


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def flattened(facts: Mapping[str, object], prefix: str = "", *, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Flatten nested facts to rows: ``{"cpu": {"model": "X"}}`` is ("cpu model", "X"). Empty ones are omitted."""
    if depth > _DEEPEST:
        yield escape(prefix), "…"
        return
    for name, value in facts.items():
        label = f"{prefix} {name}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            yield from flattened({str(key): inner for key, inner in value.items()}, label, depth=depth + 1)
        elif isinstance(value, list | tuple):
            if value and all(isinstance(item, Mapping) for item in value):
                for position, item in enumerate(value, start=1):
                    place = f"{label} {position}" if len(value) > 1 else label
                    yield from flattened(dict(item), place, depth=depth + 1)
            elif value:
                yield escape(label), escape(", ".join(str(item) for item in value))
        elif isinstance(value, bool):
            yield escape(label), "yes" if value else "no"
        elif isinstance(value, int) and label.endswith(" bytes"):
            yield escape(label.removesuffix(" bytes")), format_bytes(value)
        elif value is not None and value != "":
            yield escape(label), escape(value)


# The plan in words: design, arms, blocks, seed, and how order and assignment were drawn.


_MOST_LABELS = 12
#: characters of a command on a page, and in the plan of a report, which has a line for each work
_LONGEST_COMMAND, _LONGEST_IN_PLAN = 240, 120


def plan_rows(data: TrialData, design: Design | None = None) -> tuple[tuple[str, str], ...]:
    """Return (name, words) for everything that was fixed before the first run, and for how far it was carried out."""
    return tuple(_rows(data, design))


def _rows(data: TrialData, design: Design | None) -> Iterator[tuple[str, str]]:
    header = data.trial.header
    study = header.study
    if design is not None and len(study.treatment_factors) > 1:
        yield from design_rows(design)
    # a table of many effects names both levels of each
    for factor in () if is_screen(study) else study.treatment_factors:
        yield f"Varied: {escape(factor.name)}", f"{_labels(factor)} (reference: {escape(factor.reference)})"
    for factor in study.condition_factors:
        yield f"Condition: {escape(factor.name)}", _labels(factor)
    for workload in study.workloads:
        yield f"Workload: {escape(workload.name)}", work_in_words(workload, study, longest=_LONGEST_IN_PLAN)
    primary = [escape(response.name) for response in study.responses if response.primary]
    if primary:
        yield "Primary response", joined(dict.fromkeys(primary))
    if header.options.get("controls") is False:
        yield "Controls", "none (switched off)"
    elif design is not None and design.controls == "columns":
        slowed = (
            f"one half of the rows slowed by a known factor (1 + 2 × margin = {1 + 2 * header.margin:.3g})"
        )
        yield "Controls", f"two columns of the design: {slowed}, another half identical"
    yield "Files", _assignment(header)
    yield "Seed", f"{header.seed} ({'chosen by the user' if header.seed_chosen else 'random'})"
    yield (
        "Margin and alpha",
        (f"{percent(header.margin)} and {header.alpha:g}, shared equally by all primary comparisons"),
    )
    yield (
        "Budget",
        f"{format_duration(study.budget.time_s)}, {counted(study.budget.blocks, 'block')} per condition",
    )
    for text in continued_in_words(data):
        yield "Continued", text
    yield "Carried out", _carried_out(data)


def times_continued(data: TrialData) -> str:
    """E.g. "twice"; empty if the trial was not continued after its end."""
    times = len(data.continued)
    return {0: "", 1: "once", 2: "twice"}.get(times, f"{times} times")


def continued_in_words(data: TrialData) -> Iterator[str]:
    """Yield, for each time the trial was continued after its end, when and to what limits."""
    for one in data.continued:
        blocks = f" and {counted(one.blocks, 'block')} per condition" if one.blocks < MOST_BLOCKS else ""
        also = ", even if everything was decided" if one.no_stop else ""
        yield f"{day_and_time(one.at)} UTC, up to {format_duration(one.time_s)}{blocks} in all{also}"


def _labels(factor: Factor) -> str:
    labels = [escape(level.label) for level in factor.levels]
    if len(labels) > _MOST_LABELS:
        return ", ".join(labels[:_MOST_LABELS]) + f" and {len(labels) - _MOST_LABELS} more"
    return joined(labels)


def work_in_words(workload: Workload, study: Study, *, longest: int = _LONGEST_COMMAND) -> str:
    """Return what a run does, on how many files of which sizes; a long command is cut (`iotrial show --json` has it)."""
    work = workload.work
    text = escape(shorten(work.described(), longest, placeholder=" …"))
    if work.in_windows:
        return text
    repeat = f", {work.replicates} times" if work.replicates > 1 else ""
    if work.repeats_from("cold") < work.replicates:
        repeat += " (once from a cold cache)"
    state = "" if workload.cache in (None, "as-is") else f"; cache {workload.cache}"
    files = ""
    if isinstance(work, FileSet) and not study.quick:  # there its one small file may not be used at all
        sizes = study.file_sizes or (work.size_bytes,)
        if any(sizes):  # else a device is read, or fio makes its own file
            size = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
            files = f" on {counted(work.files, 'file')} of {size} a run"
    return f"{text}{files}{repeat}{state}"


def _assignment(header: TrialHeader) -> str:
    if header.study.in_windows:
        return "None: the service's own files are used, and stay what they are."
    if header.study.quick:
        recorded = any(workload.kind == "replay" for workload in header.study.workloads)
        return "Those of the recording." if recorded else "Those that the command uses."
    shared = [w for w in header.study.workloads if w.work.pool == w.work.files]
    drawn = "The files of an arm are chosen at random from the seed in every block."
    if not shared:
        return drawn
    every = "Every arm works on the same files."
    if len(shared) == len(header.study.workloads):
        return every
    names = joined(escape(workload.name) for workload in shared)
    return f"{drawn} In {names} every arm works on the same files."


def _carried_out(data: TrialData) -> str:
    complete = Counter(block.condition for block in data.blocks if block.void is None)
    gaps = sum(block.gap for block in data.blocks)
    if not complete:
        return f"no complete block, {counted(len(data.runs), 'run')}"
    least, most = min(complete.values()), max(complete.values())
    span = counted(most, "block") if least == most else f"{least:,} to {most:,} blocks"
    where = f" in each of {len(complete)} conditions" if len(complete) > 1 else ""
    text = f"{span}{where}, {counted(len(data.runs), 'run')} in all, {format_duration(data.trial.duration_s)}"
    return text + (f"; {counted(gaps, 'block')} completed after an interruption" if gaps else "")
