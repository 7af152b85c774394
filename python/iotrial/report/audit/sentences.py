"""Findings of an audit as sentences with their numbers, shared by the terminal, Markdown, JSON and scripts/audits."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from iotrial.audits.audit import RUNS, WITHOUT_FIRST
from iotrial.audits.model import (
    Audit,
    AuditedPair,
    ClaimCheck,
    FirstRuns,
    Need,
    OutlyingValue,
    Reading,
    RepeatedGroup,
    RunOrder,
    Standing,
    Trend,
    TwoModes,
    Unusable,
)
from iotrial.documents import Labels
from iotrial.report.notation import capitalised, counted, joined, percent, plain, quantity
from iotrial.stats.power import MOST_BLOCKS
from iotrial.terminal import escape
from iotrial.units import format_ratio

MOST = 12
_MOST_PLACES = 6
_MOST_REPEATS = 3
#: the most comparisons that the summary names one by one
_MOST_NAMED = 3
#: changes from this size on need no decimals, in percent
_WHOLE_PERCENT = 10.0
_MOST_DECIMALS = 4
_P_TREND = 0.05
_P_SWITCHES = 0.05
_IN_TIME = "If that was the order of the runs, it may be a trend in time."
ONLY_VALUES = "the only values"
SHOWS = {
    Standing.EQUAL: "all values equal: nothing to compare",
    Standing.CONSTANT: "same in each run: no interval",
    Standing.NO_RATIO: "no ratio: a value is zero or negative",
    Standing.SINGLE: "one value only: no interval",
    Standing.TOO_FEW: "two values only: no usable interval",
    Standing.OPEN: "undecided",
    Standing.COARSE: "undecided: values rounded too coarsely",
    Standing.WITHIN: "no effect beyond the margin, if the runs are independent",
    Standing.APART: "different, if the runs are independent",
    Standing.CONFOUNDED: "different, but perhaps not because of the treatment",
}
REASONS = {
    "separate": "one group was run before the other",
    "autocorrelated": "adjacent runs are alike",
    "repeat": "one treatment measured twice differs as much",
}


def summary(audit: Audit) -> str:
    """Answer in one or two sentences: what the comparisons show, with sizes and intervals."""
    main = [one for one in audit.comparisons if not without_first(one)]
    if not main:
        return f"Nothing to compare: no two groups share a condition{_apart(audit)}."
    if all(min(one.n, one.n_reference) == 1 for one in main):
        return _of_single_runs(main)
    steady = [one for one in audit.comparisons if without_first(one)]
    text = _answer(main, audit.margin)
    if steady:
        text += f" Without the first run: {_answer(steady, audit.margin)}"
    return text


def _apart(audit: Audit) -> str:
    """Return e.g. " (they differ in threads)": conditions of which no two groups have the same."""
    levels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in audit.dataset.observations:
        for name, level in one.condition:
            levels[name][one.group].add(level)
    names = [
        name
        for name, groups in levels.items()
        if len(groups) > 1 and sum(map(len, groups.values())) == len(set().union(*groups.values()))
    ]
    return f" (they differ in {escape(', '.join(names[:4]))})" if names else ""


def _of_single_runs(main: Sequence[AuditedPair]) -> str:
    text = f"{_sizes(main)}{f' in {len(main)} comparisons' if len(main) > 1 else ''}."
    alone = all(one.n == one.n_reference == 1 for one in main)
    if {one.unit for one in main} == {"1"}:
        return (
            f"{text} {'One count per group' if alone else 'A group has only one count'}: if a second run gives the same, "
            "no interval is needed."
        )
    runs = "One value per group" if alone else "A group has only one value"
    return f"{text} {runs}: no interval."


def _sizes(main: Sequence[AuditedPair]) -> str:
    """Return the range of the effects, in percent where that is easy to read: "ssd vs hdd: time -94 % to -13 %"."""
    ratios = [one.ratio for one in main if one.ratio is not None]
    prefix = f"{_pair(main[0])}: " if len({_pair(one) for one in main}) == 1 else ""
    if not ratios:
        return f"{prefix}no ratio" if prefix else "No ratio"
    if len({one.response for one in main}) == 1 and 0.01 <= min(ratios) <= max(ratios) <= 2.0:
        return f"{prefix}{_spoken(main[0].response)} {ranged(ratios, _signed)}"
    size = f"{'ratios' if len(ratios) > 1 else 'ratio'} {ranged(ratios, format_ratio)}"
    return prefix + size if prefix else capitalised(size)


def _answer(comparisons: Sequence[AuditedPair], margin: float) -> str:
    if len(comparisons) <= _MOST_NAMED:
        return f"{'; '.join(f'{_pair(one)}: {_size(one)}{_short(one.standing, margin)}' for one in comparisons)}."
    by_standing: dict[Standing, list[AuditedPair]] = defaultdict(list)
    for one in comparisons:
        by_standing[one.standing].append(one)
    parts = []
    for standing in SHOWS:
        if found := by_standing[standing]:
            ratios = [one.ratio for one in found if one.ratio is not None]
            sizes = f" (ratios {ranged(ratios, format_ratio)}{_within(found)})" if ratios else ""
            parts.append(f"{len(found)} {_short(standing, margin)}{sizes}")
    return f"{len(comparisons)} comparisons: {'; '.join(parts)}."


def _short(standing: Standing, margin: float) -> str:
    return SHOWS[standing].partition(": ")[0].replace("the margin", percent(margin))


def _within(found: Sequence[AuditedPair]) -> str:
    """Return the range of the shared intervals, after a comma; empty if there is none."""
    ends = [end for one in found for end in (one.shared.low, one.shared.high) if end is not None]
    return f", intervals from {format_ratio(min(ends))} to {format_ratio(max(ends))}" if ends else ""


def _size(one: AuditedPair) -> str:
    """Return e.g. "54 % less read_time [-60 %, -47 %], ", with the interval at the shared level."""
    if one.standing is Standing.EQUAL:
        return f"{_spoken(one.response)} {quantity(one.mean, one.unit)}, "
    if one.ratio is None:
        return ""
    response, low, high = _spoken(one.response), one.shared.low, one.shared.high
    if low is not None and high is not None and 0.1 <= low <= high <= 2.0:
        word = "less" if one.ratio < 1.0 else "more"
        size, lower, upper = _changes(one.ratio, low, high)
        return f"{size.lstrip('+-')} % {word} {response} [{lower} %, {upper} %], "
    ends = f" [{format_ratio(low)}, {format_ratio(high)}]" if low is not None and high is not None else ""
    return f"{format_ratio(one.ratio)} times the {response}{ends}, "


def _changes(*ratios: float) -> list[str]:
    """Return ratios as signed changes in percent, with enough decimals to tell them from each other and from 0."""
    changes = [(ratio - 1.0) * 100.0 for ratio in ratios]
    least = 0 if min(map(abs, changes)) >= _WHOLE_PERCENT else 1
    for decimals in range(least, _MOST_DECIMALS):
        texts = [f"{change:+.{decimals}f}" for change in changes]
        no_false_zero = all(float(text) or not change for text, change in zip(texts, changes, strict=True))
        if no_false_zero and len(set(texts)) == len(set(changes)):
            return texts
    return [f"{change:+.{_MOST_DECIMALS}f}" for change in changes]


def _spoken(response: str) -> str:
    return "wall time" if response == "wall" else escape(response)


def _signed(ratio: float) -> str:
    return f"{'-' if ratio < 1.0 else '+'}{percent(ratio - 1.0)}"


def ranged(numbers: Iterable[float], written: Callable[[float], str]) -> str:
    """Return e.g. "0.4 to 1.2", or one number if both ends are written alike."""
    found = sorted(numbers)
    low, high = written(found[0]), written(found[-1])
    return low if low == high else f"{low} to {high}"


def findings(audit: Audit) -> list[str]:
    """List all findings except the intervals, the most important first."""
    return [
        *_order(audit),
        *map(_modes, audit.modes),
        *map(_first_run, audit.first_runs),
        *_repeats(audit.repeats, most=_MOST_REPEATS),
        *_reasons(audit),
        *_rounding(audit),
        *_unusable(audit),
        *_tracer(audit),
        *_outliers(audit),
        *_trends(audit),
        *_left_out(audit),
    ]


def findings_in_brief(audit: Audit) -> list[str]:
    """List the findings except modes and what the table of comparisons has; equal ones appear once, with their range."""
    return [
        *_order(audit),
        *map(_first_run, audit.first_runs),
        *_repeats(audit.repeats, most=1),
        *_rounding(audit),
        *_unusable(audit),
        *_tracer(audit),
        *_outliers_in_brief(audit),
        *_trends_in_brief(audit),
        *_left_out(audit),
    ]


def _tracer(audit: Audit) -> Iterator[str]:
    if audit.dataset.traced:
        yield (
            f"Tracer: {escape(audit.dataset.traced)} adds about the same time to every call, so the ratio without it is "
            "farther from 1."
        )


def _left_out(audit: Audit) -> Iterator[str]:
    if audit.left_out:
        yield f"{counted(audit.left_out, 'comparison')} more are not shown: audit fewer conditions at a time."
    unread = audit.dataset.unread
    yield from (f"Not read: {escape(note)}." for note in unread[:MOST])
    if len(unread) > MOST:
        yield f"Not read: {len(unread) - MOST} more places (--json lists them)."


def needs(audit: Audit) -> list[str]:
    """List the blocks a randomised trial would need: for each response, for its largest and its smallest observed effect."""
    found = []
    for response, row in _rows_with_needs(audit).items():
        most, least = _extreme(row, largest=True), _extreme(row, largest=False)
        for one in (most, least) if most is not least else (most,):
            found.append(
                f"{escape(response)}, {_named(one)} (ratio {format_ratio(one.ratio or 0)}): {_needed(audit, one.needs)}."
            )
    return found


def _rows_with_needs(audit: Audit) -> dict[str, list[AuditedPair]]:
    """Return the comparisons of each response that have needs, without odd first runs if there are any."""
    rows: dict[str, list[AuditedPair]] = defaultdict(list)
    for one in audit.comparisons:
        if one.needs and one.ratio is not None:
            rows[one.response].append(one)
    return {response: [one for one in row if without_first(one)] or row for response, row in rows.items()}


def _extreme(row: Iterable[AuditedPair], *, largest: bool) -> AuditedPair:
    pick = max if largest else min
    return pick(row, key=lambda one: abs(one.ratio - 1.0) if one.ratio else 0.0)


def claims(audit: Audit) -> list[str]:
    """Compare each published number with the recomputed one."""
    found = []
    for check in audit.claims:
        one = check.comparison
        where = _at(one.condition, one.series) if one else ""
        response = f", {escape(one.response)}" if one else ""
        needed = ""
        if check.needs:
            needed = f" A trial of the claimed effect: {_needed(audit, check.needs)}."
        found.append(
            f'"{escape(check.claim.text)}"{response}{where}: {escape(check.outcome)} ({_worded(check)}'
            f"{_statistic(check)}).{needed}"
        )
    return found


def claims_in_brief(audit: Audit) -> list[str]:
    """Group the published numbers by outcome, one sentence for each."""
    by_outcome: dict[str, list[ClaimCheck]] = defaultdict(list)
    for check in audit.claims:
        several_runs = check.recomputes and check.statistic != ONLY_VALUES
        by_outcome[f"{check.outcome}{_statistic(check) if several_runs else ''}"].append(check)
    found = []
    for outcome, checks in by_outcome.items():
        texts = list(dict.fromkeys(re.split(r" (?:in|where) ", check.claim.text)[0] for check in checks))
        if len(texts) > 1:
            outcome = re.sub("^recomputes", "recompute", re.sub("^does not", "do not", outcome))
        quoted = joined(f'"{escape(text)}"' for text in texts)
        numbers = joined(f"{_recomputed(check)} {_unit(check)}" for check in checks)
        found.append(f"{quoted} {escape(outcome)}; as worded: {numbers}.")
    return found


def _worded(check: ClaimCheck) -> str:
    return "as worded: " + ("no number" if check.found is None else f"{_recomputed(check)} {_unit(check)}")


def _unit(check: ClaimCheck) -> str:
    return "times" if check.claim.reading is Reading.TIMES else "%"


def _statistic(check: ClaimCheck) -> str:
    return f", from the {check.statistic.removeprefix('the ')}" if check.statistic else ""


def _recomputed(check: ClaimCheck) -> str:
    """Format with two decimals, since claims have at most that many; with three digits if too large to be a claim."""
    if check.found is None:
        return "no number in"
    return f"{check.found:.2f}" if abs(check.found) < 1e6 else plain(check.found)


def condition_text(condition: Labels, series: str = "") -> str:
    parts = [f"{escape(name)} {escape(level)}" for name, level in condition.items()]
    return ", ".join([*parts, *([f"series {escape(series)}"] if series else [])])


def _pair(one: AuditedPair) -> str:
    return f"{escape(one.group)} vs {escape(one.reference)}"


def _named(one: AuditedPair) -> str:
    where = condition_text(one.condition, one.series)
    return _pair(one) + (f", {where}" if where else "")


def without_first(one: AuditedPair) -> bool:
    """Whether the comparison leaves out an odd first run of each group."""
    return one.condition.get(RUNS) == WITHOUT_FIRST


def _needed(audit: Audit, needs: Sequence[Need]) -> str:
    """Format e.g. "10 blocks for this effect, 648 to settle 3 % (block SD 0.17, from these values)"."""
    effect = joined(list(dict.fromkeys(_number(need.effect_blocks) for need in needs)), last="or")
    margin = joined(list(dict.fromkeys(_number(need.margin_blocks) for need in needs)), last="or")
    sds = joined([f"{need.block_sd:.2g}" for need in needs], last="or")
    basis = "from these values" if needs[0].estimated else "assumed: the values show no scatter"
    return f"{effect} blocks for this effect, {margin} to settle {percent(audit.margin)} (block SD {sds}, {basis})"


def _number(number: int | None) -> str:
    return f"more than {MOST_BLOCKS:,}" if number is None else f"{number:,}"


def _order(audit: Audit) -> Iterator[str]:
    by_arrangement: dict[str, list[RunOrder]] = defaultdict(list)
    for fact in audit.order:
        by_arrangement[fact.arrangement].append(fact)
    if separate := by_arrangement["separate"]:
        yield (
            f"Order: in {_of(len(separate), audit)} one group was run before the other, so whatever drifted meanwhile is "
            "part of the effect."
        )
    if audit.comparisons and all(fact.arrangement == "unknown" for fact in audit.order):
        yield "Order: the file does not record the order of the runs, so drift over time cannot be ruled out."
    for fact in sorted(audit.order, key=lambda one: -(one.false_alarm or 0.0))[:4]:
        if fact.autocorrelation is None or fact.false_alarm is None or fact.false_alarm < 0.06:
            continue
        order = "if one group was run before the other" if fact.arrangement == "unknown" else "in this order"
        yield (
            f"Adjacent runs are alike: {escape(fact.group)} and {escape(fact.reference)}"
            f"{_at(fact.condition, fact.series)} have lag-1 autocorrelation {fact.autocorrelation:.2f} "
            f"(± {fact.values**-0.5:.2f}, {fact.values} values). With such noise Welch's test at 5 % finds a difference "
            f"between identical groups in {percent(fact.false_alarm)} of cases {order}."
        )
    for fact in audit.order[:MOST]:
        if fact.drift is not None and abs(fact.drift - 1.0) >= 0.005 and fact.arrangement == "separate":
            effect = _effect_of(audit, fact)
            yield (
                f"Drift: the trend inside the groups alone makes a ratio of {format_ratio(fact.drift)} between "
                f"{escape(fact.group)} and {escape(fact.reference)}{_at(fact.condition, fact.series)}"
                + (f"; the effect seen is {format_ratio(effect)}." if effect else ".")
            )


def _effect_of(audit: Audit, fact: RunOrder) -> float | None:
    key = (fact.group, fact.reference, fact.response, fact.condition, fact.series)
    for one in audit.comparisons:
        if (one.group, one.reference, one.response, one.condition, one.series) == key:
            return one.ratio
    return None


def _of(number: int, audit: Audit) -> str:
    total = len([one for one in audit.comparisons if not without_first(one)])
    return f"{number} of {counted(total, 'comparison')}" if total > 1 else "this comparison"


def _at(condition: Labels, series: str) -> str:
    where = condition_text(condition, series)
    return f" ({where})" if where else ""


def _modes(modes: TwoModes) -> str:
    groups = joined(f"{escape(group)} {one.low} and {one.high}" for group, one in modes.by_group.items())
    text = (
        f"Two modes{_at(modes.condition, modes.series)}: {escape(modes.response)} near "
        f"{quantity(modes.low, modes.unit)} in {modes.low_count} runs and near {quantity(modes.high, modes.unit)} in "
        f"{modes.high_count} (ratio {format_ratio(modes.high / modes.low)}; normal values split so clearly in "
        f"{percent(modes.p)} of samples). Runs in each mode, which move the means: {groups}."
    )
    if switches := _switches(modes):
        text += f" In the order of the file the mode {switches}, whatever the treatment."
    return text


def modes_in_brief(modes: Sequence[TwoModes]) -> Iterator[str]:
    if len(modes) < _MOST_NAMED:
        yield from map(_modes, modes)
        return
    each = []
    for one in modes:
        where = [condition_text(one.condition, one.series), _switches(one)]
        low, high = quantity(one.low, one.unit), quantity(one.high, one.unit)
        each.append(f"{escape(one.response)} {low} or {high} ({'; '.join(filter(None, where))})")
    yield f"Two modes: {'; '.join(each)}. How often a group met each moves its mean."


def _switches(modes: TwoModes) -> str:
    """Return e.g. "changes at 8 of 8 steps, by chance in 0.79 % of cases"; empty if the modes do not alternate."""
    if modes.switches is None or modes.switches_p is None or modes.switches_p > _P_SWITCHES:
        return ""
    steps = modes.low_count + modes.high_count - 1
    return f"changes at {modes.switches} of {steps} steps, by chance in {percent(modes.switches_p)} of cases"


def _first_run(first: FirstRuns) -> str:
    ratios = joined(f"{escape(group)} {format_ratio(ratio)}" for group, ratio in first.ratios.items())
    return (
        f"First run{_at(first.condition, first.series)}: differs from the rest in each group ({ratios} times the median of "
        f"the others; by chance in {percent(first.chance)} of files), probably from another starting state, such as a cold "
        'cache. The rows "without the first" leave it out.'
    )


def _repeats(repeats: Sequence[RepeatedGroup], *, most: int) -> Iterator[str]:
    ordered = sorted(repeats, key=lambda one: (one.effects - one.smaller, -abs(math.log(one.ratio))))
    for one in ordered[:most]:
        other = one.condition_other
        where = condition_text({name: of for name, of in one.condition.items() if other.get(name) == of})
        who = escape(one.group)
        if one.group != one.other:
            who += f" and {escape(one.other)}, which are the same,"
        against = ""
        if one.effects:
            which = f"{one.smaller} of the {counted(one.effects, 'effect')}"
            if one.smaller in (0, one.effects):
                which = "any effect"
            against = f", {'larger' if one.smaller else 'not larger'} than {which} of that response"
        yield (
            f"Measured twice: {who} has {escape(one.response)} {quantity(one.value, one.unit)} and "
            f"{quantity(one.value_other, one.unit)}{f' ({where})' if where else ''}, "
            f"a ratio of {format_ratio(one.ratio)}{against}."
        )
    if rest := ordered[most:]:
        ratios = ranged((one.ratio for one in rest), format_ratio)
        yield f"{counted(len(rest), 'more pair')} of repeated measurements: ratios {ratios}."


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
            f"Rounding: the raw values of {_named(one)}, {escape(one.response)}, are so coarse that the ratio may be "
            f"{format_ratio(low)} to {format_ratio(high)}."
        )


def _unusable(audit: Audit) -> Iterator[str]:
    if not audit.unusable:
        return
    more = f"; and {len(audit.unusable) - MOST} more" if len(audit.unusable) > MOST else ""
    text = f"Zero or negative: {'; '.join(_where(one, audit) for one in audit.unusable[:MOST])}{more}."
    if any(one.standing is Standing.NO_RATIO for one in audit.comparisons):
        text += (
            " Comparisons with them have no ratio. If such a run failed, or its time was rounded to 0, leave it out and "
            "say so."
        )
    yield text


def _where(one: Unusable, audit: Audit) -> str:
    """Format e.g. "time of b: zero in rows 6 and 9, negative in row 7 (3 of 5 values)"."""
    noun = "row" if one.rows else "value"
    parts = [
        f"{word} in {noun if len(places) == 1 else noun + 's'} {_places(places)}"
        for places, word in ((one.zeros, "zero"), (one.negatives, "negative"))
        if places
    ]
    count = f"{len(one.zeros) + len(one.negatives)} of {counted(one.values, 'value')}"
    return f"{_measured(one, audit)}: {', '.join(parts)} ({count})"


def _places(places: Sequence[int]) -> str:
    if len(places) > _MOST_PLACES:
        return f"{', '.join(map(str, places[:_MOST_PLACES]))} and {len(places) - _MOST_PLACES} more"
    return joined(map(str, places))


def _outliers(audit: Audit) -> Iterator[str]:
    if not audit.outliers:
        return
    each = [
        f"{_measured(one, audit)} {quantity(one.value, one.unit)} at {condition_text(one.condition)} "
        f"({format_ratio(one.value / one.typical)} times {quantity(one.typical, one.unit)})"
        for one in audit.outliers[:MOST]
    ]
    yield f"Far from the median of their row: {'; '.join(each)}."


def _outliers_in_brief(audit: Audit) -> Iterator[str]:
    if len(audit.outliers) < _MOST_NAMED:
        yield from _outliers(audit)
        return
    names = joined(dict.fromkeys(_measured(one, audit) for one in audit.outliers))
    times = ranged((one.value / one.typical for one in audit.outliers), format_ratio)
    yield f"{len(audit.outliers)} values ({names}) lie far from the median of their row ({times} times)."


def _shown_trends(audit: Audit) -> dict[str, list[Trend]]:
    """Return the significant trends by the condition along which they run."""
    found: dict[str, list[Trend]] = defaultdict(list)
    for one in [trend for trend in audit.trends if trend.p <= _P_TREND][:MOST]:
        found[one.along].append(one)
    return found


def _trends(audit: Audit) -> Iterator[str]:
    for along, row in _shown_trends(audit).items():
        each = [
            f"{_measured(one, audit)} from {quantity(one.first, one.unit)} to {quantity(one.last, one.unit)} "
            f"({one.correlation:.2f}, p {one.p:.2g})"
            for one in row
        ]
        values = ranged((one.values for one in row), lambda number: f"{number:.0f}")
        yield (
            f"Trend along {escape(along)} (rank correlation over {values} values): {'; '.join(each)}. {_IN_TIME}"
        )


def _trends_in_brief(audit: Audit) -> Iterator[str]:
    rows = _shown_trends(audit)
    if sum(map(len, rows.values())) < _MOST_NAMED:
        yield from _trends(audit)
        return
    for along, row in rows.items():
        names = joined(_measured(one, audit) for one in row)
        p = ranged((one.p for one in row), lambda number: f"{number:.2g}")
        yield f"Trend along {escape(along)}: {names} (p {p}). {_IN_TIME}"


def _measured(one: OutlyingValue | Trend | Unusable, audit: Audit) -> str:
    """Name the response, and the group if there are several."""
    return escape(one.response) + (f" of {escape(one.group)}" if len(audit.groups) > 1 else "")
