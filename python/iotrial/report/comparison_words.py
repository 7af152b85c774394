"""What a comparison of trials comes to, in sentences: the first could stand alone.

Intervals that do not overlap show that an effect differs; intervals that overlap are never said to be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from iotrial.analysis.model import Conclusion
from iotrial.legible import shown
from iotrial.report.comparison import Agreement, Cell, Comparison, Row
from iotrial.report.notation import counted, joined, percent, plain, quantity, some
from iotrial.report.phrases import interval, is_speed, label, reason_in_words, response_name
from iotrial.study.model import Scale

_MOST_NAMED = 3
_LEVEL_NOTE = (
    "Medians side by side are what was seen, on other days and machines: nothing was randomised between trials, so no "
    "verdict is given."
)


def headline(comparison: Comparison) -> str:
    """The first sentence, from the primary effects that several trials have."""
    shared = [row for row in primary(comparison) if row.shared]
    held = [row for row in shared if row.agreement in (Agreement.DIFFERS, Agreement.NOT_SHOWN)]
    if not shared:
        return "Nothing can be compared: no comparison is in more than one of these trials."
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
    """The sentences that belong beside the first."""
    rows = primary(comparison)
    opposite = [row for row in rows if row.opposite]
    if opposite:
        named = joined(_about(comparison, row) for row in opposite[:_MOST_NAMED])
        more = f", and {len(opposite) - _MOST_NAMED} more" if len(opposite) > _MOST_NAMED else ""
        yield f"The verdicts are opposite in {counted(len(opposite), 'comparison')}: {named}{more}."
    held = [row for row in rows if row.agreement in (Agreement.DIFFERS, Agreement.NOT_SHOWN)]
    if any(row.agreement is Agreement.DIFFERS for row in held):
        if same := _same_verdicts(held):
            yield f"{same}."
        if rest := sum(row.agreement is Agreement.NOT_SHOWN for row in held):
            yield f"In {counted(rest, 'comparison')} no difference is shown: that is not to say that effects are the same."
    elif held:
        yield "That no difference is shown is not to say that effects are the same: intervals that overlap show nothing."
    if works := [one.name for one in comparison.differences if one.group == "work"]:
        named = joined(some(works, _MOST_NAMED))
        yield f"The same labels stand for other work in these trials: {shown(named)}. That may be all of a difference."
    yield from _risks(comparison)
    yield from _left_out(comparison, rows)
    yield _on_level(comparison)
    if any(row.kind == "pooled" for row in comparison.rows):
        yield "Means over conditions (pooled) are a family of their own, at the same level."
    if comparison.levels:
        yield _LEVEL_NOTE


def primary(comparison: Comparison) -> tuple[Row, ...]:
    """The rows that sentences are made of: no means over conditions, no interactions; these where there are no others."""
    main = tuple(row for row in comparison.rows if row.kind == "main")
    return main or tuple(row for row in comparison.rows if row.kind != "pooled")


def title(row: Row) -> str:
    """What is compared: "mode 0444 against 0777"; of an interaction "cache x mode"."""
    return f"{label(row.factor)} {label(row.level)} against {label(row.reference)}"


def agreement_words(comparison: Comparison, row: Row) -> str:
    """What the trials' intervals say of each other: "differs: A, C below B", "no difference shown"."""
    match row.agreement:
        case Agreement.DIFFERS:
            return f"differs: {joined(_pairs(comparison, row))}"
        case Agreement.ALONE:
            return f"only in {comparison.columns[row.has[0]].mark}"
        case other:
            return other.value


def verdict_words(row: Row) -> str:
    """The verdict that all valid trials share: "faster in all"; "" where they do not."""
    if row.shared_words is None:
        return ""
    return f"{row.shared_words} in {'both' if len(row.has) == 2 else 'all'}"


def cell_numbers(cell: Cell) -> str:
    """The gain where there is one, else the interval as it is."""
    return cell.gain.said if cell.gain is not None else interval(cell.effect)


def cell_verdict(cell: Cell) -> str:
    """The verdict as a table says it; "no verdict" of an invalid trial."""
    if not cell.valid:
        return "no verdict"
    word = cell.effect.conclusion.words
    if cell.risk:
        word += f", {cell.risk}"
    if cell.effect.detectably and cell.effect.conclusion is not Conclusion.VARIES:
        word += f", detectably {shown(cell.effect.detectably)}"
    if cell.effect.conclusion is Conclusion.UNDECIDED and cell.effect.reason not in (None, "budget_spent"):
        word += f": {reason_in_words(str(cell.effect.reason))}"
    return word


def least_words(row: Row) -> str:
    """By how much the two trials that are farthest apart differ at least: "by 1.2 times at least"."""
    known = [one.least for one in row.apart if one.least is not None]
    if not known:
        return ""
    if row.scale is Scale.LOG:
        return f"by {plain(max(known))} times at least"
    return f"by {quantity(max(known), row.unit)} at least"


def _about(comparison: Comparison, row: Row) -> str:
    several = len({other.response for other in comparison.rows}) > 1
    plain = is_speed(_any(row).effect) and not several
    response = "" if plain else f"{response_name(_any(row).effect)}, "
    place = comparison.place(row)
    where = "" if place == "all conditions" else f" ({place})"
    return f"{response}{title(row)}{where}"


def _any(row: Row) -> Cell:
    return next(cell for cell in row.cells if cell is not None)


def _numbers(comparison: Comparison, row: Row) -> str:
    """The intervals of the trials that differ; of many the lowest and the highest only."""
    named = sorted({position for one in row.apart for position in (one.low, one.high)})
    if len(named) > _MOST_NAMED:
        widest = max(row.apart, key=lambda one: one.least or 0.0)
        named = [widest.low, widest.high]
    said = []
    for position in named:
        cell = row.cells[position]
        assert cell is not None
        said.append(f"{comparison.columns[position].mark} {cell_numbers(cell)}")
    return joined(said)


def _gap(row: Row) -> float:
    """How far apart the effects are at least, in order; differences come behind ratios, whose sizes can be compared."""
    known = [one.least or 0.0 for one in row.apart]
    return max(known) if row.scale is Scale.LOG else 0.0


def _pairs(comparison: Comparison, row: Row) -> Iterator[str]:
    """ "A below B", each trial once on the left with all that lie above it."""
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
    """ "The verdict is the same everywhere in 5 of 9: 4 equivalent, 1 faster"; "" where it never is."""
    counts = Counter(row.shared_words for row in held if row.shared_words is not None)
    if not counts:
        return ""
    said = joined(f"{number} {words}" for words, number in counts.most_common() if words)
    if len(counts) == 1 and counts.total() == len(held):
        only = next(iter(counts))
        assert only is not None
        return f"The verdict is the same in all trials: {only}"
    return f"The verdict is the same in all trials in {counts.total()} of {len(held)}: {said}"


def _everywhere(row: Row) -> str:
    return f"the verdict is the same in all trials: {row.shared_words}"


def _nothing_held(comparison: Comparison) -> str:
    invalid = [column.mark for column in comparison.columns if not column.trial.valid]
    if invalid:
        are = "is" if len(invalid) == 1 else "are"
        return (
            f"{joined(invalid)} {are} invalid, and fewer than two trials have intervals that can be compared"
        )
    return "fewer than two trials have intervals that can be compared"


def _risks(comparison: Comparison) -> Iterator[str]:
    """What levels do that put data at risk, each once."""
    told = dict.fromkeys(
        (factor, level, sentence)
        for column in comparison.columns
        for factor, levels in column.trial.risks.items()
        for level, sentence in levels.items()
    )
    yield from (f"Data at risk under {shown(factor)} {shown(level)}: {what}." for factor, level, what in told)


def _left_out(comparison: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    invalid = [column.mark for column in comparison.columns if not column.trial.valid]
    if invalid:
        are = "is" if len(invalid) == 1 else "are"
        yield f"{joined(invalid)} {are} invalid: shown without verdicts, and held against nothing."
    if open_ := sum(row.agreement is Agreement.OPEN for row in rows):
        yield (
            f"{counted(open_, 'comparison')} cannot be held against each other: fewer than two trials have an interval "
            "there that is bounded, of all runs, of an effect that stayed what it was, and no mean of conditions that differ."
        )
    alone = Counter(row.has[0] for row in rows if not row.shared)
    if alone:
        said = joined(f"{number} in {comparison.columns[at].mark}" for at, number in sorted(alone.items()))
        yield f"{counted(alone.total(), 'comparison')} {'is' if alone.total() == 1 else 'are'} in one trial only: {said}."


def _on_level(comparison: Comparison) -> str:
    number = len(comparison.columns)
    return (
        f"Each trial is analysed at its alpha / {number}, so that all intervals hold together with a probability of "
        f"{percent(1 - comparison.alpha)}: where two do not overlap, the effect differs between these trials."
    )
