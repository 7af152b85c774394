"""Which part of a bundle earned the gain: the first sentence of a study that ``iotrial refine --ablate`` has written.

The reference is the whole bundle; each other level leaves one of its settings out, and one leaves all of them out. A
setting earned something if without it the bundle does worse.
"""

from __future__ import annotations

from collections.abc import Sequence

from iotrial.analysis.model import Effect, Verdict
from iotrial.design.ablation import EVERYTHING, NOTHING, WITHOUT
from iotrial.report.conditions import Conditions
from iotrial.report.notation import counted, joined, percent, some
from iotrial.report.phrases import SIZE_OPEN, Kind, effect_numbers, kind_of, label, response_name
from iotrial.report.screens import Setting, settings_of
from iotrial.study.model import Study

_GOOD = frozenset({Verdict.FASTER, Verdict.BETTER})
_BAD = frozenset({Verdict.SLOWER, Verdict.WORSE})
_MOST_NAMED = 4


def is_ablation(study: Study) -> bool:
    """Whether the study's only treatment is a bundle from which one setting at a time is left out."""
    if len(study.treatment_factors) != 1:
        return False
    factor = study.treatment_factors[0]
    others = [level.label for level in factor.levels if level.label not in (EVERYTHING, NOTHING)]
    return factor.reference == EVERYTHING and bool(others) and all(one.startswith(WITHOUT) for one in others)


def ablation_finding(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> str:
    """E.g. "1 of 3 settings earned the gain: without slow it takes 1.31 times the time of everything [1.25, 1.37]; a and b
    make no difference of 3 %; without any of them it takes 1.33 times the time [1.28, 1.40]"."""
    every = settings_of(effects)
    parts = [one for one in every if one.level != NOTHING]
    whole = next((one for one in every if one.level == NOTHING), None)
    earned = [one for one in parts if one.loud and not any(effect.verdict in _GOOD for effect in one.loud)]
    mixed = [one for one in parts if _some(one, _GOOD) and _some(one, _BAD)]
    harmful = [one for one in parts if one.loud and one not in (*earned, *mixed)]
    order = list(dict.fromkeys(effect.level for effect in effects))
    declared = sorted(parts, key=lambda one: order.index(one.level))
    idle = [one for one in declared if one.equivalent]
    open_ = [one for one in declared if not one.loud and not one.equivalent]
    several = len({conditions.of_levels(e.condition, e.workload).key for e in effects}) > 1
    of = counted(len(parts), "setting")
    said = []
    for word, alike in (
        ("", [one for one in earned if one.plain]),
        ("probably ", [one for one in earned if not one.plain]),
    ):
        named = some([_size(one, conditions, several=several) for one in alike], _MOST_NAMED)
        if alike:
            size = SIZE_OPEN if word else ""
            said.append(f"{len(alike)} of {of} {word}earned the gain{size}: {', '.join(named)}")
    if not earned:
        where = " everywhere" if mixed else ""
        said.append(f"none of {of} is shown to have earned a gain of its own{where}")
    for one in harmful:
        probably = "" if one.plain else "probably "
        said.append(f"{probably}better left out: {_size(one, conditions, several=several)}")
    for one in mixed:
        worse = next(effect for effect in one.loud if effect.verdict in _BAD)
        better = next(effect for effect in one.loud if effect.verdict in _GOOD)
        said.append(
            f"{label(one.level)} it depends: {_taken(worse)}{_place(worse, conditions, several=several)}, "
            f"but {_taken(better)}{_place(better, conditions, several=several)}"
        )
    if idle:
        make = "makes" if len(idle) == 1 else "make"
        said.append(f"{_names(idle)} {make} no difference of {percent(margin)}")
    if open_:
        said.append(f"undecided for {_names(open_)}")
    if whole is not None:
        said.append(_of_all(whole, conditions, several=several, margin=margin))
    return "; ".join(said)


def _some(setting: Setting, verdicts: frozenset[Verdict]) -> bool:
    return any(effect.verdict in verdicts for effect in setting.loud)


def _names(settings: Sequence[Setting]) -> str:
    return joined(label(one.level.removeprefix(WITHOUT)) for one in settings)


def _of_all(one: Setting, conditions: Conditions, *, several: bool, margin: float) -> str:
    if one.loud:
        probably = "probably, " if one.loud[0].conclusion.probable else ""
        return f"{probably}without all of them {_taken(one.loud[0])}" + _place(
            one.loud[0], conditions, several=several
        )
    if one.equivalent:
        return f"without all of them it is the same within {percent(margin)}: there was no gain to earn"
    return "undecided whether the whole bundle gains anything"


def _size(one: Setting, conditions: Conditions, *, several: bool) -> str:
    effect = one.loud[0]
    return f"{label(one.level)} {_taken(effect)}{_place(effect, conditions, several=several)}"


def _place(effect: Effect, conditions: Conditions, *, several: bool) -> str:
    return f" ({conditions.of_levels(effect.condition, effect.workload).text})" if several else ""


def _taken(effect: Effect) -> str:
    estimate, low, high, unit = effect_numbers(effect)
    bounds = f"[{low}, {high}]"
    match kind_of(effect):
        case Kind.TIME:
            return f"it takes {estimate} times the time {bounds}"
        case Kind.RATE:
            return f"it reaches {estimate} times the rate {bounds}"
        case Kind.AMOUNT:
            return f"{response_name(effect)} is {estimate} times as much {bounds}"
        case Kind.DIFFERENCE:
            return f"{response_name(effect)} changes by {estimate} {bounds}{unit}"
