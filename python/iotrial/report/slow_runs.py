"""Sentences on what the ratio of typical runs does not show: rare slow runs, and mean times with another ratio.

They are used in two places: a note of the trial, on the first screen if they change the meaning of a verdict; and the
sentence of each effect. Bounds are rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.report.conditions import Conditions
from iotrial.report.notation import capitalised, counted, joined, percent, some
from iotrial.report.phrases import Kind, interval, interval_of, kind_of, label, level_name
from iotrial.stats.beyond_typical import FEWEST
from iotrial.stats.model import Effect, Share, SlowRuns, Verdict
from iotrial.study.model import MEAN, TYPICAL

#: added to an effect with counted slow runs: its ratio, and so its verdict, is about typical runs
TYPICALLY = " in typical runs"
_MOST_NAMED = 3
#: a bound above this is not useful
_MOST = 0.5
TOO_FEW = "too few blocks for an interval"


def covers_typical(effects: Sequence[Effect]) -> str:
    """Return " in typical runs" if slow runs or means of all these effects were looked at separately, else "".

    Also "" if all mean runs are equivalent too.
    """
    if all(effect.means is not None and effect.means.equivalent for effect in effects):
        return ""
    separately = all(effect.slow_runs is not None or effect.means is not None for effect in effects)
    return TYPICALLY if separately else ""


def qualify_verdict(effects: Sequence[Effect]) -> bool:
    """Return whether slow runs change the meaning of the verdict.

    True if one side has more of them, or if all is equivalent: rarer stalls may have gone unseen.
    """
    if any(effect.slow_runs is not None and effect.slow_runs.differ for effect in effects):
        return True
    return all(effect.verdict is Verdict.EQUIVALENT for effect in effects)


def detail(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """Return one sentence on the slow runs of all these effects; None if none were counted."""
    counted_ones = [effect for effect in effects if effect.slow_runs is not None]
    if not counted_ones:
        return None
    differing = sorted(
        (effect for effect in counted_ones if _slow(effect).differ),
        key=lambda effect: -abs(_slow(effect).difference),
    )
    if not differing:
        return f"{capitalised(bounds(counted_ones))}."
    named = [
        shown_difference(effect) + (conditions.of_effect(effect).behind if len(effects) > 1 else "")
        for effect in differing
    ]
    return (
        f"Slow runs (over {_slow(differing[0]).factor:g} times the typical time) hardly affect the ratio: "
        f"{'; '.join(some(named, _MOST_NAMED))}."
    )


def sentence(effect: Effect) -> str:
    """Return the slow runs of one effect as a sentence, with a leading blank; "" if none were counted."""
    if effect.slow_runs is None:
        return ""
    text = shown_difference(effect) if effect.slow_runs.differ else bounds([effect])
    return f" {capitalised(text)}."


def shown_difference(effect: Effect) -> str:
    """Return e.g. "mode 0444 has more slow runs: 12 of 100 against none of 100, 4 % to 25 % more of all runs"."""
    slow = _slow(effect)
    more = slow.difference > 0.0
    low, high = (slow.low, slow.high) if more else (-slow.high, -slow.low)
    word = "more" if more else "fewer"
    return (
        f"{level_name(effect)} has {word} slow runs: {_of(slow.level)} against {_of(slow.reference)} "
        f"with {label(effect.reference)}, {_down(low)} to {_up(high)} {word} of all runs"
    )


def more_slow_runs(effect: Effect) -> str:
    """Return an addition for a verdict's word in a table if the word does not say it itself: ", more slow runs"."""
    if effect.slow_runs is None or not effect.slow_runs.differ or effect.conclusion.only_typically:
        return ""
    return f", {'more' if effect.slow_runs.difference > 0.0 else 'fewer'} slow runs"


def bounds(effects: Sequence[Effect]) -> str:
    """Describe what remains possible if no difference in slow runs is shown.

    E.g. "slow runs (over 1.5 times typical): none in 60 of either from block 6 on; stalls rarer than 1 in 12 runs would not
    be seen". The blocks before only establish the typical time.
    """
    found = [_slow(effect) for effect in effects]
    what = f"slow runs (over {found[0].factor:g} times the typical time)"
    number = sum(one.level.slow + one.reference.slow for one in found)
    if not number:
        runs = min(one.level.runs for one in found)
        unseen = max(max(one.level.high, one.reference.high) for one in found)
        each = "of either" if len(found) == 1 else "or more of each arm"
        text = f"{what}: none in {runs:,} {each} from block {FEWEST + 1} on"
        return f"{text}; {TOO_FEW}" if unseen > _MOST else f"{text}; {_unseen(unseen)}"
    most, least = max(one.high for one in found), -min(one.low for one in found)
    open_ = f"no difference shown, {_up(least)} fewer to {_up(most)} more are possible"
    if max(most, least) > _MOST:
        open_ = f"no difference shown, and {TOO_FEW}"
    if len(found) == 1:
        level, reference = label(effects[0].level), label(effects[0].reference)
        return (
            f"{what}: {_of(found[0].level)} with {level}, {_of(found[0].reference)} with {reference}; {open_}"
        )
    runs = sum(one.level.runs + one.reference.runs for one in found)
    inside = "" if max(most, least) > _MOST else " in one of them"
    return f"{what}: {number:,} of {runs:,} in {counted(len(found), 'comparison')}; {open_}{inside}"


def on_means(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """Return a sentence on comparisons in which means and typical runs have different ratios; None if there are none."""
    named = []
    found = []
    for effect in filter(_mean_differs, effects):
        mean, typical = _mean_run(effect), interval(effect)
        if _number(mean) == _number(typical):
            continue  # not different in the digits that are printed
        at = conditions.of_effect(effect).behind if len(effects) > 1 else ""
        found.append(effect)
        named.append(f"{level_name(effect)}{at} {mean}, typical runs {typical}")
    if not found:
        return None
    what = "rate" if all(kind_of(effect) is Kind.RATE for effect in found) else "time"
    return (
        f"The mean {what} has another ratio than typical runs: {joined(some(named, _MOST_NAMED))}. "
        'If the mean matters, use statistic = "mean" in [[response]].'
    )


def on_capped_runs(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """Return a sentence on the runs that were cut short in a comparison of means; None if no means were compared."""
    found = [effect for effect in effects if effect.statistic == MEAN and effect.means is not None]
    if not found:
        return None
    caps = joined(sorted({f"{effect.means.cap:g}" for effect in found if effect.means}), last="or")
    capped = [effect for effect in found if effect.means is not None and effect.means.capped]
    text = f"Means count a run as at most {caps} times the typical one"
    if not capped:
        unseen = max(1.0 - effect.family_alpha ** (1.0 / max(1, effect.blocks)) for effect in found)
        return f"{text}; none took longer; {_unseen(unseen)}, and could change the mean."
    named = []
    for effect in capped:
        assert effect.means is not None
        at = conditions.of_effect(effect).behind if len(effects) > 1 else ""
        named.append(
            f"{effect.means.capped_level:,} with {level_name(effect)}, {effect.means.capped_reference:,} with "
            f"{label(effect.reference)}{at}"
        )
    return f"{text}. Runs that took longer: {'; '.join(some(named, _MOST_NAMED))}."


def _mean_differs(effect: Effect) -> bool:
    """Return whether the mean run has another ratio: by the test of ``mean_ratio``, or beyond the margin where runs are
    skewed or called equivalent."""
    if effect.mean_ratio is not None and effect.mean_ratio.differs:
        return True
    means, value = effect.means, effect.value
    if effect.statistic != TYPICAL or means is None or means.ratio is None or not value:
        return False
    apart = abs(math.log(means.ratio / value)) > math.log1p(effect.margin)
    return apart and (effect.skewed or effect.verdict is Verdict.EQUIVALENT)


def _mean_run(effect: Effect) -> str:
    """Return the ratio of means with its interval; the ratio alone if nothing bounds it."""
    means = effect.means
    if means is not None and means.ratio is not None and not (means.low is None and means.high is None):
        text = interval_of(effect, (means.ratio, means.low, means.high))
        return (
            f"{text} (runs over {means.cap:g} times the typical one count as that)" if means.capped else text
        )
    ratio = means.ratio if effect.mean_ratio is None and means is not None else None
    if effect.mean_ratio is not None:
        ratio = effect.mean_ratio.ratio
    if ratio is None:
        return "?"
    # with as many digits as typical runs have
    return _number(interval_of(effect, (ratio, effect.low, effect.high)))


def _number(text: str) -> str:
    """Return what stands before the interval, without a remark behind it."""
    return text.partition(" [")[0]


def _slow(effect: Effect) -> SlowRuns:
    assert effect.slow_runs is not None
    return effect.slow_runs


def _unseen(share: float) -> str:
    """Name the share of runs that can stall without one of them having been met."""
    return f"stalls rarer than 1 in {math.floor(1.0 / share + 1e-9):,} runs would not be seen"


def _of(share: Share) -> str:
    return f"{share.slow:,} of {share.runs:,}" if share.slow else f"none of {share.runs:,}"


def _up(fraction: float) -> str:
    return percent(
        math.ceil(fraction * 1000.0 - 1e-9) / 1000.0
        if fraction < 0.01
        else math.ceil(fraction * 100.0 - 1e-9) / 100.0
    )


def _down(fraction: float) -> str:
    return percent(
        math.floor(fraction * 1000.0) / 1000.0 if fraction < 0.01 else math.floor(fraction * 100.0) / 100.0
    )
