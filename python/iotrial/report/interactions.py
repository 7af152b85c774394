"""Interactions in words: what one setting does to the effect of another.

The analysis gives an interaction as half the difference of one factor's effects at the two levels of the other, on the
scale of the response. Readers expect the whole difference: with the ratio v of the analysis, one factor's effect at one
level of the other is v squared times its effect at the other level; the ends of its interval are squared too. The four
effects behind that number come from block-adjusted means of cells and are descriptive.

Block-adjusted means are the means of a factorial by level and by cell, with the level of each block removed, since
blocks differ far more than treatments do. On the scale on which effects are compared (the natural logarithm for ratios)
the mean of all treatments of a block is subtracted from each of them, and the rest is averaged over the blocks. Only
blocks count that are not void and hold a usable value of every treatment. These means are descriptive; verdicts come
from the contrasts of the analysis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind
from iotrial.design.plan import condition_key
from iotrial.design.refine import EVERYTHING
from iotrial.report.notation import joined, named_level, percent, plain
from iotrial.report.phrases import (
    SIZE_OPEN,
    in_times,
    interval_of,
    is_speed,
    label,
    percent_numbers,
    reason_in_words,
    response_name,
    size_in_words,
    size_of,
    without_interval,
)
from iotrial.stats.contrast import usable
from iotrial.stats.model import QUIET, Conclusion, Effect, ObservedBlock
from iotrial.study.model import Response, Scale, Study
from iotrial.terminal import escape

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
    """Return whether the effect is an interaction of two factors, pooled over conditions or not."""
    return effect.kind == "interaction" or (effect.kind == "pooled" and ":" in effect.factor)


def pair_of(effect: Effect, study: Study) -> Pair | None:
    """Return the two factors of an interaction; None if the study has no such pair.

    Labels may contain colons, names do not.
    """
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
    """Return e.g. "mode 0444 / 0777"; for an interaction "atime noatime × mode 0444"."""
    if is_interaction(effect):
        pair = pair_of(effect, study)
        if pair is not None:
            return TIMES.join(f"{escape(part[0])} {escape(part[1])}" for part in (pair.first, pair.second))
        return escape(effect.factor.replace(":", TIMES))
    if effect.reference == EVERYTHING and len(study.treatment_factors) == 1:
        return f"{escape(effect.level)} / {EVERYTHING}"
    return f"{named_level(escape(effect.factor), escape(effect.level))} / {escape(effect.reference)}"


def verdict_word(effect: Effect) -> str:
    """Return the verdict for a table. An interaction is not "slower"; it makes two settings slower together."""
    conclusion = effect.conclusion
    if not is_interaction(effect) or conclusion.open or conclusion is Conclusion.VARIES:
        return conclusion.words
    return "no interaction" if conclusion.equivalent else f"{conclusion.words} together"


def doubled(effect: Effect) -> tuple[float | None, float | None, float | None]:
    """Return estimate and ends of the whole difference: one effect divided by the other (or minus the other)."""
    return _whole(effect, effect.value), _whole(effect, effect.low), _whole(effect, effect.high)


def interaction_sentence(effect: Effect, study: Study, *, margin: float) -> str:
    """Describe the interaction in one sentence.

    E.g. "with mode 0444, the ratio of atime noatime to relatime is 1.21 [1.10, 1.33] times what it is with mode 0777:
    together they are slower than their separate effects predict".
    """
    pair = pair_of(effect, study)
    if pair is None:
        size = interval_of(effect, doubled(effect))
        return f"{comparison(effect, study)}: {verdict_word(effect)}, {size}"
    (a, level, reference), (b, on, off) = ((label(t) for t in part) for part in (pair.first, pair.second))
    what = "ratio" if effect.scale is Scale.LOG else "difference"
    size = interval_of(effect, doubled(effect))
    between = f"of {a} {level} {'to' if what == 'ratio' else 'from'} {reference}"
    times = f"{size} times what it is" if what == "ratio" else f"{size} more than it is"
    if effect.conclusion.equivalent:
        within = f", within {percent((1 + margin) ** 2 - 1)}" if what == "ratio" else ""
        return f"the {what} {between} is the same with {b} {on} as with {b} {off}{within}: {size}"
    if effect.conclusion is Conclusion.UNDECIDED:
        why = f" ({reason_in_words(effect.reason)})" if effect.reason not in (None, "budget_spent") else ""
        return (
            f"undecided whether {b} changes what {a} does: with {b} {on}, the {what} {between} is {times} "
            f"with {b} {off}{why}"
        )
    text = f"with {b} {on}, the {what} {between} is {times} with {b} {off}"
    return f"{text}: {_together(effect, f'{a} {level}', f'{b} {on}')}"


def _together(effect: Effect, one: str, other: str) -> str:
    size = SIZE_OPEN if effect.conclusion.probable else ""
    if is_speed(effect):
        return f"together, {one} and {other} are {effect.conclusion.words} than their separate effects predict{size}"
    return f"together, {one} and {other} give {effect.conclusion.words} values than their separate effects predict{size}"


def at_levels(effect: Effect, study: Study, means: Adjusted | None) -> tuple[AtLevels, ...]:
    """Return either factor's effect at both levels of the other; empty unless all cells exist."""
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


@dataclass(frozen=True, slots=True)
class OnlyTogether:
    """An effect that two settings have only together: one of their four cells differs from the other three.

    ``first`` and ``second`` are the factors with the level that each has in that cell. ``mains`` are the main effects,
    which average that cell with cells without an effect. ``value``, ``low`` and ``high`` compare the cell with the one
    that has neither setting, as in ``Effect``; there are no ends if a factor has more than two levels.
    """

    interaction: Effect
    first: tuple[str, str]
    second: tuple[str, str]
    mains: tuple[Effect, Effect]
    value: float
    low: float | None
    high: float | None


#: fraction of the joint effect below which a difference without the other setting counts as none
_NOTHING = 0.1


def only_together(
    effects: Sequence[Effect], study: Study, adjusted: Mapping[tuple[str, str], Adjusted]
) -> tuple[OnlyTogether, ...]:
    """Return the interactions that carry their main effects: neither setting has an effect without the other.

    The rule, on the means of the four cells: the interaction excludes zero, the design can separate it from others, and
    there is a cell such that either factor's effect is negligible at the other's other level (a ratio within the
    margin, a difference below a tenth of the cell's), while the cell differs from the one with neither setting by more
    than twice the margin. Larger factorials are judged by the two levels of the interaction, averaged over all other
    factors.
    """
    mains = {_main_key(effect): effect for effect in effects if effect.kind == "main" and effect.primary}
    found = []
    for effect in effects:
        if effect.kind != "interaction" or effect.verdict in QUIET or effect.aliases:
            continue
        pair = pair_of(effect, study)
        means = adjusted.get((condition_key(effect.workload, effect.condition), effect.response))
        if pair is None or means is None:
            continue
        key = (condition_key(effect.workload, effect.condition), effect.response)
        own = [mains.get((*key, factor, level)) for factor, level, _ in (pair.first, pair.second)]
        if own[0] is None or own[1] is None:
            continue
        if (one := _carried(effect, pair, (own[0], own[1]), means, study)) is not None:
            found.append(one)
    return tuple(found)


def _main_key(effect: Effect) -> tuple[str, str, str, str]:
    return condition_key(effect.workload, effect.condition), effect.response, effect.factor, effect.level


def _carried(
    effect: Effect, pair: Pair, mains: tuple[Effect, Effect], means: Adjusted, study: Study
) -> OnlyTogether | None:
    (a, *levels_a), (b, *levels_b) = pair.first, pair.second
    log = effect.scale is Scale.LOG
    limit = math.log1p(effect.margin)
    for on_a, on_b in ((x, y) for x in levels_a for y in levels_b):
        off_a, off_b = (
            next(o for o in levels if o != on) for levels, on in ((levels_a, on_a), (levels_b, on_b))
        )
        cells = [means.cell((a, x), (b, y)) for x in (on_a, off_a) for y in (on_b, off_b)]
        if any(cell is None for cell in cells):
            return None
        both, only_a, only_b, neither = (cell or 0.0 for cell in cells)
        together = both - neither
        nothing = limit if log else _NOTHING * abs(together)
        if max(abs(only_a - neither), abs(only_b - neither)) > nothing or abs(together) <= 2.0 * limit * log:
            continue
        low, high = _summed(mains, (on_a == levels_a[0], on_b == levels_b[0]), study)
        value = math.exp(together) if log else together
        return OnlyTogether(effect, (a, on_a), (b, on_b), mains, value, low, high)
    return None


def _summed(
    mains: tuple[Effect, Effect], at_level: tuple[bool, bool], study: Study
) -> tuple[float | None, float | None]:
    """Return the ends of the cell's effect; None for both if a factor has more than two levels.

    With two levels each the effect is the sum of the main effects, negated if the cell has the reference. Both
    intervals hold simultaneously, so the sum of their ends holds.
    """
    two = {factor.name for factor in study.treatment_factors if len(factor.levels) == 2}
    if not {main.factor for main in mains} <= two:
        return None, None
    ends = []
    for main, level in zip(mains, at_level, strict=True):
        if main.low is None or main.high is None or (main.scale is Scale.LOG and main.low <= 0.0):
            return None, None
        low, high = (math.log(e) if main.scale is Scale.LOG else e for e in (main.low, main.high))
        ends.append((low, high) if level else (-high, -low))
    low, high = (sum(sides) for sides in zip(*ends, strict=True))
    return (math.exp(low), math.exp(high)) if mains[0].scale is Scale.LOG else (low, high)


def together_sentence(one: OnlyTogether, where: str) -> str:
    """Describe an effect that two settings have only together.

    E.g. "only together: mode 0444 with atime noatime: it takes 38 % less time than with neither [-45, -30]; neither has an
    effect alone".
    """
    effect = one.interaction
    names = [f"{label(factor)} {label(level)}" for factor, level in (one.first, one.second)]
    if effect.scale is Scale.LOG:
        cell = replace(effect, value=one.value, low=one.low, high=one.high, reference="with neither")
        size = size_in_words(cell, than=True)
    else:
        size = f"{response_name(effect)} {'+' if one.value > 0 else ''}{interval_of(effect, (one.value, one.low, one.high))}"
    return f"only together: {' with '.join(names)}{where}: {size}; neither has an effect alone"


#: an interaction that is not confirmed splits a main effect from this fraction of its logarithm on
_SPLITS = 0.5


@dataclass(frozen=True, slots=True)
class Split:
    """A main effect that another factor changes by more than the margin: its average describes none of the cells.

    ``cells``: the effect at each level of the factor ``other``: of block-adjusted means without an interval, or as
    ``stats.analyse.cell_effects`` finds it.
    """

    main: Effect
    other: str
    cells: tuple[tuple[str, Effect], ...]

    @property
    def widest(self) -> float:
        """The effect that is furthest from none, on the effect's own scale."""
        return max(_strength(one) for _, one in self.cells)


def _strength(effect: Effect) -> float:
    if effect.scale is Scale.LOG:
        return abs(math.log(effect.value)) if effect.value else 0.0
    return abs(effect.value or 0.0)


def splits(
    effects: Sequence[Effect], study: Study, adjusted: Mapping[tuple[str, str], Adjusted]
) -> tuple[Split, ...]:
    """Return the primary main effects of which the cells are the answer.

    Either the interaction is confirmed, or it is not excluded and the cells differ by more than the margin and by half of
    the main effect. A main effect with several such interactions is split by the strongest. Interactions with aliases do not
    count.
    """
    mains = {_main_key(effect): effect for effect in effects if effect.kind == "main" and effect.primary}
    found: dict[tuple[str, str, str, str], tuple[float, Split]] = {}
    for effect in effects:
        if (
            effect.kind != "interaction"
            or effect.aliases
            or effect.conclusion.equivalent
            or effect.value is None
        ):
            continue
        pair = pair_of(effect, study)
        place = (condition_key(effect.workload, effect.condition), effect.response)
        means = adjusted.get(place)
        if pair is None or means is None:
            continue
        log = effect.scale is Scale.LOG
        strength = abs(2.0 * math.log(effect.value)) if log else abs(2.0 * effect.value)
        small = log and strength <= math.log1p(effect.margin)
        for (name, level, reference), other in ((pair.first, pair.second[0]), (pair.second, pair.first[0])):
            main = mains.get((*place, name, level))
            if main is None or small:
                continue
            if effect.verdict in QUIET and not (log and main.value and main.verdict not in QUIET):
                continue
            if effect.verdict in QUIET and strength < _SPLITS * abs(math.log(main.value or 1.0)):
                continue
            cells = []
            for at in next(factor.levels for factor in study.treatment_factors if factor.name == other):
                high = means.cell((name, level), (other, at.label))
                low = means.cell((name, reference), (other, at.label))
                if high is not None and low is not None:
                    value = math.exp(high - low) if log else high - low
                    cells.append(
                        (
                            at.label,
                            replace(main, value=value, low=None, high=None, two_sided=None, bounds=None),
                        )
                    )
            key = (*place, name, level)
            if len(cells) > 1 and (key not in found or strength > found[key][0]):
                found[key] = (strength, Split(main, other, tuple(cells)))
    return tuple(split for _, split in found.values())


def split_sentence(split: Split, where: str) -> str:
    """Describe a main effect by cells: "normal vs full: -51 % with journal wal, -22 % with journal delete"; in times where
    one cell is."""
    main, other = split.main, label(split.other)
    times = any(_needs_times(one) for _, one in split.cells)
    cells = [
        f"{cell_size(one, times=times)} with {named_level(other, label(at))}"
        for at, one in sorted(split.cells, key=lambda cell: -_strength(cell[1]))
    ]
    return f"{named_level(label(main.factor), label(main.level))} vs {label(main.reference)}{where}: {', '.join(cells)}"


def split_span(split: Split, where: str) -> str:
    """Describe the two cells that are furthest apart: "normal vs full: 34 times as fast with journal wal to 1.3 times as fast
    with journal delete"."""
    main, other = split.main, label(split.other)
    ordered = sorted(split.cells, key=lambda cell: cell[1].value or 0.0)
    ends = sorted((ordered[0], ordered[-1]), key=lambda cell: -_strength(cell[1]))
    times = any(_needs_times(one) for _, one in ends)
    least, most = (
        f"{cell_size(one, brief=True, times=times)} with {named_level(other, label(at))}" for at, one in ends
    )
    name = named_level(label(main.factor), label(main.level))
    return f"{name} vs {label(main.reference)}{where}: {least} to {most}"


def _needs_times(one: Effect) -> bool:
    """Return whether percent would be hard to read of the effect in one cell."""
    if one.scale is not Scale.LOG:
        return False
    if one.low is None and one.high is None:
        return not 0.5 < (one.value or 0.0) < 2.0
    return percent_numbers(one) is None


def cell_size(one: Effect, *, brief: bool = False, times: bool = False) -> str:
    """Return the effect in one cell, with its interval if it has one: "-22 % [-30, -12]", "34 times as fast", "+3.2 ms".

    ``brief``: without the interval, and without the word that it is undecided. ``times``: in times, not in percent.
    """
    if one.low is not None or one.high is not None:
        size = size_of(one, times=times)
        if brief:
            return without_interval(size)
        return f"{size}{f', {one.conclusion.words}' if one.conclusion.open else ''}"
    value = one.value or 0.0
    if one.scale is not Scale.LOG:
        return f"{'+' if value > 0 else ''}{without_interval(interval_of(one, (value, None, None)))}"
    if not times and not _needs_times(one):
        return f"{(value - 1.0) * 100.0:+.{0 if abs(value - 1.0) >= 0.0995 else 1}f} %"
    (number, _, _), what = in_times(one)
    return f"{number}{what}"


def aliases_in_words(effect: Effect) -> str:
    """Return e.g. "this design cannot distinguish it from c × d or e × f reversed"; empty if there are no aliases."""
    if not effect.aliases:
        return ""
    words = []
    for alias in effect.aliases:
        name = escape(alias.removeprefix("-").replace(":", TIMES))
        words.append(f"{name} reversed" if alias.startswith("-") else name)
    return f"this design cannot distinguish it from {joined(words, last='or')}"


def _whole(effect: Effect, half: float | None) -> float | None:
    if half is None:
        return None
    return half * half if effect.scale is Scale.LOG else 2.0 * half


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Block-adjusted means of one response in one condition.

    ``means`` holds one number for each of ``treatments``: its mean distance from the mean of its block, on the
    contrast's scale. ``centre`` is the mean of the blocks' means, on the same scale.
    """

    response: Response
    treatments: tuple[Mapping[str, str], ...]
    means: Floats
    centre: float
    blocks: int

    def level(self, factor: str, label: str) -> float | None:
        """Return the mean over the treatments that have this factor at this level; None if there are none."""
        return self._mean(treatment.get(factor) == label for treatment in self.treatments)

    def cell(self, first: tuple[str, str], second: tuple[str, str]) -> float | None:
        """Return the mean over the treatments that have these two factors at these levels (each a name and a label)."""
        return self._mean(
            treatment.get(first[0]) == first[1] and treatment.get(second[0]) == second[1]
            for treatment in self.treatments
        )

    def natural(self, place: float) -> float:
        """Convert a mean to a value of the response: in its unit, at the trial's general level."""
        return math.exp(self.centre + place) if self.response.scale is Scale.LOG else self.centre + place

    def _mean(self, chosen: Iterable[bool]) -> float | None:
        mask = np.fromiter(chosen, dtype=np.bool_, count=len(self.treatments))
        return float(self.means[mask].mean()) if mask.any() else None


def adjust(blocks: Sequence[ObservedBlock], response: Response) -> Adjusted | None:
    """Return the means of one response over the blocks of one condition; None if no block holds every treatment."""
    rows: list[dict[str, float]] = []
    treatments: dict[str, Mapping[str, str]] = {}
    for block in blocks:
        if block.void is not None:
            continue
        found: dict[str, list[float | None]] = {}
        for run in block.observations:
            if run.kind is ArmKind.TREATMENT:
                treatments.setdefault(run.arm, run.treatment)
                found.setdefault(run.arm, []).append(usable(run, response))
        if all(value is not None for values in found.values() for value in values):
            rows.append(
                {arm: math.fsum(v or 0.0 for v in values) / len(values) for arm, values in found.items()}
            )
    complete = [row for row in rows if len(row) == len(treatments)]
    if not complete:
        return None
    table = np.array([[row[arm] for arm in treatments] for row in complete])
    levels = table.mean(axis=1, keepdims=True)
    means: Floats = (table - levels).mean(axis=0)
    return Adjusted(response, tuple(treatments.values()), means, float(levels.mean()), len(complete))
