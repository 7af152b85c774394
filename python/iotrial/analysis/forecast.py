"""What a trial will need until its verdicts, and what its budget can resolve, from the scatter of its blocks.

The forecast is for treatments that make no difference: then a comparison ends as *equivalent* (``power.blocks_to_resolve``),
and not before the positive control has been told from zero, which takes part in some of the blocks only. A large effect is
decided sooner, one near the margin much later. A condition is decided when all of its comparisons are: the slowest of thirty
takes longer than one.

``likely`` is the median: half of the trials are decided by then. ``low`` to ``high`` is meant to hold four of five. Three
things make a range: the luck of the trial's own blocks, known from the tables of ``power``, and larger with stalls; how well
the pilot knows the block SD, and that it changes between a pilot and its trial; and that blocks get slower or faster
meanwhile. The two changes are those seen in pairs of pilot and trial (BENCHMARKS.md, "Predicted and actual time to a
verdict").

Conditions take turns, one block each in a round, until each is decided; so a condition that needs few blocks is not
held up by the later blocks of the others, and what it leaves is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta

from iotrial.analysis.power import blocks_to_resolve, blocks_to_see, resolvable_margin, visible_margin
from iotrial.analysis.scatter import RANGE_LEVEL, Scatter

#: the share of trials that a range is to hold
RANGE = 0.8
#: SD of ln(block SD of a trial / that of its pilot) beyond what a pilot's few blocks explain
SCATTER_CHANGES = 0.2
#: block SD that a trial plans with / that of its pilot: the median of 51 pairs needed as many blocks as with this
SCATTER_GROWS = 1.25
#: with stalls the blocks of a trial are luckier or unluckier than normal ones: so much SD of ln(block SD) for each unit of
#: ln(plain SD / SD that is planned with), from simulated stalls and t distributions (``test_analysis_forecast.py``)
TAILS = 0.9
#: SD of ln(seconds that a trial's blocks take / that those of its pilot let expect)
SPEED_CHANGES = 0.12

_AWAY = NormalDist().inv_cdf((1.0 + RANGE) / 2.0)


@dataclass(frozen=True, slots=True)
class Guess:
    """What is assumed of a trial: the ``share`` of trials that need as many blocks or fewer at the same block SD, and how
    many SDs the block SD lies above what the pilot says."""

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

    ``arms`` is how many arms of a block stand at each of the two levels that are compared (1 but in factorials: their
    mean scatters less). ``scatter`` is that of a contrast of two single arms, None where the response has no margin, or the
    pilot too few blocks. ``effects``: how many comparisons these are. ``per_block``: contrasts that a block gives (1 but
    within the stretches of whole plots); ``stratum``: ``whole plots`` or ``within`` where a study has both. ``grows``:
    what the block SD is multiplied by (``SCATTER_GROWS`` where a pilot is all that is known).
    """

    response: str
    scatter: Scatter | None
    arms: float = 1.0
    reason: str | None = None
    per_block: float = 1.0
    stratum: str | None = None
    effects: int = 1
    grows: float = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of one condition: its comparisons, the first of which is what the controls are judged by; how
    long one of its blocks takes in the long run, in seconds (None: not known).

    ``first_s``: what the pilot's blocks took, in order. A trial's first blocks take as long: they have controls in each, look
    after each, and warm up.
    """

    condition: str
    comparisons: tuple[Comparison, ...]
    block_s: float | None
    first_s: tuple[float, ...] = ()

    def seconds(self, blocks: int) -> float:
        """What so many blocks take, from the first one on."""
        return math.fsum(self.first_s[:blocks]) + max(0, blocks - len(self.first_s)) * (self.block_s or 0.0)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the trial asks for. ``effect_alpha`` is the share of one primary effect, ``alpha`` the study's own.

    ``control_every``: the positive control takes part in each so many-th block, with ``control_arms`` arms; in the first
    ``controls_first`` in each.
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
        """How many blocks hold the positive control so many times."""
        if seen <= self.controls_first:
            return seen
        return self.controls_first + self.control_every * (seen - self.controls_first - 1) + 1

    def controls_in(self, blocks: int) -> int:
        """How many of so many blocks hold the positive control."""
        later = max(0, blocks - self.controls_first)
        return min(blocks, self.controls_first) + math.ceil(later / self.control_every)


@dataclass(frozen=True, slots=True)
class Range:
    """A prediction: the median, and the range that is to hold four trials of five; None: never."""

    likely: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """One response in one condition. ``blocks`` to its verdict, ``seconds`` of the trial until then; in the budget it
    gets ``budget_blocks`` and resolves ``resolvable`` (relative; None: nothing). ``held_up_by`` is ``control`` where
    the positive control takes longer than the comparison. ``reason``: why there is no prediction."""

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
    """All responses in all conditions, and the seconds until all are decided (None: never, or not known)."""

    predicted: tuple[Predicted, ...]
    seconds: Range


def forecast(lines: Sequence[Line], rules: Rules, *, once_s: float = 0.0) -> Forecast:
    """The forecast of a trial with these conditions; ``once_s`` is what it takes besides its blocks."""
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
    """Blocks until a comparison without an effect is decided (None: never), and whether the control is what takes longest.

    ``control_sd``: block SD of what the positive control is judged by, as guessed, None without controls; ``together``: for
    so many such comparisons, all of them.
    """
    sd = _sd(comparison, comparison.arms, guess)
    contrasts = blocks_to_resolve(
        sd, rules.margin, alpha=rules.effect_alpha, together=together, share=guess.share
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
    """The first look of a trial after so many blocks or more (``analyse.look_due``: at 5 % growth from block 20 on)."""
    look = min(blocks, 20)
    while look < blocks:
        look += math.ceil(look / 20)
    return look


def resolvable(comparison: Comparison, blocks: int, rules: Rules, control_sd: float | None) -> float | None:
    """The smallest margin that so many blocks resolve with probability .8, the positive control of twice that margin
    seen too; None where none."""
    sd = _sd(comparison, comparison.arms, LIKELY)
    found = resolvable_margin(sd, int(blocks * comparison.per_block), alpha=rules.effect_alpha)
    if control_sd is None or found is None:
        return found
    seen = visible_margin(control_sd, rules.controls_in(blocks), alpha=rules.alpha)
    return None if seen is None else max(found, seen)


def _sd(comparison: Comparison, arms: float, guess: Guess) -> float:
    """The block SD of a contrast with so many arms at each of its levels, so many SDs away from what the pilot says.

    Means of several arms are nearer to normal: what the plain SD is above the one that is planned with falls as a skewness
    does, as the root of their number.
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
    """The block SD of what the controls of a condition are judged by: its first response, within the stretches."""
    if not rules.controls or not line.comparisons:
        return None
    first = [one for one in line.comparisons if one.response == line.comparisons[0].response][-1]
    return None if first.scatter is None else _sd(first, rules.control_arms, guess)


def _blocks(
    line: Line, comparison: Comparison, rules: Rules, guess: Guess, together: int = 1
) -> tuple[int | None, bool]:
    return blocks_needed(comparison, rules, control_sd(line, rules, guess), together, guess)


def _needed(line: Line, rules: Rules, guess: Guess) -> int | None:
    """Blocks until the condition is decided: until its slowest comparison is. None: never, or not known."""
    together = sum(comparison.effects for comparison in line.comparisons)
    found = [
        None if c.scatter is None else _blocks(line, c, rules, guess, together)[0] for c in line.comparisons
    ]
    return max(found, key=_never_last) if found else None


def _range(blocks: Sequence[int | None]) -> Range:
    """From the blocks of each of ``GUESSES``: the distances by luck and by scatter add in squares, on the scale of ln."""
    likely, lucky, unlucky, calm, rough, best = blocks
    if likely is None or lucky is None or calm is None or best is None:
        return Range(None, best, None)
    # and no fewer than with the best of both luck and scatter, below which evidence takes its blocks
    low = max(best, likely * math.exp(-math.hypot(math.log(likely / lucky), math.log(likely / calm))))
    high = None
    if unlucky is not None and rough is not None:
        high = likely * math.exp(math.hypot(math.log(unlucky / likely), math.log(rough / likely)))
    return Range(likely, round(low), None if high is None else round(high))


def _time(lines: Sequence[Line], needs: Sequence[Range], blocks: Range | None, once_s: float) -> Range:
    """When a condition has had so many blocks (None: when all are decided), and the range that blocks' speed adds to."""
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
    """Blocks that each condition has had when the time is spent and none is decided before."""
    a_round = sum(line.block_s or 0.0 for line in lines)
    return rules.budget_blocks if a_round <= 0.0 else min(rules.budget_blocks, int(rules.budget_s / a_round))


def _seconds(lines: Sequence[Line], needs: Sequence[float | None], blocks: float | None) -> float:
    """When a condition has had so many blocks (None: when all are decided): every other has had as many by then, or all
    that it needs."""
    cap = math.inf if blocks is None else blocks
    return sum(
        line.seconds(int(min(math.inf if need is None else need, cap)))
        for line, need in zip(lines, needs, strict=True)
    )


def _blocks_in_budget(lines: Sequence[Line], needs: Sequence[float | None], rules: Rules) -> list[int]:
    """The blocks that each condition has had when the time is spent, in turns, the decided ones left out."""
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
