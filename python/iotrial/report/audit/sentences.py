"""Findings of an audit as sentences with their numbers, shared by text and Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from iotrial.audits.model import (
    Audit,
    Comparison,
    Condition,
    FirstRun,
    Modes,
    Need,
    OrderFact,
    Repeat,
    Standing,
    Unusable,
)
from iotrial.report.notation import counted, joined, percent, plain, quantity
from iotrial.stats.power import MOST_BLOCKS
from iotrial.terminal import escape
from iotrial.units import format_ratio

MOST = 12
_MOST_PLACES = 6
SHOWS = {
    Standing.NO_RATIO: "no ratio: a value is zero or negative",
    Standing.SINGLE: "a group of one: no interval",
    Standing.TOO_FEW: "two values: no usable interval",
    Standing.OPEN: "open: the interval holds 1",
    Standing.COARSE: "open: values rounded too coarsely to tell",
    Standing.WITHIN: "no effect beyond the margin, if the runs are independent",
    Standing.APART: "apart, if the runs are independent",
    Standing.CONFOUNDED: "apart, but not by the treatment alone",
}
REASONS = {
    "separate": "order and treatment are one",
    "autocorrelated": "neighbours in time resemble each other",
    "repeat": "one treatment measured twice differs as much",
}


def summary(audit: Audit) -> str:
    """Summarise the whole audit in one or two sentences."""
    main = [one for one in audit.comparisons if not _without_first(one)]
    if not main:
        return "Nothing is compared here: no two groups were measured under one condition."
    by_standing: dict[Standing, int] = defaultdict(int)
    for one in main:
        by_standing[one.standing] += 1
    if all(min(one.n, one.n_reference) == 1 for one in main):
        if {one.unit for one in main} == {"1"}:
            return (
                f"{_all(len(main))} on a group of one, and compare counts. A count that a program makes is often the same "
                "every time, and then needs no interval; whether these are, a second run of each would have shown."
            )
        return (
            f"{_all(len(main))} on a group of one: each gives a ratio, and none can say whether a repetition "
            "would give it again. No interval is possible."
        )
    parts = [f"{by_standing[standing]} {words}" for standing, words in SHOWS.items() if by_standing[standing]]
    return f"{counted(len(main), 'comparison')}: " + "; ".join(parts) + "."


def findings(audit: Audit) -> list[str]:
    """List all findings except the intervals, the most important first."""
    said = [*_order(audit), *map(_modes, audit.modes), *map(_first_run, audit.first_runs)]
    said += _repeats(audit.repeats)
    said += _reasons(audit)
    said += _rounding(audit)
    said += _unusable(audit)
    if audit.dataset.traced:
        said.append(
            f"Taken under {escape(audit.dataset.traced)}: a tracer adds about the same time to every call of every "
            "treatment, which pulls ratios towards 1; the ratio without it is farther from 1 than this one."
        )
    said += _outliers(audit)
    said += _trends(audit)
    if audit.left_out:
        said.append(
            f"{counted(audit.left_out, 'comparison')} more are not shown: audit fewer conditions at a time."
        )
    said += [f"Not read: {escape(note)}." for note in audit.dataset.unread[:MOST]]
    return said


def needs(audit: Audit) -> list[str]:
    """List the blocks a randomised trial would need: for each response, for its smallest and its largest observed effect."""
    said = []
    rows: dict[str, list[Comparison]] = defaultdict(list)
    for one in audit.comparisons:
        if one.needs and one.ratio is not None:
            rows[one.response].append(one)
    for response, row in rows.items():
        shortened = [one for one in row if _without_first(one)]
        row = shortened or row
        least = min(row, key=lambda one: abs(one.ratio - 1.0) if one.ratio else 0.0)
        most = max(row, key=lambda one: abs(one.ratio - 1.0) if one.ratio else 0.0)
        for one in (most, least) if most is not least else (most,):
            said.append(
                f"{escape(response)}, {_named(one)} (ratio {format_ratio(one.ratio or 0)}): {_needed(audit, one.needs)}."
            )
    return said


def claims(audit: Audit) -> list[str]:
    """Compare each published number with the recomputed one."""
    said = []
    for check in audit.claims:
        claim = check.claim
        one = check.comparison
        where = (
            f" ({condition_text(one.condition, one.series)})" if one and (one.condition or one.series) else ""
        )
        response = f", {escape(one.response)}" if one else ""
        found = (
            "no number"
            if check.found is None
            else f"{_recomputed(check.found)} {'times' if claim.reading == 'times' else '%'}"
        )
        statistic = f", from the {check.statistic.removeprefix('the ')}" if check.statistic else ""
        needed = f" A trial of the claimed effect: {_needed(audit, check.needs)}." if check.needs else ""
        said.append(
            f'"{escape(claim.text)}"{response}{where}: {escape(check.outcome)} '
            f"(as it is worded: {found}{statistic}).{needed}"
        )
    return said


def _recomputed(number: float) -> str:
    """Format with two decimals, since claims have at most that many; with three digits if too large to be a claim."""
    return f"{number:.2f}" if abs(number) < 1e6 else plain(number)


def condition_text(condition: Condition, series: str = "") -> str:
    parts = [f"{escape(name)} {escape(level)}" for name, level in condition]
    return ", ".join([*parts, *([f"series {escape(series)}"] if series else [])])


def _named(one: Comparison) -> str:
    where = condition_text(one.condition, one.series)
    return f"{escape(one.group)} against {escape(one.reference)}" + (f", {where}" if where else "")


def _all(number: int) -> str:
    return "The one comparison rests" if number == 1 else f"All {number} comparisons rest"


def _without_first(one: Comparison) -> bool:
    return ("runs", "without the first") in one.condition


def _needed(audit: Audit, needs: Sequence[Need]) -> str:
    """Format e.g. "block SD .17 (from these values): 10 blocks to tell it, 648 blocks to settle 3 %"."""
    if len(needs) == 1:
        basis = "from these values" if needs[0].estimated else "assumed"
        return (
            f"block SD {needs[0].block_sd:.2g} ({basis}): {_blocks(needs[0].effect_blocks)} to tell an effect of this "
            f"size, {_blocks(needs[0].margin_blocks)} to settle {percent(audit.margin)}"
        )
    sds = joined([f"{need.block_sd:g}" for need in needs], last="or")
    effect = joined([_number(need.effect_blocks) for need in needs], last="or")
    margin = joined([_number(need.margin_blocks) for need in needs], last="or")
    return (
        f"no scatter is known; with a block SD of {sds} it takes {effect} blocks to tell an effect of this size, "
        f"{margin} to settle {percent(audit.margin)}"
    )


def _number(number: int | None) -> str:
    return f"more than {MOST_BLOCKS:,}" if number is None else f"{number:,}"


def _blocks(number: int | None) -> str:
    return f"more than {MOST_BLOCKS:,} blocks" if number is None else counted(number, "block")


def _order(audit: Audit) -> Iterator[str]:
    by_arrangement: dict[str, list[OrderFact]] = defaultdict(list)
    for fact in audit.order:
        by_arrangement[fact.arrangement].append(fact)
    if separate := by_arrangement["separate"]:
        yield (
            f"Order: in {_of(len(separate), audit)} all runs of the one treatment come before all runs of the other, so "
            "treatment and time are one: whatever drifted meanwhile is in the effect. METHOD.md shows what that order "
            "does to two identical arms."
        )
    if not audit.order and audit.comparisons:
        yield "Order: the file does not tell in which order the runs were made, so an effect of time cannot be told apart."
    for fact in sorted(audit.order, key=lambda one: -(one.false_alarm or 0.0))[:4]:
        if fact.autocorrelation is None or fact.false_alarm is None or fact.false_alarm < 0.06:
            continue
        order = (
            "if all runs of one came before those of the other"
            if fact.arrangement == "unknown"
            else "in this order"
        )
        yield (
            f"Neighbouring runs: {escape(fact.group)} and {escape(fact.reference)}{_at(fact.condition, fact.series)} have "
            f"lag-1 autocorrelation {fact.autocorrelation:.2f} ({fact.values} values: give or take "
            f"{fact.values**-0.5:.2f}); with such noise Welch's test "
            f"at 5 % calls two identical arms different in {percent(fact.false_alarm)} of trials {order}."
        )
    for fact in audit.order[:MOST]:
        if fact.drift is not None and abs(fact.drift - 1.0) >= 0.005 and fact.arrangement == "separate":
            effect = _effect_of(audit, fact)
            yield (
                f"Drift: the trend inside the groups, carried on from {escape(fact.reference)} to {escape(fact.group)}"
                f"{_at(fact.condition, fact.series)}, makes a ratio of {format_ratio(fact.drift)} by itself"
                + (f"; the effect seen is {format_ratio(effect)}." if effect else ".")
            )


def _effect_of(audit: Audit, fact: OrderFact) -> float | None:
    key = (fact.group, fact.reference, fact.response, fact.condition, fact.series)
    for one in audit.comparisons:
        if (one.group, one.reference, one.response, one.condition, one.series) == key:
            return one.ratio
    return None


def _of(number: int, audit: Audit) -> str:
    total = len([one for one in audit.comparisons if not _without_first(one)])
    return f"{number} of {counted(total, 'comparison')}" if total > 1 else "this comparison"


def _at(condition: Condition, series: str) -> str:
    where = condition_text(condition, series)
    return f" ({where})" if where else ""


def _modes(modes: Modes) -> str:
    groups = "; ".join(f"{escape(group)} {low} below, {high} above" for group, low, high in modes.by_group)
    text = (
        f"Two modes{_at(modes.condition, modes.series)}, {escape(modes.response)}: {modes.low_count} values near "
        f"{quantity(modes.low, modes.unit)} and {modes.high_count} near {quantity(modes.high, modes.unit)} "
        f"(ratio {format_ratio(modes.high / modes.low)}; normal values split as clearly in {percent(modes.p)} of samples). "
        f"{groups}: how many runs of a group met which mode moves its mean."
    )
    if modes.switches is not None and modes.switches_p is not None and modes.switches_p <= 0.05:
        total = modes.low_count + modes.high_count
        text += (
            f" In the order of the file they switch {modes.switches} times in {total - 1} steps (so often by luck: "
            f"{percent(modes.switches_p)}): something alternates from run to run, whatever the treatment."
        )
    return text


def _first_run(first: FirstRun) -> str:
    ratios = joined(f"{escape(group)} {format_ratio(ratio)} times" for group, ratio in first.ratios)
    return (
        f"First run{_at(first.condition, first.series)}: the first of each group is unlike the rest ({ratios} the "
        f"median of the others; by luck in {percent(first.chance)} of files). It was made in another state (cold, as a rule) "
        'and belongs in a comparison of its own; the rows "without the first" leave it out.'
    )


def _repeats(repeats: Sequence[Repeat]) -> Iterator[str]:
    for one in sorted(repeats, key=lambda repeat: repeat.effects - repeat.smaller)[:MOST]:
        place = condition_text(one.condition)
        other = condition_text(one.condition_other)
        where = f"{place}; again: {other}" if other != place else place
        against = (
            f"; {one.smaller} of {counted(one.effects, 'effect')} of this response are smaller than that"
            if one.effects
            else ""
        )
        who = (
            escape(one.group)
            if one.group == one.other
            else f"{escape(one.group)} and {escape(one.other)}, which are the same,"
        )
        yield (
            f"Accidental A/A: {who} measured twice ({where or 'same condition'}), {escape(one.response)}: "
            f"{quantity(one.value, one.unit)} and {quantity(one.value_other, one.unit)}, a ratio of "
            f"{format_ratio(one.ratio)}{against}."
        )
    if len(repeats) > MOST:
        yield f"{len(repeats) - MOST} more repeated measurements."


def _reasons(audit: Audit) -> Iterator[str]:
    confounded = [one for one in audit.comparisons if one.standing is Standing.CONFOUNDED]
    for one in confounded[:MOST]:
        why = joined(REASONS[reason] for reason in one.reasons)
        yield f"{_named(one)}, {escape(one.response)}: the interval excludes 1, but {why}."


def _rounding(audit: Audit) -> Iterator[str]:
    coarse = [
        one
        for one in audit.comparisons
        if one.rounding is not None
        and one.ratio is not None
        and (one.rounding[1] - one.rounding[0]) / 2.0 > max(0.1 * abs(one.ratio - 1.0), audit.margin / 3.0)
    ]
    for one in coarse[:4]:
        low, high = one.rounding or (0.0, 0.0)
        yield (
            f"Resolution: {_named(one)}, {escape(one.response)}: the rounding of the raw values alone leaves the ratio "
            f"between {format_ratio(low)} and {format_ratio(high)}."
        )


def _unusable(audit: Audit) -> Iterator[str]:
    if not audit.unusable:
        return
    more = f"; and {len(audit.unusable) - MOST} more" if len(audit.unusable) > MOST else ""
    text = f"Zero or negative: {'; '.join(map(_where, audit.unusable[:MOST]))}{more}."
    if any(one.standing is Standing.NO_RATIO for one in audit.comparisons):
        text += (
            " Means include them, but no ratio of geometric means can, so a comparison with them has neither ratio nor "
            "interval. If such a run failed, or its time was rounded to 0, leave it out and say so."
        )
    yield text


def _where(one: Unusable) -> str:
    """Format e.g. "time of b: zero in rows 6 and 9, negative in row 7 (3 of 5 values)"."""
    noun = "row" if one.rows else "value"
    parts = [
        f"{word} in {noun if len(places) == 1 else noun + 's'} {_places(places)}"
        for places, word in ((one.zeros, "zero"), (one.negatives, "negative"))
        if places
    ]
    count = f"{len(one.zeros) + len(one.negatives)} of {counted(one.values, 'value')}"
    return f"{escape(one.response)} of {escape(one.group)}: {', '.join(parts)} ({count})"


def _places(places: Sequence[int]) -> str:
    if len(places) > _MOST_PLACES:
        return f"{', '.join(map(str, places[:_MOST_PLACES]))} and {len(places) - _MOST_PLACES} more"
    return joined(map(str, places))


def _outliers(audit: Audit) -> Iterator[str]:
    for one in audit.outliers[:MOST]:
        yield (
            f"Stands out: {escape(one.response)} of {escape(one.group)} at {condition_text(one.condition)} is "
            f"{quantity(one.value, one.unit)}, {format_ratio(one.value / one.typical)} times the median of its row "
            f"({quantity(one.typical, one.unit)})."
        )


def _trends(audit: Audit) -> Iterator[str]:
    for one in audit.trends[:MOST]:
        if one.p > 0.05:
            continue
        yield (
            f"Trend: {escape(one.response)} of {escape(one.group)} goes from {quantity(one.first, one.unit)} to "
            f"{quantity(one.last, one.unit)} along {escape(one.along)} (rank correlation {one.correlation:.2f}, "
            f"p {one.p:.2g}; "
            f"{one.values} values, if their order of measuring did not go the same way)."
        )
