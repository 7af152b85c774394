"""What was found, over levels, conditions and workloads, as one clause: the middle of a trial's first sentence.

Effects of one level against its reference form a group. Groups that agree are said together, groups that do not
are said one by one, and where there are many of those, they are counted and the largest effect is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log

from iotrial.analysis.model import Conclusion, Effect, Verdict
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.notation import counted, joined, percent
from iotrial.report.phrases import (
    SIZE_OPEN,
    SMALLER,
    Kind,
    effect_numbers,
    interval,
    is_speed,
    kind_of,
    label,
    level_name,
    reason_in_words,
    response_name,
    size_in_words,
    span_ends,
    statement,
    still_possible,
)
from iotrial.report.slow_runs import covers_typical
from iotrial.study.model import Scale

QUIET = frozenset({Verdict.EQUIVALENT, Verdict.INCONCLUSIVE})

# What the numbers beside it say already.
_TOO_WIDE = "budget_spent"
_MOST_CLAUSES = 3
_LONGEST = 220
_MOST_LABELS = 6


@dataclass(frozen=True, slots=True)
class _Group:
    """The effects of one level against its reference, over conditions and workloads."""

    factor: str
    level: str
    reference: str
    effects: tuple[Effect, ...]

    @property
    def words(self) -> str | None:
        """What may be said of all of them alike."""
        found = {effect.conclusion.words for effect in self.effects}
        return found.pop() if len(found) == 1 else None


def finding(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> str:
    """The clause, without a capital or a full stop; ``effects`` holds at least one."""
    groups = _groups(effects)
    shared = {group.words for group in groups}
    if len(shared) == 1 and len(groups) > 1 and (words := shared.pop()) is not None:
        return _all_alike(groups, effects, words, conditions, margin=margin)
    clauses = [_clause(group, conditions, margin=margin) for group in groups]
    if len(groups) > 1 and (len(groups) > _MOST_CLAUSES or sum(map(len, clauses)) > _LONGEST):
        return _tally(effects, conditions)
    return "; ".join(clauses)


def by_level(effects: Sequence[Effect], conditions: Conditions, *, margin: float) -> tuple[str, ...]:
    """One clause for each level, where :func:`finding` had to count instead; empty where it said them."""
    groups = _groups(effects)
    clauses = [_clause(group, conditions, margin=margin) for group in groups]
    said = finding(effects, conditions, margin=margin)
    return () if len(groups) < 2 or said == "; ".join(clauses) else tuple(clauses)


def strength(effect: Effect) -> float:
    """How far the estimate lies from no effect, on the effect's own scale."""
    if effect.value is None:
        return 0.0
    return abs(log(effect.value)) if effect.scale is Scale.LOG else abs(effect.value)


def width(effect: Effect) -> float:
    """How wide the interval is, on the effect's own scale; infinite where an end is unbounded."""
    if effect.low is None or effect.high is None:
        return inf
    return log(effect.high / effect.low) if effect.scale is Scale.LOG else effect.high - effect.low


def _groups(effects: Sequence[Effect]) -> list[_Group]:
    found: dict[tuple[str, str, str], list[Effect]] = {}
    for effect in effects:
        found.setdefault((effect.factor, effect.level, effect.reference), []).append(effect)
    return [_Group(*key, tuple(members)) for key, members in found.items()]


def _all_alike(
    groups: Sequence[_Group],
    effects: Sequence[Effect],
    words: str,
    conditions: Conditions,
    *,
    margin: float,
) -> str:
    """Several levels of which the same may be said."""
    names, where = _names(groups), _where(effects, conditions)
    match effects[0].verdict:
        case Verdict.EQUIVALENT:
            return f"{names} are {_same(effects)}{where}: {_margin_excluded(effects, margin)}"
        case Verdict.INCONCLUSIVE:
            return f"{names} vs {_references(groups)}{where}: {_undecided(effects)}"
        case _:
            size = SIZE_OPEN if effects[0].conclusion.probable else ""
            most = max(effects, key=strength)
            largest = f"the largest effect: {effect_of(most)}"
            if where:
                largest += f" ({conditions.of_levels(most.condition, most.workload).text})"
            if all(is_speed(effect) for effect in effects):
                return f"{names} are {words} than {_references(groups)}{where}{size}; {largest}"
            subject, references = _subject(effects), _references(groups)
            return f"{subject} is {words} under {names} than under {references}{where}{size}; {largest}"


def _clause(group: _Group, conditions: Conditions, *, margin: float) -> str:
    """One level against its reference."""
    first, several = group.effects[0], len(group.effects) > 1
    name, reference = level_name(first), label(group.reference)
    where = _where(group.effects, conditions)
    if group.words is None:
        return f"{name} against {reference} is {_mixture(group.effects, conditions)}"
    match first.verdict:
        case Verdict.EQUIVALENT if several:
            return f"{name} is {_same(group.effects)}{where}: {_margin_excluded(group.effects, margin)}"
        case Verdict.EQUIVALENT:
            though = f", though detectably {shown(first.detectably)}" if first.detectably else ""
            excluded = f"{_beyond(group.effects, margin)} are excluded"
            return f"{name} is {_same(group.effects)}{though}: {interval(first)}, {excluded}"
        case Verdict.INCONCLUSIVE:
            return f"{name} vs {reference}{where}: {_undecided(group.effects)}"
        case _ if several:
            return f"{statement(first)}{where}: {_span(group.effects)}"
        case _:
            return f"{statement(first)}: {size_in_words(first)}"


def _mixture(effects: Sequence[Effect], conditions: Conditions) -> str:
    """E.g. "faster in 2 of 8 comparisons (most: 0.89 [0.85, 0.93], cache cold) and equivalent in 6"."""
    by_words: dict[str, list[Effect]] = {}
    for effect in effects:
        by_words.setdefault(effect.conclusion.words, []).append(effect)
    ordered = sorted(by_words.items(), key=lambda item: (item[1][0].verdict in QUIET, -len(item[1])))
    parts = []
    for position, (words, found) in enumerate(ordered):
        of = f" of {counted(len(effects), 'comparison')}" if position == 0 else ""
        text = f"{words} in {len(found)}{of}"
        if found[0].verdict not in QUIET:
            most = max(found, key=strength)
            where = conditions.of_levels(most.condition, most.workload).text
            text += f" ({'most: ' if len(found) > 1 else ''}{interval(most)}, {where})"
        elif found[0].verdict is Verdict.INCONCLUSIVE:
            text += _left_open(found)
        parts.append(text)
    return joined(parts)


def _tally(effects: Sequence[Effect], conditions: Conditions) -> str:
    """Many levels that do not agree: of how many what may be said, and the largest effect."""
    count = Counter(effect.conclusion.words for effect in effects)
    left = {Conclusion.UNDECIDED.words: _left_open([e for e in effects if e.verdict is Verdict.INCONCLUSIVE])}
    numbers = joined([f"{number} {words}{left.get(words, '')}" for words, number in count.most_common()])
    number, rest = numbers.split(" ", 1)
    said = f"of {counted(len(effects), 'comparison')}, {number} {'is' if number == '1' else 'are'} {rest}"
    loud = [effect for effect in effects if effect.verdict not in QUIET]
    if not loud:
        return said
    most = max(loud, key=strength)
    where = conditions.of_levels(most.condition, most.workload).text
    return f"{said}; the largest effect: {effect_of(most)} ({where})"


def _left_open(undecided: Sequence[Effect]) -> str:
    """E.g. " (any effect is smaller than -12.5 % / +5.8 %)" of undecided ones among others; "" where not all have bounds."""
    if not undecided or any(
        e.scale is Scale.DIFFERENCE or e.low is None or e.high is None for e in undecided
    ):
        return ""
    left = still_possible(_hull(undecided))
    return f" ({left[:1].lower()}{left[1:]})"


def effect_of(effect: Effect) -> str:
    """E.g. "mode 0444 takes 0.53 times the time of 0777 [0.50, 0.56]"."""
    size = size_in_words(effect)
    if is_speed(effect):
        return f"{level_name(effect)} {size.removeprefix('it ')}"
    return f"{response_name(effect)} under {level_name(effect)}, {size}"


def _span(effects: Sequence[Effect]) -> str:
    """E.g. "between 0.43 [0.40, 0.46] and 0.58 [0.55, 0.61] times the time"."""
    ordered = sorted(effects, key=lambda effect: effect.value or 0.0)
    unit = {Kind.TIME: " times the time", Kind.RATE: " times the rate", Kind.AMOUNT: " times as much"}
    least, most = interval(ordered[0]), interval(ordered[-1])
    span = f"always {least}" if least == most else f"between {least} and {most}"
    return f"{span}{unit.get(kind_of(ordered[0]), '')}"


def _margin_excluded(effects: Sequence[Effect], margin: float) -> str:
    """E.g. "differences beyond 3 % are excluded in 8 of 8 comparisons; widest interval 0.985 to 1.021"."""
    number = len(effects)
    text = f"{_beyond(effects, margin)} are excluded in {number} of {counted(number, 'comparison')}"
    widest = max(effects, key=width)
    _, low, high, unit = effect_numbers(widest, (None, widest.low, widest.high))
    text += f"; widest interval {low} to {high}{unit}"
    detectable = [effect for effect in effects if effect.detectably]
    if detectable:
        words = joined(sorted({shown(effect.detectably) for effect in detectable}), last="or")
        text += f"; {len(detectable)} of them detectably {words}, but by less than that"
    return text


def _undecided(effects: Sequence[Effect]) -> str:
    """E.g. "undecided. Any effect is smaller than -12.5 % / +5.8 %": what is excluded although nothing is settled."""
    reasons = Counter(effect.reason for effect in effects if effect.reason not in (None, _TOO_WIDE))
    because = f" ({reason_in_words(str(reasons.most_common(1)[0][0]))})" if reasons else ""
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
    first, *others = [still_possible(_hull(alike)) for alike in by_unit.values()]
    left = " and ".join([first, *(one.removeprefix(SMALLER) for one in others)])
    return f"undecided{because}. {left}"


def span_sentence(effect: Effect, conditions: Conditions) -> str:
    """E.g. "atime relatime: from 0.389 (file fresh) to 0.998 (file stale) in 2 conditions": a mean over conditions that hides
    that they differ."""
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
    """One effect whose interval holds those of all: what lies outside it is excluded in each of them."""
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


def _names(groups: Sequence[_Group]) -> str:
    """E.g. "mode 0444, 0555 and 0666"; or how many there are, where they are many."""
    factors: dict[str, list[str]] = {}
    for group in groups:
        factors.setdefault(group.factor, []).append(group.level)
    if len(groups) > _MOST_LABELS:
        return f"all {len(groups)} other levels of {joined(map(label, factors))}"
    return joined(f"{label(factor)} {joined(map(label, levels))}" for factor, levels in factors.items())


def _references(groups: Sequence[_Group]) -> str:
    return joined(dict.fromkeys(label(group.reference) for group in groups))


def _where(effects: Sequence[Effect], conditions: Conditions) -> str:
    """E.g. " in all 8 conditions (cache cold and warm, size 4 KiB and 1 MiB)"; nothing where there is only one."""
    found = {c.key: c for c in (conditions.of_levels(e.condition, e.workload) for e in effects)}
    if len(found) < 2:
        return ""
    labels: dict[str, dict[str, None]] = {}
    for condition in sorted(found.values(), key=lambda c: c.order):
        for name, text in condition.parts:
            labels.setdefault(name, {})[text] = None
    varied = {name: list(values) for name, values in labels.items() if len(values) > 1}
    said = f" in all {len(found)} conditions"
    if 0 < sum(map(len, varied.values())) <= _MOST_LABELS:
        said += f" ({', '.join(f'{name} {joined(values)}' for name, values in varied.items())})"
    return said
