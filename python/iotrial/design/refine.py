"""The follow-up of a screening study: a sharper design for the settings that seem to matter, or a fold-over of the same one.

A screen shows which of many settings matter, but not whether they interact. Its follow-up runs the active settings, on
fresh data, in a design that separates all two-factor interactions, and pins the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import field, structs

from iotrial.design.keyed import SEED_DIGITS
from iotrial.design.lenth import lenth_pse
from iotrial.design.plan import Plan
from iotrial.documents import JsonObject
from iotrial.errors import RequestError, StudyError, UnknownName
from iotrial.study.model import Budget, Design, DesignKind, Factor, Level, Setting, Study, Workload
from iotrial.study.schema import match
from iotrial.study.select import select

MOST_RUNS = 64  # maximum in a block of a follow-up: a block must stay short in time
_CONTROLS = 2  # control arms, in addition to the treatments
_FEWEST, _WITH_ROOM = 2, 4


def follow_up(
    written: Study,
    ran: Study,
    found: Sequence[Found],
    *,
    wanted: Sequence[str] = (),
    mixed: Mapping[str, Sequence[str]] | None = None,
) -> FollowUp:
    """Build the follow-up of a screen. ``written`` is the study as in its file, ``ran`` as it was run. ``wanted`` names the
    factors to vary, instead of those that the trial suggests. ``mixed`` are the interactions that bias a factor's effect.

    Raises RequestError if there is nothing to follow up, UnknownName for an unknown factor.
    """
    names = [factor.name for factor in ran.treatment_factors]
    if len(names) < 2:
        raise RequestError(
            f"study {ran.name} varies one factor only, so there is nothing to choose from",
            hint="--ablate splits a level that sets several knobs; run the study again for narrower intervals",
        )
    best = largest(found)
    chosen = named_levels(wanted, names) if wanted else _chosen(names, best)
    dropped: list[str] = []
    while True:
        study = _varied(written, ran, [name for name, _ in chosen])
        sized = _smallest(study)
        if sized is not None:
            break
        if wanted or len(chosen) <= 1:
            raise RequestError(
                f"study {ran.name}: no design that tells the interactions of {', '.join(n for n, _ in chosen)} "
                f"apart fits into {MOST_RUNS} runs per block",
                hint="name fewer factors with --factors, or choose two levels of each",
            )
        dropped.append(chosen.pop()[0])
    study, runs = sized
    kept = {name for name, _ in chosen}
    pins = [
        pin_of(ran.factor(name), best.get(name), found, dropped=name in dropped)
        for name in names
        if name not in kept
    ]
    study = structs.replace(study, fixed=(*study.fixed, *settings_of(ran, pins)))
    return FollowUp(study, tuple(chosen), tuple(pins), tuple(_notes(found, kept, mixed or {})), runs)


def folded_over(written: Study, ran: Study) -> FollowUp:
    """Add the mirror image of every row to a screen, which frees main effects from two-factor interactions."""
    design = ran.design
    if design.kind not in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN) or design.fold_over:
        what = "is folded over already" if design.fold_over else f"is {design.kind.value}"
        raise RequestError(
            f"study {ran.name}: its design {what}; only fractional and Plackett-Burman designs can be folded over"
        )
    study = structs.replace(
        renamed(as_run(written, ran), "folded"), design=structs.replace(design, fold_over=True)
    )
    runs = runs_in_a_block(study)
    chosen = tuple((factor.name, "as before") for factor in ran.treatment_factors)
    return FollowUp(study, chosen, (), (), runs)


def _chosen(names: Sequence[str], best: Mapping[str, Found]) -> list[tuple[str, str]]:
    """Choose the active factors, largest first; then, up to four, undecided ones beyond the margin; at least two."""
    order = sorted((best[name] for name in names if name in best), key=lambda one: -abs(one.estimate))
    if not order:
        raise RequestError(
            "the trial has no effect to start from",
            hint="run it until it has complete blocks, or name factors with --factors",
        )
    chosen = [(one.factor, "changes the result") for one in order if one.active]
    rest = [one for one in order if not one.active]
    if not chosen:
        guide = 2.5 * lenth_pse([one.estimate for one in order])
        chosen = [
            (one.factor, "undecided, stands out on the half-normal plot")
            for one in rest
            if abs(one.estimate) > guide
        ]
    for one in rest:
        if one.factor in dict(chosen):
            continue
        if len(chosen) < _WITH_ROOM and one.beyond and not one.excluded:
            chosen.append((one.factor, "undecided, beyond the margin"))
        elif len(chosen) < _FEWEST:
            chosen.append((one.factor, "largest of the rest"))
    return chosen


def _varied(written: Study, ran: Study, chosen: Sequence[str]) -> Study:
    """Return the study with only these treatment factors."""
    base = renamed(as_run(written, ran), "follow-up")
    gone = {factor.name for factor in ran.treatment_factors} - set(chosen)
    question = (
        f"Which of {', '.join(chosen)} change the result, and which interact?"
        if len(chosen) > 1
        else f"Which level of {chosen[0]} is best?"
    )
    return structs.replace(
        base,
        question=one_line(question),
        factors=tuple(factor for factor in base.factors if factor.name not in gone),
        claims=tuple(claim for claim in base.claims if claim.factor not in gone),
    )


def _smallest(study: Study) -> tuple[Study, int] | None:
    """Return the study in the design with the fewest runs that separates all two-factor interactions, and that number.

    None if every such design is too large.
    """
    names = [factor.name for factor in study.treatment_factors]
    pairs = tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    whole = any(factor.whole_plot for factor in study.treatment_factors)
    repeats = study.design.repeats if whole else 1
    fitting = []
    for design in (
        Design(DesignKind.FULL, interactions=pairs, repeats=repeats),
        Design(DesignKind.FRACTIONAL, resolution=5, interactions=pairs, repeats=repeats),
    ):
        tried = structs.replace(study, design=design)
        try:
            runs = runs_in_a_block(tried)
        except RequestError:
            continue
        if runs <= MOST_RUNS + _CONTROLS:
            fitting.append((runs, tried))
    if not fitting:
        return None
    runs, best = min(fitting, key=lambda one: one[0])
    return best, runs


def _notes(found: Sequence[Found], kept: set[str], mixed: Mapping[str, Sequence[str]]) -> list[str]:
    notes = []
    ambiguous = [one.factor for one in found if one.active and mixed.get(one.factor) and one.factor in kept]
    if ambiguous:
        notes.append(
            f"in the first trial the effect of {', '.join(dict.fromkeys(ambiguous))} is mixed with interactions; "
            "here it is not, except with fixed factors (--fold-over frees those too)"
        )
    return notes


# Building blocks of follow-up studies: findings by level, pinned factors, and the study as it was run.


@dataclass(frozen=True, slots=True)
class Found:
    """A trial's finding on one level, over all conditions and primary responses.

    ``estimate`` is the mean effect on the contrast's scale (a logarithm for ratios). ``active``: in some condition or
    response the interval excludes "no effect" without excluding every effect that matters. ``excluded``: an effect that
    matters is excluded everywhere. ``sure``: in some condition or response the whole interval is beyond the margin.
    ``beyond``: the estimate is beyond the margin. ``better``: whether the level is better by its estimate; None if the
    conditions disagree or no direction is preferred.
    """

    factor: str
    level: str
    estimate: float
    active: bool
    excluded: bool
    beyond: bool
    better: bool | None
    sure: bool = True


class Pin(JsonObject, frozen=True):
    """A factor that no longer varies: the label at which it is held, and the reason."""

    factor: str
    label: str = field(name="level")
    why: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up study. ``study`` is the content of its file (its text is still empty); ``chosen`` are the factors, each
    with a reason."""

    study: Study
    chosen: tuple[tuple[str, str], ...]
    pinned: tuple[Pin, ...]
    notes: tuple[str, ...]
    runs: int


def largest(found: Sequence[Found]) -> dict[str, Found]:
    """Return the level with the largest effect of each factor; active levels take precedence."""
    best: dict[str, Found] = {}
    for one in found:
        above = best.get(one.factor)
        if above is None or (one.active, abs(one.estimate)) > (above.active, abs(above.estimate)):
            best[one.factor] = one
    return best


def named_levels(wanted: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    chosen = []
    for text in wanted:
        name = match(text, names)
        if name is None:
            raise UnknownName("treatment factor", text, names)
        chosen.append(name)
    return [(name, "requested") for name in names if name in chosen]


def pin_of(factor: Factor, best: Found | None, found: Sequence[Found], *, dropped: bool) -> Pin:
    """Pin a factor at its better level if the estimate is beyond the margin and has a direction, else at its reference."""
    others = [one for one in found if one.factor == factor.name]
    if best is None:
        return Pin(factor.name, factor.reference, "not measured")
    gains = [one for one in others if one.better and (one.beyond or one.active) and not one.excluded]
    label, why = factor.reference, "undecided"
    if gains:
        top = max(gains, key=lambda one: abs(one.estimate))
        label, why = top.level, _how_sure(top)
    elif all(one.excluded for one in others):
        why = "no effect that matters"
    elif best.better is False and (best.beyond or best.active):
        why = _how_sure(best)
    elif best.beyond or best.active:
        why = "better and worse by condition"
    return Pin(factor.name, label, f"no room for it: {why}" if dropped else why)


def _how_sure(one: Found) -> str:
    return "looks better, undecided" if not one.active else "better" if one.sure else "probably better"


def as_run(written: Study, ran: Study) -> Study:
    """Return the study as written, with the levels, workloads, margin and alpha that ran as its defaults, and the larger
    budget.

    Raises StudyError if the text does not match the trial."""
    there = {factor.name: factor for factor in written.factors}
    factors: list[Factor] = []
    for factor in ran.factors:
        own = there.get(factor.name)
        same = own is not None and own.role is factor.role and own.whole_plot is factor.whole_plot
        if own is None or not same or not set(factor.levels) <= set(own.levels):
            raise _foreign(ran, f'factor "{factor.name}"')
    by_name = {factor.name: factor for factor in ran.factors}
    for factor in written.factors:
        now = by_name.get(factor.name)
        if now is None:
            if factor in written.treatment_factors:
                raise _foreign(ran, f'factor "{factor.name}"')
            factors.append(factor)
            continue
        labels = tuple(level.label for level in now.levels)
        factors.append(
            structs.replace(
                factor,
                default=labels,
                reference=now.reference if factor in written.treatment_factors else factor.reference,
            )
        )
    names = {workload.name for workload in ran.workloads}
    if not names <= {workload.name for workload in written.workloads}:
        raise _foreign(ran, "a workload")
    workloads: tuple[Workload, ...] = tuple(
        structs.replace(w, default=w.name in names) for w in written.workloads
    )
    for workload in ran.workloads:
        if workload.work != written.workload(workload.name).work:
            raise _foreign(ran, f'workload "{workload.name}"')
    if ran.fixed != written.fixed or ran.lab != written.lab:
        raise _foreign(ran, "the lab, or what is pinned")
    return structs.replace(
        written,
        margin=ran.margin,
        alpha=ran.alpha,
        budget=Budget(
            max(written.budget.time_s, ran.budget.time_s), max(written.budget.blocks, ran.budget.blocks)
        ),
        factors=tuple(factors),
        workloads=workloads,
    )


def _foreign(ran: Study, what: str) -> StudyError:
    return StudyError(
        f"the text stored with the trial of {ran.name} differs from what was run ({what})",
        file=ran.origin,
        hint="name the study's own file to `iotrial run` and refine that trial",
    )


def settings_of(ran: Study, pins: Sequence[Pin]) -> tuple[Setting, ...]:
    return tuple(setting for pin in pins for setting in ran.factor(pin.factor).level(pin.label).settings)


def runs_in_a_block(study: Study) -> int:
    """Return the number of runs in the larger of its first two blocks, controls included.

    Raises RequestError if the study cannot be planned.
    """
    plan = Plan(select(study), "0" * SEED_DIGITS)
    return max(len(plan.block(plan.conditions[0], index).runs) for index in (0, 1))


def renamed(study: Study, what: str) -> Study:
    """Return the study under a new name; a title that only repeats the name changes too."""
    name = named(study.name, what)
    return structs.replace(study, name=name, title=name if study.title == study.name else study.title)


def named(name: str, what: str) -> str:
    """Append a word to the study's name, cutting the name to the maximum length (64)."""
    family, slash, own = name.rpartition("/")
    longest = 64 - len(family) - len(slash) - len(what) - 1
    return f"{family}{slash}{own[: max(1, longest)]}-{what}"


def one_line(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:496]}...?"


# Ablation: plan a leave-one-out study that finds which settings of a bundle caused its gain.


# "all" is reserved on the command line.
EVERYTHING, NOTHING, WITHOUT = "all together", "none", "without "
FACTOR = "optimisations"
_LABEL = 100


def leave_one_out(
    written: Study, ran: Study, found: Sequence[Found], *, wanted: Sequence[str] = ()
) -> FollowUp:
    """Build the leave-one-out study of a bundle.

    The bundle is a level that sets several knobs or, in a trial of several factors, all factors at their better level.
    ``wanted`` names the factor that has the bundle as a level, or the factors that form the bundle.

    Raises RequestError if there is no bundle, or if the reference does not set a knob that the bundle sets.
    """
    names = [factor.name for factor in ran.treatment_factors]
    chosen = [name for name, _ in named_levels(wanted, names)] if wanted else names
    if len(chosen) > 1:
        return _apart_from_factors(written, ran, found, chosen)
    return _apart_from_level(written, ran, found, ran.factor(chosen[0]))


def _apart_from_factors(
    written: Study, ran: Study, found: Sequence[Found], chosen: Sequence[str]
) -> FollowUp:
    best = largest(found)
    parts: list[tuple[str, Level, Level]] = []
    pins: list[Pin] = []
    for factor in ran.treatment_factors:
        pin = pin_of(factor, best.get(factor.name), found, dropped=False)
        if factor.name in chosen and pin.label != factor.reference:
            parts.append((factor.name, factor.level(pin.label), factor.level(factor.reference)))
        else:
            pins.append(pin)
    if len(parts) < 2:
        raise RequestError(
            f"study {ran.name}: only {len(parts)} of its factors has a level better than its reference by this trial, "
            "so there is no bundle to split",
            hint="`iotrial refine` without --ablate proposes what to vary next",
        )
    whole = any(ran.factor(name).whole_plot for name, _, _ in parts)
    return _ablation(
        written,
        ran,
        FACTOR,
        [(name, better.settings, plain.settings) for name, better, plain in parts],
        pins,
        tuple((name, _in_and_out(better.label, plain.label)) for name, better, plain in parts),
        whole_plot=whole,
    )


def _apart_from_level(written: Study, ran: Study, found: Sequence[Found], factor: Factor) -> FollowUp:
    bundles = [
        level for level in factor.levels if level.label != factor.reference and len(level.settings) > 1
    ]
    if not bundles:
        raise RequestError(
            f'study {ran.name}: no level of "{factor.name}" sets more than one knob, so there is nothing to split'
        )
    estimates = {one.level: one for one in found if one.factor == factor.name}
    level = max(bundles, key=lambda level: _gain(estimates.get(level.label)))
    plain = {(s.knob, s.options): s for s in factor.level(factor.reference).settings}
    parts = []
    for setting in level.settings:
        other = plain.get((setting.knob, setting.options))
        if other is None:
            raise RequestError(
                f'study {ran.name}: reference "{factor.reference}" does not set {setting.knob}, level "{level.label}" does',
                hint="name the knob in the reference level, too, and run the study again",
            )
        if other.value != setting.value:
            parts.append((_short(setting, level.settings), (setting,), (other,)))
    if len(parts) < 2:
        raise RequestError(
            f'study {ran.name}: level "{level.label}" differs from "{factor.reference}" in only one knob, '
            "so there is nothing to split"
        )
    same = tuple(s for s in level.settings if plain[s.knob, s.options].value == s.value)
    best = largest(found)
    pins = [
        pin_of(other, best.get(other.name), found, dropped=False)
        for other in ran.treatment_factors
        if other.name != factor.name
    ]
    chosen = tuple((name, _in_and_out(on[0].value, off[0].value)) for name, on, off in parts)
    return _ablation(
        written, ran, factor.name, parts, pins, chosen, whole_plot=factor.whole_plot, always=same
    )


def _ablation(
    written: Study,
    ran: Study,
    name: str,
    parts: Sequence[tuple[str, tuple[Setting, ...], tuple[Setting, ...]]],
    pins: Sequence[Pin],
    chosen: tuple[tuple[str, str], ...],
    *,
    whole_plot: bool,
    always: tuple[Setting, ...] = (),
) -> FollowUp:
    """Build the study. Each of ``parts`` is a name, the settings with the bundle and the settings without it."""

    def level(label: str, without: set[str]) -> Level:
        sets = [off if part in without else on for part, on, off in parts]
        return Level(label, (*itertools.chain.from_iterable(sets), *always))

    names = [part for part, _, _ in parts]
    levels = (
        level(EVERYTHING, set()),
        level(NOTHING, set(names)),
        *(level(_label(part), {part}) for part in names),
    )
    taken = {
        factor.name
        for factor in written.factors
        if factor.name not in {f.name for f in ran.treatment_factors}
    }
    while name in taken:
        name += "-apart"
    factor = Factor(
        name,
        ran.treatment_factors[0].role,
        levels,
        EVERYTHING,
        tuple(one.label for one in levels),
        whole_plot=whole_plot,
    )
    base = renamed(as_run(written, ran), "ablation")
    study = structs.replace(
        base,
        question=one_line(f"Which of {', '.join(names)} contribute to the gain of all together?"),
        factors=(factor, *base.condition_factors),
        fixed=(*base.fixed, *settings_of(ran, pins)),
        claims=(),
        design=Design(repeats=ran.design.repeats if whole_plot else 1),
    )
    runs = runs_in_a_block(study)
    note = f'a setting contributes if "{EVERYTHING}" does worse without it; two settings that do the same hide each other'
    return FollowUp(study, chosen, tuple(pins), (note,), runs)


def _in_and_out(value: str, plain: str) -> str:
    return f'"{value}" in the bundle, "{plain}" without'


def _gain(one: Found | None) -> tuple[bool, float]:
    if one is None:
        return False, -math.inf
    return bool(one.better), abs(one.estimate)


def _short(setting: Setting, others: Sequence[Setting]) -> str:
    """Short name of a knob for a label: its first option or the last part of its name; with the knob if ambiguous."""
    name = _own_name(setting)
    same = any(other is not setting and _own_name(other) == name for other in others)
    return f"{setting.knob} {name}" if same else name


def _own_name(setting: Setting) -> str:
    return setting.options[0][1].strip("{}") if setting.options else setting.knob.rpartition(".")[2]


def _label(part: str) -> str:
    """Return "without X" as a valid label."""
    return (WITHOUT + part.replace(",", " ").replace("+", " "))[:_LABEL].strip()
