"""Analyse the blocks of a trial: effects with verdicts, controls, void blocks, diagnostics.

``analyse`` runs at the end of a trial; ``analyse_condition`` runs between blocks, where the conductor checks whether a
condition is decided. Both are pure functions of the blocks in time order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iotrial.design.model import ArmKind, Condition, Term, TermKind
from iotrial.stats.anytime_t import t_interval
from iotrial.stats.beyond_typical import mean_ratio, slow_runs
from iotrial.stats.budget_bet import Budget, contrasts_left
from iotrial.stats.carryover import Judged, Ran, at_stake, in_words, judge_carry_over, withholds
from iotrial.stats.contrast import Contrasts, PairedRuns, Responses, Runs, pooled
from iotrial.stats.controls import judge_all_controls, judge_controls, on_scale, positive_seen
from iotrial.stats.diagnostics import diagnose
from iotrial.stats.ebh import discoveries
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.model import (
    Analysis,
    CarryOver,
    Control,
    Diagnostic,
    Effect,
    EffectKind,
    FailureCounts,
    Interval,
    Means,
    ObservedBlock,
    Race,
    Span,
    Verdict,
    untried,
)
from iotrial.stats.race import judge_race
from iotrial.stats.run_statistics import mean_run, means, statistic_interval
from iotrial.stats.skew import CAP, contradicts, typical_interval
from iotrial.stats.spec import Spec
from iotrial.stats.switchback import Course, course, settled
from iotrial.stats.verdict import STILL_CHANGING, is_rate, is_time, judge, plain_beyond
from iotrial.stats.voids import compare_void_rates, count_voids
from iotrial.stats.wash_in import is_longest, judged
from iotrial.study.model import MEAN, TYPICAL, Response, Scale

__all__ = ["METHOD", "ConditionState", "Spec", "analyse", "analyse_condition", "look_due"]

#: version of the method: incremented with every change that makes the same blocks give a different analysis
METHOD = 5

_EVERY_BLOCK_UP_TO = 20


@dataclass(frozen=True, slots=True)
class ConditionState:
    """State of one condition after its complete blocks: its primary effects and its controls.

    ``blocks`` counts blocks that are not void. ``decided``: no primary effect needs another block.
    ``race``: how a race stands, which then decides. ``control_failed``: the trial is invalid. ``carry_over`` is that control
    on the analysed blocks; while it is ``held``, nothing is decided.
    """

    condition: Condition
    effects: tuple[Effect, ...]
    controls: tuple[Control, ...]
    blocks: int
    decided: bool
    control_failed: bool
    carry_over: CarryOver | None = None
    race: Race | None = None


def look_due(blocks: int, last_look: int) -> bool:
    """Return whether to analyse after ``blocks`` complete blocks, if the last look was at ``last_look`` blocks.

    True after every block up to 20, then after 5 % growth. Looking less often saves time and does not affect validity.
    """
    if blocks <= _EVERY_BLOCK_UP_TO:
        return blocks > last_look
    return 20 * (blocks - last_look) >= last_look and blocks > last_look


def analyse_condition(
    spec: Spec,
    condition_key: str,
    blocks: Sequence[ObservedBlock],
    every: Sequence[ObservedBlock] = (),
    *,
    why_not_tried: Callable[[Effect], str | None] | None = None,
) -> ConditionState:
    """Analyse the primary effects and controls of one condition after its blocks so far (in time order).

    ``every``: the blocks of all conditions, for carry-over between conditions. ``why_not_tried``: returns why no run can feel
    the setting of an effect, which then needs no more blocks; None if one can.
    """
    condition = spec.condition(condition_key)
    counted = judged(blocks)
    runs = Runs(counted)
    found = judge_carry_over(spec, condition, counted, every or blocks)
    controls = judge_controls(spec, condition, runs)
    estimands = _estimands(spec, condition, runs, controls, primary=True)
    effects = tuple(_effects(estimands, spec))
    if why_not_tried is not None:
        effects = tuple(untried(effect, why_not_tried(effect)) for effect in effects)
    carry_over = None if found is None else at_stake(spec, found, effects)
    held = carry_over is not None and carry_over.held
    doubtful = carry_over is not None and carry_over.doubtful
    failed = carry_over is not None and not carry_over.passed
    lost = carry_over is not None and failed and is_longest(carry_over.wash_in)
    race = _race(spec, condition, runs, controls)
    enough = bool(effects) and all(effect.decided for effect in effects) if race is None else race.over
    return ConditionState(
        condition=condition,
        effects=tuple(
            one if carry_over is None or one.not_tried else _without_held(one, [carry_over])
            for one in effects
        ),
        controls=controls,
        blocks=sum(block.void is None for block in blocks),
        decided=enough and not held and not failed and not doubtful,
        control_failed=lost or not all(control.passed for control in controls),
        carry_over=carry_over,
        race=race,
    )


def _without_held(effect: Effect, carried: Iterable[CarryOver]) -> Effect:
    """Return the effect, without a verdict where one of these controls withholds it."""
    for one in carried:
        if (reason := withholds(one, effect)) is not None:
            return replace(
                effect,
                verdict=Verdict.INCONCLUSIVE,
                detectably=None,
                reason=reason,
                detectable=None,
                decided=False,
            )
    return effect


def _race(spec: Spec, condition: Condition, runs: Runs, controls: Sequence[Control]) -> Race | None:
    response = spec.main_response(condition)
    seen = response is None or not spec.controls or positive_seen(controls, response.name)
    return judge_race(spec, condition, runs, control_seen=seen)


def analyse(
    spec: Spec, blocks: Sequence[ObservedBlock], *, unused: Sequence[str] = (), remarks: Sequence[str] = ()
) -> Analysis:
    """Analyse the complete blocks of a trial (all conditions, in time order, void blocks marked as such).

    ``unused`` are messages on settings that no run made use of, which make the trial invalid; ``remarks`` are added to the
    notes.
    """
    primary: list[_Estimand] = []
    exploratory: list[_Estimand] = []
    controls: list[Control] = []
    diagnostics: list[Diagnostic] = []
    reasons: list[str] = []
    carried: list[tuple[Condition, Judged]] = []
    races: list[Race] = []
    of_condition: dict[str, list[ObservedBlock]] = {condition.key: [] for condition in spec.conditions}
    for block in blocks:
        if block.condition in of_condition:
            of_condition[block.condition].append(block)
    judged_on = {key: judged(own) for key, own in of_condition.items()}
    laid_out = {key: Runs(own) for key, own in judged_on.items()}
    ran = Ran(spec, blocks)
    every_control = judge_all_controls(spec, [(one, laid_out[one.key]) for one in spec.conditions])
    for condition, controlled in zip(spec.conditions, every_control, strict=True):
        own, runs = judged_on[condition.key], laid_out[condition.key]
        controls += controlled
        reasons += [_why_invalid(control, condition) for control in controlled if not control.passed]
        if (carry_over := judge_carry_over(spec, condition, own, blocks, ran=ran)) is not None:
            carried.append((condition, carry_over))
        if (race := _race(spec, condition, runs, controlled)) is not None:
            races.append(race)
        primary += _estimands(spec, condition, runs, controlled, primary=True)
        exploratory += _estimands(spec, condition, runs, controlled, primary=False)
        diagnostics += diagnose(spec, condition, runs)
    exploratory += _pooled_estimands(spec, laid_out, controls)
    found = list(_effects([*primary, *exploratory], spec))
    judgements = {
        condition.key: at_stake(spec, one, _of(condition, found[: len(primary)]))
        for condition, one in carried
    }
    found = list(_held_back(spec, judgements, found))
    main = found[: len(primary)]
    others = [_held_together(one, main) for one in found[len(primary) :]]
    reasons += [f"{key}: {in_words(one)}" for key, one in judgements.items() if not one.passed]
    void_notes, void_reasons = compare_void_rates(blocks)
    failures = count_failures(blocks)
    reasons += [*void_reasons, *unused]
    return Analysis(
        effects=(*main, *_with_discoveries(others, spec.alpha)),
        controls=tuple(controls),
        void=count_voids(blocks),
        diagnostics=tuple(diagnostics),
        valid=not reasons,
        invalid_reasons=tuple(reasons),
        notes=(*remarks, *_notes(spec, blocks, failures), *void_notes),
        failures=failures,
        carry_over=tuple(judgements.values()),
        races=tuple(races),
    )


def cell_effects(
    spec: Spec,
    analysis: Analysis,
    blocks: Sequence[ObservedBlock],
    main: Effect,
    other: str,
    places: Sequence[str],
) -> tuple[Effect, ...]:
    """Return a main effect in each cell: the level against its reference with another factor at each of ``places``.

    ``blocks``: those of the trial, in time order. Each is a paired contrast within the blocks, as the main effect is. Which
    cells are read is chosen after the trial, so every cell of every pair of factors, condition and primary response counts:
    together they share the study's alpha, as a family of their own, and their intervals hold simultaneously. Empty if the
    design does not have both arms of a cell, as in a fraction.
    """
    condition = next(
        one for one in spec.conditions if one.workload == main.workload and one.levels == main.condition
    )
    response = next(one for one in spec.responses_of(condition, primary=True) if one.name == main.response)
    term = next(
        one
        for one in spec.terms
        if one.kind is TermKind.MAIN and (one.factor, one.level) == (main.factor, main.level)
    )
    runs = Runs(judged([block for block in blocks if block.condition == condition.key]))
    table = Responses(runs, response)
    treatments = {run.arm: run.treatment for run in runs.runs if run.arm in term.weights}
    alpha = spec.alpha / spec.cells
    carried = [
        one for one in analysis.carry_over if one.condition == {**condition.levels, "workload": main.workload}
    ]
    estimands = []
    for place in places:
        arms = [arm for arm in term.weights if treatments.get(arm, {}).get(other) == place]
        of_level = [arm for arm in arms if treatments[arm][main.factor] == main.level]
        of_reference = [arm for arm in arms if treatments[arm][main.factor] == main.reference]
        if not of_level or len(of_level) != len(of_reference):
            return ()
        weights = {
            **dict.fromkeys(of_level, 1.0 / len(of_level)),
            **dict.fromkeys(of_reference, -1.0 / len(of_reference)),
        }
        cell = replace(term, weights=weights)
        estimands.append(
            _Estimand(
                term=cell,
                response=response,
                alpha=alpha,
                condition={**main.condition, other: place},
                workload=main.workload,
                contrasts=table.contrasts(weights, whole=term.whole),
                control_seen=main.plain_beyond == plain_beyond(spec.margin, control_seen=True),
                pairs=table.pairs(cell),
            )
        )
    return tuple(replace(_without_held(one, carried), kind="cell") for one in _effects(estimands, spec))


def _of(condition: Condition, effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects of a condition, without pooled ones."""
    return [
        one for one in effects if one.workload == condition.workload and one.condition == condition.levels
    ]


def _held_back(
    spec: Spec, judgements: Mapping[str, CarryOver], effects: Sequence[Effect]
) -> Iterator[Effect]:
    """Yield the effects, without a verdict where the runs of their condition seem to depend on those before them.

    A pooled effect has none if that holds for any of its conditions."""
    judged_here = [(one, judgements[one.key]) for one in spec.conditions if one.key in judgements]
    for effect in effects:
        own = [
            carry_over
            for one, carry_over in judged_here
            if one.workload == effect.workload and (effect.kind == "pooled" or one.levels == effect.condition)
        ]
        yield _without_held(effect, own)


@dataclass(frozen=True, slots=True)
class _Estimand:
    """One effect to estimate, with its data. ``control_seen``: whether the injected slowdown was detected."""

    term: Term
    response: Response
    alpha: float
    condition: Mapping[str, str]
    workload: str
    contrasts: Contrasts
    control_seen: bool
    pooled: bool = False
    pairs: PairedRuns | None = None
    budget: Budget | None = None
    course: Course | None = None

    @property
    def kind(self) -> EffectKind:
        return "pooled" if self.pooled else self.term.kind.value

    @property
    def primary(self) -> bool:
        return self.term.primary and self.response.primary and not self.pooled


def _estimands(
    spec: Spec,
    condition: Condition,
    runs: Runs,
    controls: Sequence[Control],
    *,
    primary: bool,
) -> list[_Estimand]:
    """Collect the primary effects of a condition, or its exploratory ones.

    Exploratory are main effects on the other measured responses, and the interactions that the study does not name on the
    primary responses.
    """
    found: list[_Estimand] = []
    own = spec.responses_of(condition, primary=True)
    others = spec.responses_of(condition, primary=False)
    if not primary:
        measured = set().union(*(run.responses for run in runs.runs))
        others = tuple(response for response in others if response.name in measured)
    in_windows = primary and any(run.parts for run in runs.runs)
    tables = {response.name: Responses(runs, response) for response in (own if primary else (*own, *others))}
    for term in spec.terms:
        responses = own if term.primary is primary else () if primary else others
        if term.kind is TermKind.INTERACTION and not primary and term.primary:
            continue
        for response in responses:
            if term.kind is not TermKind.MAIN and response.statistic != TYPICAL:
                continue  # means and quantiles have no interaction on the log scale
            contrasts = tables[response.name].contrasts(
                term.weights, whole=term.whole, copy=spec.copy_of_reference(term, response)
            )
            estimand = _Estimand(
                term=term,
                response=response,
                alpha=spec.alpha_of(term, response),
                condition=dict(condition.levels),
                workload=condition.workload,
                contrasts=contrasts,
                budget=_budget(spec, response, contrasts, runs) if primary else None,
                control_seen=positive_seen(controls, response.name) or spec.only_counts(condition),
                pairs=tables[response.name].pairs(term) if primary else None,
                course=course(runs.blocks, term.weights, response.name, by_ratio=response.scale is Scale.LOG)
                if in_windows
                else None,
            )
            found.append(estimand)
    return found


def _budget(spec: Spec, response: Response, contrasts: Contrasts, runs: Runs) -> Budget | None:
    """Return the input of the budget bet; None if the trial has no such bet or the response has no margin."""
    declared = spec.budget
    if declared is None or response.scale is not Scale.LOG or response.statistic != TYPICAL:
        return None
    starts_s = [runs.starts_s[index] for index in contrasts.blocks]
    left = contrasts_left(contrasts.blocks, starts_s, blocks=declared.blocks, time_s=declared.time_s)
    return Budget(declared.share, left)


def _pooled_estimands(
    spec: Spec, laid_out: Mapping[str, Runs], controls: Sequence[Control]
) -> list[_Estimand]:
    """Collect the pooled effects: primary effects of each workload with several conditions, averaged over complete rounds."""
    found: list[_Estimand] = []
    for workload, conditions in spec.pools.items():
        own = [control for control in controls if control.condition["workload"] == workload]
        for response in spec.responses_of(conditions[0], primary=True):
            if response.statistic != TYPICAL:
                continue
            seen = positive_seen(own, response.name) or spec.only_counts(conditions[0])
            tables = [Responses(laid_out[condition.key], response) for condition in conditions]
            for term in spec.terms:
                if term.primary:
                    together = pooled([table.contrasts(term.weights, whole=term.whole) for table in tables])
                    found.append(
                        _Estimand(
                            term, response, spec.pooled_alpha, {}, workload, together, seen, pooled=True
                        )
                    )
    return found


def _effects(estimands: Sequence[_Estimand], spec: Spec) -> Iterator[Effect]:
    """Yield the effects; their intervals are computed in one batch."""
    typical = [one for one in estimands if one.response.statistic == TYPICAL]
    found = iter(
        intervals(
            [
                Wanted(
                    one.contrasts.values,
                    one.alpha,
                    spec.margin_of(one.response),
                    one.budget,
                    one.contrasts.copies,
                )
                for one in typical
            ]
        )
    )
    for one in estimands:
        if one.response.statistic == TYPICAL:
            yield _effect(one, spec, next(found))
        else:
            yield _effect(one, spec, statistic_interval(one.pairs, one.response, one.alpha))


def _effect(estimand: _Estimand, spec: Spec, found: Interval) -> Effect:
    term, response, contrasts = estimand.term, estimand.response, estimand.contrasts
    typical, margin = response.statistic == TYPICAL, spec.margin
    if typical and response.scale is Scale.LOG:
        found = typical_interval(
            found,
            contrasts.values,
            estimand.pairs,
            response,
            estimand.alpha,
            spec.margin_of(response),
        )
    of_means = _mean_run(estimand, margin)
    judgement = judge(
        found,
        response,
        margin=margin,
        failures=contrasts.failures,
        unusable=contrasts.unusable,
        control_seen=estimand.control_seen,
        precise=spec.precise,
        contradicted=typical and contradicts(estimand.pairs, found),
        means=of_means,
    )
    if judgement.verdict is Verdict.EQUIVALENT and estimand.course is not None:
        limit = spec.margin_of(response)
        if not settled(estimand.course, alpha=estimand.alpha, margin=limit):
            judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=STILL_CHANGING, decided=False)
    two_sided = on_scale(found.low, response), on_scale(found.high, response)
    bounds = (
        None if found.bounds is None else (_end(found.bounds[0], response), _end(found.bounds[1], response))
    )
    low, high = bounds if bounds is not None and judgement.verdict is Verdict.EQUIVALENT else two_sided
    cross_check = t_interval(contrasts.values, estimand.alpha) if typical else None
    return Effect(
        kind=estimand.kind,
        factor=term.factor,
        level=term.level,
        reference=term.reference,
        condition=estimand.condition,
        workload=estimand.workload,
        response=response.name,
        unit=response.unit,
        scale=response.scale,
        better=response.better,
        primary=estimand.primary,
        value=on_scale(found.estimate, response),
        low=low,
        high=high,
        family_alpha=estimand.alpha,
        p_anytime=found.p_anytime,
        verdict=judgement.verdict,
        detectably=judgement.detectably,
        reason=judgement.reason,
        detectable=judgement.detectable,
        blocks=found.blocks,
        failures=contrasts.failures,
        decided=judgement.decided,
        block_sd=float(np.std(contrasts.values, ddof=1)) if found.blocks > 1 else None,
        margin=margin,
        cross_check=None
        if cross_check is None
        else (_end(cross_check[0], response), _end(cross_check[1], response)),
        e_value=found.e_value,
        aliases=term.aliases,
        leaning=found.leaning,
        bounds=bounds,
        slow_runs=slow_runs(estimand.pairs, response, estimand.alpha) if typical else None,
        mean_ratio=mean_ratio(estimand.pairs, contrasts, response, found, margin) if typical else None,
        statistic=response.statistic,
        means=of_means,
        two_sided=two_sided,
        skewed=found.skewed,
        plain_beyond=plain_beyond(margin, control_seen=estimand.control_seen),
    )


def _mean_run(estimand: _Estimand, margin: float) -> Means | None:
    """Return the mean run of an effect on a time or a rate compared by ratio; None for other effects and statistics.

    It has no numbers, so nothing is equivalent in it, where runs are not paired: exploratory and pooled effects, fractions.
    """
    response = estimand.response
    if response.scale is not Scale.LOG or not (is_time(response) or is_rate(response)):
        return None
    if response.statistic == MEAN:
        return means(estimand.pairs, estimand.alpha, cap=response.cap, margin=margin)
    if response.statistic != TYPICAL or estimand.term.kind is TermKind.INTERACTION:
        return None
    return mean_run(estimand.pairs, estimand.alpha, cap=CAP, margin=margin)


def _held_together(effect: Effect, primary: Sequence[Effect]) -> Effect:
    """Mark a pooled effect with whether the primary effects of its conditions agree; return other effects unchanged."""
    if effect.kind != "pooled":
        return effect
    what = (effect.workload, effect.response, effect.factor, effect.level, effect.reference)
    parts = [
        one for one in primary if (one.workload, one.response, one.factor, one.level, one.reference) == what
    ]
    if agree(effect, parts):
        return replace(effect, agree=True)
    return replace(effect, agree=False, span=span_of(parts))


def _end(value: float, response: Response) -> float:
    reported = on_scale(value, response)
    assert reported is not None
    return reported


def _with_discoveries(effects: Sequence[Effect], alpha: float) -> tuple[Effect, ...]:
    found = discoveries([effect.e_value or 0.0 for effect in effects], alpha)
    return tuple(replace(effect, discovery=one) for effect, one in zip(effects, found, strict=True))


def _why_invalid(control: Control, condition: Condition) -> str:
    if control.kind == ArmKind.NEGATIVE.value:
        return f"{condition.key}: {control.response} differs between two identical arms"
    return f"{condition.key}: {control.response} does not show the injected ratio {control.injected:.4g}"


def _notes(spec: Spec, blocks: Sequence[ObservedBlock], failures: FailureCounts) -> list[str]:
    notes = (
        [] if spec.controls else ["controls were off: it is not verified that this trial detects an effect"]
    )
    if failures.factors > 1 and failures.count:
        shared = " and ".join(f"{factor} {label}" for factor, label in failures.shared)
        at = f", all of them at {shared}" if shared else ""
        notes.append(f"{failures.count} failed runs in {len(failures.by_arm)} combinations{at}")
    else:
        notes += [f"{count} failed runs of {arm}" for arm, count in failures.by_arm]
    if spec.controls and spec.whole_plots and not spec.copied_plot:
        whole = " and ".join(sorted({term.factor for term in spec.terms if term.whole}))
        notes.append(
            f"no control lies between segments: verdicts on {whole} rest on the controls within them"
        )
    gaps = sum(block.gap for block in blocks)
    if gaps:
        notes.append(f"{gaps} blocks were interrupted and completed later")
    return notes


# Count failed runs: by arm, and which levels the failed combinations of several factors have in common.


def count_failures(blocks: Sequence[ObservedBlock]) -> FailureCounts:
    """Count failed runs by arm, including those of void blocks.

    With several factors, also return the levels that all failed combinations share, if more than one combination failed and
    that factor ran at other levels too.
    """
    failed: Counter[str] = Counter()
    treatments: dict[str, Mapping[str, str]] = {}
    run: dict[str, set[str]] = {}
    for block in blocks:
        for one in block.observations:
            for factor, label in one.treatment.items():
                run.setdefault(factor, set()).add(label)
            if one.failure is not None:
                failed[one.arm] += 1
                treatments[one.arm] = one.treatment
    shared: list[tuple[str, str]] = []
    if len(run) > 1 and len(treatments) > 1:
        for factor, labels in run.items():
            found = {treatment.get(factor, "") for treatment in treatments.values()}
            if len(found) == 1 and len(labels) > 1:
                shared.append((factor, found.pop()))
    return FailureCounts(tuple(sorted(failed.items())), tuple(shared), factors=len(run))


# Check whether the mean of an effect over conditions represents each of them or hides that they differ.


def agree(pooled: Effect, parts: Sequence[Effect]) -> bool:
    """Return whether these effects of single conditions agree with the pooled effect, by the rule of this module."""
    if pooled.value is None or any(part.value is None for part in parts):
        return not any(part.blocks for part in parts)  # without data there is nothing to hide
    highest_low = max((part.low for part in parts if part.low is not None), default=-math.inf)
    lowest_high = min((part.high for part in parts if part.high is not None), default=math.inf)
    common = highest_low <= lowest_high
    if pooled.scale is Scale.DIFFERENCE or (
        common and {part.conclusion for part in parts} == {pooled.conclusion}
    ):
        return common
    if pooled.value <= 0.0:
        return False
    reach = math.log1p(pooled.margin)
    return all(
        part.value is not None and part.value > 0.0 and abs(math.log(part.value / pooled.value)) <= reach
        for part in parts
    )


def span_of(parts: Sequence[Effect]) -> Span | None:
    """Return the parts with the smallest and the largest estimate; None if fewer than two have an estimate."""
    known = sorted((part.value, place) for place, part in enumerate(parts) if part.value is not None)
    if len(known) < 2:
        return None
    (least, first), (most, last) = known[0], known[-1]
    return Span(parts[first].condition, least, parts[last].condition, most, len(parts))
