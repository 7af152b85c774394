"""Outlook of a running trial: the next block in words, and the time until everything may be decided.

The time is the forecast of ``plan --pilot``, from the scatter observed in the trial itself: half of the trials without
a difference are decided by then. It is given only for effects that can be forecast, ratios with an interval that still
contains 1, and only until that number of blocks is reached; after that nothing is shown, since the forecast has proved
wrong.

If comparisons have too few blocks for an interval, nothing can be forecast, but the number of blocks that their first
intervals need is known (``eprocess.blocks_to_interval``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotrial.design.model import Arm, ArmKind
from iotrial.design.plan import Plan, condition_key
from iotrial.report.conditions import EVERYWHERE, Conditions
from iotrial.report.notation import elided
from iotrial.stats.eprocess import blocks_to_interval
from iotrial.stats.forecast import Comparison, Rules, blocks_needed
from iotrial.stats.model import Effect, Scatter
from iotrial.stats.spec import DeclaredBudget, Spec
from iotrial.store.model import StoredTrial
from iotrial.study.model import TYPICAL, DesignKind, Scale
from iotrial.terminal import escape

FEWEST_BLOCKS = 10
_MOST_FACTORS = 3  # the most factors to name; a row of a screen has thirty


def upcoming_in_words(plan: Plan, conditions: Conditions, upcoming: tuple[str, int] | None) -> str:
    """Return e.g. "cache warm, size 4 KiB: block 35, mode 0444 first", with a control's arm as "mode 0777 (copy)".

    Empty if there is no next block or no such condition.
    """
    if upcoming is None:
        return ""
    key, index = upcoming
    try:
        first = plan.order(plan.condition(key), index)[0]
    except KeyError:
        return ""
    where = conditions.of_key(key).text
    before = "" if where == EVERYWHERE else f"{where}: "
    if plan.study.design.kind is DesignKind.RACE:  # which arms are still in it is not known here
        return f"{before}block {index + 1}"
    return f"{before}block {index + 1}, {_arm(plan, first)} first"


def _arm(plan: Plan, arm: Arm) -> str:
    varied = [f for f in plan.study.treatment_factors if len(f.levels) > 1]
    named = ", ".join(
        f"{escape(f.name)} {elided(arm.treatment[f.name], 24)}"
        for f in varied
        if len(varied) <= _MOST_FACTORS or arm.treatment[f.name] != f.reference
    )
    away = sum(arm.treatment[f.name] != f.reference for f in varied)
    if len(varied) > _MOST_FACTORS and away > _MOST_FACTORS:
        named = f"{escape(arm.name)} with {away} of {len(varied)} settings changed"
    named = named or "every setting at its reference"
    if arm.kind is ArmKind.NEGATIVE:
        return f"{named} (copy)"
    return f"{named} (slowed)" if arm.kind is ArmKind.POSITIVE else named


def outlook_s(
    plan: Plan,
    effects: Sequence[Effect],
    *,
    had: Mapping[str, int],
    decided: frozenset[str],
    block_s: Mapping[str, float],
) -> float | None:
    """Return the seconds until all conditions are decided if nothing makes a difference; None if unknown.

    ``had`` counts complete blocks, ``block_s`` is the duration of a block, both by condition key.
    """
    by_condition: dict[str, list[Effect]] = {}
    for effect in effects:
        if effect.primary:
            by_condition.setdefault(condition_key(effect.workload, effect.condition), []).append(effect)
    total = 0.0
    for condition in plan.conditions:
        key = condition.key
        if key in decided:
            continue
        needed = _blocks(plan, by_condition.get(key, []))
        if needed is None or needed <= had.get(key, 0) or key not in block_s:
            return None
        total += (needed - had.get(key, 0)) * block_s[key]
    return total


def further_s(
    plan: Plan, undecided: Sequence[Effect], every: Sequence[Effect], *, duration_s: float
) -> float | None:
    """Estimate the further seconds of measuring until a finished trial decides all undecided effects; None if unknown.

    Uses the forecast if it covers them. Otherwise uses the interval: its half-width shrinks with the square root of the
    number of blocks, and a verdict is certain once it is less than the distance of the estimate from zero or from the
    margin. ``every``: the effects of the trial's verdict, decided or not.
    """
    had, going = _blocks_had(every), _going(every)
    if not sum(had.values()):
        return None
    block_s = duration_s / sum(had.values())
    known = outlook_s(
        plan,
        undecided,
        had=had,
        decided=frozenset(had.keys() - going),
        block_s=dict.fromkeys(had, block_s),
    )
    if known is not None:
        return known
    more: dict[str, float] = {}
    for effect in undecided:
        if effect.decided:
            continue
        times = _times_as_many(effect)
        if times is None:
            return None
        key = condition_key(effect.workload, effect.condition)
        more[key] = max(more.get(key, 0.0), (times - 1.0) * had[key])
    # conditions take turns, so one that goes on without an undecided effect gets as many blocks as any
    most = max(more.values(), default=0.0)
    return sum(more.get(key, most) for key in going | more.keys()) * block_s or None


def _blocks_had(effects: Sequence[Effect]) -> dict[str, int]:
    """Return the blocks of each condition so far, by condition key."""
    had: dict[str, int] = {}
    for effect in effects:
        key = condition_key(effect.workload, effect.condition)
        had[key] = max(had.get(key, 0), effect.blocks)
    return had


def _going(effects: Sequence[Effect]) -> frozenset[str]:
    """Return the keys of the conditions that are not decided, which get a block in each round of a continued trial."""
    return frozenset(condition_key(one.workload, one.condition) for one in effects if not one.decided)


@dataclass(frozen=True, slots=True)
class FirstInterval:
    """What comparisons without an interval need for it.

    ``comparisons``: their number. ``fewest`` and ``most``: the blocks of a comparison, from its first one, that give the
    first of these intervals and all of them. ``further_s``: seconds of measuring until all have one.
    """

    comparisons: int
    fewest: int
    most: int
    further_s: float


def first_interval(
    plan: Plan, undecided: Sequence[Effect], every: Sequence[Effect], trial: StoredTrial
) -> FirstInterval | None:
    """Return what those of the ``undecided`` effects that have no interval need for it; None if there are none or it is
    unknown.

    Unknown are means and quantiles, repeats within whole plots, which are not blocks, and races, in which arms
    drop out. ``every`` as in ``further_s``.
    """
    without = [effect for effect in undecided if effect.low is None and effect.high is None]
    if plan.whole_plots or plan.study.design.kind is DesignKind.RACE:
        return None
    if not without or any(effect.statistic != TYPICAL for effect in without):
        return None
    declared = DeclaredBudget.of(trial.header.options)
    needed = [_blocks_to_interval(plan, effect, declared) for effect in without]
    missing = [blocks - effect.blocks for blocks, effect in zip(needed, without, strict=True)]
    had, going = sum(_blocks_had(every).values()), len(_going(every))
    if min(missing) <= 0 or not had or not going:
        return None
    seconds = max(missing) * going * trial.duration_s / had
    return FirstInterval(len(without), min(needed), max(needed), seconds)


def _copied(plan: Plan, effect: Effect) -> bool:
    """Return whether the bets on the effects of this response use the copy of the reference."""
    spec = Spec.from_plan(plan)
    response = next((one for one in spec.responses if one.name == effect.response), None)
    terms = [term for term in spec.terms if term.primary]
    return response is not None and all(spec.copy_of_reference(term, response) for term in terms)


def _blocks_to_interval(plan: Plan, effect: Effect, declared: DeclaredBudget | None) -> int:
    if effect.scale is not Scale.LOG:  # no margin, and no bet on the budget
        return blocks_to_interval(effect.family_alpha)
    share = 0.0 if declared is None else declared.share
    return blocks_to_interval(
        effect.family_alpha, margin=effect.margin, budget_share=share, copied=_copied(plan, effect)
    )


def _times_as_many(effect: Effect) -> float | None:
    """Return the factor, at least 1, by which an effect's blocks must grow for a verdict; None if unknown."""
    if (
        effect.scale is not Scale.LOG
        or not effect.low
        or not effect.high
        or not effect.value
        or not effect.margin
    ):
        return None
    size, margin = abs(math.log(effect.value)), math.log1p(effect.margin)
    wanted = max(size, margin - size)
    half = math.log(effect.high / effect.low) / 2.0
    return max(1.0, (half / wanted) ** 2)


def _blocks(plan: Plan, effects: Sequence[Effect]) -> int | None:
    """Return the number of blocks until these effects of one condition are decided; None if it cannot be forecast."""
    if not effects or plan.whole_plots:
        return None
    found = 0
    controls = plan.controls and not plan.control_columns
    for effect in effects:
        if effect.scale is not Scale.LOG or effect.block_sd is None or effect.blocks < FEWEST_BLOCKS:
            return None
        if not (effect.low or 0.0) <= 1.0 <= (effect.high or float("inf")):
            return None
        sd = effect.block_sd
        rules = Rules(
            margin=plan.study.margin,
            alpha=plan.study.alpha,
            effect_alpha=effect.family_alpha,
            controls=controls,
            budget_s=0.0,
            budget_blocks=plan.study.budget.blocks,
            controls_first=plan.controls_first,
        )
        scatter = Scatter(sd, sd, sd, sd, effect.blocks)
        comparison = Comparison(effect.response, scatter, copied=_copied(plan, effect))
        needed, _ = blocks_needed(comparison, rules, sd if controls else None, len(effects))
        if needed is None:
            return None
        found = max(found, needed)
    return found
