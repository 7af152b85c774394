"""The findings over levels, conditions and workloads as one clause: the middle of a trial's first sentence.

The effects of one level against its reference form a group. Groups that agree share one statement; groups that do not
get one each. If there are many of those, they are counted and the largest effect is named.

Screening studies, with many settings: readers ask which of dozens matter rather than look for one comparison. So the
sentence counts the settings and names the largest, and tables list the largest first.

Ablation studies, written by ``iotrial refine --ablate``: which part of a bundle earned the gain. The reference is the
whole bundle; each other level leaves one of its settings out, and one leaves all of them out. A setting earned
something if the bundle does worse without it.
"""

from __future__ import annotations

import math
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
    effect_numbers,
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
)
from iotrial.report.slow_runs import covers_typical
from iotrial.stats.model import QUIET, Conclusion, Effect, Verdict
from iotrial.study.model import Scale, Study
from iotrial.terminal import escape

# Not repeated in words: the numbers next to it show it already.
_TOO_WIDE = "budget_spent"
_MOST_CLAUSES = 3
_LONGEST = 220
_MOST_LABELS = 6
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
    clauses = [_clause(group, conditions, margin=margin) for group in groups]
    if len(groups) > 1 and (len(groups) > _MOST_CLAUSES or sum(map(len, clauses)) > _LONGEST):
        return _tally(effects, conditions)
    return "; ".join(clauses)


def by_level(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> tuple[str, ...]:
    """Return one clause for each level if :func:`finding` counted them instead; empty if it stated them."""
    groups = _settings(effects)
    clauses = [_clause(group, conditions, margin=margin) for group in groups]
    text = finding(effects, conditions, margin=margin)
    return () if len(groups) < 2 or text == "; ".join(clauses) else tuple(clauses)


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
            return f"{names} are {_same(effects)}{where}: {_margin_excluded(effects, margin)}"
        case Verdict.INCONCLUSIVE:
            return f"{names} vs {_references(groups)}{where}: {_undecided(effects)}"
        case _:
            size = SIZE_OPEN if effects[0].conclusion.probable else ""
            most = max(effects, key=strength)
            largest = f"largest effect: {effect_of(most)}"
            if where and len({conditions.of_effect(e).key for e in effects}) > 1:
                largest += conditions.of_effect(most).behind
            if all(is_speed(effect) for effect in effects):
                return f"{names} are {words} than {_references(groups)}{where}{size}; {largest}"
            subject, references = _subject(effects), _references(groups)
            return f"{subject} is {words} under {names} than under {references}{where}{size}; {largest}"


def _clause(group: Setting, conditions: Conditions, *, margin: float) -> str:
    """Describe one level against its reference."""
    first, several = group.effects[0], len(group.effects) > 1
    name, reference = level_name(first), label(group.reference)
    where = _where(group.effects, conditions)
    if group.words is None:
        return f"{name} vs {reference}: {_mixture(group.effects, conditions)}"
    match first.verdict:
        case Verdict.EQUIVALENT if several:
            return f"{name} is {_same(group.effects)}{where}: {_margin_excluded(group.effects, margin)}"
        case Verdict.EQUIVALENT:
            though = f", though detectably {escape(first.detectably)}" if first.detectably else ""
            excluded = f"{_beyond(group.effects, margin)} are excluded"
            return f"{name} is {_same(group.effects)}{where}{though}: {size_of(first)}, {excluded}"
        case Verdict.INCONCLUSIVE:
            return f"{name} vs {reference}{where}: {_undecided(group.effects)}"
        case _ if several:
            return f"{statement(first)}{where}: {_span(group.effects)}"
        case _:
            return f"{direction_and_size(first)}{where}"


def _mixture(effects: Sequence[Effect], conditions: Conditions) -> str:
    """E.g. "faster in 2 of 8 comparisons (most: 0.89 [0.85, 0.93], cache cold) and equivalent in 6"."""
    parts = []
    for position, (words, found) in enumerate(_by_words(effects)):
        of = f" of {counted(len(effects), 'comparison')}" if position == 0 else ""
        text = f"{words} in {len(found)}{of}{_typical_only(found)}"
        if found[0].verdict not in QUIET:
            most = max(found, key=strength)
            at = conditions.of_effect(most)
            where = f", {at.text}" if at.parts else ""
            text += f" ({'most: ' if len(found) > 1 else ''}{size_of(most)}{where})"
        elif found[0].verdict is Verdict.INCONCLUSIVE:
            text += _left_open(found)
        parts.append(text)
    return joined(parts)


def _tally(effects: Sequence[Effect], conditions: Conditions) -> str:
    """Summarise many levels that do not agree: the number of each conclusion, and the largest effect."""
    parts = []
    for words, found in _by_words(effects):
        left = _left_open(found) if found[0].verdict is Verdict.INCONCLUSIVE else ""
        parts.append(f"{len(found)} {words}{_typical_only(found)}{left}")
    numbers = joined(parts)
    text = f"{counted(len(effects), 'comparison')}: {numbers}"
    loud = [effect for effect in effects if effect.verdict not in QUIET]
    if not loud:
        return text
    most = max(loud, key=strength)
    where = conditions.of_effect(most).text
    return f"{text}. Largest effect: {effect_of(most)} ({where})"


def _by_words(effects: Sequence[Effect]) -> list[tuple[str, list[Effect]]]:
    """Return the effects by conclusion: those with a direction first, then by number. All that are equivalent go together."""
    found: dict[str, list[Effect]] = {}
    for effect in effects:
        found.setdefault(effect.conclusion.words, []).append(effect)
    if found.keys() >= _EQUIVALENT_WORDS:
        found[Conclusion.EQUIVALENT.words] += found.pop(Conclusion.EQUIVALENT_TYPICALLY.words)
    return sorted(found.items(), key=lambda item: (item[1][0].verdict in QUIET, -len(item[1])))


def _typical_only(effects: Sequence[Effect]) -> str:
    """Return e.g. " (1 in typical runs only)" where only some of the equivalent effects hold for the mean run."""
    number = sum(effect.conclusion is Conclusion.EQUIVALENT_TYPICALLY for effect in effects)
    return f" ({number} in typical runs only)" if 0 < number < len(effects) else ""


def _left_open(undecided: Sequence[Effect]) -> str:
    """Return e.g. " (effects from -12.5 % to +5.8 % remain possible)"; the reason if the interval is narrow enough.

    Empty unless all undecided effects have bounds.
    """
    if not_tried := _not_tried(undecided):
        return f" ({not_tried})"
    if not undecided or any(
        e.scale is Scale.DIFFERENCE or e.low is None or e.high is None for e in undecided
    ):
        return ""
    reasons = {effect.reason for effect in undecided}
    if len(reasons) == 1 and _inside(undecided) and (reason := reasons.pop()) not in (None, _TOO_WIDE):
        return f" ({_because(str(reason))})"
    left = still_possible(_hull(undecided))
    return f" ({left[:1].lower()}{left[1:]})"


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
    """Return e.g. "time -57 % [-60, -54] to -42 % [-45, -39]", "2.1 times as fast [1.9, 2.3] to 12 times as fast [9, 15]"."""
    ordered = sorted(effects, key=lambda effect: effect.value or 0.0)
    ends = ordered[0], ordered[-1]
    times = any(effect.scale is Scale.LOG and percent_numbers(effect) is None for effect in ends)
    noun = "" if times else {Kind.TIME: "time ", Kind.RATE: "rate "}.get(kind_of(ordered[0]), "")
    least, most = (size_of(effect, times=times) for effect in ends)
    return f"{noun}{least}" if least == most else f"{noun}{least} to {most}"


def _margin_excluded(effects: Sequence[Effect], margin: float) -> str:
    """Return e.g. "differences beyond 3 % are excluded in 8 of 8 comparisons; widest interval -1.5 % to +2.1 %"."""
    number = len(effects)
    text = f"{_beyond(effects, margin)} are excluded in {number} of {counted(number, 'comparison')}"
    typical = sum(effect.conclusion is Conclusion.EQUIVALENT_TYPICALLY for effect in effects)
    if 0 < typical < number:
        text += f", in {number - typical} of them in the mean run too"
    widest = max(effects, key=width)
    if (change := percent_numbers(widest)) is not None:
        text += f"; widest interval {change[1]} % to {change[2]} %"
    else:
        _, low, high, unit = effect_numbers(widest, (None, widest.low, widest.high))
        text += f"; widest interval {low} to {high}{unit}"
    detectable = [effect for effect in effects if effect.detectably]
    if detectable:
        words = joined(sorted({escape(effect.detectably) for effect in detectable}), last="or")
        text += f"; {len(detectable)} of them detectably {words}, but by less than that"
    return text


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


def _beyond(effects: Sequence[Effect], margin: float) -> str:
    if all(effect.scale is Scale.LOG for effect in effects):
        return f"differences beyond {percent(margin)}"
    return "differences beyond the margin"


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
        return f"all {len(groups)} other levels of {joined(map(label, factors))}"
    return joined(f"{label(factor)} {joined(map(label, levels))}" for factor, levels in factors.items())


def _references(groups: Sequence[Setting]) -> str:
    return joined(dict.fromkeys(label(group.reference) for group in groups))


def _where(effects: Sequence[Effect], conditions: Conditions) -> str:
    """Return e.g. " in all 8 conditions (cache cold and warm, size 4 KiB and 1 MiB)", " (workload read)" for one of several,
    "" if the study has only one."""
    found = {c.key: c for c in (conditions.of_effect(e) for e in effects)}
    if len(found) < 2:
        return next(iter(found.values())).behind
    labels: dict[str, dict[str, None]] = {}
    for condition in sorted(found.values(), key=lambda c: c.order):
        for name, text in condition.parts:
            labels.setdefault(name, {})[text] = None
    varied = {name: list(values) for name, values in labels.items() if len(values) > 1}
    sentence = f" in {'both' if len(found) == 2 else f'all {len(found)}'} conditions"
    if 0 < sum(map(len, varied.values())) <= _MOST_LABELS:
        sentence += f" ({', '.join(f'{name} {joined(values)}' for name, values in varied.items())})"
    return sentence


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

    E.g. "4 of 26 settings change the wall time: noatime takes 9 % less time than relatime [-12, -6], ...; 15 are
    equivalent within 3 %, 7 undecided". ``together``: factor and level of settings that act only together with another;
    those count as neither equivalent nor undecided.
    """
    settings = settings_of(effects)
    plain = sorted((one for one in settings if one.plain), key=lambda one: -strength(one.plain[0]))
    probable = [one for one in settings if one.loud and not one.plain]
    rest = _rest(_apart(settings, together), margin=margin)
    what = f"{_screen_subject(effects)}{_screen_where(effects, conditions)}"
    of = counted(len(settings), "setting")
    if not plain and not probable:
        return f"none of {of} is shown to change {what}{f': {rest}' if rest else ''}"
    several = len({(effect.workload, tuple(effect.condition.items())) for effect in effects}) > 1

    def named(chosen: Sequence[Effect]) -> str:
        texts = []
        for effect in chosen[:_MOST_NAMED]:
            where = conditions.of_effect(effect).text
            texts.append(effect_of(effect) + (f" ({where})" if several else ""))
        return "; ".join([*texts, f"{len(chosen) - len(texts)} more"] if len(chosen) > len(texts) else texts)

    parts = []
    if plain:
        count = f"{len(plain)} of {of}" if len(settings) > 1 else "the setting"
        change = "change" if len(plain) > 1 else "changes"
        parts.append(f"{count} {change} {what}: {named([one.plain[0] for one in plain])}")
    if probable:
        count = f"{len(probable)}{'' if plain else f' of {of}'}" if len(settings) > 1 else "the setting"
        change = "change" if len(probable) > 1 else "changes"
        what = "it" if plain else what
        parts.append(
            f"{count} probably {change} {what}{SIZE_OPEN}: {named([one.loud[0] for one in probable])}"
        )
    return "; ".join([*parts, rest] if rest else parts)


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


def _screen_where(effects: Sequence[Effect], conditions: Conditions) -> str:
    found = {conditions.of_effect(effect).key for effect in effects}
    return f" in at least one of {len(found)} conditions" if len(found) > 1 else ""


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
