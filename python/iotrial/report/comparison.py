"""Comparison of several trials as one frozen value, and its sentences; the first sentence can stand alone.

Intervals that do not overlap show that an effect differs. Intervals that overlap are never reported as equal.

An effect is also given as a gain in per cent: "38 % [35, 41] less time", for rates "12 % [10, 14] more"; if no
direction is excluded "3 % less to 2 % more time". The ends follow the direction of the estimate: a low end below 0 lies
in the other direction. Interactions have no gain: their ratio is half of what a setting does to the effect of another.

Besides their results, trials are compared by machine, lab, versions, margins, and the work itself. Only differences are
listed: what two trials of one study have in common is in their reports. Facts that change from run to run on one
machine (the number of a loop device, the measured frequency of a clock) are not differences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from iotrial.documents import Unbounded
from iotrial.report.analysed import Analysed, Level
from iotrial.report.blocks import Note, View, Words, plain
from iotrial.report.conditions import EVERYWHERE
from iotrial.report.notation import counted, elided, interval_numbers, joined, percent, quantity, some
from iotrial.report.notation import plain as plain_number
from iotrial.report.phrases import Kind, interval, is_speed, kind_of, label, response_name, verdict_cell
from iotrial.report.risks import explained
from iotrial.stats.model import Conclusion, Effect, Verdict
from iotrial.stats.verdict import CARRY_OVER, EFFECT_NOT_CONSTANT, FAILURES, NO_BLOCKS, SWITCH_COST, UNUSABLE
from iotrial.study.model import Scale
from iotrial.terminal import escape
from iotrial.units import format_bytes

#: above this, print a factor instead of per cent
_MOST_PERCENT = 100.0
NO_INTERVAL = " [no interval yet]"


@dataclass(frozen=True, slots=True)
class Gain:
    """``percent`` with its interval; null if unbounded."""

    percent: Annotated[Unbounded, Meta(description="In the direction of the word.")]
    low: Annotated[float | None, Meta(description="Below 0: the other direction is not excluded.")]
    high: float | None
    word: Annotated[str, Meta(extra_json_schema={"enum": ["less time", "more time", "less", "more"]})]
    said: str


def gain_of(effect: Effect) -> Gain | None:
    """Return the gain of a ratio, or None.

    None for differences, interactions, means over conditions that disagree, and effects without an estimate.
    """
    if effect.scale is not Scale.LOG or effect.value is None or effect.kind == "interaction":
        return None
    if effect.conclusion is Conclusion.VARIES:
        return None
    return gain_of_ratio(effect.value, effect.low, effect.high, timed=kind_of(effect) is Kind.TIME)


def gain_of_ratio(value: float, low: float | None, high: float | None, *, timed: bool) -> Gain:
    """Return the gain of a ratio with its interval; ``timed``: a ratio of times."""
    less = value < 1.0
    word = ("less" if less else "more") + (" time" if timed else "")
    ends = [
        None if end is None else _percent(end, less=less) for end in ((high, low) if less else (low, high))
    ]
    percent = _percent(value, less=less)
    if percent > _MOST_PERCENT:
        return Gain(percent, ends[0], ends[1], word, _factor_text(value, low, high, timed=timed))
    return Gain(percent, ends[0], ends[1], word, _gain_text(percent, ends[0], ends[1], word))


def _percent(ratio: float, *, less: bool) -> float:
    return 100.0 * (1.0 - ratio if less else ratio - 1.0)


def _factor_text(value: float, low: float | None, high: float | None, *, timed: bool) -> str:
    estimate, lower, upper = interval_numbers(value, low, high, null=1.0)
    what = " the time" if timed else ""
    ends = f" [{lower}, {upper}]{what}" if low is not None or high is not None else f"{what}{NO_INTERVAL}"
    return f"{estimate} times{ends}"


def _gain_text(percent: float, low: float | None, high: float | None, word: str) -> str:
    if low is None and high is None:
        return f"{percent:.0f} % {word}{NO_INTERVAL}"
    decimals = _decimals(low, high)
    if low is not None and high is not None and low < 0 < high:
        less, more = (high, -low) if word.startswith("less") else (-low, high)
        behind = " time" if word.endswith("time") else ""
        return f"{_plain(less, decimals)} % less to {_plain(more, decimals)} % more{behind}"
    lower = "…" if low is None else _plain(low, decimals)
    upper = "…" if high is None else _plain(high, decimals)
    return f"{percent:.{decimals}f} % [{lower}, {upper}] {word}"


def _plain(number: float, decimals: int) -> str:
    """Format with a true minus sign, with enough decimals that a bound close to 0 is not written as 0."""
    while decimals < 4 and number != 0.0 and float(f"{number:.{decimals}f}") == 0.0:
        decimals += 1
    return f"{number + 0.0:.{decimals}f}".replace("-", "−")


def _decimals(low: float | None, high: float | None) -> int:
    """Return the decimals of a percentage: 0 if the interval is at least 3.5 points wide, 1 if at least .35, else 2."""
    if low is None or high is None:
        return 0
    width = high - low
    return 0 if width >= 3.5 else 1 if width >= 0.35 else 2


_PASSING = re.compile(r"^(probe clock (error|hz)|file sets\b.*|notes)$")
_LOOP = re.compile(r"^(/dev/)?loop\d+$")
#: name of a modelled disk, before its properties
_MODEL = re.compile(r"[a-z0-9-]+")
_LONGEST, _LONGEST_MACHINE = 200, 60
_MOST = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact with its value in every trial (None: the trial does not have it). ``group``: trial, machine, lab or work."""

    group: str
    name: str
    values: tuple[str | None, ...]


def differences_of(trials: Sequence[Analysed]) -> tuple[Difference, ...]:
    """Return the facts that are not the same in all trials, at most 200."""
    found: list[Difference] = []
    for group, facts in (
        ("trial", [_own(one) for one in trials]),
        ("machine", [_lasting(one.machine) for one in trials]),
        ("lab", [_lasting(one.lab) for one in trials]),
        ("work", _in_all([one.does for one in trials])),
    ):
        found += _differing(group, facts)
    return tuple(found[:_MOST])


def machines_of(trials: Sequence[Analysed]) -> tuple[str, ...]:
    """Return what sets the machine of each trial apart, as tables of hardware name it; "" where nothing does.

    Of processors, memory, modelled disk and kernel, those that are not the same in all trials.
    """
    described = [_hardware(one) for one in trials]
    parts = [part for part in zip(*described, strict=True) if len(set(part)) > 1]
    return tuple(
        elided(", ".join(part[i] for part in parts if part[i]), _LONGEST_MACHINE) for i in range(len(trials))
    )


def _hardware(one: Analysed) -> tuple[str, ...]:
    """Return processors, memory, modelled disk and kernel in words, each "" if unknown."""
    model, number = one.machine.get("processor", ""), one.machine.get("processors", "")
    memory = _sized("bytes", one.machine.get("memory bytes", ""))
    disk = _MODEL.match(one.lab.get("places modelled", ""))
    return (
        f"{number} x {model}" if number and model else model,
        memory,
        disk[0] if disk else "",
        one.machine.get("kernel", ""),
    )


def _own(one: Analysed) -> Mapping[str, str]:
    """Return the trial's study and options, version and state."""
    return {
        "study": escape(one.study),
        "margin": percent(one.margin),
        "alpha": f"{one.alpha:g}",
        "version": escape(one.version),
        "state": ("" if one.valid else "invalid, ") + one.state if one.state != "invalid" else "invalid",
    }


def _lasting(facts: Mapping[str, str]) -> Mapping[str, str]:
    return {
        name: _sized(name, value)
        for name, value in facts.items()
        if not _PASSING.match(name) and not _LOOP.match(value)
    }


def _sized(name: str, value: str) -> str:
    """Format bytes in a suitable unit, so that the small part that a kernel reserves is not a difference."""
    return format_bytes(float(value)) if name.endswith("bytes") and value.isdecimal() else value


def _in_all(facts: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Keep only what several trials have: a workload or level that one lacks is a comparison that it lacks."""
    several = {name for one in facts for name in one if sum(name in other for other in facts) > 1}
    return [{name: value for name, value in one.items() if name in several} for one in facts]


def _differing(group: str, facts: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    for name in dict.fromkeys(name for one in facts for name in one):
        values = tuple(one.get(name) for one in facts)
        there = [value for value in values if value is not None]
        missing = len(there) < len(values) and group != "work"
        if missing or len(set(there)) > 1:
            yield Difference(group, name, tuple(v if v is None else v[:_LONGEST] for v in values))


_MOST_NAMED = 3
_LEVEL_NOTE = (
    "Nothing was randomised between trials, so there is no verdict on how these medians differ. The interval of a change "
    "covers chance within the trials, not what else differed between them."
)
#: reasons for which an interval says too little, or covers only part of the runs
_UNFIT = frozenset({FAILURES, UNUSABLE, EFFECT_NOT_CONSTANT, NO_BLOCKS, CARRY_OVER, SWITCH_COST})


class Agreement(StrEnum):
    """How the trials' intervals of one comparison relate to each other."""

    DIFFERS = "differs"
    NOT_SHOWN = "no difference shown"
    OPEN = "cannot be compared"
    ALONE = "in one trial only"


@dataclass(frozen=True, slots=True)
class Column:
    """One trial.

    ``mark`` is "A", "B", ...; ``name`` is "trial 5", or the caller's name for it. ``machine`` is what sets its machine
    apart from those of the others: "2 x AMD EPYC, disk-7200"; "" if nothing does.
    """

    mark: str
    name: str
    trial: Analysed
    machine: str = ""

    @property
    def marked(self) -> str:
        """The mark with the machine: "A disk-7200"."""
        return f"{self.mark} {self.machine}".rstrip()


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one trial for one comparison. ``effect`` has ratios (scale log) or differences, at alpha / k.

    ``risk``: which of the levels puts data at risk. ``counts``: its interval may be compared with others; the trial is
    valid, and the interval is bounded, covers all runs, and is not a mean over conditions that disagree.
    """

    effect: Effect
    valid: bool
    gain: Gain | None
    risk: str = ""

    @property
    def counts(self) -> bool:
        effect = self.effect
        return (
            self.valid
            and effect.conclusion is not Conclusion.VARIES
            and effect.reason not in _UNFIT
            and not (effect.low is None and effect.high is None)
            and effect.blocks > 0
        )

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None if the trial is invalid."""
        return self.effect.verdict if self.valid else None


@dataclass(frozen=True, slots=True)
class Apart:
    """Two trials (positions in ``Comparison.columns``) with intervals that do not overlap; ``low`` has the smaller effect.

    ``least`` is None if it has no bound (an interval that ends at a ratio of 0).
    """

    low: int
    high: int
    least: Annotated[
        float | None,
        Meta(description="By how much the effects differ at least: a factor, or a difference in the unit."),
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison, identified by its labels across trials: those of the effect ``like``.

    ``cells`` has one entry per trial, None if the trial lacks it. ``verdict`` is that of all valid trials that have the
    comparison, if there are several and they agree.
    """

    like: Effect
    cells: tuple[Cell | None, ...]
    agreement: Agreement
    apart: tuple[Apart, ...]
    verdict: Verdict | None
    opposite: bool

    @property
    def has(self) -> tuple[int, ...]:
        """Positions of the trials that have this comparison."""
        return tuple(i for i, cell in enumerate(self.cells) if cell is not None)

    @property
    def shared_words(self) -> str | None:
        """The common conclusion of all valid trials, if several have the comparison and their words are the same."""
        words = {cell.effect.conclusion.words for cell in self.cells if cell is not None and cell.valid}
        return words.pop() if self.verdict is not None and len(words) == 1 else None

    @property
    def shared(self) -> bool:
        """Whether more than one trial has this comparison."""
        return len(self.has) > 1


@dataclass(frozen=True, slots=True)
class LevelRow:
    """Medians of the arm of ``like``, one per trial (None: it has none). Nothing was randomised between trials.

    ``bounds`` and ``changes`` are None where there is no bound, and where a median is missing or not positive.
    """

    like: Level
    medians: tuple[float | None, ...]
    runs: tuple[int, ...]
    bounds: tuple[tuple[float | None, float | None], ...]
    changes: tuple[Gain | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of several trials. ``alpha``: the level at which all intervals of a family hold simultaneously."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    levels: tuple[LevelRow, ...]
    differences: tuple[Difference, ...]
    alpha: float

    @property
    def constant(self) -> Mapping[str, str]:
        """The levels of conditions that all comparisons and medians have in common."""
        conditions = [row.like.condition for row in self.rows if row.like.kind != "pooled"]
        conditions += [level.like.condition for level in self.levels]
        if not conditions:
            return {}
        first, *others = conditions
        return {n: v for n, v in first.items() if all(other.get(n) == v for other in others)}

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workloads that occur in a comparison."""
        return tuple(dict.fromkeys(row.like.workload for row in self.rows))

    def place(self, row: Row | LevelRow) -> str:
        """Describe the condition without what all have in common: "cache cold, size 10 KiB"."""
        constant = self.constant
        parts = [f"{escape(n)} {escape(v)}" for n, v in row.like.condition.items() if constant.get(n) != v]
        if len(self.workloads) > 1:
            parts.insert(0, f"workload {escape(row.like.workload)}")
        text = ", ".join(parts) or EVERYWHERE
        return f"pooled over {text}" if isinstance(row, Row) and row.like.kind == "pooled" else text


def headline(comparison: Comparison) -> str:
    """Return the first sentence, from the primary effects that several trials have."""
    shared = [row for row in primary(comparison) if row.shared]
    held = [row for row in shared if row.agreement in (Agreement.DIFFERS, Agreement.NOT_SHOWN)]
    if not shared:
        return "Nothing can be compared: no two of these trials have a comparison in common."
    if not held:
        return f"No verdict: {_nothing_held(comparison)}."
    differing = [row for row in held if row.agreement is Agreement.DIFFERS]
    among = f"the {len(comparison.columns)} trials"
    if not differing:
        where = "" if len(held) == 1 else f" in any of the {len(held)} comparisons"
        return f"No difference between {among} is shown{where}{_verdict_clause(held)}."
    first = max(differing, key=_gap)
    if len(held) == 1:
        return f"The effect differs between {among}: {_numbers(comparison, first)}."
    what = f"{_about(comparison, first)}: {_numbers(comparison, first)}"
    if len(differing) == 1:
        return f"The effect differs between {among} in 1 of {len(held)} comparisons, {what}."
    return (
        f"The effect differs between {among} in {len(differing)} of {len(held)} comparisons, most in {what}."
    )


def details(comparison: Comparison) -> Iterator[str]:
    """Yield the sentences that follow the headline."""
    return (note.text for note in notes(comparison))


def notes(comparison: Comparison) -> Iterator[Note]:
    """Yield the same sentences as notes of a report."""
    rows = primary(comparison)
    opposite = [row for row in rows if row.opposite]
    if opposite:
        named = joined(some([_about(comparison, row) for row in opposite], _MOST_NAMED))
        yield Note(f"The verdicts are opposite in {counted(len(opposite), 'comparison')}: {named}.")
    held = [row for row in rows if row.agreement in (Agreement.DIFFERS, Agreement.NOT_SHOWN)]
    if any(row.agreement is Agreement.DIFFERS for row in held):
        if same := _same_verdicts(held):
            yield Note(f"{same}.")
        if rest := sum(row.agreement is Agreement.NOT_SHOWN for row in held):
            yield Note(
                f"In {counted(rest, 'comparison')} no difference is shown; this does not mean that the effects are equal."
            )
    elif held:
        yield Note("This does not mean that the effects are equal: overlapping intervals prove nothing.")
    if works := [one.name for one in comparison.differences if one.group == "work"]:
        named = joined(some(works, _MOST_NAMED))
        yield Note(
            f"The same labels mean different things in these trials: {escape(named)}. This alone may cause a difference."
        )
    yield from map(Note, _risks(comparison))
    yield from map(Note, _left_out(comparison, rows))
    yield Note(_on_level(comparison))
    if any(row.like.kind == "pooled" for row in comparison.rows):
        text = "Means over conditions (pooled) are a separate family, at the same error level."
        yield Note(text, view=View.LONG)
    if comparison.levels:
        yield Note(_LEVEL_NOTE, view=View.LONG)


def primary(comparison: Comparison) -> tuple[Row, ...]:
    """Return the rows that sentences are based on: main effects or their cells, else all but means over conditions."""
    main = tuple(
        row
        for row in comparison.rows
        if row.like.kind in ("main", "cell")
        and not all(cell is None or cell.effect.averaged for cell in row.cells)
    )
    return main or tuple(row for row in comparison.rows if row.like.kind != "pooled")


def title(row: Row) -> str:
    """Describe the comparison: "mode 0444 against 0777"; for an interaction "cache x mode"."""
    return f"{label(row.like.factor)} {label(row.like.level)} against {label(row.like.reference)}"


def agreement_words(comparison: Comparison, row: Row) -> str:
    """Describe how the trials' intervals relate: "differs: A, C below B", "no difference shown"."""
    match row.agreement:
        case Agreement.DIFFERS:
            return f"differs: {joined(_pairs(comparison, row))}"
        case Agreement.ALONE:
            return f"only in {comparison.columns[row.has[0]].mark}"
        case other:
            return other.value


def verdict_words(row: Row) -> str:
    """Describe the verdict that all valid trials share: "faster in all"; "" if they do not share one."""
    if row.shared_words is None:
        return ""
    return f"{row.shared_words} in {'both' if len(row.has) == 2 else 'all'}"


def cell_numbers(cell: Cell) -> str:
    """Format the gain if there is one, else the plain interval."""
    return cell.gain.said if cell.gain is not None else interval(cell.effect)


def cell_verdict(cell: Cell) -> str:
    """Return the verdict in words; "no verdict" for an invalid trial."""
    return plain(verdict_of(cell), View.TEXT)


def verdict_of(cell: Cell, *, small: bool = False) -> tuple[Words, ...]:
    """Return the verdict as a table shows it; ``small`` puts it on its own line."""
    words = cell.effect.conclusion.words
    return verdict_cell(cell.effect, words, risk=cell.risk, valid=cell.valid, small=small)


def least_words(row: Row) -> str:
    """Describe the least difference between the two trials that are farthest apart: "by 1.2 times at least"."""
    known = [one.least for one in row.apart if one.least is not None]
    if not known:
        return ""
    if row.like.scale is Scale.LOG:
        return f"by {plain_number(max(known))} times at least"
    return f"by {quantity(max(known), row.like.unit)} at least"


def _about(comparison: Comparison, row: Row) -> str:
    several = len({other.like.response for other in comparison.rows}) > 1
    alone = is_speed(_any(row).effect) and not several
    response = "" if alone else f"{response_name(_any(row).effect)}, "
    place = comparison.place(row)
    where = "" if place == EVERYWHERE else f" ({place})"
    return f"{response}{title(row)}{where}"


def _any(row: Row) -> Cell:
    return next(cell for cell in row.cells if cell is not None)


def _numbers(comparison: Comparison, row: Row) -> str:
    """Format the intervals of the trials that differ; if there are many, only the lowest and the highest."""
    named = sorted({position for one in row.apart for position in (one.low, one.high)})
    if len(named) > _MOST_NAMED:
        widest = max(row.apart, key=lambda one: one.least or 0.0)
        named = [widest.low, widest.high]
    parts = []
    for position in named:
        cell = row.cells[position]
        assert cell is not None
        parts.append(f"{comparison.columns[position].mark} {cell_numbers(cell)}")
    return joined(parts)


def _gap(row: Row) -> float:
    """Return the sort key by least gap between effects; differences, which have no common scale, after ratios."""
    known = [one.least or 0.0 for one in row.apart]
    return max(known) if row.like.scale is Scale.LOG else 0.0


def _pairs(comparison: Comparison, row: Row) -> Iterator[str]:
    """Yield e.g. "A below B", each trial once on the left with all that lie above it."""
    above: dict[tuple[int, ...], list[int]] = {}
    for position in dict.fromkeys(one.low for one in row.apart):
        higher = tuple(sorted(one.high for one in row.apart if one.low == position))
        above.setdefault(higher, []).append(position)
    marks = [column.mark for column in comparison.columns]
    for higher, lower in above.items():
        yield f"{', '.join(marks[i] for i in sorted(lower))} below {', '.join(marks[i] for i in higher)}"


def _verdict_clause(held: Sequence[Row]) -> str:
    counts = Counter(row.shared_words for row in held if row.shared_words is not None)
    if len(held) == 1 and counts:
        return f"; {_everywhere(held[0])}"
    return f"; {_same_verdicts(held)[:1].lower()}{_same_verdicts(held)[1:]}" if counts else ""


def _same_verdicts(held: Sequence[Row]) -> str:
    """Return e.g. "The verdict is the same in all trials in 5 of 9: 4 equivalent, 1 faster"; "" if it never is."""
    counts = Counter(row.shared_words for row in held if row.shared_words is not None)
    if not counts:
        return ""
    text = joined(f"{number} {words}" for words, number in counts.most_common() if words)
    if len(counts) == 1 and counts.total() == len(held):
        only = next(iter(counts))
        assert only is not None
        return f"The verdict is the same in all trials: {only}"
    return f"The verdict is the same in all trials in {counts.total()} of {len(held)}: {text}"


def _everywhere(row: Row) -> str:
    return f"the verdict is the same in all trials: {row.shared_words}"


def _nothing_held(comparison: Comparison) -> str:
    found = "fewer than two trials have intervals that can be compared"
    return f"{invalid}, and {found}" if (invalid := _invalid(comparison)) else found


def _invalid(comparison: Comparison) -> str:
    """Return e.g. "A and C are invalid"; empty if all trials are valid."""
    invalid = [column.mark for column in comparison.columns if not column.trial.valid]
    are = "is" if len(invalid) == 1 else "are"
    return f"{joined(invalid)} {are} invalid" if invalid else ""


def _risks(comparison: Comparison) -> Iterator[str]:
    """Describe each level that puts data at risk, once."""
    yield from dict.fromkeys(
        sentence for column in comparison.columns for sentence in explained(column.trial.risks)
    )


def _left_out(comparison: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    if invalid := _invalid(comparison):
        yield f"{invalid}: shown without verdicts, and not compared."
    if open_ := sum(row.agreement is Agreement.OPEN for row in rows):
        yield (
            f"{counted(open_, 'comparison')} cannot be compared: fewer than two trials have a usable interval "
            f"there (bounded, without failed runs, of a constant effect, and not a mean over conditions that differ)."
        )
    alone = Counter(row.has[0] for row in rows if not row.shared)
    if alone:
        text = joined(f"{number} in {comparison.columns[at].mark}" for at, number in sorted(alone.items()))
        yield f"{counted(alone.total(), 'comparison')} {'is' if alone.total() == 1 else 'are'} in one trial only: {text}."


def _on_level(comparison: Comparison) -> str:
    number = len(comparison.columns)
    return (
        f"Each trial is analysed at its alpha / {number}, so that all intervals are valid together with "
        f"probability {percent(1 - comparison.alpha)}: if two do not overlap, the effect differs between these trials."
    )
