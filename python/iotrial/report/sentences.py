"""The verdict of a whole trial: one sentence that can stand alone, and the sentences that go with it.

The first sentence says, in this order: what limits the trial (invalid, failed, interrupted), what was found with
numbers, and whether controls were missing. It uses the primary effects only; all other responses are exploratory and
are reported further down.

For an invalid trial: the likely reasons, the most likely first, each with a remedy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iotrial.design.plan import Plan, condition_key
from iotrial.errors import RequestError
from iotrial.report.best import confirmation_finding, race_finding, recommended
from iotrial.report.blocks import Note, View
from iotrial.report.conditions import Conditions
from iotrial.report.evidence import EvidenceRow
from iotrial.report.findings import (
    ablation_finding,
    by_level,
    finding,
    is_ablation,
    is_screen,
    screen_details,
    screen_finding,
    strength,
)
from iotrial.report.interactions import (
    Adjusted,
    OnlyTogether,
    Split,
    interaction_sentence,
    only_together,
    split_span,
    splits,
    together_sentence,
)
from iotrial.report.notation import (
    about,
    bracketed,
    capitalised,
    counted,
    joined,
    named_level,
    percent,
    quantity,
    some,
)
from iotrial.report.outlook import FirstInterval, first_interval, further_s
from iotrial.report.phrases import level_name, spoken, void_in_words
from iotrial.report.replays import on_replay
from iotrial.report.risks import risk_note
from iotrial.report.safety import NO_RISKS, Risks, risks_of
from iotrial.report.slow_runs import detail as on_slow_runs
from iotrial.report.slow_runs import on_capped_runs, on_means, qualify_verdict
from iotrial.stats.carryover import cost_in_words, in_words, wash_in_words
from iotrial.stats.model import (
    EQUIVALENT_WORDS,
    QUIET,
    Analysis,
    CarryOver,
    Conclusion,
    Control,
    Effect,
    FailureCounts,
    Race,
    Verdict,
)
from iotrial.stats.reasons import Reason
from iotrial.stats.verdict import (
    BUDGET_SPENT,
    CAPPED_RUNS,
    CONTROL_NOT_SEEN,
    NO_BLOCKS,
    TYPICAL_AND_MEAN_DIFFER,
    is_rate,
    is_time,
)
from iotrial.store.model import StoredTrial, TrialState, objects_in
from iotrial.study.disks import MODELS, described, parse_disk
from iotrial.study.model import DesignKind, Scale, Study, Workload
from iotrial.study.places import busy_in_words, shared_disks_in_words, today_in_words
from iotrial.terminal import escape
from iotrial.units import format_duration, format_ratio
from iotrial.workloads.live import LiveWork

#: beginning of the detail on an imported trial
ELSEWHERE = "This trial was measured on another machine"
#: beginning of the detail on a simulated disk
SIMULATED = "The disk is simulated"
_DIGEST = re.compile(r"(?<=\b[0-9a-f]{8})[0-9a-f]{8,}")
# levels described one by one next to a sentence that only counts them; the table has all
_MOST_LEVELS = 8
#: interactions shown on the first screen
_MOST_ON_SCREEN = 2
_MOST_LEANING = 3
_FOR_WANT_OF_BLOCKS = frozenset(
    {None, BUDGET_SPENT, CONTROL_NOT_SEEN, NO_BLOCKS, TYPICAL_AND_MEAN_DIFFER, CAPPED_RUNS}
)
#: what would decide an effect that more blocks cannot decide, by the reason
_WOULD_DECIDE = {
    "failures": "A verdict needs a trial in which no run fails",
    "switch_cost": "A few more blocks tell whether switching alone explains it: `iotrial continue`",
    "carry_over": "A verdict needs runs that do not depend on those before them",
    "unusable_values": "A verdict needs a response that is never zero, or is compared by difference",
}
#: share of the requested load; the rest allows for the time of the last operations
KEPT_UP = 0.9


class Tone(StrEnum):
    """The overall result of a trial, for a mark or a colour next to the sentence."""

    EQUIVALENT = "equivalent"
    FASTER = "faster"
    SLOWER = "slower"
    MIXED = "mixed"
    UNDECIDED = "undecided"
    INVALID = "invalid"
    #: the faster level puts data at risk
    AT_RISK = "data at risk"


@dataclass(frozen=True, slots=True)
class Summary:
    """``headline`` is the first sentence; ``supports`` and ``limits`` are what a reader must know in addition.

    The parts of the headline by themselves: ``answer`` is what was found, ``risk`` what a faster level puts at risk, and
    ``outlook`` how long undecided comparisons would take. ``by_level`` has a sentence per level if the answer counts.
    """

    headline: str
    supports: tuple[Note, ...]
    limits: tuple[Note, ...]
    tone: Tone
    answer: str = ""
    risk: str = ""
    outlook: str = ""
    by_level: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[Note, ...]:
        """All notes: what supports the answer, then what limits it."""
        return (*self.supports, *self.limits)

    @property
    def details(self) -> tuple[str, ...]:
        """The notes of a full report, as sentences."""
        return tuple(note.text for note in self.notes if note.view & View.LONG)


def summarise(
    trial: StoredTrial,
    analysis: Analysis,
    reasons: Sequence[Reason] = (),
    evidence: Sequence[EvidenceRow] = (),
    adjusted: Mapping[tuple[str, str], Adjusted] | None = None,
    *,
    failures: Sequence[str] = (),
    risks: Risks | None = None,
    measured: Risks = NO_RISKS,
    apart: Sequence[Split] = (),
) -> Summary:
    """Describe the verdict of a trial in words.

    ``reasons``: why it is likely to be invalid; ``adjusted``: the arms' means by condition and response, if factors are
    crossed; ``apart``: effects of which the cells are the answer; ``failures``: the messages of failed runs;
    ``risks`` and ``measured``: as in ``report.risks``.
    """
    conditions = Conditions(trial.header.study)
    together = only_together(analysis.effects, trial.header.study, adjusted or {})
    every = decisive(analysis.effects)
    carried = {id(main) for one in together for main in one.mains}
    apart = [one for one in apart if id(one.main) not in carried]
    carried |= {id(one.main) for one in apart}
    effects = tuple(effect for effect in every if id(effect) not in carried)
    paired = frozenset((main.factor, main.level) for one in together for main in one.mains)
    clauses_by_level = () if is_invalid(trial, analysis) else _by_level(trial, effects, conditions, paired)
    sentences_by_level = tuple(f"{capitalised(clause)}." for clause in clauses_by_level)
    supports = tuple(
        _supports(trial, analysis, effects, conditions, reasons, sentences_by_level, by_cells=bool(apart))
    )
    limits = tuple(_limits(trial, analysis, effects, conditions, evidence))
    if is_invalid(trial, analysis):
        invalid = _invalid(analysis, conditions)
        return Summary(invalid, supports, limits, Tone.INVALID, answer=invalid)
    if not any(effect.blocks for effect in every):
        nothing = _nothing(trial, failures)
        return Summary(nothing, supports, limits, Tone.UNDECIDED, answer=nothing)
    study, margin = trial.header.study, trial.header.margin
    clauses = [_together(one, conditions) for one in together]
    apart = sorted(apart, key=lambda one: -one.widest)
    dependent = list(_each_once(apart))
    clauses += [split_span(one, conditions.of_effect(one.main).behind) for one in dependent[:1]]
    if analysis.races:
        clauses.append(race_finding(analysis.races[0], effects, study, margin=margin))
    elif study.design.kind is DesignKind.CONFIRM:
        clauses.append(confirmation_finding(effects, study, measured))
    elif is_ablation(study):
        clauses.append(ablation_finding(effects, conditions, margin=margin))
    elif is_screen(study) and effects:
        clauses.append(screen_finding(effects, conditions, margin=margin, together=paired))
    elif effects and not dependent:
        clauses.append(finding(effects, conditions, margin=margin))
    found = "; ".join(clauses)
    if dependent and (more := len(dependent) - 1 + len(effects)):
        found += f"; {counted(more, 'more effect')} in the table"
    note = risk_note(every, risks_of(study) if risks is None else risks, measured)
    tone = Tone.AT_RISK if note else Tone.MIXED if apart else _tone(every, screen=is_screen(study))
    undecided = [effect for effect in every if effect.conclusion is Conclusion.UNDECIDED]
    if analysis.races:
        tone = _race_tone(analysis.races[0], study)
        undecided = [] if analysis.races[0].over else undecided
    outlook = _how_long(trial, undecided, every) if undecided else ""
    prefix = _state_of(trial)
    begun = f"{prefix} so far, {found}" if prefix else capitalised(found)
    controls = " (without controls)" if without_controls(trial, analysis) and not study.in_windows else ""
    return Summary(
        headline=f"{begun}{controls}{note}{outlook}.",
        supports=supports,
        limits=limits,
        tone=tone,
        answer=f"{begun}{controls}.",
        risk=f"{capitalised(note.removeprefix('. Caution: '))}." if note else "",
        outlook=f"{outlook.removeprefix('. ')}." if outlook else "",
        by_level=sentences_by_level,
    )


def answered_by_cells(
    analysis: Analysis, study: Study, adjusted: Mapping[tuple[str, str], Adjusted]
) -> tuple[Split, ...]:
    """Return the main effects of which the cells are the answer; none in a screen or a race, which ask something else."""
    plain = study.design.kind is DesignKind.FULL and not is_screen(study) and not is_ablation(study)
    return splits(analysis.effects, study, adjusted) if plain and not analysis.races else ()


def _each_once(apart: Sequence[Split]) -> Iterator[Split]:
    """Yield the splits, of each pair of factors those of the factor that comes first: the table has the other's too."""
    chosen: dict[tuple[str, str, frozenset[str]], str] = {}
    for one in apart:
        main = one.main
        pair = (
            condition_key(main.workload, main.condition),
            main.response,
            frozenset((main.factor, one.other)),
        )
        if chosen.setdefault(pair, main.factor) == main.factor:
            yield one


def _how_long(trial: StoredTrial, undecided: Sequence[Effect], every: Sequence[Effect]) -> str:
    """Return what would decide the undecided effects, e.g. ". A verdict needs about 4 to 8 min more: `iotrial continue 12`".

    ``every``: the effects that the verdict is based on, decided or not.
    """
    if trial.state is not TrialState.DONE:
        return ""
    if others := [e.reason for e in undecided if e.reason not in _FOR_WANT_OF_BLOCKS]:
        return f". {_WOULD_DECIDE[others[0]]}" if others[0] in _WOULD_DECIDE else ""
    rest = len(undecided) < len(every)
    if all(e.scale is not Scale.LOG and e.low is not None and e.high is not None for e in undecided):
        return ". More blocks decide only nonzero differences"
    header, verdict = trial.header, "a verdict on the rest" if rest else "a verdict"
    try:
        plan = Plan.stored(header.study, header.seed, header.options)
    except RequestError:
        return ""
    if (forecast_s := further_s(plan, undecided, every, duration_s=trial.duration_s)) is not None:
        seconds = max(1.0, round(forecast_s))
        text = f". {verdict.capitalize()} needs about {about(seconds, 2 * seconds)} more"
    elif (first := first_interval(plan, undecided, every, trial)) is not None:
        seconds = max(1.0, round(first.further_s))
        text = f". {_first_interval(first, len(undecided), rest=rest)}, about {about(seconds, seconds)} more"
    else:
        return f". How long {verdict} takes is not known yet"
    if trial.imported is not None:
        return text
    time = f"{math.ceil(seconds / 60)}m" if seconds >= 60 else f"{seconds:.0f}s"
    return f"{text}: `iotrial continue {trial.number} --time {time}`"


def _first_interval(first: FirstInterval, undecided: int, *, rest: bool) -> str:
    """Return e.g. "The first interval of the rest needs 11 blocks in all". ``rest``: other comparisons are decided."""
    of = " of the rest" if rest else ""
    if first.comparisons < undecided:
        of = f" of {first.comparisons} of {undecided} undecided comparisons"
    blocks = f"{first.fewest}" if first.fewest == first.most else f"{first.fewest} to {first.most}"
    return f"The first interval{of} needs {blocks} blocks in all"


def _together(one: OnlyTogether, conditions: Conditions) -> str:
    return together_sentence(one, conditions.of_effect(one.interaction).behind)


def decisive(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the effects that the verdict is based on: primary main effects, else all primary ones."""
    primary = [effect for effect in effects if effect.primary]
    return tuple([effect for effect in primary if effect.kind == "main"] or primary)


def is_invalid(trial: StoredTrial, analysis: Analysis) -> bool:
    """Return whether the trial's own controls failed."""
    return not analysis.valid or trial.state is TrialState.INVALID


def without_controls(trial: StoredTrial, analysis: Analysis) -> bool:
    """Return whether the trial ran without its control arms."""
    return trial.header.options.get("controls") is False or not analysis.controls


def control_sentence(control: Control, where: str) -> str:
    """Describe the result of one control, e.g. for the controls table."""
    if control.kind == "negative":
        # If the response is compared by difference, the copy's injected effect is 0 and so is its null.
        size = bracketed(control.ratio, control.low, control.high, null=control.injected)
        if control.passed and control.low is None and control.high is None:
            return f"too few blocks to tell whether the copy differs from the original: {size}"
        if control.passed:
            return f"no difference between the copy and the original is shown: {size}"
        return f"an identical copy of the reference differs from the original ({where}: {size})"
    size = bracketed(control.ratio, control.low, control.high)
    put_in = format_ratio(control.injected)
    if not control.passed:
        return f"the injected slowdown (ratio {put_in}) was not measured correctly ({where}: {size})"
    if not control.told_from_zero:
        return f"the injected slowdown (ratio {put_in}) is not visible yet: {size}"
    low, high = control.low, control.high
    if (low is None or low <= 1.0) and (high is None or high >= 1.0):
        return f"the injected slowdown (ratio {put_in}) was seen; the interval, at a stricter level, is wider: {size}"
    return f"the injected slowdown (ratio {put_in}) was found: {size}"


def carry_over_sentences(one: CarryOver) -> Iterator[str]:
    """Yield the result of the carry-over control, then, if it failed, each comparison on unaffected blocks."""
    yield escape(in_words(one))
    for other in one.unaffected:
        null = 1.0 if other.scale is Scale.LOG else 0.0
        size = bracketed(other.value, other.low, other.high, null=null)
        comparison = f"{named_level(other.factor, other.level)} vs {other.reference}"
        blocks = f"the {counted(other.blocks, 'block')} in which neither run follows {one.factor}={one.level}"
        yield escape(f"{comparison}: {size} in {blocks} (exploratory)")


def _on_carry_over(analysis: Analysis, conditions: Conditions, *, live: bool) -> Iterator[Note]:
    """``live``: the runs are windows of a running service, which no unmeasured run can precede."""
    failed = [one for one in analysis.carry_over if not one.passed]
    for one in failed[:_MOST_LEVELS]:
        sentence, *unaffected = carry_over_sentences(one)
        yield Note(f"Carry-over{conditions.of_levels(one.condition).behind}: {sentence}.")
        yield from (Note(f"{capitalised(text)}.", view=View.LONG) for text in unaffected[:_MOST_LEVELS])
    held = [one for one in analysis.carry_over if one.held and one.passed]
    for one in held[:_MOST_LEVELS]:
        yield Note(f"Carry-over{conditions.of_levels(one.condition).behind}: {escape(in_words(one))}.")
    if live and (held or failed):
        yield Note(
            "No verdict is given there on effects that this could explain. What to do: repeat the trial with longer windows "
            "(`--window`), or with a longer part of each that is left out after a switch (`--washout`)."
        )
    elif held:
        yield Note(
            "No verdict is given there on effects that this could explain. What to do: continue the trial "
            "(`iotrial continue`, with more time), which then puts unmeasured runs before each measured one."
        )
    if failed and not live and not any(one.wash_in for one in failed):
        yield Note(
            "What to do: bring the lab to the same state before every run, or set `wash_in = true` under [study]: "
            "it adds a neutral, unmeasured run before each measured one."
        )
    for one in analysis.carry_over:
        if one.wash_in is not None and one.passed and not one.held:
            where = conditions.of_levels(one.condition).behind
            yield Note(
                f"Wash-in{where}: {wash_in_words(one.wash_in)}. Only blocks with these runs count.",
                view=View.LONG,
            )
            if (cost := cost_in_words(one)) is not None:
                yield Note(f"Switching{where}: {escape(cost)}.")


def _invalid(analysis: Analysis, conditions: Conditions) -> str:
    """Say why the trial gives no verdict, by its failed controls if there are any."""
    failed = [control for control in analysis.controls if not control.passed]
    if failed:
        first = failed[0]
        because = control_sentence(first, conditions.of_levels(first.condition).text)
        if len(failed) > 1:
            because += f"; {counted(len(failed), 'control effect')} failed in all"
    elif carried := [one for one in analysis.carry_over if not one.passed]:
        because = escape(in_words(carried[0])) + conditions.of_levels(carried[0].condition).behind
        if len(carried) > 1:
            because += f"; {counted(len(carried), 'condition')} in all"
    else:
        because = joined(escape(reason) for reason in analysis.invalid_reasons) or "its controls failed"
    return f"No verdict, the trial is invalid: {because}."


def _nothing(trial: StoredTrial, failures: Sequence[str]) -> str:
    match trial.state:
        case TrialState.FAILED:
            why = f": {escape(trial.reason)}" if trial.reason else ""
            return f"No verdict, the trial failed before a block was complete{why}."
        case TrialState.INTERRUPTED | TrialState.RUNNING:
            return "No verdict yet: the trial stopped before a block was complete."
        case _:
            if failures:
                message, _ = Counter(failures).most_common(1)[0]
                return f"No verdict: runs failed in every block: {message}."
            return "No verdict: no block was complete."


def _state_of(trial: StoredTrial) -> str | None:
    """Return the prefix of a finding that is not final, else None."""
    match trial.state:
        case TrialState.RUNNING:
            return "Not finished:"
        case TrialState.INTERRUPTED:
            return "Interrupted:"
        case TrialState.FAILED:
            return f"The trial failed ({escape(trial.reason)}):" if trial.reason else "The trial failed:"
        case _:
            return None


def _tone(effects: Sequence[Effect], *, screen: bool) -> Tone:
    words = {effect.conclusion.words for effect in effects}
    if screen and (loud := {effect.conclusion.words for effect in effects if effect.verdict not in QUIET}):
        words = loud  # a screen is about the settings that have an effect
    if words and words <= EQUIVALENT_WORDS:
        return Tone.EQUIVALENT
    if all(effect.conclusion.open for effect in effects):
        return Tone.UNDECIDED
    if words and words <= {Conclusion.FASTER, Conclusion.BETTER}:
        return Tone.FASTER
    if words and words <= {Conclusion.SLOWER, Conclusion.WORSE}:
        return Tone.SLOWER
    return Tone.MIXED  # also if a direction is only probable: a colour must not claim more than the words


def _race_tone(race: Race, study: Study) -> Tone:
    if not race.over:
        return Tone.UNDECIDED
    return Tone.EQUIVALENT if recommended(study, race) is None else Tone.FASTER


def _modelled(lab: Mapping[str, object]) -> tuple[str, ...]:
    """Return the simulated disks of a lab, with their figures unless they are those of the model.

    A packed trial may contain anything.
    """
    usual = {described(disk): name for name in MODELS if (disk := parse_disk(name)) is not None}
    known = [one.get("modelled") for one in objects_in(lab, "places")]
    return tuple(dict.fromkeys(escape(usual.get(one, one)) for one in known if isinstance(one, str)))


def which_count(effects: Sequence[Effect], margin: float) -> str:
    """Say which differences count: the margin applies to ratios."""
    by_ratio = f"the margin is {percent(margin)}"
    compared = {effect.scale for effect in effects if effect.blocks}
    if Scale.DIFFERENCE not in compared:
        return by_ratio
    by_difference = "for differences there is no margin: every difference counts"
    return by_difference if compared == {Scale.DIFFERENCE} else f"{by_ratio}; {by_difference}"


def _supports(
    trial: StoredTrial,
    analysis: Analysis,
    effects: Sequence[Effect],
    conditions: Conditions,
    reasons: Sequence[Reason],
    by_level: Sequence[str],
    *,
    by_cells: bool,
) -> Iterator[Note]:
    """Yield what supports the answer, or why there is none. ``by_cells``: the answer already states interactions."""
    if is_invalid(trial, analysis):
        yield from map(Note, reason_sentences(analysis, reasons, conditions))
    else:
        # the table of a screen names its settings
        view = View.PAGE if is_screen(trial.header.study) else View.LONG
        yield from (Note(sentence, view=view) for sentence in by_level)
        for number, sentence in enumerate(_on_interactions(trial, analysis)):
            screen = number < _MOST_ON_SCREEN and not by_cells
            yield Note(sentence, view=View.ALL if screen else View.LONG)
    primary = [effect for effect in analysis.effects if effect.primary and effect.kind != "pooled"]
    blocks = sorted({effect.blocks for effect in primary or effects})
    if blocks and blocks[-1]:
        span = counted(blocks[0], "block") if len(blocks) == 1 else f"{blocks[0]:,} to {blocks[-1]:,} blocks"
        yield Note(
            f"Measured in {span} a comparison over {format_duration(trial.duration_s)}"
            + (f", with {conditions.constant}" if conditions.constant else "")
            + f"; {which_count(primary or effects, trial.header.margin)}."
        )
    yield from _on_controls(trial, analysis)


def _limits(
    trial: StoredTrial,
    analysis: Analysis,
    effects: Sequence[Effect],
    conditions: Conditions,
    evidence: Sequence[EvidenceRow],
) -> Iterator[Note]:
    """Yield what limits the answer. An alarm is always for the first screen."""
    header = trial.header
    live = any(isinstance(one.work, LiveWork) for one in header.study.workloads)
    yield from _on_carry_over(analysis, conditions, live=live)
    if not is_invalid(trial, analysis):
        slow = View.ALL if qualify_verdict(effects) else View.LONG
        notes = (
            (on_slow_runs, slow),
            (on_means, View.ALL),
            (on_capped_runs, View.ALL),
            (_on_leaning, View.ALL),
        )
        for describe, view in (*notes, (_on_skew, View.LONG)):
            if sentence := describe(effects, conditions):
                yield Note(sentence, view=view)
    yield from map(Note, _on_workloads(trial, effects, evidence))
    yield from map(Note, _on_losses(trial, analysis, effects))
    if header.study.margin != header.margin or header.study.alpha != header.alpha:
        yield Note(
            f"The margin ({percent(header.margin)}) and alpha ({header.alpha:g}) are the user's, not the study's."
        )
    if trial.imported is not None:
        source = escape(trial.imported)
        yield Note(f"{ELSEWHERE}; imported {_DIGEST.sub('…', source)}.", view=View.SHORT)
        yield Note(f"{ELSEWHERE}; imported {source}.", view=View.LONG)


def _on_workloads(
    trial: StoredTrial, effects: Sequence[Effect], evidence: Sequence[EvidenceRow]
) -> Iterator[str]:
    """Describe the work and its disks where they limit what the numbers mean."""
    header = trial.header
    for note in (
        *today_in_words(objects_in(header.lab, "today")),
        *shared_disks_in_words(objects_in(header.lab, "shared")),
        *busy_in_words(objects_in(header.lab, "busy")),
    ):
        yield f"{escape(capitalised(note))}."
    if models := _modelled(header.lab):
        yield f"{SIMULATED}: {'; '.join(models)}."
    if compared := _compared(header.study, effects):
        yield f"The response compared is {compared}."
    remarks: dict[str, list[str]] = {}
    for workload in header.study.workloads:
        if remark := workload.work.remark():
            remarks.setdefault(remark, []).append(workload.name)
    for remark, names in remarks.items():
        where = f" ({_of_workloads(names)})" if len(header.study.workloads) > 1 else ""
        yield f"{remark}{where}."
    for workload in header.study.workloads:
        yield from _on_overload(workload, evidence)
        yield from on_replay(workload, evidence)


def _of_workloads(names: Sequence[str]) -> str:
    return f"workload{'s' if len(names) > 1 else ''} {joined(map(escape, names))}"


def _on_losses(trial: StoredTrial, analysis: Analysis, effects: Sequence[Effect]) -> Iterator[str]:
    """Describe interruptions, failed runs and void blocks."""
    if trial.state is TrialState.INTERRUPTED:
        why = f" ({escape(trial.reason)})" if trial.reason else ""
        onward = "" if trial.imported is not None else f"; iotrial resume {trial.number} completes it"
        yield f"The trial was interrupted{why}{onward}."
    if analysis.failures.factors > 1 and analysis.failures.count:
        yield _on_failures(analysis.failures)
    elif failures := sum(effect.failures for effect in effects):
        failed = Counter[str]()
        for effect in effects:
            if effect.failures:
                failed[
                    f"{named_level(escape(effect.factor), escape(effect.level))} against {escape(effect.reference)}"
                ] += effect.failures
        where = joined(f"{name} ({number})" for name, number in failed.most_common(4))
        runs = "A run" if failures == 1 else "Runs"
        yield f"{runs} failed: {where}. A comparison with failures is at best undecided."
    if void := sum(count.count for count in analysis.void):
        were = "was" if void == 1 else "were"
        yield f"{counted(void, 'block')} {were} void and left out, whatever the result."
        for rule in dict.fromkeys(count.rule for count in analysis.void):
            yield f"Void: {void_in_words(rule)}."


def _on_overload(workload: Workload, evidence: Sequence[EvidenceRow]) -> Iterator[str]:
    """Warn if less was done than the study requested: then a queue grew throughout a run."""
    load = workload.work.expected_load()
    if load is None:
        return
    response, value = load
    rows = [r for r in evidence if r.condition.workload == workload.name and r.metric == response]
    behind = [row for row in rows if row.value < KEPT_UP * value]
    if behind:
        least = min(behind, key=lambda row: row.value)
        where = f"under {least.treatment}{least.condition.behind}"
        often = f" in {len(behind)} of {len(rows)} cases" if len(rows) > 1 else ""
        yield (
            f"The machine did not keep up with the requested rate{often}: {escape(where)} the {spoken(response)} was "
            f"{quantity(least.value, least.unit)} of {quantity(value, least.unit)}. There, operations queued up "
            f"throughout a run, so latencies depend on the number of operations rather than on the machine; use a lower rate."
        )


def _compared(study: Study, effects: Sequence[Effect]) -> str:
    """Name the response of these effects if it is not that of the whole work: a percentile, or a program's own number."""
    compared = {(effect.workload, effect.response) for effect in effects}
    parts = {r.name for r in study.responses if not r.stretchable and (r.workload, r.name) in compared}
    return joined(map(spoken, sorted(parts))) if {name for _, name in compared} == parts else ""


def _by_level(
    trial: StoredTrial,
    effects: Sequence[Effect],
    conditions: Conditions,
    together: Collection[tuple[str, str]],
) -> Sequence[str]:
    """Return the clauses by level that the headline only counted."""
    study, margin = trial.header.study, trial.header.margin
    if is_ablation(study):
        return ()
    if not is_screen(study):
        several = (
            len({effect.conclusion.words for effect in effects}) > 1
        )  # else the headline has covered all of them
        return by_level(effects, conditions, margin=margin)[:_MOST_LEVELS] if several else ()
    loud = sorted((e for e in effects if e.verdict not in QUIET), key=strength, reverse=True)
    parts = by_level(loud, conditions, margin=margin)[:_MOST_LEVELS] if len(loud) > 3 else ()
    return (*parts, *screen_details(effects, margin=margin, together=together))


def _on_leaning(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """Return a sentence on comparisons in which all blocks together contradict the first ones; None if there are none."""
    found = [effect for effect in effects if effect.leaning]
    if not found:
        return None
    named = [level_name(effect) + conditions.of_effect(effect).behind for effect in found]
    return (
        f"In {counted(len(found), 'comparison')} all blocks together show an effect that the first blocks excluded: "
        f"{joined(some(named, _MOST_LEANING))}. This is chance, or many runs in a row stalled, or the effect "
        f"changed: look at the runs over "
        f"time, and repeat the trial before relying on it. The interval there uses all blocks equally and is "
        f"wider than others."
    )


def _on_skew(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """Return a sentence on comparisons with an interval from the signs of the contrasts; None if there are none."""
    found = [effect for effect in effects if effect.skewed]
    if not found:
        return None
    named = [level_name(effect) + conditions.of_effect(effect).behind for effect in found]
    return (
        f"Runs are skewed, or stall now and then, in {counted(len(found), 'comparison')}: "
        f"{joined(some(named, _MOST_LEANING))}. Their intervals are of the median of the ratios."
    )


def _on_interactions(trial: StoredTrial, analysis: Analysis) -> Iterator[str]:
    """Yield the named interactions that have an effect, then how many have none or are undecided."""
    study, margin = trial.header.study, trial.header.margin
    named = [effect for effect in analysis.effects if effect.kind == "interaction" and effect.primary]
    loud = sorted((e for e in named if e.verdict not in QUIET), key=strength, reverse=True)
    for effect in loud[:_MOST_LEVELS]:
        clause = interaction_sentence(effect, study, margin=margin)
        yield f"{capitalised(clause)}."
    rest = Counter(effect.verdict for effect in named if effect.verdict in QUIET)
    if rest:
        parts = []
        if rest[Verdict.EQUIVALENT]:
            parts.append(f"{rest[Verdict.EQUIVALENT]} too small to matter")
        if rest[Verdict.INCONCLUSIVE]:
            parts.append(f"{rest[Verdict.INCONCLUSIVE]} undecided")
        if len(named) == 1:
            yield f"The interaction named in the study is {parts[0].removeprefix('1 ')}."
        else:
            yield f"Of {len(named)} interactions named in the study: {joined(parts)}."


def _on_failures(failed: FailureCounts) -> str:
    """Describe what the failed runs share. With combined factors, a failed run affects every comparison."""
    runs = "A run" if failed.count == 1 else f"{failed.count:,} runs"
    where = f" in {counted(len(failed.by_arm), 'combination')} of levels"
    shared = joined(named_level(escape(factor), escape(label)) for factor, label in failed.shared)
    at = f", all of them at {shared}" if shared else ""
    return f"{runs} failed{where}{at}. A comparison with failures is at best undecided."


def _on_what_reports_itself(trial: StoredTrial, analysis: Analysis) -> Iterator[str]:
    """Explain a positive control on another response: a program's own measurement cannot be slowed down."""
    judged = {
        (str(c.condition.get("workload")), c.response) for c in analysis.controls if c.kind == "positive"
    }
    said: dict[tuple[str, str], list[str]] = {}
    for workload, response in sorted(judged):
        own = [
            r.name
            for r in trial.header.study.responses
            if r.workload == workload and r.primary and not r.stretchable
        ]
        if own:
            what = trial.header.study.workload(workload).work.unstretchable
            said.setdefault((response, f"{what} ({joined(map(escape, own))})"), []).append(workload)
    for (response, what), names in said.items():
        yield (
            f"The positive control of {_of_workloads(names)} is of {escape(response)}: no slowdown can be injected into "
            f"{what}. There, only the interval shows which effects the trial can detect."
        )


def _on_controls(trial: StoredTrial, analysis: Analysis) -> Iterator[Note]:
    if without_controls(trial, analysis):
        yield Note(
            "The trial ran without controls: it is not verified that it detects an effect, or that it finds "
            "none where there is none."
        )
        return
    if is_invalid(trial, analysis):
        return
    if line := controls_line(analysis.controls, trial.header.study):
        if trial.header.study.quick and not _rests_on_controls(decisive(analysis.effects)):
            yield Note(f"Controls: {line.partition('; ')[0]}.", view=View.SHORT)
            yield Note(f"Controls: {line}.", view=View.LONG)
        else:
            yield Note(f"Controls: {line}.")
    yield from (Note(sentence, view=View.LONG) for sentence in _on_what_reports_itself(trial, analysis))


def _rests_on_controls(effects: Sequence[Effect]) -> bool:
    """Return whether some effect is equivalent, or may become so: only then must the injected slowdown be seen."""
    return any(
        effect.conclusion.equivalent
        or effect.conclusion is Conclusion.UNDECIDED
        or (effect.conclusion.probable and (effect.plain_beyond or 0.0) > effect.margin)
        for effect in effects
    )


def controls_line(controls: Sequence[Control], study: Study) -> str:
    """Describe what the controls have shown so far.

    E.g. "none of 8 failed; the injected slowdown of 6 % was seen in 3 of 4 conditions, elsewhere nothing can be called
    equivalent". They have passed only if the slowdown was seen in every condition that has it. Empty if nothing is
    timed: counts and facts cannot be slowed.
    """
    positive = [control for control in controls if control.kind == "positive"]
    timed = any(is_time(response) or is_rate(response) for response in study.responses)
    if not controls or not (positive or timed):
        return ""
    blind = sum(control.low is None and control.high is None for control in controls)
    every = len(controls)
    seen = sum(control.told_from_zero for control in positive)
    if blind == every:
        text = f"too few blocks so far {f'for any of the {every} to fail' if seen else f'to check any of the {every}'}"
    elif blind:
        text = (
            f"{every - blind} of {every} checked, none of them failed, too few blocks so far for the others"
        )
    elif positive and seen == len(positive):
        text = f"all {every} passed" if every > 1 else "passed"
    else:
        text = f"none of {every} failed" if every > 1 else "none failed"
    if not positive:
        return f"{text}; no slowdown can be injected here, so nothing can be called equivalent"
    injected = max(max(control.injected, 1 / control.injected) for control in positive)
    slowdown = f"the injected slowdown of {percent(injected - 1)}"
    if seen == len(positive):
        return f"{text}; {slowdown} was seen{' everywhere' if seen > 1 else ''}"
    if not seen:
        return (
            f"{text}; {slowdown} has not been seen yet, so nothing can be called equivalent, "
            "nor plainly faster or slower by less"
        )
    noun = "comparison" if _several_each(positive) else "condition"
    return (
        f"{text}; {slowdown} was seen in {seen} of {counted(len(positive), noun)}, elsewhere nothing can be called "
        "equivalent"
    )


def _several_each(positive: Sequence[Control]) -> bool:
    """Return whether conditions have more than one positive control."""
    return len({tuple(sorted(control.condition.items())) for control in positive}) < len(positive)


_MOST = 3


def reason_sentences(analysis: Analysis, reasons: Sequence[Reason], conditions: Conditions) -> Iterator[str]:
    """Yield the sentences that follow the one that says that a trial is invalid."""
    for place, reason in enumerate(reasons[:_MOST]):
        lead = "Likely reason" if place == 0 else "Or"
        text, remedy = escape(reason.text), escape(reason.remedy)
        yield f"{lead}: {text}{_where(reason, conditions)}. What to do: {remedy}."
    failed = sum(not control.passed for control in analysis.controls)
    if not reasons and failed:
        yield (
            "No recorded cause explains this. Run the study again with a new seed: one valid trial in a "
            "thousand fails its controls by chance. If it fails again, an unrecorded factor differs between the arms."
        )
    # invalid_reasons has one entry per failed control, then one per carry-over (both reported above), then the others.
    carried = sum(not one.passed for one in analysis.carry_over)
    if failed and (others := analysis.invalid_reasons[failed + carried :]):
        yield f"Also: {joined(escape(reason) for reason in others)}."
    yield "The effects below are shown only to help find the cause; they are not verdicts."


def _where(reason: Reason, conditions: Conditions) -> str:
    if not reason.condition:
        return ""
    more = f"; found for {counted(reason.controls, 'failed control')}" if reason.controls > 1 else ""
    return f" ({conditions.of_levels(reason.condition).text}{more})"
