"""Published claims held against what was measured here.

A claim is a ratio r of a response at one level over another; here there is an interval [L, U] for the same pair. The
rules, in this order (a difference within the margin counts as none):

1. no such comparison, neither ratio nor direction in the claim, an unbounded interval, an inconclusive effect or an invalid
   trial: *cannot say*; but an effect that is open only for want of time, with an interval that excludes the published
   ratio, is *not confirmed*: that much is known;
2. claim within the margin and effect equivalent: *confirmed*;
3. effect equivalent and claim beyond the margin: *not confirmed* (there is no such effect here);
4. claim within the margin and an effect here: *contradicted*;
5. r within [L, U]: *confirmed*;
6. the effect points the other way: *contradicted*;
7. else the effect has the claimed direction but another size: *smaller* or *larger* than claimed.

A claim that names the levels the other way round is compared with the inverse ratio.

A claim of a direction ("faster", without a size) is *confirmed* by an effect in that direction, *contradicted* by one in
the other, *not confirmed* by equivalence; a claim that there is no difference ("same") is confirmed by equivalence and
contradicted by any effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log, log1p

from iotrial.analysis.model import Effect, Verdict
from iotrial.legible import shown
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.notation import percent
from iotrial.report.phrases import interval_of, null_value
from iotrial.study.model import Claim, Says, Scale


class Outcome(StrEnum):
    """How a claim stands."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    SMALLER = "smaller than claimed"
    LARGER = "larger than claimed"
    CONTRADICTED = "contradicted"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """One claim beside the effect that comes nearest; ``ratio``, ``low``, ``high`` are in the claim's direction."""

    claim: Claim
    condition: ConditionText | None
    response: str | None
    ratio: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    why: str
    published: str
    here: str

    @property
    def sentence(self) -> str:
        """E.g. "Published: ratio 0.89 (mode 0444 against 0777). Here: 1.001 [0.992, 1.010]: not confirmed, ..."."""
        return (
            f"Published: {self.published}. Here{self._where}: {self.here}: {self.outcome.value}, {self.why}."
        )

    @property
    def _where(self) -> str:
        return f" ({self.condition.text})" if self.condition is not None and self.condition.parts else ""


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """One claim with everything that it was held against."""

    claim: Claim
    held: tuple[HeldClaim, ...]

    @property
    def outcome(self) -> Outcome | None:
        """The outcome where it is the same everywhere."""
        outcomes = {one.outcome for one in self.held}
        return outcomes.pop() if len(outcomes) == 1 else None

    @property
    def sentence(self) -> str:
        """The claim's sentence; over several conditions a count of outcomes."""
        if len(self.held) == 1:
            return self.held[0].sentence
        count = Counter(one.outcome.value for one in self.held)
        told = ", ".join(f"{outcome} in {number}" for outcome, number in count.most_common())
        here = f"Here, held against {len(self.held)} conditions: {told}"
        first = self.held[0]
        if self.outcome is not None:
            here = f"Here, in all {len(self.held)} conditions: {self.outcome.value}"
            if len({one.why for one in self.held}) == 1:
                here += f", {first.why}"
        return f"Published: {first.published}. {here}."


def grouped(held: Sequence[HeldClaim]) -> tuple[ClaimGroup, ...]:
    """The held claims by claim, in order."""
    groups: list[tuple[Claim, list[HeldClaim]]] = []
    for one in held:
        if not groups or groups[-1][0] is not one.claim:
            groups.append((one.claim, []))
        groups[-1][1].append(one)
    return tuple(ClaimGroup(claim, tuple(members)) for claim, members in groups)


def hold_claims(
    claims: Sequence[Claim],
    effects: Sequence[Effect],
    conditions: Conditions,
    *,
    margin: float,
    valid: bool = True,
) -> tuple[HeldClaim, ...]:
    """Every claim against the effects it speaks of: one entry for each condition that it may mean."""
    held = []
    for claim in claims:
        matching = [effect for effect in effects if _speaks_of(claim, effect)]
        if claim.response is None and any(effect.primary for effect in matching):
            matching = [effect for effect in matching if effect.primary]
        if any(effect.kind == "main" for effect in matching):
            matching = [effect for effect in matching if effect.kind == "main"]
        if not matching:
            held.append(_unmatched(claim))
        held.extend(_held(claim, effect, conditions, margin=margin, valid=valid) for effect in matching)
    return tuple(held)


def _speaks_of(claim: Claim, effect: Effect) -> bool:
    """A claim is about one factor: never about an interaction, whatever its labels look like."""
    if (
        effect.kind not in ("main", "pooled")
        or effect.factor != claim.factor
        or {effect.level, effect.reference} != {claim.level, claim.reference}
    ):
        return False
    if claim.workload not in (None, effect.workload) or claim.response not in (None, effect.response):
        return False
    here = {**effect.condition, "workload": effect.workload}
    return all(here.get(name) == label for name, label in claim.condition.items())


def _held(claim: Claim, effect: Effect, conditions: Conditions, *, margin: float, valid: bool) -> HeldClaim:
    ratio, low, high = effect.value, effect.low, effect.high
    same_way = effect.level == claim.level
    if effect.scale is Scale.LOG and not same_way:
        ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
    outcome, why = _judge(claim, effect, (ratio, low, high), margin=margin, valid=valid)
    return HeldClaim(
        claim,
        conditions.of_levels(effect.condition, effect.workload),
        effect.response,
        ratio,
        low,
        high,
        outcome,
        why,
        _published(claim),
        interval_of(effect, (ratio, low, high)),
    )


def _judge(
    claim: Claim,
    effect: Effect,
    here: tuple[float | None, float | None, float | None],
    *,
    margin: float,
    valid: bool,
) -> tuple[Outcome, str]:
    """The rules at the top of this module."""
    ratio, low, high = here
    if not valid:
        return Outcome.CANNOT_SAY, "the trial is invalid"
    if claim.says is not None:
        return _in_words(claim.says, effect, same_way=effect.level == claim.level, margin=margin)
    if claim.ratio is None:
        return Outcome.CANNOT_SAY, "the claim gives neither ratio nor direction"
    if effect.scale is not Scale.LOG:
        return Outcome.CANNOT_SAY, "the claim is a ratio, the effect here a difference"
    if ratio is None or low is None or high is None:
        return Outcome.CANNOT_SAY, "the interval is not bounded yet"
    inside = low <= claim.ratio <= high
    if effect.verdict is Verdict.INCONCLUSIVE:
        if inside or effect.failures or effect.reason != "budget_spent":
            return Outcome.CANNOT_SAY, "the comparison is inconclusive" + (
                " (its interval holds it)" if inside else ""
            )
        return Outcome.NOT_CONFIRMED, "open what the effect is here, but the published size is excluded"
    claimed, within = log(claim.ratio), log1p(margin)
    if effect.verdict is Verdict.EQUIVALENT:
        if abs(claimed) <= within:
            return Outcome.CONFIRMED, f"both are within the margin of {percent(margin)}"
        return Outcome.NOT_CONFIRMED, f"an effect beyond {percent(margin)} is excluded here"
    if abs(claimed) <= within:
        return Outcome.CONTRADICTED, "the claim says there is no difference, here there is one"
    if inside:
        return Outcome.CONFIRMED, "the interval holds the published ratio"
    if (claimed > 0) != (log(ratio) > 0):
        return Outcome.CONTRADICTED, "the effect here points the other way"
    if abs(log(ratio)) < abs(claimed):
        return Outcome.SMALLER, "the same direction, but the interval excludes the published size"
    return Outcome.LARGER, "the same direction, but the interval excludes the published size"


def _in_words(says: Says, effect: Effect, *, same_way: bool, margin: float) -> tuple[Outcome, str]:
    """A direction, or that there is none, against a verdict; ``same_way``: both name the levels in the same order."""
    if effect.verdict is Verdict.INCONCLUSIVE:
        return Outcome.CANNOT_SAY, "the comparison is inconclusive"
    if effect.verdict is Verdict.EQUIVALENT:
        excluded = (
            "any difference" if effect.scale is Scale.DIFFERENCE else f"an effect beyond {percent(margin)}"
        )
        outcome = Outcome.CONFIRMED if says is Says.SAME else Outcome.NOT_CONFIRMED
        return outcome, f"{excluded} is excluded here"
    if says is Says.SAME:
        return Outcome.CONTRADICTED, "the claim says there is no difference, here there is one"
    if effect.value is None or (
        says in (Says.FASTER, Says.SLOWER) and effect.verdict not in (Verdict.FASTER, Verdict.SLOWER)
    ):
        return Outcome.CANNOT_SAY, f'{shown(effect.response)} is nothing that could be called "{says.value}"'
    if says in (Says.FASTER, Says.SLOWER):
        found = Says.FASTER if effect.verdict is Verdict.FASTER else Says.SLOWER
    else:
        found = Says.HIGHER if effect.value > null_value(effect) else Says.LOWER
    if (found is says) is same_way:
        return Outcome.CONFIRMED, "the same direction; the claim gives no size"
    return Outcome.CONTRADICTED, "the effect here points the other way"


def _unmatched(claim: Claim) -> HeldClaim:
    why = "this trial did not compare these levels under that condition"
    return HeldClaim(
        claim, None, None, None, None, None, Outcome.CANNOT_SAY, why, _published(claim), "not measured"
    )


def _published(claim: Claim) -> str:
    pair = f"{shown(claim.factor)} {shown(claim.level)} against {shown(claim.reference)}"
    if claim.ratio is None:
        return f"{shown(claim.text)} ({pair})"
    return f"ratio {claim.ratio:.3g} ({pair})"


def _inverse(number: float | None) -> float | None:
    return 1 / number if number else None
