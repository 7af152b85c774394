"""Interactions in words: what one setting does to the effect of another.

The analysis gives an interaction as half the difference of one factor's effects at the two levels of the other, on the
scale of the response. A reader thinks of the whole difference: with the ratio v of the analysis, one factor's effect at
one level of the other is v squared times what it is at the other level, and so are the ends of its interval. The four
effects behind that number come from block-adjusted means of cells and describe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iotrial.analysis.model import Effect, Verdict
from iotrial.design.ablation import EVERYTHING
from iotrial.legible import shown
from iotrial.report.adjusted import Adjusted
from iotrial.report.notation import joined, percent, plain
from iotrial.report.phrases import interval_of, is_speed, label, reason_in_words
from iotrial.study.model import Scale, Study

TIMES = " × "


@dataclass(frozen=True, slots=True)
class Pair:
    """The two factors of an interaction, each with its level and its reference."""

    first: tuple[str, str, str]
    second: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AtLevels:
    """One factor's effect at both levels of another, as ratios or differences; ``text`` in words."""

    at_reference: float
    at_level: float
    text: str


def is_interaction(effect: Effect) -> bool:
    """Whether the effect is one of two factors on each other, pooled over conditions or not."""
    return effect.kind == "interaction" or (effect.kind == "pooled" and ":" in effect.factor)


def pair_of(effect: Effect, study: Study) -> Pair | None:
    """The two factors of an interaction; None where the study has no such pair. Labels may hold colons, names do not."""
    first, _, second = effect.factor.partition(":")
    labels = {f.name: [level.label for level in f.levels] for f in study.treatment_factors}
    if first not in labels or second not in labels:
        return None
    found = []
    for text in (effect.level, effect.reference):
        both = ((a, b) for a in labels[first] for b in labels[second] if f"{a}:{b}" == text)
        split = next(both, None)
        if split is None:
            return None
        found.append(split)
    (level_a, level_b), (reference_a, reference_b) = found
    return Pair((first, level_a, reference_a), (second, level_b, reference_b))


def comparison(effect: Effect, study: Study) -> str:
    """E.g. "mode 0444 / 0777"; of an interaction "atime noatime × mode 0444"."""
    if is_interaction(effect):
        pair = pair_of(effect, study)
        if pair is not None:
            return TIMES.join(f"{shown(part[0])} {shown(part[1])}" for part in (pair.first, pair.second))
        return shown(effect.factor.replace(":", TIMES))
    if effect.reference == EVERYTHING and len(study.treatment_factors) == 1:
        return f"{shown(effect.level)} / {EVERYTHING}"
    return f"{shown(effect.factor)} {shown(effect.level)} / {shown(effect.reference)}"


def verdict_word(effect: Effect) -> str:
    """The verdict as a table says it: an interaction is not "slower", it makes two settings slower together."""
    word = effect.verdict.value
    if not is_interaction(effect) or effect.verdict is Verdict.INCONCLUSIVE:
        return word
    return "no interaction" if effect.verdict is Verdict.EQUIVALENT else f"{word} together"


def doubled(effect: Effect) -> tuple[float | None, float | None, float | None]:
    """Estimate and ends of the whole difference: one effect over the other (or less the other)."""
    return _whole(effect, effect.value), _whole(effect, effect.low), _whole(effect, effect.high)


def interaction_sentence(effect: Effect, study: Study, *, margin: float) -> str:
    """The interaction in one sentence, e.g. "with mode 0444, the ratio of atime noatime to relatime is 1.21 [1.10, 1.33]
    times what it is with mode 0777: together they are slower than their separate effects make"."""
    pair = pair_of(effect, study)
    if pair is None:
        size = interval_of(effect, doubled(effect))
        return f"{comparison(effect, study)}: {verdict_word(effect)}, {size}"
    (a, level, reference), (b, on, off) = ((label(t) for t in part) for part in (pair.first, pair.second))
    what = "ratio" if effect.scale is Scale.LOG else "difference"
    size = interval_of(effect, doubled(effect))
    between = f"of {a} {level} {'to' if what == 'ratio' else 'from'} {reference}"
    times = f"{size} times what it is" if what == "ratio" else f"{size} more than it is"
    if effect.verdict is Verdict.EQUIVALENT:
        within = f", within {percent((1 + margin) ** 2 - 1)}" if what == "ratio" else ""
        return f"the {what} {between} is the same with {b} {on} as with {b} {off}{within}: {size}"
    if effect.verdict is Verdict.INCONCLUSIVE:
        why = f" ({reason_in_words(effect.reason)})" if effect.reason not in (None, "budget_spent") else ""
        return (
            f"it is open whether {b} changes what {a} does: with {b} {on}, the {what} {between} is {times} "
            f"with {b} {off}{why}"
        )
    said = f"with {b} {on}, the {what} {between} is {times} with {b} {off}"
    return f"{said}: {_together(effect, f'{a} {level}', f'{b} {on}')}"


def _together(effect: Effect, one: str, other: str) -> str:
    if is_speed(effect):
        return f"together, {one} and {other} are {effect.verdict.value} than their separate effects make"
    return f"together, {one} and {other} give {effect.verdict.value} numbers than their separate effects make"


def at_levels(effect: Effect, study: Study, means: Adjusted | None) -> tuple[AtLevels, ...]:
    """Either factor's effect at both levels of the other; empty where the cells are not all there."""
    pair = pair_of(effect, study)
    if pair is None or means is None:
        return ()
    found = []
    for (name, level, reference), (other, on, off) in (
        (pair.first, pair.second),
        (pair.second, pair.first),
    ):
        sizes = []
        for place in (off, on):
            high = means.cell((name, level), (other, place))
            low = means.cell((name, reference), (other, place))
            if high is None or low is None:
                return ()
            sizes.append(math.exp(high - low) if effect.scale is Scale.LOG else high - low)
        text = (
            f"{label(name)} {label(level)} / {label(reference)}: {plain(sizes[0])} with {label(other)} {label(off)}, "
            f"{plain(sizes[1])} with {label(other)} {label(on)}"
        )
        found.append(AtLevels(sizes[0], sizes[1], text))
    return tuple(found)


def aliases_in_words(effect: Effect) -> str:
    """E.g. "cannot be told from c × d, nor from e × f turned round"; empty where there are none."""
    if not effect.aliases:
        return ""
    words = []
    for alias in effect.aliases:
        name = shown(alias.removeprefix("-").replace(":", TIMES))
        words.append(f"{name} turned round" if alias.startswith("-") else name)
    return f"this design cannot tell it from {joined(words, last='or')}"


def _whole(effect: Effect, half: float | None) -> float | None:
    if half is None:
        return None
    return half * half if effect.scale is Scale.LOG else 2.0 * half
