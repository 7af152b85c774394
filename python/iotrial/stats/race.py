"""Racing: find the best of many settings with few runs, by leaving out what cannot be the best.

Every block runs the arms that are still in the race, in random order, and the reference: today's setting. For arms i and j
let d_ij be the effect of i against j on the scale of comparison, positive if i is worse, and m the margin. The bets on a
smaller effect (``confidence_set.upper_bound``) give each d_ij an upper bound U_ij, valid at every block, each at the error
level a = alpha / (2 (K - 1)), with K arms and K - 1 pairs with the reference and K - 1 with the best arm. An arm i other
than the reference t leaves

- if U_ji < 0 for an arm j: j is better;
- if the capitals of all others j against every d_ji >= 0 sum to (K - 1) / (alpha / 2) at a block: one of them is better;
- if U_ti < m: i is not better than today's setting by the margin;
- if it fails, ``MOST_FAILURES`` times.

An arm r still in the race is *good* if it is the reference or U_rt < 0 (better than today's setting), and U_rj < m for every
other arm j still in the race (none is better by the margin). The race is over once an arm is good.

A good arm is worse than the reference, or worse than the best arm b by the margin or more, with probability at most alpha.
Proof: let all bounds of the pairs (i, b) and (i, t) hold. Then no good arm is worse than the reference. b is never shown to
be worse than another arm, so it leaves only if the reference is within the margin of it, and then every good arm is as well,
being the reference or better than it. If b stays, U_rb < m holds for every good arm r. The two families have 2 (K - 1)
bounds. Which arms are compared, and when arms leave, depends on earlier blocks only, so the order in a block is a fair draw
among the arms in it and the bounds of ``eprocess.py`` hold. The sum takes nothing from alpha: the capitals of all arms
against b at the true effects sum to a martingale of mean K - 1. It ever reaches 2 (K - 1) / alpha with probability at most
alpha / 2, and if it does not, no single one does, so the bounds of the pairs (i, b) hold and b does not leave by the sum
either. (Averages over streams: Cho, Gan and Kallus, arXiv 2402.06122.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.design.model import Condition
from iotrial.stats.betting import Blocks, Flags, Floats, Side, log_paths
from iotrial.stats.chunked import run
from iotrial.stats.confidence_set import least_beyond, upper_bound
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.model import Left, ObservedBlock, Place, Race
from iotrial.stats.spec import Spec
from iotrial.stats.wash_in import judged
from iotrial.study.model import Better, Scale

MOST_FAILURES = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """Error level, margin on the scale of comparison, and +1 if a larger value is worse, else -1."""

    alpha: float
    margin: float
    sign: float

    def threshold(self, arms: int) -> float:
        """Return ln(1 / a) for a race of that many arms."""
        return math.log(2.0 * max(1, arms - 1) / self.alpha)


def judge_race(spec: Spec, condition: Condition, runs: Runs, *, control_seen: bool) -> Race | None:
    """Return how a race stands in one condition, by its first primary response; None for other designs.

    ``control_seen``: whether the injected slowdown was detected, without which no difference can be excluded.
    """
    raced = _Raced.of(spec, condition, runs)
    if raced is None:
        return None
    arms, values, failures, rules = raced.arms, raced.values, raced.failures, raced.rules
    places = []
    for arm, contrasts, one in zip(arms, values - values[0], race(values, 0, rules, failures), strict=True):
        own = contrasts[np.isfinite(contrasts)]
        effect = float(own.mean()) if own.size and arm != arms[0] else None
        by = None if one.because_of is None else arms[one.because_of]
        places.append(Place(arm, int(own.size), effect, one.left, by, one.better, one.good))
    blocks = int((~runs.void).sum())
    return Race(
        condition.key,
        raced.response,
        arms[0],
        tuple(places),
        blocks,
        over=any(one.good for one in places) and control_seen,
        sign=int(rules.sign),
    )


def race_loss(spec: Spec, blocks: Sequence[ObservedBlock], arm: str, apart_from: Collection[str]) -> float:
    """Return how much worse a good arm may be than the best of the others, on the scale of comparison (at least 0).

    ``blocks``: those of a race in one condition that is over, in time order. ``apart_from``: arms that are left out. The
    bounds are those of the race, so all hold together at its error level.
    """
    (condition,) = spec.conditions
    raced = _Raced.of(spec, condition, Runs(judged(blocks)))
    if raced is None:
        return 0.0
    skipped = [place for place, one in enumerate(raced.arms) if one in apart_from]
    return loss(raced.values, 0, raced.rules, raced.arms.index(arm), raced.failures, skipped)


@dataclass(frozen=True, slots=True)
class _Raced:
    """What a race compares: its arms, the reference first, and their values by block in time order."""

    arms: Sequence[str]
    response: str
    values: Floats
    failures: Sequence[int]
    rules: Rules

    @classmethod
    def of(cls, spec: Spec, condition: Condition, runs: Runs) -> _Raced | None:
        """Return the race of one condition by its first primary response; None for other designs."""
        response = spec.main_response(condition)
        if spec.race_against is None or response is None or response.scale is not Scale.LOG:
            return None
        arms = list(dict.fromkeys(arm for term in spec.terms for arm in term.weights))
        arms.sort(key=lambda arm: arm != spec.race_against)
        values, failures = Responses(runs, response).by_arm(arms)
        sign = -1.0 if response.better is Better.HIGHER else 1.0
        return cls(arms, response.name, values, failures, Rules(spec.alpha, spec.margin_of(response), sign))


def loss(
    values: Floats,
    reference: int,
    rules: Rules,
    arm: int,
    failures: Sequence[int] = (),
    apart_from: Collection[int] = (),
) -> float:
    """Return the largest bound on the effect of ``arm`` against any other arm that may be the best, at least 0.

    Infinite if the race has no such bound. Arguments as in ``race``; ``apart_from`` are arms that are left out.
    """
    pairs = _Pairs(rules.sign * values, reference, rules)
    found = [0.0]
    for other, one in enumerate(race(values, reference, rules, failures)):
        if other in (arm, *apart_from) or one.left in (Left.WORSE, Left.FAILS):
            continue  # an arm that is shown to be worse than another is not the best
        bound = pairs.bound(arm, other, rules.margin)
        if reference not in (
            arm,
            other,
        ):  # an arm that left for its small gain may have few blocks with this one
            by_way = pairs.bound(arm, reference, rules.margin), pairs.bound(reference, other, rules.margin)
            bound = min(bound, math.fsum(by_way))
        found.append(bound)
    return max(found)


@dataclass(slots=True)
class ArmState:
    """How one arm stands: why it left and the position of the arm that is better; whether it is shown to be better than the
    reference; whether it is good."""

    left: Left | None = None
    because_of: int | None = None
    better: bool = False
    good: bool = False


def race(values: Floats, reference: int, rules: Rules, failures: Sequence[int] = ()) -> list[ArmState]:
    """Judge a race: return how each arm stands.

    ``values`` has shape (arms, blocks), in time order, on the scale of comparison, with NaN where an arm did not run or has
    no usable value. ``failures`` counts the failed runs of each arm.
    """
    pairs = _Pairs(rules.sign * values, reference, rules)
    arms = range(len(values))
    found = [ArmState() for _ in arms]
    for arm, failed in enumerate(failures):
        if failed >= MOST_FAILURES and arm != reference:
            found[arm].left = Left.FAILS
    for arm, one in enumerate(found):
        if one.left is None and arm != reference:
            one.because_of = next(
                (j for j in pairs.by_estimate if j != arm and pairs.below(j, arm, 0.0)), None
            )
            if one.because_of is None:
                one.because_of = pairs.beaten_by(arm)
            if one.because_of is not None:
                one.left = Left.WORSE
            elif pairs.below(reference, arm, rules.margin):
                one.left, one.because_of = Left.NO_GAIN, reference
            one.better = pairs.below(arm, reference, 0.0)
    inside = [arm for arm in arms if found[arm].left is None]
    for arm in inside:
        found[arm].good = (arm == reference or found[arm].better) and all(
            pairs.below(arm, other, rules.margin) for other in inside if other != arm
        )
    if not found[reference].good:  # it runs to the end of the race, but cannot be recommended any more
        winner = next((arm for arm in pairs.by_estimate if found[arm].better and arm in inside), None)
        if winner is not None:
            found[reference].left, found[reference].because_of = Left.WORSE, winner
    return found


class _Pairs:
    """The contrasts of all pairs of arms, and what their bounds exclude."""

    def __init__(self, values: Floats, reference: int, rules: Rules) -> None:
        self._contrasts: dict[tuple[int, int], Floats] = {}
        self._there: dict[tuple[int, int], Flags] = {}
        self._threshold = rules.threshold(len(values))
        self._aim = rules.margin
        self._candidates = (0.0, rules.margin)
        self._known: dict[tuple[int, int, float], bool] = {}
        count = len(values)
        for i in range(count):
            for j in range(count):
                if i != j:
                    found = values[i] - values[j]
                    self._there[i, j] = np.isfinite(found)
                    self._contrasts[i, j] = found[self._there[i, j]]
        against = [self._contrasts.get((arm, reference), np.zeros(1)) for arm in range(count)]
        means = [float(one.mean()) if one.size else math.inf for one in against]
        self.by_estimate = sorted(range(count), key=means.__getitem__)
        self._most = self._points()

    def below(self, i: int, j: int, limit: float) -> bool:
        """Return whether the effect of arm i against arm j is shown to be below ``limit`` (0 or the margin)."""
        key = i, j, limit
        if key not in self._known:
            self._known[key] = self._most[key] >= self._threshold and self.bound(i, j, limit) < math.inf
        return self._known[key]

    def beaten_by(self, arm: int) -> int | None:
        """Return the arm with the most capital if the capitals of all others together show that ``arm`` is not the best."""
        others = [j for j, i in self._contrasts if i == arm]
        if not others or np.logaddexp.reduce([self._most[j, arm, 0.0] for j in others]) < self._threshold:
            return None
        paths = []
        for j in others:
            path = least_beyond(Blocks.of(self._contrasts[j, arm]), 0.0, aim=self._aim)
            # a pair of which one did not run in a block keeps its capital
            paths.append(np.append(0.0, path)[np.cumsum(self._there[j, arm])])
        together = np.logaddexp.reduce(paths, axis=0)
        last = int(together.argmax())
        if together[last] < self._threshold:
            return None
        return others[int(np.argmax([path[last] for path in paths]))]

    def bound(self, i: int, j: int, limit: float) -> float:
        """Return the upper bound of the effect of arm i against arm j, infinite if it is not below ``limit``."""
        blocks = Blocks.of(self._contrasts[i, j])
        (found,) = run([upper_bound(blocks, self._threshold, limit, aim=self._aim)])
        return math.inf if found is None else found

    def _points(self) -> Mapping[tuple[int, int, float], float]:
        """Return ln of the largest capital against each limit itself, computed at once.

        It must reach the threshold if all effects above the limit are to be excluded.

        Shorter series are padded with zeros, which leave the process as it is.
        """
        longest = max((one.size for one in self._contrasts.values()), default=0)
        keys = [(i, j, limit) for i, j in self._contrasts for limit in self._candidates]
        if not longest:
            return dict.fromkeys(keys, 0.0)
        x = np.zeros((len(keys), longest))
        for row, (i, j, limit) in enumerate(keys):
            own = self._contrasts[i, j]
            x[row, : own.size] = own - limit
        most = log_paths(x, aim=self._aim, side=Side.SMALLER).max(axis=1)
        return dict(zip(keys, most.tolist(), strict=True))
