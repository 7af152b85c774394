"""Forecast the blocks and time that a trial needs to its verdicts, and the margin its budget can resolve.

The forecast is based on the scatter of the blocks and assumes treatments without an effect. Then a comparison ends as
*equivalent* (``power.blocks_to_resolve``), but not before the positive control, which is only in some of the blocks, differs
detectably from zero. A large effect is decided sooner, an effect near the margin much later. A condition is decided when all
of its comparisons are; the slowest of thirty takes longer than one.

``likely`` is the median: half of the trials are decided by then. ``low`` to ``high`` should include four trials of five.
The range has three sources: chance in the trial's own blocks, known from the tables of ``power``, and larger with stalls;
the uncertainty of the pilot's block SD, and its change between a pilot and its trial; and blocks that get slower or faster
meanwhile. The size of the two changes comes from pairs of pilot and trial (BENCHMARKS.md, "Predicted and actual time to a
verdict").

Conditions take turns, one block each per round, until each is decided. So a condition that needs few blocks does not wait
for the later blocks of the others, which use the time it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta

from iotrial.stats.model import RANGE_LEVEL, Scatter
from iotrial.stats.power import blocks_to_resolve, blocks_to_see, resolvable_margin, visible_margin

#: the share of trials that a range should include
RANGE = 0.8
#: SD of ln(block SD of a trial / block SD of its pilot) beyond what the pilot's few blocks explain
SCATTER_CHANGES = 0.2
#: planning block SD of a trial / block SD of its pilot; it reproduces the median number of blocks of 51 pairs
SCATTER_GROWS = 1.25
#: stalls make a trial's blocks vary more than normal ones: SD of ln(block SD) per unit of ln(plain SD / planning SD), from
#: simulated stalls and t distributions (``test_stats_forecast.py``)
TAILS = 0.9
#: SD of ln(duration of a trial's blocks / duration expected from its pilot)
SPEED_CHANGES = 0.12

_AWAY = NormalDist().inv_cdf((1.0 + RANGE) / 2.0)


@dataclass(frozen=True, slots=True)
class Guess:
    """An assumption about a trial: the ``share`` of trials that need as many blocks or fewer at the same block SD, and the
    distance (``scatter``, in SDs) of the block SD above the pilot's."""

    share: float = 0.5
    scatter: float = 0.0


LIKELY = Guess()
LUCKY, UNLUCKY = Guess(share=(1.0 - RANGE) / 2.0), Guess(share=(1.0 + RANGE) / 2.0)
CALM, ROUGH = Guess(scatter=-_AWAY), Guess(scatter=_AWAY)
BEST = Guess(LUCKY.share, CALM.scatter)
GUESSES = (LIKELY, LUCKY, UNLUCKY, CALM, ROUGH, BEST)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparisons of one primary response in one condition.

    ``arms`` is the number of arms of a block at each of the two compared levels (1 except in factorials: their means scatter
    less). ``scatter`` is that of a contrast of two single arms; None if the response has no margin or the pilot has too few
    blocks. ``effects``: number of comparisons. ``per_block``: contrasts per block (1 except within the plots of whole
    plots). ``stratum``: ``whole plots`` or ``within`` if a study has both. ``grows``: factor on the block SD
    (``SCATTER_GROWS`` if only a pilot is known). ``copied``: the bets use the copy of the reference.
    """

    response: str
    scatter: Scatter | None
    arms: float = 1.0
    reason: str | None = None
    per_block: float = 1.0
    stratum: str | None = None
    effects: int = 1
    grows: float = 1.0
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Input of the forecast for one condition: its comparisons, the first of which the controls are judged by, and the
    long-run duration of one of its blocks in seconds (None: not known).

    ``first_s``: durations of the pilot's blocks, in order. A trial's first blocks take as long: they include the warm-up,
    and each has controls and is followed by a look.
    """

    condition: str
    comparisons: tuple[Comparison, ...]
    block_s: float | None
    first_s: tuple[float, ...] = ()

    def seconds(self, blocks: int) -> float:
        """Return the duration of the first ``blocks`` blocks, in seconds."""
        return math.fsum(self.first_s[:blocks]) + max(0, blocks - len(self.first_s)) * (self.block_s or 0.0)


@dataclass(frozen=True, slots=True)
class Rules:
    """Parameters of the trial. ``effect_alpha`` is the alpha of one primary effect, ``alpha`` the study's.

    The positive control is in each of the first ``controls_first`` blocks, then in every ``control_every``-th block, with
    ``control_arms`` arms.
    """

    margin: float
    alpha: float
    effect_alpha: float
    controls: bool
    budget_s: float
    budget_blocks: int
    control_every: int = 2
    control_arms: float = 1.0
    controls_first: int = 0

    def with_controls(self, seen: int) -> int:
        """Return the number of blocks needed to have ``seen`` blocks with the positive control."""
        if seen <= self.controls_first:
            return seen
        return self.controls_first + self.control_every * (seen - self.controls_first - 1) + 1

    def controls_in(self, blocks: int) -> int:
        """Return how many of the first ``blocks`` blocks have the positive control."""
        later = max(0, blocks - self.controls_first)
        return min(blocks, self.controls_first) + math.ceil(later / self.control_every)


@dataclass(frozen=True, slots=True)
class Range:
    """A prediction: the median, and the range that should include four trials of five; None: never."""

    likely: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """The forecast for one response in one condition.

    ``blocks``: blocks to its verdict; ``seconds``: time of the trial until then. Within the budget it gets
    ``budget_blocks`` and resolves the margin ``resolvable`` (relative; None: nothing). ``held_up_by`` is ``control`` if the
    positive control takes longer than the comparison. ``reason``: why there is no prediction.
    """

    condition: str
    response: str
    block_s: float | None
    scatter: Scatter | None
    blocks: Range = Range()
    seconds: Range = Range()
    budget_blocks: int | None = None
    resolvable: Annotated[
        float | None,
        Meta(description="The smallest margin that the budget resolves with probability .8."),
    ] = None
    held_up_by: Annotated[str | None, Meta(extra_json_schema={"enum": ["control", None]})] = None
    reason: str | None = None
    stratum: Annotated[
        str | None,
        Meta(
            description="In a study with whole plots: which contrasts.",
            extra_json_schema={"enum": ["whole plots", "within", None]},
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecasts of all responses in all conditions, and the seconds until all are decided (None: never, or not known)."""

    predicted: tuple[Predicted, ...]
    seconds: Range


def forecast(lines: Sequence[Line], rules: Rules, *, once_s: float = 0.0) -> Forecast:
    """Forecast a trial with these conditions; ``once_s`` is its duration outside blocks, in seconds."""
    needs = [_range([_needed(line, rules, guess) for guess in GUESSES]) for line in lines]
    known = all(line.block_s is not None for line in lines)
    budgets = _blocks_in_budget(lines, [need.likely for need in needs], rules) if known else None
    predicted = [
        _predicted(lines, i, comparison, needs, None if budgets is None else budgets[i], rules, once_s)
        for i, line in enumerate(lines)
        for comparison in line.comparisons
    ]
    total = _time(lines, needs, None, once_s) if known else Range()
    return Forecast(tuple(predicted), total)


def blocks_needed(
    comparison: Comparison,
    rules: Rules,
    control_sd: float | None,
    together: int = 1,
    guess: Guess = LIKELY,
) -> tuple[int | None, bool]:
    """Return the blocks until a comparison without an effect is decided (None: never), and whether the control takes longest.

    ``control_sd``: assumed block SD of the contrast of the positive control, None without controls. ``together``: number of
    such comparisons that must all be decided.
    """
    sd = _sd(comparison, comparison.arms, guess)
    contrasts = blocks_to_resolve(
        sd,
        rules.margin,
        alpha=rules.effect_alpha,
        together=together,
        share=guess.share,
        copied=comparison.copied,
    )
    if contrasts is None:
        return None, False
    blocks = math.ceil(contrasts / comparison.per_block)
    if control_sd is None:
        return next_look(blocks), False
    seen = blocks_to_see(control_sd, rules.margin, alpha=rules.alpha, share=guess.share)
    if seen is None:
        return None, True
    with_controls = rules.with_controls(seen)
    return next_look(max(blocks, with_controls)), with_controls > blocks


def next_look(blocks: int) -> int:
    """Return the first look of a trial at or after this many blocks (``analyse.look_due``: 5 % growth from block 20 on)."""
    look = min(blocks, 20)
    while look < blocks:
        look += math.ceil(look / 20)
    return look


def resolvable(comparison: Comparison, blocks: int, rules: Rules, control_sd: float | None) -> float | None:
    """Return the smallest margin that this many blocks resolve with probability .8, including detection of the positive
    control of twice that margin; None if there is none."""
    sd = _sd(comparison, comparison.arms, LIKELY)
    contrasts = int(blocks * comparison.per_block)
    found = resolvable_margin(sd, contrasts, alpha=rules.effect_alpha, copied=comparison.copied)
    if control_sd is None or found is None:
        return found
    seen = visible_margin(control_sd, rules.controls_in(blocks), alpha=rules.alpha)
    return None if seen is None else max(found, seen)


def _sd(comparison: Comparison, arms: float, guess: Guess) -> float:
    """Return the block SD of a contrast with ``arms`` arms at each level, at the guess's distance from the pilot's SD.

    Means of several arms are closer to normal: the excess of the plain SD over the planning SD falls, like a skewness, with
    the square root of the number of arms.
    """
    scatter = comparison.scatter
    assert scatter is not None
    if scatter.sd <= 0.0:
        return 0.0
    excess = math.log(scatter.plain_sd / scatter.sd) / math.sqrt(arms)
    end = scatter.high if guess.scatter > 0.0 else scatter.low
    known = abs(math.log(max(end, 1e-300) / scatter.sd)) / NormalDist().inv_cdf((1.0 + RANGE_LEVEL) / 2.0)
    away = guess.scatter * math.hypot(known, TAILS * excess, SCATTER_CHANGES)
    return comparison.grows * scatter.plain_sd * math.exp(away - excess) / math.sqrt(arms)


def control_sd(line: Line, rules: Rules, guess: Guess = LIKELY) -> float | None:
    """Return the block SD of the controls' contrast in a condition: that of its first response, within the plots."""
    if not rules.controls or not line.comparisons:
        return None
    first = [one for one in line.comparisons if one.response == line.comparisons[0].response][-1]
    return None if first.scatter is None else _sd(first, rules.control_arms, guess)


def _blocks(
    line: Line, comparison: Comparison, rules: Rules, guess: Guess, together: int = 1
) -> tuple[int | None, bool]:
    return blocks_needed(comparison, rules, control_sd(line, rules, guess), together, guess)


def _needed(line: Line, rules: Rules, guess: Guess) -> int | None:
    """Return the blocks until the condition's slowest comparison is decided. None: never, or not known."""
    together = sum(comparison.effects for comparison in line.comparisons)
    found = [
        None if c.scatter is None else _blocks(line, c, rules, guess, together)[0] for c in line.comparisons
    ]
    return max(found, key=_never_last) if found else None


def _range(blocks: Sequence[int | None]) -> Range:
    """Build the range from the blocks of each of ``GUESSES``: distances by chance and by scatter add in quadrature, in ln."""
    likely, lucky, unlucky, calm, rough, best = blocks
    if likely is None or lucky is None or calm is None or best is None:
        return Range(None, best, None)
    # not below the best case of both chance and scatter: evidence needs a minimum number of blocks
    low = max(best, likely * math.exp(-math.hypot(math.log(likely / lucky), math.log(likely / calm))))
    high = None
    if unlucky is not None and rough is not None:
        high = likely * math.exp(math.hypot(math.log(unlucky / likely), math.log(rough / likely)))
    return Range(likely, round(low), None if high is None else round(high))


def _time(lines: Sequence[Line], needs: Sequence[Range], blocks: Range | None, once_s: float) -> Range:
    """Return when a condition has had ``blocks`` blocks (None: when all are decided); changes of speed widen the range."""
    found: list[float | None] = []
    for end in ("likely", "low", "high"):
        each = [getattr(need, end) for need in needs]
        cap = None if blocks is None else getattr(blocks, end)
        never = None in each if blocks is None else cap is None
        found.append(None if never else _seconds(lines, each, cap) + once_s)
    likely, low, high = found
    if not likely:
        return Range(likely, low, high)
    away = _AWAY * SPEED_CHANGES
    if low:
        low = likely * math.exp(-math.hypot(math.log(likely / low), away))
    if high is not None:
        high = likely * math.exp(math.hypot(math.log(high / likely), away))
    return Range(likely, low, high)


def _predicted(
    lines: Sequence[Line],
    i: int,
    comparison: Comparison,
    needs: Sequence[Range],
    budget_blocks: int | None,
    rules: Rules,
    once_s: float,
) -> Predicted:
    line, scatter = lines[i], comparison.scatter
    if scatter is None or budget_blocks is None:
        reason = comparison.reason or "the pilot has not come to every condition"
        return Predicted(
            line.condition,
            comparison.response,
            line.block_s,
            scatter,
            reason=reason,
            stratum=comparison.stratum,
        )
    found = [_blocks(line, comparison, rules, guess) for guess in GUESSES]
    blocks = _range([one for one, _ in found])
    return Predicted(
        condition=line.condition,
        response=comparison.response,
        scatter=scatter,
        block_s=line.block_s,
        blocks=blocks,
        seconds=_time(lines, needs, blocks, once_s),
        budget_blocks=budget_blocks,
        resolvable=resolvable(
            comparison,
            max(budget_blocks, _rounds_in_budget(lines, rules)),
            rules,
            control_sd(line, rules),
        ),
        stratum=comparison.stratum,
        held_up_by="control" if found[0][1] else None,
    )


def _rounds_in_budget(lines: Sequence[Line], rules: Rules) -> int:
    """Return the blocks that each condition has had when the time is spent, if none is decided before."""
    a_round = sum(line.block_s or 0.0 for line in lines)
    return rules.budget_blocks if a_round <= 0.0 else min(rules.budget_blocks, int(rules.budget_s / a_round))


def _seconds(lines: Sequence[Line], needs: Sequence[float | None], blocks: float | None) -> float:
    """Return the seconds until a condition has had ``blocks`` blocks (None: until all are decided).

    By then every other condition has had as many blocks, or all that it needs.
    """
    cap = math.inf if blocks is None else blocks
    return sum(
        line.seconds(int(min(math.inf if need is None else need, cap)))
        for line, need in zip(lines, needs, strict=True)
    )


def _blocks_in_budget(lines: Sequence[Line], needs: Sequence[float | None], rules: Rules) -> list[int]:
    """Return the blocks that each condition has had when the time is spent: in turns, skipping decided conditions."""
    left, had = rules.budget_s, [0] * len(lines)
    wanted = [rules.budget_blocks if need is None else min(int(need), rules.budget_blocks) for need in needs]
    while True:
        going = [i for i in range(len(lines)) if had[i] < wanted[i]]
        if not going:
            break
        a_round = sum(lines[i].block_s or 0.0 for i in going)
        until_next = min(wanted[i] - had[i] for i in going)
        rounds = until_next if a_round <= 0.0 else min(until_next, int(left / a_round))
        if rounds == 0:
            break
        for i in going:
            had[i] += rounds
        left -= rounds * a_round
    return had


def _never_last(value: float | None) -> float:
    return math.inf if value is None else value
