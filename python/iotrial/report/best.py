"""The result of ``iotrial best`` in words and tables: a race of many settings, and the confirmation of its winner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.knobs.declaration import Safety, consequence_of
from iotrial.report.notation import counted, joined, percent, plain, some
from iotrial.report.phrases import label, size_in_words, size_of
from iotrial.report.safety import NO_RISKS, Risks, changed, setting_name
from iotrial.stats.model import Conclusion, Effect, Left, Race, Verdict
from iotrial.study.model import Better, Setting, Study

_MOST_NAMES = 4
#: of the gain (as a logarithm) of the best estimate: an arm of fewer changes that has this much is confirmed first
_MOST_OF_GAIN = 0.7


def recommended(study: Study, race: Race) -> str | None:
    """Return the arm that a race recommends; None if no setting is shown to be better than today's.

    Of the good ones: harmless settings before trade-offs, few changes before many, then the best estimate. If the race is
    not over: of those shown to be better than today's settings, the one with the best estimate.
    """
    names = race.good or race.better
    if not names or race.reference in names:
        return None
    places = {one.arm: one for one in race.places}

    def order(arm: str) -> tuple[float, ...]:
        effect = race.sign * (places[arm].effect or 0.0)
        if not race.good:
            return (effect,)
        changes = changed(study, arm)
        harmless = all(consequence_of(one).safety is Safety.HARMLESS for one in changes)
        return (not harmless, len(changes), effect)

    return min(names, key=order)


def candidate(study: Study, race: Race) -> str | None:
    """Return the arm to compare with today's settings on fresh blocks; None if today's are best by all estimates.

    It is the recommended one. If a race ended without any, it is the arm with the fewest changes that has most of the gain
    of the best estimate: its confirmation needs the fewest blocks, and each of its settings gets evidence of its own.
    """
    if race.over:
        return recommended(study, race)
    inside = [one for one in race.places if one.left is None and one.effect is not None]
    inside = [one for one in inside if one.arm in race.better] or inside
    gains = {one.arm: -race.sign * (one.effect or 0.0) for one in inside if one.arm != race.reference}
    return _with_most_of_the_gain(study, gains)


def _with_most_of_the_gain(study: Study, gains: Mapping[str, float]) -> str | None:
    """Return the arm with the fewest changes of those with most of the largest gain; None if there is no gain."""
    least = _MOST_OF_GAIN * max(gains.values(), default=0.0)
    near = [arm for arm, gain in gains.items() if gain >= least > 0.0]
    return min(near, key=lambda arm: (len(changed(study, arm)), -gains[arm]), default=None)


def race_finding(race: Race, effects: Sequence[Effect], study: Study, *, margin: float) -> str:
    """Return what a race found, as a clause. ``effects``: those of the trial."""
    others = len(race.places) - 1
    arm = recommended(study, race)
    limit = percent(margin)
    found = effects_of(race, effects)
    inside = [one.arm for one in race.places if one.left is None]
    if arm is None:
        if race.good:
            return f"keep today's settings: none of {counted(others, 'other')} is better by {limit} or more"
        shown = {one: _gain(found[one]) for one in inside if one in found and found[one].conclusion.improves}
        arm = _with_most_of_the_gain(study, shown)
        if arm is None:
            return (
                f"undecided: of {counted(len(race.places), 'setting')}, {len(inside)} may still be the best "
                f"({joined(some([label(name) for name in inside], _MOST_NAMES))})"
            )
        rest = len(set(inside) - {arm, race.reference})
        return (
            f"partial answer: with {label(arm)}, {size_in_words(found[arm], than=True)}; "
            f"{counted(rest, 'other')} may be better"
        )
    size = "" if arm not in found else f": {size_in_words(found[arm])}"
    better = f"{label(arm)} is better than today's settings{size}"
    if not race.good:
        return f"{better}; {counted(len(inside) - 1, 'other')} may still be better"
    return f"{better}; none of {counted(others, 'other')} is better by {limit} or more"


def effects_of(race: Race, effects: Sequence[Effect]) -> Mapping[str, Effect]:
    """Return the effects of a race's arms against the reference, by level."""
    return {
        one.level: one
        for one in effects
        if one.kind == "main"
        and one.primary
        and one.response == race.response
        and one.reference == race.reference
    }


def confirming_effects(effects: Sequence[Effect], reference: str) -> tuple[Effect | None, tuple[Effect, ...]]:
    """Return the effect of the new settings against today's, and those of leaving out one each."""
    main = [one for one in effects if one.primary and one.kind == "main"]
    whole = next((one for one in main if one.reference == reference), None)
    return whole, tuple(one for one in main if one is not whole)


def confirmation_finding(effects: Sequence[Effect], study: Study, measured: Risks = NO_RISKS) -> str:
    """Return what a confirmation found, as a clause. ``measured``: the levels that lost or corrupted data in power cuts."""
    reference = study.treatment_factors[0].reference
    whole, _ = confirming_effects(effects, reference)
    if whole is None:
        return "undecided: nothing was compared with today's settings"
    settings = changed(study, whole.level)
    new = described(settings)
    if whole.conclusion.improves:
        probably = "probably " if whole.conclusion.probable else ""
        harm = harmed(effects, study, measured)
        if harm is not None:
            return f"keep today's settings: with {new}, {probably}{size_in_words(whole, than=True)}, but it {harm}"
        advice = advised(study, effects, measured)
        found = f"{probably}{size_in_words(advice.against, than=True)}"
        words = (
            f"use {described(advice.kept)}: {found}"
            if advice.kept
            else f"partial answer: with {new}, {found}"
        )
        return "; ".join([words, *(_not_used(one, lacking) for one, lacking in advice.left_out)])
    if whole.conclusion is Conclusion.UNDECIDED:
        return f"undecided: {new} may be better than today's settings, but fresh blocks do not show it"
    return f"keep today's settings: on fresh blocks, {new} is not better"


def _named_at_risk(settings: Sequence[Setting]) -> bool:
    """Return whether the user has agreed to a risk: settings that put data at risk take part only if named."""
    return any(consequence_of(one).safety is Safety.DATA_AT_RISK for one in settings)


def harmed(effects: Sequence[Effect], study: Study, measured: Risks) -> str | None:
    """Return what power cuts did to the winner of a confirmation, if that is why it is not to be used."""
    whole, _ = confirming_effects(effects, study.treatment_factors[0].reference)
    if whole is None or _named_at_risk(changed(study, whole.level)):
        return None
    return measured.get(whole.factor, {}).get(whole.level)


@dataclass(frozen=True, slots=True)
class Advice:
    """Which settings of a confirmed winner to use: those with evidence of their own.

    ``kept``: empty if no measured level consists of such settings only (a partial answer). ``contributing``: those that the
    winner is shown to need. ``against``: the kept settings against today's, or the whole winner if none is kept.
    ``left_out``: the others, with the effect of leaving each out.
    """

    kept: tuple[Setting, ...]
    contributing: tuple[Setting, ...]
    against: Effect
    left_out: tuple[tuple[Setting, Effect], ...]


def advised(study: Study, effects: Sequence[Effect], measured: Risks = NO_RISKS) -> Advice:
    """Return which settings of a confirmed winner to use. The winner must be better than today's settings.

    A level is advised if it was measured, is better than today's, and each of its settings is shown to contribute or is its
    only one. The winner itself comes first, then a level that is within the margin of the others, then harmless settings,
    then the best estimate. ``measured``: a level that lost data in power cuts is not advised, unless its risk was named.
    """
    whole, without = confirming_effects(effects, study.treatment_factors[0].reference)
    assert whole is not None
    evidence = dict(evidence_of_settings(study, effects))
    settings = changed(study, whole.level)
    contributing = tuple(one for one in settings if one not in evidence or _is_worse(evidence[one]))
    if len(contributing) == len(settings):
        return Advice(settings, contributing, whole, ())
    found: list[tuple[tuple[bool, bool, float], tuple[Setting, ...], Effect]] = []
    for one in without:
        lacking = _left_out(study, one)
        kept = tuple(s for s in settings if s not in lacking)
        against = _chained(one, whole)
        harm = measured.get(whole.factor, {}).get(one.level) if not _named_at_risk(kept) else None
        alone = len({evidence[s].level for s in kept}) == 1
        if kept and harm is None and _losses(against)[1] < 0.0 and (alone or set(kept) <= set(contributing)):
            harmless = all(consequence_of(s).safety is Safety.HARMLESS for s in kept)
            order = not keeps_the_gain(one, whole, without), not harmless, -_gain(one)
            found.append((order, kept, against))
    kept, against = min(found, key=lambda one: one[0])[1:] if found else ((), whole)
    return Advice(
        kept,
        contributing,
        against,
        tuple((s, evidence[s]) for s in settings if s in evidence and s not in kept),
    )


def _chained(one: Effect, whole: Effect) -> Effect:
    """Return a level against today's settings, from it against the winner and the winner against today's.

    Both intervals hold simultaneously, so the sum of their bounds (of logarithms) holds.
    """

    def product(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else a * b

    bounds = [one.bounds or (one.low, one.high), whole.bounds or (whole.low, whole.high)]
    low, high = (product(*ends) for ends in zip(*bounds, strict=True))
    return replace(
        whole,
        level=one.level,
        value=product(one.value, whole.value),
        low=low,
        high=high,
        bounds=None,
        two_sided=None,
        slow_runs=None,
        mean_ratio=None,
        means=None,
    )


def _not_used(setting: Setting, without: Effect) -> str:
    """Return why a setting of the winner is not used, as a clause."""
    why = (
        "contributes"
        if _is_worse(without)
        else "is not needed"
        if as_good(without)
        else "is not shown to contribute"
    )
    return f"{described([setting])} {why} (without it {size_of(without)})"


def _is_worse(effect: Effect) -> bool:
    return effect.verdict in (Verdict.SLOWER, Verdict.WORSE)


def evidence_of_settings(study: Study, effects: Sequence[Effect]) -> Iterator[tuple[Setting, Effect]]:
    """Yield the settings of a confirmed winner, each with the effect of leaving it out.

    A setting that needs another one is left out twice: the effect is that of leaving out the fewest.
    """
    _, without = confirming_effects(effects, study.treatment_factors[0].reference)
    fewest: dict[Setting, Effect] = {}
    for one in sorted(without, key=lambda one: len(_left_out(study, one))):
        for setting in _left_out(study, one):
            fewest.setdefault(setting, one)
    yield from fewest.items()


def _left_out(study: Study, effect: Effect) -> tuple[Setting, ...]:
    factor = study.treatment_factors[0]
    lacking = set(factor.level(effect.level).settings)
    return tuple(one for one in factor.level(effect.reference).settings if one not in lacking)


def as_good(effect: Effect) -> bool:
    """Return whether leaving a setting out is shown to make no difference that matters, or to be better."""
    return effect.conclusion.equivalent or effect.conclusion.improves


def keeps_the_gain(one: Effect, whole: Effect | None, without: Sequence[Effect]) -> bool:
    """Return whether the settings without one are shown to be better than today's, and within the margin of the others.

    By sums of bounds: without it against the whole, plus the whole against today's settings or another level.
    """
    _, most = _losses(one)
    best_of_others = min((_losses(other)[0] for other in without if other is not one), default=0.0)
    gain = -math.inf if whole is None else -_losses(whole)[1]
    return most < gain and most - min(0.0, best_of_others) < math.log1p(one.margin)


def _gain(effect: Effect) -> float:
    gain = -math.log(effect.value) if effect.value else -math.inf
    return -gain if effect.better is Better.HIGHER else gain


def _losses(effect: Effect) -> tuple[float, float]:
    """Return the bounds on how much worse the level is than its reference, as logarithms of ratios."""
    low, high = effect.bounds or (effect.low, effect.high)
    ends = -math.inf if not low else math.log(low), math.inf if not high else math.log(high)
    return (-ends[1], -ends[0]) if effect.better is Better.HIGHER else ends


def described(settings: Sequence[Setting]) -> str:
    """Return e.g. "block.scheduler none and block.read_ahead_kb 4096"."""
    return joined(label(" ".join([setting_name(one), one.value])) for one in settings)


_WHY = {
    Left.WORSE: "left: {} is better",
    Left.NO_GAIN: "left: not better than today's by the margin",
    Left.FAILS: "left: its runs fail",
}


def race_rows(race: Race, effects: Sequence[Effect]) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each arm its name, its blocks, its effect against the reference, and how it stands; the best first."""
    found = effects_of(race, effects)
    for one in sorted(race.places, key=lambda one: (one.left is not None, race.sign * (one.effect or 0.0))):
        own = found.get(one.arm)
        if one.arm == race.reference:
            effect = "reference"
        elif own is not None and (own.low is not None or own.high is not None):
            effect = size_of(own)
        else:
            effect = "" if one.effect is None else f"{plain(math.exp(one.effect))} times, no interval yet"
        if one.left is not None:
            stands = _WHY[one.left].format(label(one.because_of or ""))
        else:
            stands = "good" if one.good else "in the race"
        yield label(one.arm), str(one.blocks), effect, stands
