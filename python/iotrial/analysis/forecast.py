"""What a trial will need until its verdicts, and what its budget can resolve, from the scatter of its blocks.

The forecast is for treatments that make no difference: then a comparison ends as *equivalent*, after the number
of blocks within which four such comparisons in five do (``power.blocks_to_resolve``), and not before the positive
control has been told from zero, which takes part in some of the blocks only. A large effect is decided sooner; one
of about half the margin takes at least four times as long, since the interval must then leave out either zero or
the margin. A condition is decided when all of its comparisons are: the slowest of thirty takes longer than one.

Conditions take turns, one block each in a round, until each is decided; so a condition that needs few blocks is not
held up by the later blocks of the others, and what it leaves is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iotrial.analysis.power import blocks_to_resolve, reach, resolvable_margin
from iotrial.analysis.scatter import Scatter

ENDS = ("likely", "low", "high")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparisons of one primary response in one condition.

    ``arms`` is how many arms of a block stand at each of the two levels that are compared (1 but in factorials: their
    mean scatters less). ``scatter`` is that of a contrast of two single arms, None where the response has no margin, or the
    pilot too few blocks. ``effects``: how many comparisons these are. ``per_block``: contrasts that a block gives (1 but
    within the stretches of whole plots); ``stratum``: ``whole plots`` or ``within`` where a study has both.
    """

    response: str
    scatter: Scatter | None
    arms: float = 1.0
    reason: str | None = None
    per_block: float = 1.0
    stratum: str | None = None
    effects: int = 1


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of one condition: its comparisons, the first of which is what the controls are judged by; how
    long one of its blocks takes, in seconds (None: not known)."""

    condition: str
    comparisons: tuple[Comparison, ...]
    block_s: float | None


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
    """A prediction with the range that follows from the range of the block SD; None: never."""

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
    scatter: Scatter | None
    block_s: float | None
    blocks: Range = Range()
    seconds: Range = Range()
    budget_blocks: int | None = None
    resolvable: float | None = None
    held_up_by: str | None = None
    reason: str | None = None
    stratum: str | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """All responses in all conditions, and the seconds until all are decided (None: never, or not known)."""

    predicted: tuple[Predicted, ...]
    seconds: Range


def forecast(lines: Sequence[Line], rules: Rules) -> Forecast:
    """The forecast of a trial with these conditions."""
    needs = {end: [_needed(line, rules, end) for line in lines] for end in ENDS}
    known = all(line.block_s is not None for line in lines)
    budgets = _blocks_in_budget(lines, needs["likely"], rules) if known else None
    predicted = [
        _predicted(lines, i, comparison, needs, None if budgets is None else budgets[i], rules)
        for i, line in enumerate(lines)
        for comparison in line.comparisons
    ]
    total = {
        end: None if not known or None in needs[end] else _seconds(lines, needs[end], None) for end in ENDS
    }
    return Forecast(tuple(predicted), Range(total["likely"], total["low"], total["high"]))


def blocks_needed(
    comparison: Comparison, rules: Rules, control_sd: float | None, end: str, together: int = 1
) -> tuple[int | None, bool]:
    """Blocks until a comparison without an effect is decided (None: never), and whether the control is what takes longest.

    ``end`` of the range of its scatter; ``control_sd``: block SD of what the positive control is judged by, None without
    controls; ``together``: for so many such comparisons, all of them.
    """
    assert comparison.scatter is not None
    sd = _sd(comparison.scatter, end) / math.sqrt(comparison.arms)
    contrasts = blocks_to_resolve(sd, rules.margin, alpha=rules.effect_alpha, together=together)
    if contrasts is None:
        return None, False
    blocks = math.ceil(contrasts / comparison.per_block)
    if control_sd is None:
        return blocks, False
    seen = blocks_to_resolve(control_sd, 2.0 * rules.margin, alpha=rules.alpha)
    if seen is None:
        return None, True
    with_controls = rules.with_controls(seen)
    return max(blocks, with_controls), with_controls > blocks


def resolvable(comparison: Comparison, blocks: int, rules: Rules, control_sd: float | None) -> float | None:
    """The smallest margin that so many blocks resolve with probability .8, the positive control of twice that margin
    seen too; None where none. Beyond the last block of the tables more blocks gain nothing."""
    assert comparison.scatter is not None
    sd = comparison.scatter.sd / math.sqrt(comparison.arms)
    found = resolvable_margin(sd, int(blocks * comparison.per_block), alpha=rules.effect_alpha)
    if control_sd is None or found is None:
        return found
    farthest = control_sd * reach(rules.controls_in(blocks), rules.alpha)
    return max(found, math.expm1(farthest) / 2.0) if farthest < 690.0 else None


def _sd(scatter: Scatter, end: str) -> float:
    return {"likely": scatter.sd, "low": scatter.low, "high": scatter.high}[end]


def control_sd(line: Line, rules: Rules, end: str = "likely") -> float | None:
    """The block SD of what the controls of a condition are judged by: its first response, within the stretches."""
    if not rules.controls or not line.comparisons:
        return None
    first = [one for one in line.comparisons if one.response == line.comparisons[0].response][-1]
    return None if first.scatter is None else _sd(first.scatter, end) / math.sqrt(rules.control_arms)


def _blocks(
    line: Line, comparison: Comparison, rules: Rules, end: str, together: int = 1
) -> tuple[int | None, bool]:
    return blocks_needed(comparison, rules, control_sd(line, rules, end), end, together)


def _needed(line: Line, rules: Rules, end: str) -> int | None:
    """Blocks until the condition is decided: until its slowest comparison is. None: never, or not known."""
    together = sum(comparison.effects for comparison in line.comparisons)
    found = [
        None if c.scatter is None else _blocks(line, c, rules, end, together)[0] for c in line.comparisons
    ]
    return max(found, key=_never_last) if found else None


def _predicted(
    lines: Sequence[Line],
    i: int,
    comparison: Comparison,
    needs: dict[str, list[int | None]],
    budget_blocks: int | None,
    rules: Rules,
) -> Predicted:
    line, scatter = lines[i], comparison.scatter
    if scatter is None or budget_blocks is None:
        reason = comparison.reason or "the pilot has not come to every condition"
        return Predicted(
            line.condition,
            comparison.response,
            scatter,
            line.block_s,
            reason=reason,
            stratum=comparison.stratum,
        )
    blocks = {end: _blocks(line, comparison, rules, end) for end in ENDS}
    seconds = {end: _seconds(lines, needs[end], blocks[end][0]) for end in ENDS}
    spent = {end: None if blocks[end][0] is None else seconds[end] for end in ENDS}
    return Predicted(
        condition=line.condition,
        response=comparison.response,
        scatter=scatter,
        block_s=line.block_s,
        blocks=Range(*(blocks[end][0] for end in ENDS)),
        seconds=Range(*(spent[end] for end in ENDS)),
        budget_blocks=budget_blocks,
        resolvable=resolvable(
            comparison,
            max(budget_blocks, _rounds_in_budget(lines, rules)),
            rules,
            control_sd(line, rules),
        ),
        stratum=comparison.stratum,
        held_up_by="control" if blocks["likely"][1] else None,
    )


def _rounds_in_budget(lines: Sequence[Line], rules: Rules) -> int:
    """Blocks that each condition has had when the time is spent and none is decided before."""
    a_round = sum(line.block_s or 0.0 for line in lines)
    return rules.budget_blocks if a_round <= 0.0 else min(rules.budget_blocks, int(rules.budget_s / a_round))


def _seconds(lines: Sequence[Line], needs: Sequence[int | None], blocks: int | None) -> float:
    """When a condition has had so many blocks (None: when all are decided): every other has had as many by then, or all
    that it needs."""
    cap = math.inf if blocks is None else blocks
    return sum(
        min(math.inf if need is None else need, cap) * (line.block_s or 0.0)
        for line, need in zip(lines, needs, strict=True)
    )


def _blocks_in_budget(lines: Sequence[Line], needs: Sequence[int | None], rules: Rules) -> list[int]:
    """The blocks that each condition has had when the time is spent, in turns, the decided ones left out."""
    left, had = rules.budget_s, [0] * len(lines)
    wanted = [rules.budget_blocks if need is None else min(need, rules.budget_blocks) for need in needs]
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
