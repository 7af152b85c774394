"""One effect in words: "it takes 47 % less time than strictatime [-50, -44]".

A ratio of times is described as time, a ratio of rates as rate, anything else as an amount. "times as fast", never "times
faster", since its meaning is ambiguous. The words of the verdict are those of the analysis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import StrEnum

from iotrial.report.blocks import View, Words
from iotrial.report.notation import (
    bracketed,
    difference_numbers,
    elided,
    interval_numbers,
    named_level,
    percent,
    plain,
    quantity,
)
from iotrial.stats.model import Conclusion, Effect
from iotrial.stats.voids import VOID_RULES, Void
from iotrial.study.model import MEAN, TYPICAL, Better, Scale
from iotrial.terminal import escape

_LONGEST_LABEL = 48
_INTERVAL = re.compile(r" \[[^\[\]]*\]")
#: after a direction if the size may be below the margin
SIZE_OPEN = ", size open"
#: from this ratio of its ends on, an interval may say too little on the size of an effect
MOST_APART = 4.0
TIME_UNITS = frozenset({"s", "ms", "us", "µs", "ns"})

# Reasons of the analysis for an inconclusive effect.
REASONS = {
    "budget_spent": "its interval is too wide",
    "failures": "runs failed, and a comparison with failures is at best undecided",
    "unusable_values": "some runs gave no usable value for a ratio (zero, or none)",
    "effect_not_constant": "the effect changed while the trial ran, or many runs in a row stalled: no one number fits",
    "no_blocks": "no complete block",
    "still_changing": "within the windows it may still be heading for the margin, so equivalence cannot be claimed",
    "control_not_seen": "the injected slowdown has not been seen there, so equivalence cannot be claimed",
    "switch_cost": "a cost of switching to one of the levels could still explain it",
    "carry_over": "runs seem to depend on the runs before them",
    "typical_and_mean_differ": "typical runs, medians and means differ in direction: some runs are much slower or faster",
    "capped_runs": "the mean is inside the margin only with the longest runs cut short; raise cap, or measure more blocks",
}


#: terminal styles of conclusions; one that is only probable does not get the colour of its direction
VERDICT_STYLES = {
    "faster": "green",
    "better": "green",
    "slower": "red",
    "worse": "red",
    "equivalent": "cyan",
    "typical runs equivalent": "cyan",
    "higher": "yellow",
    "lower": "yellow",
    "undecided": "dim",
    "not tried": "dim",
    "no verdict": "bold red",
}


def void_in_words(rule: str) -> str:
    """Return what a rule for void blocks means and what to change; the rule itself if a stored trial has one of old."""
    known = VOID_RULES.get(Void(rule)) if rule in {*Void} else None
    return escape(rule) if known is None else known.sentence


class Kind(StrEnum):
    """The kind of number a response is, which decides the words."""

    TIME = "time"
    RATE = "rate"
    AMOUNT = "amount"
    DIFFERENCE = "difference"


def kind_of(effect: Effect) -> Kind:
    """Return the kind of the effect's response."""
    if effect.scale is Scale.DIFFERENCE:
        return Kind.DIFFERENCE
    if effect.unit in TIME_UNITS and effect.better is not Better.HIGHER:
        return Kind.TIME
    if effect.unit.endswith("/s"):
        return Kind.RATE
    return Kind.AMOUNT


def null_value(effect: Effect) -> float:
    """Return the value that means no effect: 1 for a ratio, 0 for a difference."""
    return 1.0 if effect.scale is Scale.LOG else 0.0


def without_interval(text: str) -> str:
    """Return a size in words without the interval in brackets."""
    return _INTERVAL.sub("", text)


def interval(effect: Effect) -> str:
    """Return e.g. "0.53 [0.50, 0.56]", with the unit if the effect is a difference.

    For conditions that disagree, "0.389 to 0.998", also if their mean is undecided.
    """
    if effect.agree is False and effect.span is not None:
        return " to ".join(span_ends(effect))
    return interval_of(effect, (effect.value, effect.low, effect.high))


def span_ends(effect: Effect) -> tuple[str, str]:
    """Format the smallest and the largest estimate of a pooled effect's conditions, with their unit."""
    assert effect.span is not None
    if effect.scale is Scale.DIFFERENCE:
        least, _, most, unit = difference_numbers(effect.span.least, None, effect.span.most, effect.unit)
        return f"{least}{unit}", f"{most}{unit}"
    least, _, most = interval_numbers(effect.span.least, None, effect.span.most, null=null_value(effect))
    return least, most


def interval_of(effect: Effect, numbers: tuple[float | None, float | None, float | None]) -> str:
    """Format other numbers on the effect's scale like ``interval``: e.g. those of a claim, or a doubled interaction."""
    return bracketed(*numbers, null=null_value(effect), unit=effect.unit)


def effect_numbers(
    effect: Effect, numbers: tuple[float | None, float | None, float | None] | None = None
) -> tuple[str, str, str, str]:
    """Format estimate, both ends and their unit: "" for ratios and counts, else with a leading blank (" KiB")."""
    value, low, high = numbers or (effect.value, effect.low, effect.high)
    if effect.scale is Scale.DIFFERENCE:
        return difference_numbers(value, low, high, effect.unit)
    return (*interval_numbers(value, low, high, null=null_value(effect)), "")


def interval_title(scales: Iterable[Scale]) -> str:
    """Return the heading of a column of intervals: "ratio [interval]", "difference [interval]", or one for both."""
    found = set(scales)
    if found == {Scale.DIFFERENCE}:
        return "difference [interval]"
    return "ratio or difference [interval]" if Scale.DIFFERENCE in found else "ratio [interval]"


def label(text: str) -> str:
    """Prepare a label for a sentence: escaped, and not longer than a line."""
    return elided(escape(text), _LONGEST_LABEL)


def level_name(effect: Effect) -> str:
    """Return e.g. "mode 0444"."""
    return named_level(label(effect.factor), label(effect.level))


def response_name(effect: Effect) -> str:
    """Return the response in words: ``read_time`` is "read time", "mean read time" or "p99 of read time"."""
    name = spoken(effect.response)
    if effect.statistic == TYPICAL:
        return name
    return f"mean {name}" if effect.statistic == MEAN else f"{escape(effect.statistic)} of {name}"


def spoken(name: str) -> str:
    """Return a name from a study as words."""
    return escape(name).replace("_", " ")


def axis_name(response: str) -> str:
    """Return a response's name for a chart: "time" for the one that studies call wall."""
    return "time" if response == "wall" else spoken(response)


def is_speed(effect: Effect) -> bool:
    """Return whether the response is a time or a rate, so that "faster" and "slower" apply."""
    return kind_of(effect) in (Kind.TIME, Kind.RATE) and effect.statistic == TYPICAL


def statement(effect: Effect) -> str:
    """State the direction of an effect.

    E.g. "mode 0444 is faster than 0777", "mode 0444 is probably slower than 0777, size open", "read ios is higher under
    mode 0444 than under 0777".
    """
    word, reference = effect.conclusion.words, label(effect.reference)
    size = SIZE_OPEN if effect.conclusion.probable else ""
    if is_speed(effect):
        return f"{level_name(effect)} is {word} than {reference}{size}"
    return f"{response_name(effect)} is {word} under {level_name(effect)} than under {reference}{size}"


def percent_numbers(effect: Effect) -> tuple[str, str, str] | None:
    """Return estimate and ends of a ratio as signed changes in percent: ("+11", "+7", "+16").

    None if percent would be hard to read: unbounded ends, ratios below 0.1 or above 2, differences.
    """
    if effect.scale is Scale.DIFFERENCE:
        return None
    return change_numbers(effect.value, effect.low, effect.high)


def change_numbers(ratio: float | None, low: float | None, high: float | None) -> tuple[str, str, str] | None:
    """Return a ratio and its ends as signed changes in percent, or None if percent would be hard to read."""
    if ratio is None or low is None or high is None or low < 0.1 or high > 2.0:
        return None
    ratios = interval_numbers(ratio, low, high, null=1.0)
    estimate, lower, upper = map(_signed_percent, ratios)
    return estimate, lower, upper


def _signed_percent(ratio: str) -> str:
    """Return a formatted ratio as a change in percent, to whole percent from 10 % on."""
    change = (float(ratio) - 1.0) * 100.0
    decimals = 0 if round(abs(change), 1) >= 10.0 else max(0, len(ratio.partition(".")[2]) - 2)
    return f"{change:+.{decimals}f}"


def in_times(effect: Effect) -> tuple[tuple[str, str, str], str]:
    """Return a ratio and its ends as multiples, and what they are multiples of: (("33", "8", "140"), " times as fast").

    A time or a rate below 1 is inverted, so that the number is large where the effect is.
    """
    value, low, high = effect.value, effect.low, effect.high
    kind, below = kind_of(effect), (1.0 if effect.value is None else effect.value) < 1.0
    if kind is Kind.AMOUNT or (kind is Kind.TIME and effect.statistic != TYPICAL):
        return interval_numbers(value, low, high, null=1.0), " times"
    if below:
        value, low, high = (None if one is None or one <= 0.0 else 1.0 / one for one in (value, high, low))
    numbers = interval_numbers(value, low, high, null=1.0)
    if kind is Kind.TIME:
        return numbers, " times as fast" if below else " times as long"
    return numbers, " times as slow" if below else " times the rate"


def size_of(effect: Effect, *, times: bool = False) -> str:
    """Return the effect for a sentence: "-47 % [-50, -44]", "12 times as fast [6, 20]", "530 [498, 586] KiB".

    ``times``: in times even if percent is as easy to read.
    """
    if (effect.agree is False and effect.span is not None) or effect.scale is Scale.DIFFERENCE:
        return interval(effect)
    if not times and (change_in_percent := percent_numbers(effect)) is not None:
        estimate, low, high = change_in_percent
        return f"{estimate} % [{low}, {high}]"
    (estimate, low, high), unit = in_times(effect)
    ends = "no interval yet" if effect.low is None and effect.high is None else f"{low}, {high}"
    return f"{estimate}{unit} [{ends}]"


def size_in_words(effect: Effect, *, than: bool = False) -> str:
    """Return what follows the statement: "it takes 47 % less time [-50, -44]".

    ``than``: with the reference, "it takes 47 % less time than strictatime [-50, -44]".
    """
    reference = label(effect.reference)
    estimate, low, high, unit = effect_numbers(effect)
    kind = kind_of(effect)
    if kind is Kind.DIFFERENCE:
        sign = "+" if effect.value is not None and effect.value > 0 else ""
        return f"by {sign}{estimate} [{low}, {high}]{unit}"
    if (change_in_percent := percent_numbers(effect)) is not None:
        number = f"{change_in_percent[0].lstrip('+-')} %"
        less = change_in_percent[0].startswith("-")
        rest = f"{f' than {reference}' if than else ''} [{change_in_percent[1]}, {change_in_percent[2]}]"
        if kind is Kind.RATE:
            return f"it reaches a {number} {'lower' if less else 'higher'} rate{rest}"
        if kind is Kind.TIME and effect.statistic == TYPICAL:
            return f"it takes {number} {'less' if less else 'more'} time{rest}"
        return f"{number} {'less' if less else 'more'}{rest}"
    (estimate, low, high), what = in_times(effect)
    of = f"{' of' if what.endswith('rate') else ' as'} {reference}" if than else ""
    if what == " times":
        of = f" that of {reference}" if than else ""
        return f"{estimate} times{of} [{low}, {high}]"
    verb = {" times as long": "takes", " times the rate": "reaches"}.get(what, "is")
    return f"it {verb} {estimate}{what}{of} [{low}, {high}]"


def size_known(effect: Effect) -> bool:
    """Return whether the interval says how large an effect is, once its direction is known.

    Not if its ends differ by more than a factor of ``MOST_APART`` and its half-width is more than half of the effect, both of
    the logarithm. A trial may stop there: an interval beyond the margin is an answer, however wide.
    """
    if effect.scale is Scale.DIFFERENCE:
        return True
    if effect.low is None or effect.high is None or not effect.value or effect.low <= 0.0:
        return False
    wide = math.log(effect.high / effect.low)
    return wide <= math.log(MOST_APART) or wide <= abs(math.log(effect.value))


def direction_and_size(effect: Effect) -> str:
    """Return e.g. "mode 0444 is slower than 0777: it takes 12 % more time [+7, +16]".

    Where the size is not known: "mode 0444 is slower than 0777; by how much is not known yet: 1.30 to 59 times the
    time".
    """
    if effect.conclusion.probable or size_known(effect):
        return f"{statement(effect)}: {size_in_words(effect)}"
    (_, low, high), what = in_times(effect)
    ends = f"at most {high}" if low == "…" else f"at least {low}" if high == "…" else f"{low} to {high}"
    return f"{statement(effect)}; by how much is not known yet: {ends}{what}"


def effect_sentence(effect: Effect, *, margin: float) -> str:
    """Describe the whole effect in one sentence without its condition, e.g. for a tooltip or a list of details."""
    name, reference = level_name(effect), label(effect.reference)
    if effect.not_tried:
        return f"{name} vs {reference}: not tried: {escape(effect.not_tried)}."
    if effect.conclusion is Conclusion.UNDECIDED:
        why = f" ({reason_in_words(effect.reason)})" if effect.reason else ""
        return f"{name} vs {reference}: undecided{why}: {size_of(effect)}. {still_possible(effect)}."
    if effect.conclusion.equivalent or effect.conclusion.only_typically:
        same = "as fast as" if is_speed(effect) else "the same as"
        apart = effect.slow_runs is not None or effect.means is not None
        typically = apart and not (effect.means and effect.means.equivalent)
        within = f"within {percent(margin)}{' in typical runs' if typically else ''}"
        though = f", though detectably {escape(effect.detectably)}" if effect.detectably else ""
        return f"{name} is {same} {reference} {within}{though}: {size_of(effect)}."
    return f"{direction_and_size(effect)}."


def still_possible(effect: Effect) -> str:
    """Describe what the interval does not exclude: "Effects from -12.5 % to +5.8 % remain possible"."""
    if effect.low is None and effect.high is None:
        return f"No bound yet after {effect.blocks:,} {'block' if effect.blocks == 1 else 'blocks'}"
    if effect.scale is Scale.DIFFERENCE:
        ends = [
            None if end is None else f"{'-' if end < 0 else '+'}{quantity(abs(end), effect.unit)}"
            for end in (effect.low, effect.high)
        ]
    else:
        ends = [None if end is None else _change(end) for end in (effect.low, effect.high)]
    low, high = ends
    if low is None or high is None:
        return f"No effect beyond {low or high}; no bound yet on the other side"
    return f"Effects from {low} to {high} remain possible"


def _change(ratio: float) -> str:
    """Format a ratio as a signed percentage: "-12.5 %", "+5.8 %"; "3.2 times" above a factor of two."""
    if ratio > 2.0:
        return f"{plain(ratio)} times"
    return f"{'-' if ratio < 1.0 else '+'}{abs(ratio - 1.0) * 100:.1f} %"


def reason_in_words(reason: str) -> str:
    """Return a reason of the analysis as a clause: a clause as it is, an unknown code with underscores replaced."""
    if " " in reason:
        return escape(reason)
    return REASONS.get(reason, escape(reason).replace("_", " "))


def verdict_cell(
    effect: Effect, words: str, *, risk: str, valid: bool, small: bool = False, reasons: View = View.ALL
) -> tuple[Words, ...]:
    """Return the verdict in a table: ``words``, what it puts at risk, whether it is detectable, and why it is undecided.

    ``small`` puts each on its own line of a page; ``reasons``: the views that say why.
    """
    if not valid:
        return (Words("no verdict", "invalid", badge=True, small=small),)
    found = [Words(words, "mixed" if risk else effect.conclusion.tone, badge=True, small=small)]
    if risk:
        found += [
            Words(risk, "risk", view=View.TEXT),
            Words(f"⚠ {risk}", "risk", badge=True, small=small, view=View.PAGE),
        ]
    if effect.detectably and effect.conclusion is not Conclusion.VARIES:
        found.append(Words(f"detectably {escape(effect.detectably)}", small=small))
    if reason := reason_of(effect):
        found.append(Words(reason, small=small, view=reasons))
    return tuple(found)


def reason_of(effect: Effect) -> str:
    """Return why an effect is open, in words; empty if it is not, or for want of blocks alone."""
    if effect.conclusion is Conclusion.UNDECIDED and effect.reason not in (None, "budget_spent"):
        return reason_in_words(str(effect.reason))
    return escape(effect.not_tried)


def amount(value: float | None, unit: str, *, relative_to: float | None = None) -> str:
    """Format a measured value, with its ratio to the reference's value if that is given."""
    text = quantity(value, unit)
    if value is None or not relative_to or value / relative_to < 0:  # a negative ratio is no multiple
        return text
    return f"{text} (× {plain(value / relative_to)})"
