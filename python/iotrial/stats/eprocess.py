"""The randomisation e-process: test, estimate and confidence interval of one contrast, valid at every look.

For a candidate effect d, M_n(d) is the mean over the bets of ``betting.py`` and both signs of the products over the blocks
up to n; a block in which all numbers so far are equal has factor 1.

If d is the effect, the drawn order makes all assignments of a block's numbers to its runs equally likely, so each factor has
mean 1 given everything before. Hence M_n(d) is a martingale that starts at 1, or not above one, and by Ville's inequality
P(M_n(d) >= 1/alpha for any n) <= alpha. The confidence set after n blocks consists of
the d for which f(d) = max over n of M_n(d) stayed below 1/alpha; the interval is the hull of this set.

If the estimate is at an end of that hull, early and late blocks contradict each other. Then the interval is the hull of the
d with M_n(d) < 1/alpha after the last block alone. It is wider, valid at the block where the trial stops, and uses all
blocks alike.

Whether all effects beyond a margin are excluded is tested with the bets of one side each: those on a smaller effect must
exclude every d >= m, those on a larger one every d <= -m, each at alpha. The effect is on one side only, so the error is
alpha, not twice that.

If the trial has declared its budget, a bet that uses it (``budget_bet.py``) has a share of the stake. M is then the
weighted mean of all bets, and interval, p-value and e-value are those of this M.

Sources: Vovk and Wang, arXiv 2208.08925; Ramdas et al., arXiv 2210.01948; Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting" (2024); two one-sided tests: Schuirmann (1987). The mixture is ours;
docs/method-details.md shows its calibration. ``confidence_set.py`` computes the hulls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotrial.stats.betting import Blocks, Floats, log_process
from iotrial.stats.budget_bet import Budget, mixed_paths
from iotrial.stats.chunked import Search, run
from iotrial.stats.confidence_set import (
    blocks_to_bound,
    estimate,
    hull,
    hull_at_last,
    hull_within_budget,
    upper_bound,
)
from iotrial.stats.model import Interval

# exp(690) is still finite; larger e-values are capped.
_LOG_LARGEST = 690.0
_LEAN = 1e-3  # share of the hull's width within which the estimate counts as at an end


def interval(
    contrasts: Sequence[float] | Floats,
    alpha: float,
    *,
    margin: float = 0.0,
    budget: Budget | None = None,
    copies: Sequence[float] | Floats = (),
) -> Interval:
    """Return interval, estimate and p-value of the contrasts ``D_1 .. D_n`` (time order) at level ``alpha``.

    The ends are those of the hull of the confidence set, to a millionth of its width. The estimate is the candidate in the
    hull with the smallest M_n. ``margin`` is on the contrasts' own scale (the logarithm of 1 + m for ratios), 0 if the
    response has none. ``budget``: input of the budget bet, or None. ``copies``: the copy of the reference less the reference,
    in blocks that have one (NaN in others); empty if none has. Raises ValueError if ``alpha`` is not between 0 and 1 or
    contrasts are not finite.
    """
    (found,) = intervals([Wanted(contrasts, alpha, margin, budget, copies)])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The arguments of ``interval`` for one interval."""

    contrasts: Sequence[float] | Floats
    alpha: float
    margin: float = 0.0
    budget: Budget | None = None
    copies: Sequence[float] | Floats = ()


def intervals(wanted: Sequence[Wanted]) -> list[Interval]:
    """Compute many intervals with the same results as ``interval``, in a fraction of the time."""
    return run([_search(one) for one in wanted])


def blocks_to_interval(
    alpha: float, *, margin: float = 0.0, budget_share: float = 0.0, copied: bool = False
) -> int:
    """Return the number of contrasts from which on ``interval`` has finite ends at level ``alpha``, whatever their values.

    ``margin`` as in ``interval``; ``budget_share``: the share of the stake that the budget bet has (0 without it), which
    cannot bound the interval. ``copied``: each of these blocks has a copy of the reference.
    """
    return blocks_to_bound(-math.log(alpha * (1.0 - budget_share)), aimed=margin > 0.0, copied=copied)


def _search(wanted: Wanted) -> Search[Interval]:
    values = _checked(wanted.contrasts, wanted.alpha, wanted.copies)
    if values.size == 0:
        return Interval(None, None, None, 1.0, 1.0, 0)
    if wanted.budget is None:
        return (yield from _without_budget(values, wanted.alpha, wanted.margin))
    return (yield from _within_budget(values, wanted.alpha, wanted.margin, wanted.budget))


def _without_budget(values: Blocks, alpha: float, margin: float) -> Search[Interval]:
    threshold = math.log(1.0 / alpha)
    left = yield from hull(values, threshold, aim=margin)
    best = yield from estimate(values, left, aim=margin)
    leaning = left is not None and _at_an_end(best, left)
    if left is not None and leaning:
        left = yield from hull_at_last(values, left, threshold, aim=margin)
        best = yield from estimate(values, left, aim=margin)
    bounds = None
    if left is not None and not leaning and margin > 0.0:
        bounds = yield from _inside(values, threshold, margin, left)
    log_largest, log_last = log_process(values, 0.0, aim=margin)
    return Interval(
        estimate=best,
        low=None if left is None or math.isinf(left[0]) else left[0],
        high=None if left is None or math.isinf(left[1]) else left[1],
        p_anytime=min(1.0, math.exp(-log_largest)),
        e_value=math.exp(min(log_last, _LOG_LARGEST)),
        blocks=values.size,
        empty=left is None,
        leaning=leaning,
        bounds=bounds,
    )


def _within_budget(values: Blocks, alpha: float, margin: float, budget: Budget) -> Search[Interval]:
    """Compute the interval of the other bets at their share of the stake, then narrow it with the budget bet.

    If the blocks contradict each other or the interval is unbounded, the interval of the other bets is returned. It is
    valid by itself.
    """
    bets = yield from _without_budget(values, alpha * (1.0 - budget.share), margin)
    threshold = -math.log(alpha * (1.0 - budget.share))
    process = (
        mixed_paths(values.contrasts[None, :], budget, alpha, copies=values.copies, aim=margin)[0] / alpha
    )
    bets = replace(bets, p_anytime=1.0 / max(float(process.max()), 1.0), e_value=float(process[-1]))
    if bets.empty or bets.leaning or bets.low is None or bets.high is None or bets.low == bets.high:
        return bets
    assert bets.estimate is not None
    left = yield from hull_within_budget(values, (bets.low, bets.high), threshold, budget, aim=margin)
    if left is None or not left[0] < bets.estimate < left[1] or _at_an_end(bets.estimate, left):
        return bets
    bounds = bets.bounds
    if bounds is None and margin > 0.0:
        bounds = yield from _inside(values, threshold, margin, left, budget)
    return replace(bets, low=left[0], high=left[1], bounds=bounds)


def _at_an_end(best: float, left: tuple[float, float]) -> bool:
    """Return whether the estimate is at an end of the hull: all blocks together favour what the first blocks excluded."""
    low, high = left
    if math.isinf(low) or math.isinf(high) or low >= high:
        return False
    return min(best - low, high - best) <= _LEAN * (high - low)


def _inside(
    values: Blocks, threshold: float, margin: float, left: tuple[float, float], budget: Budget | None = None
) -> Search[tuple[float, float] | None]:
    """Return the one-sided bounds if they exclude every effect beyond the margin on both sides, else None."""
    if left[0] == left[1]:
        return left if -margin <= left[0] <= margin else None
    if left[0] > margin or left[1] < -margin or math.isinf(left[0]) or math.isinf(left[1]):
        return None
    high = yield from upper_bound(values, threshold, margin, aim=margin, budget=budget)
    if high is None:
        return None
    low = yield from upper_bound(values.scaled(-1.0), threshold, margin, aim=margin, budget=budget)
    return None if low is None else (-low, high)


def excluded(
    contrasts: Sequence[float] | Floats,
    candidate: float,
    alpha: float,
    *,
    margin: float = 0.0,
    copies: Sequence[float] | Floats = (),
) -> bool:
    """Return whether the effect ``candidate`` is excluded at level ``alpha``: f(candidate) >= 1/alpha."""
    values = _checked(contrasts, alpha, copies)
    return values.size > 0 and log_process(values, candidate, aim=margin)[0] >= math.log(1.0 / alpha)


def _checked(
    contrasts: Sequence[float] | Floats, alpha: float, copies: Sequence[float] | Floats = ()
) -> Blocks:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    return Blocks.of(contrasts, copies)
