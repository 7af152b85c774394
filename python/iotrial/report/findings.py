"""The findings over levels, conditions and workloads as one clause: the middle of a trial's first sentence.

The answer has some twenty words: the table below it has the rest. The effects of one level against its reference form a
group. Groups that agree share one statement, two comparisons get one each; if there are more, those that differ are counted
and the largest effect is named.

Screening studies, with many settings: readers ask which of dozens matter rather than look for one comparison. So the
sentence counts the settings and names the largest, and tables list the largest first.

Ablation studies, written by ``iotrial refine --ablate``: which part of a bundle earned the gain. The reference is the
whole bundle; each other level leaves one of its settings out, and one leaves all of them out. A setting earned
something if the bundle does worse without it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from iotrial.design.refine import EVERYTHING, NOTHING, WITHOUT
from iotrial.report.conditions import Conditions
from iotrial.report.notation import counted, joined, named_level, percent, some
from iotrial.report.phrases import (
    SIZE_OPEN,
    Kind,
    direction_and_size,
    is_speed,
    kind_of,
    label,
    level_name,
    percent_numbers,
    reason_in_words,
    response_name,
    size_in_words,
    size_of,
    span_ends,
    statement,
    still_possible,
    without_interval,
)
from iotrial.report.slow_runs import covers_typical
from iotrial.stats.model import QUIET, Conclusion, Effect, Verdict
from iotrial.study.model import Scale, Study
from iotrial.terminal import escape

# Not repeated in words: the numbers next to it show it already.
_TOO_WIDE = "budget_spent"
_MOST_CLAUSES = 2
_MOST_LABELS = 3
#: the beginning of a size in words that is not needed where the level is named before
_VERB = re.compile(r"^(?:it (?:takes|is|reaches) (?:an? )?|by )")
_EQUIVALENT_WORDS = {Conclusion.EQUIVALENT.words, Conclusion.EQUIVALENT_TYPICALLY.words}


@dataclass(frozen=True, slots=True)
class Setting:
    """The effects of one level against its reference, over conditions, workloads and responses."""

    factor: str
    level: str
    reference: str
    effects: tuple[Effect, ...]

    @property
    def words(self) -> str | None:
        """The conclusion that all of them share, else None."""
        return _shared(effect.conclusion.words for effect in self.effects)

    @property
    def name(self) -> str:
        """E.g. "atime noatime"."""
        return named_level(label(self.factor), label(self.level))

    @property
    def loud(self) -> tuple[Effect, ...]:
        """The effects with a decided direction, largest first."""
        found = [effect for effect in self.effects if effect.verdict not in QUIET]
        return tuple(sorted(found, key=strength, reverse=True))

    @property
    def plain(self) -> tuple[Effect, ...]:
        """The effects with their whole interval beyond the margin, largest first."""
        return tuple(effect for effect in self.loud if not effect.conclusion.probable)

    @property
    def equivalent(self) -> bool:
        """Whether an effect that matters is excluded everywhere."""
        return all(effect.conclusion.equivalent for effect in self.effects)


def _shared(words: Iterable[str]) -> str | None:
    """Return the words that all conclusions share, else None. Equivalence of the mean run too is of typical runs as well."""
    found = set(words)
    if found == _EQUIVALENT_WORDS:
        return Conclusion.EQUIVALENT_TYPICALLY.words
    return found.pop() if len(found) == 1 else None


def finding(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> str:
    """Return the clause, without a capital or a full stop; ``effects`` holds at least one."""
    groups = _settings(effects)
    words = None if any(group.words is None for group in groups) else _shared(str(g.words) for g in groups)
    if len(groups) > 1 and words is not None:
        return _all_alike(groups, effects, words, conditions, margin=margin)
    if len(groups) > 1 and len(effects) > _MOST_CLAUSES:
        return f"{_counts(effects)}{_most(effects, conditions)}"
    return "; ".join(_clause(group, conditions, margin=margin, short=len(groups) > 1) for group in groups)


def by_level(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> tuple[str, ...]:
    """Return one clause for each level if :func:`finding` counted them instead; empty if it stated them.

    Levels that are equivalent to the same reference in several conditions share a clause.
    """
    groups = _settings(effects)
    if len(groups) < 2 or len(effects) <= _MOST_CLAUSES:
        return ()
    alike: dict[tuple[object, ...], list[Setting]] = {}
    for group in groups:
        # of a single effect the clause has the size
        equivalent = (
            group.effects[0].conclusion.equivalent and group.words is not None and len(group.effects) > 1
        )
        same = group.words if equivalent else group.level
        alike.setdefault((group.factor, group.reference, equivalent, same), []).append(group)
    return tuple(
        _clause(some[0], conditions, margin=margin)
        if len(some) == 1
        else _all_alike(
            some, [e for one in some for e in one.effects], some[0].words or "", conditions, margin=margin
        )
        for some in alike.values()
    )


def strength(effect: Effect) -> float:
    """Return how far the estimate lies from no effect, on the effect's own scale."""
    if effect.value is None:
        return 0.0
    return abs(log(effect.value)) if effect.scale is Scale.LOG else abs(effect.value)


def width(effect: Effect) -> float:
    """Return the width of the interval on the effect's own scale; infinite if an end is unbounded."""
    if effect.low is None or effect.high is None:
        return inf
    return log(effect.high / effect.low) if effect.scale is Scale.LOG else effect.high - effect.low


def _settings(effects: Sequence[Effect]) -> list[Setting]:
    """Return the effects by level, in their order."""
    found: dict[tuple[str, str, str], list[Effect]] = {}
    for effect in effects:
        found.setdefault((effect.factor, effect.level, effect.reference), []).append(effect)
    return [Setting(*key, tuple(members)) for key, members in found.items()]


def _all_alike(
    groups: Sequence[Setting],
    effects: Sequence[Effect],
    words: str,
    conditions: Conditions,
    *,
    margin: float,
) -> str:
    """Describe several levels with the same conclusion."""
    names, where = _names(groups), _where(effects, conditions)
    match effects[0].verdict:
        case Verdict.EQUIVALENT:
            return f"{names} are {_same(effects)}{where}{_within(effects, margin)}"
        case Verdict.INCONCLUSIVE:
            return f"{names} vs {_references(groups)}{where}: {_undecided(effects)}"
        case _:
            size = SIZE_OPEN if effects[0].conclusion.probable else ""
            if all(is_speed(effect) for effect in effects):
                return f"{names} are {words} than {_references(groups)}{where}{size}: {_span(effects)}"
            subject, references = _subject(effects), _references(groups)
            most = _most(effects, conditions)
            return f"{subject} is {words} under {names} than under {references}{where}{size}{most}"


def _clause(group: Setting, conditions: Conditions, *, margin: float, short: bool = False) -> str:
    """Describe one level against its reference; ``short``: without an interval."""
    first, several = group.effects[0], len(group.effects) > 1
    name, reference = level_name(first), label(group.reference)
    where = _where(group.effects, conditions)
    if group.words is None:
        return (
            f"{name} vs {reference}: {_counts(group.effects)}{_most(group.effects, conditions, named=False)}"
        )
    match first.verdict:
        case Verdict.EQUIVALENT:
            though = (
                f", though detectably {escape(first.detectably)}" if first.detectably and not several else ""
            )
            size = f": {size_of(first)}" if not several and not short else ""
            return f"{name} is {_same(group.effects)}{where}{though}{size}{_within(group.effects, margin)}"
        case Verdict.INCONCLUSIVE:
            return f"{name} vs {reference}{where}: {_undecided(group.effects)}"
        case _ if several:
            return f"{statement(first)}{where}: {_span(group.effects)}"
        case _:
            text = (
                f"{statement(first)}: {without_interval(size_of(first))}"
                if short
                else direction_and_size(first)
            )
            return f"{text}{where}"


def _counts(effects: Sequence[Effect]) -> str:
    """Return e.g. "2 of 8 comparisons differ, 1 probably, 3 undecided": the others are equivalent."""
    plain = sum(one.verdict not in QUIET and not one.conclusion.probable for one in effects)
    probable = sum(one.verdict not in QUIET and one.conclusion.probable for one in effects)
    not_tried = sum(bool(one.not_tried) for one in effects)
    undecided = sum(one.verdict is Verdict.INCONCLUSIVE for one in effects) - not_tried
    total = counted(len(effects), "comparison")
    verb = (
        "differ"
        if plain > 1
        else "differs"
        if plain
        else "differs plainly"
        if probable
        else "is shown to differ"
    )
    first = f"{plain or 'none'} of {total} {verb}"
    rest = ((probable, "probably"), (undecided, "undecided"), (not_tried, "not tried"))
    return ", ".join([first, *(f"{number} {word}" for number, word in rest if number)])


def _most(effects: Sequence[Effect], conditions: Conditions, *, named: bool = True) -> str:
    """Return e.g. "; most: mode 0444 takes 47 % less time than 0777 (cache cold)"; a plain effect before a probable one.

    Not ``named``: "; most: 47 % less time (cache cold)".
    """
    loud = [effect for effect in effects if effect.verdict not in QUIET]
    if not loud:
        return ""
    most = max(loud, key=lambda one: (not one.conclusion.probable, strength(one)))
    size = effect_of(most) if named else _VERB.sub("", size_in_words(most))
    return f"; most: {without_interval(size)}{conditions.of_effect(most).behind}"


def _inside(effects: Sequence[Effect]) -> bool:
    """Return whether all intervals lie within the margin: then their width is not what leaves the effects undecided."""
    return all(
        effect.scale is Scale.LOG
        and effect.low is not None
        and effect.high is not None
        and 1.0 / (1.0 + effect.margin) <= effect.low
        and effect.high <= 1.0 + effect.margin
        for effect in effects
    )


def effect_of(effect: Effect) -> str:
    """Return e.g. "mode 0444 takes 47 % less time than 0777 [-50, -44]"."""
    size = size_in_words(effect, than=True)
    if is_speed(effect):
        return f"{level_name(effect)} {size.removeprefix('it ')}"
    return f"{response_name(effect)} under {level_name(effect)}, {size}"


def _span(effects: Sequence[Effect]) -> str:
    """Return e.g. "time -57 % to -42 %", "2.1 to 12 times as fast": in percent the lowest first, in times the smallest."""
    ordered = sorted(effects, key=lambda effect: effect.value or 0.0)
    ends: tuple[Effect, ...] = (ordered[0], ordered[-1])
    times = any(effect.scale is Scale.LOG and percent_numbers(effect) is None for effect in ends)
    if times:
        ends = tuple(sorted(ends, key=lambda effect: abs(log(effect.value or 1.0))))
    noun = "" if times else {Kind.TIME: "time ", Kind.RATE: "rate "}.get(kind_of(ordered[0]), "")
    least, most = (without_interval(size_of(effect, times=times)) for effect in ends)
    if least == most:
        return f"{noun}{least}"
    number, _, unit = least.partition(" ")
    return f"{noun}{number if most.endswith(f' {unit}') and times else least} to {most}"


def _within(effects: Sequence[Effect], margin: float) -> str:
    """Return e.g. ", within 3 %": every larger effect is excluded."""
    by_ratio = all(effect.scale is Scale.LOG for effect in effects)
    return f", within {percent(margin)}" if by_ratio else ", within the margin"


def _undecided(effects: Sequence[Effect]) -> str:
    """Return e.g. "undecided. Effects from -12.5 % to +5.8 % remain possible", and why if their width is not the reason.

    "not tried: ..." if no run could feel the setting.
    """
    if not_tried := _not_tried(effects):
        return f"not tried: {not_tried}"
    reasons = Counter(effect.reason for effect in effects if effect.reason not in (None, _TOO_WIDE))
    because = f" ({_because(str(reasons.most_common(1)[0][0]))})" if reasons else ""
    unbounded = sum(effect.low is None or effect.high is None for effect in effects)
    if unbounded and len(effects) > 1:
        blocks = counted(max(effect.blocks for effect in effects), "block")
        has = "have" if unbounded > 1 else "has"
        return (
            f"undecided{because}. {unbounded} of {len(effects)} comparisons {has} no bound yet after {blocks}"
        )
    by_unit: dict[tuple[Scale, str], list[Effect]] = {}
    for effect in effects:
        by_unit.setdefault(
            (effect.scale, effect.unit if effect.scale is Scale.DIFFERENCE else ""), []
        ).append(effect)
    left = ". ".join(still_possible(_hull(alike)) for alike in by_unit.values())
    return f"undecided{because}" if reasons and _inside(effects) else f"undecided{because}. {left}"


def _not_tried(effects: Sequence[Effect]) -> str:
    """Return why no run could feel the settings; empty if a run could feel one of them."""
    return (
        joined(dict.fromkeys(escape(one.not_tried) for one in effects))
        if all(one.not_tried for one in effects)
        else ""
    )


def _because(reason: str) -> str:
    """Return a reason for a headline; a note of the report says what failed runs mean."""
    return "runs failed" if reason == "failures" else reason_in_words(reason)


def span_sentence(effect: Effect, conditions: Conditions) -> str:
    """Describe a mean over conditions that hides their differences.

    E.g. "atime relatime: from 0.389 (file fresh) to 0.998 (file stale) in 2 conditions".
    """
    assert effect.span is not None
    least, most = span_ends(effect)
    places = [
        conditions.of_levels(at, effect.workload).text for at in (effect.span.least_at, effect.span.most_at)
    ]
    return (
        f"{level_name(effect)}: from {least} ({places[0]}) to {most} ({places[1]}) "
        f"in {effect.span.conditions} conditions"
    )


def _hull(effects: Sequence[Effect]) -> Effect:
    """Return one effect with an interval that covers all others: what lies outside is excluded in each."""
    lows = [effect.low for effect in effects if effect.low is not None]
    highs = [effect.high for effect in effects if effect.high is not None]
    return replace(effects[0], low=min(lows, default=None), high=max(highs, default=None))


def _same(effects: Sequence[Effect]) -> str:
    references = joined(dict.fromkeys(label(effect.reference) for effect in effects))
    typically = covers_typical(effects)
    if all(is_speed(effect) for effect in effects):
        return f"as fast as {references}{typically}"
    return f"the same as {references} in {_subject(effects)}{typically}"


def _subject(effects: Sequence[Effect]) -> str:
    return joined(dict.fromkeys(response_name(effect) for effect in effects))


def _names(groups: Sequence[Setting]) -> str:
    """Return e.g. "mode 0444, 0555 and 0666"; if there are many, their number."""
    factors: dict[str, list[str]] = {}
    for group in groups:
        factors.setdefault(group.factor, []).append(group.level)
    if len(groups) > _MOST_LABELS:
        return f"all {len(groups)} levels of {joined(map(label, factors))}"
    return joined(f"{label(factor)} {joined(map(label, levels))}" for factor, levels in factors.items())


def _references(groups: Sequence[Setting]) -> str:
    return joined(dict.fromkeys(label(group.reference) for group in groups))


def _where(effects: Sequence[Effect], conditions: Conditions) -> str:
    """Return e.g. " in all 8 conditions", " (workload read)" for one of several, "" if the study has only one."""
    number = len({conditions.of_effect(effect).key for effect in effects})
    if number < 2:
        return conditions.of_effect(effects[0]).behind
    return " in both conditions" if number == 2 else f" in all {number} conditions"


MANY = 4
_MOST_ARMS = 12
_MOST_NAMED = 3
_MOST_LISTED = 40


def is_screen(study: Study) -> bool:
    """Return whether a study is a screen: it asks which of many settings matter."""
    return len(study.treatment_factors) >= MANY


def arms_are_rows(study: Study) -> bool:
    """Return whether there are too many arms to show one by one; figures and evidence then go by the level of a factor."""
    factors = study.treatment_factors
    if len(factors) < 2:
        return False
    return not study.design.kind.crossed or math.prod(len(f.levels) for f in factors) > _MOST_ARMS


def settings_of(effects: Sequence[Effect]) -> tuple[Setting, ...]:
    """Return the effects by level, the largest first."""
    return tuple(sorted(_settings(effects), key=lambda one: -max(map(strength, one.effects))))


def screen_finding(
    effects: Sequence[Effect],
    conditions: Conditions,
    *,
    margin: float,
    together: Collection[tuple[str, str]] = (),
) -> str:
    """Summarise a screen.

    E.g. "4 of 26 settings change the wall time; most: noatime takes 9 % less time than relatime". ``together``: factor
    and level of settings that act only together with another; those count as neither equivalent nor undecided.
    """
    settings = settings_of(effects)
    plain = sorted((one for one in settings if one.plain), key=lambda one: -strength(one.plain[0]))
    probable = [one for one in settings if one.loud and not one.plain]
    rest = _rest(_apart(settings, together), margin=margin)
    what = _screen_subject(effects)
    of = counted(len(settings), "setting")
    if not plain and not probable:
        return f"none of {of} is shown to change {what}{f': {rest}' if rest else ''}"
    parts = []
    if plain:
        count = f"{len(plain)} of {of}" if len(settings) > 1 else "the setting"
        change = "change" if len(plain) > 1 else "changes"
        parts.append(f"{count} {change} {what}")
    if probable:
        count = f"{len(probable)}{'' if plain else f' of {of}'}" if len(settings) > 1 else "the setting"
        change = "change" if len(probable) > 1 else "changes"
        parts.append(f"{count} probably" + ("" if plain else f" {change} {what}"))
    return f"{', '.join(parts)}{_most([one.loud[0] for one in (*plain, *probable)], conditions)}"


def screen_details(
    effects: Sequence[Effect], *, margin: float, together: Collection[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Name the settings that are undecided, and those that are equivalent; without a full stop."""
    settings = _apart(settings_of(effects), together)
    undecided = [one.name for one in settings if not one.loud and not one.equivalent]
    equivalent = [one.name for one in settings if one.equivalent]
    parts = []
    if undecided:
        parts.append(f"undecided, the largest estimate first: {_listed(undecided)}")
    if equivalent:
        parts.append(f"equivalent within {percent(margin)}: {_listed(equivalent)}")
    return tuple(parts)


def _apart(settings: Sequence[Setting], together: Collection[tuple[str, str]]) -> tuple[Setting, ...]:
    """Drop the settings that act only together with another."""
    return tuple(one for one in settings if (one.factor, one.level) not in together)


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_LISTED:
        return f"{', '.join(names[:_MOST_LISTED])} and {len(names) - _MOST_LISTED} more"
    return joined(names)


def _rest(settings: Sequence[Setting], *, margin: float) -> str:
    equivalent = sum(one.equivalent for one in settings)
    undecided = sum(not one.loud and not one.equivalent for one in settings)
    parts = []
    if equivalent:
        parts.append(f"{equivalent} {'is' if equivalent == 1 else 'are'} equivalent within {percent(margin)}")
    if undecided:
        parts.append(f"{undecided} undecided")
    return ", ".join(parts)


def _screen_subject(effects: Sequence[Effect]) -> str:
    names = dict.fromkeys(map(_spoken, effects))
    return f"the {joined(names, last='or')}"


def _spoken(effect: Effect) -> str:
    name = response_name(effect)
    return f"{name} time" if kind_of(effect) is Kind.TIME and "time" not in name else name


def row_label(name: str, level: str) -> str:
    """Return e.g. "atime noatime", escaped. It is a key in JSON, so the factor is always in it."""
    return f"{escape(name)} {escape(level)}"


_GOOD = frozenset({Verdict.FASTER, Verdict.BETTER})
_BAD = frozenset({Verdict.SLOWER, Verdict.WORSE})
_MOST_LEFT_OUT = 4


def is_ablation(study: Study) -> bool:
    """Return whether the study's only treatment is a bundle from which one setting at a time is left out."""
    if len(study.treatment_factors) != 1:
        return False
    factor = study.treatment_factors[0]
    others = [level.label for level in factor.levels if level.label not in (EVERYTHING, NOTHING)]
    return factor.reference == EVERYTHING and bool(others) and all(one.startswith(WITHOUT) for one in others)


def ablation_finding(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> str:
    """Summarise an ablation study.

    E.g. "1 of 3 settings earned the gain: without slow it takes 31 % more time [+25, +37]; a and b make no difference
    of 3 %; without any of them it takes 33 % more time [+28, +40]".
    """
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
    several = len({conditions.of_effect(e).key for e in effects}) > 1
    of = counted(len(parts), "setting")
    clauses = []
    for word, alike in (
        ("", [one for one in earned if one.plain]),
        ("probably ", [one for one in earned if not one.plain]),
    ):
        named = some([_size(one, conditions, several=several) for one in alike], _MOST_LEFT_OUT)
        if alike:
            size = SIZE_OPEN if word else ""
            clauses.append(f"{len(alike)} of {of} {word}contributed to the gain{size}: {', '.join(named)}")
    if not earned:
        where = " everywhere" if mixed else ""
        clauses.append(f"none of {of} is shown to contribute to the gain{where}")
    for one in harmful:
        probably = "" if one.plain else "probably "
        clauses.append(f"{probably}better left out: {_size(one, conditions, several=several)}")
    for one in mixed:
        worse = next(effect for effect in one.loud if effect.verdict in _BAD)
        better = next(effect for effect in one.loud if effect.verdict in _GOOD)
        clauses.append(
            f"{label(one.level)}, it depends: {_taken(worse)}{_place(worse, conditions, several=several)}, "
            f"but {_taken(better)}{_place(better, conditions, several=several)}"
        )
    if idle:
        make = "makes" if len(idle) == 1 else "make"
        clauses.append(f"{_ablation_names(idle)} {make} no difference of {percent(margin)}")
    if open_:
        clauses.append(f"undecided for {_ablation_names(open_)}")
    if whole is not None:
        clauses.append(_of_all(whole, conditions, several=several, margin=margin))
    return "; ".join(clauses)


def _some(setting: Setting, verdicts: frozenset[Verdict]) -> bool:
    return any(effect.verdict in verdicts for effect in setting.loud)


def _ablation_names(settings: Sequence[Setting]) -> str:
    return joined(label(one.level.removeprefix(WITHOUT)) for one in settings)


def _of_all(one: Setting, conditions: Conditions, *, several: bool, margin: float) -> str:
    if one.loud:
        probably = "probably, " if one.loud[0].conclusion.probable else ""
        return f"{probably}without all of them {_taken(one.loud[0])}" + _place(
            one.loud[0], conditions, several=several
        )
    if one.equivalent:
        return f"without all of them it is the same within {percent(margin)}: there was no gain"
    return "undecided whether the whole bundle has any gain"


def _size(one: Setting, conditions: Conditions, *, several: bool) -> str:
    effect = one.loud[0]
    return f"{label(one.level)} {_taken(effect)}{_place(effect, conditions, several=several)}"


def _place(effect: Effect, conditions: Conditions, *, several: bool) -> str:
    return conditions.of_effect(effect).behind if several else ""


def _taken(effect: Effect) -> str:
    size = size_in_words(effect)
    match kind_of(effect):
        case Kind.TIME | Kind.RATE if is_speed(effect):
            return size
        case Kind.DIFFERENCE:
            return f"{response_name(effect)} changes {size}"
        case _:
            return f"{response_name(effect)} is {size}"
