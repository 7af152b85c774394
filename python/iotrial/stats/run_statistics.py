"""Confidence intervals for the ratio, level over reference, of a statistic across runs: the mean, or a quantile such as p99.

A study requests them with ``statistic`` in ``[[response]]``. Both are valid at any time and for any tail. The price is the
number of blocks they need.

**Mean.** Runs are capped at ``cap`` times the typical time, which is the larger of the arms' medians over the previous
blocks, as in ``beyond_typical``. For a candidate ratio r, x = (y(level) - r y(reference)) / (cap * typical) is at most 1 and
at least -r. If r is the ratio of the conditional means, x has mean 0 given the past, and

    sum over c of w_c * product over blocks of (1 - c x)     (against r from above)
    sum over c of w_c * product over blocks of (1 + c x / r) (against r from below)

are non-negative martingales (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024). Each
end of the interval is where one of them reaches 2/alpha. No distribution is assumed and nothing is asymptotic. The interval
covers the ratio of the means of capped times. How much longer the capped runs took is known for the runs measured alone, so
means are equivalent only if the bounds stay inside the margin with these runs counted in full (``means``).

**Quantile.** A time t is above the q-quantile of an arm if more than q of its runs are at most t. The same bets, on an event
of probability 1 - q, bound how many of n runs exceed the quantile, each arm at alpha/2. The order statistics at these ranks
are bounds on each arm's quantile (Howard and Ramdas, "Sequential estimation of quantiles", 2022, with a different boundary),
and the ratio is between the ratios of opposite bounds. Assumption: a run exceeds its arm's quantile with probability 1 - q
given the past, as independent runs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iotrial.stats.beyond_typical import (
    FEWEST,
    PARTS,
    WEIGHTS,
    capped,
    first_at,
    log_mixture,
    typical_before,
)
from iotrial.stats.contrast import PairedRuns
from iotrial.stats.model import Interval, Means
from iotrial.stats.spec import Spec
from iotrial.stats.student import quantile
from iotrial.study.model import MEAN, Better, Response

Floats = npt.NDArray[np.float64]

#: share of runs that stall, of which at least one must have been met (at 1 - alpha) before mean runs are equivalent
UNSEEN = 0.05
_FARTHEST = 14.0  # search limit of the log ratio: a ratio of about a million
_LOG_LARGEST = 690.0
_LEAST_ALPHA = 1e-12


def statistic_interval(pairs: PairedRuns | None, response: Response, alpha: float) -> Interval:
    """Return the interval of ln of the ratio, level over reference, of ``response.statistic`` across runs.

    ``alpha``: for both ends together. An end is None if it is still unbounded.
    """
    units = 0 if pairs is None else len(pairs.level)
    if pairs is None or units <= FEWEST:
        return Interval(None, None, None, 1.0, 1.0, units)
    if response.statistic == MEAN:
        return _of_means(_Capped(pairs, response.cap), alpha, units)
    return _of_quantiles(pairs, quantile_of(response.statistic), alpha, units)


def means(pairs: PairedRuns | None, alpha: float, *, cap: float, margin: float) -> Means:
    """Return the ratio of the arms' mean runs, and whether they are equivalent. ``margin`` is relative."""
    if pairs is None or len(pairs.level) <= FEWEST:
        return Means(cap)
    runs = _Capped(pairs, cap)
    found = _of_means(runs, alpha, len(pairs.level))
    down, up = runs.room(math.log1p(margin))
    log_limit = math.log(1.0 / alpha)  # each side at alpha: the ratio is beyond the margin on one side only
    equivalent = (
        min(down, up) > 0.0
        and runs.against_from_above(up) >= log_limit
        and runs.against_from_below(down) >= log_limit
    )
    level, reference = (int(excess.size) for excess in runs.excess)
    ratio, low, high = (
        None if end is None else math.exp(end) for end in (found.estimate, found.low, found.high)
    )
    return Means(cap, ratio, low, high, level, reference, equivalent)


def log_evidence_of_mean(pairs: PairedRuns | None, response: Response) -> float:
    """Return ln of the capital of the bets that the level's mean run is better, against any mean that is not."""
    if pairs is None or len(pairs.level) <= FEWEST:
        return 0.0
    runs = _Capped(pairs, response.cap)
    higher = response.better is Better.HIGHER
    return runs.against_from_below(0.0) if higher else runs.against_from_above(0.0)


def mean_run(pairs: PairedRuns | None, alpha: float, *, cap: float, margin: float) -> Means:
    """Return the mean run of an effect on typical runs; as ``means``, but *equivalent* needs no more blocks on quiet noise.

    *Equivalent* then rests on the standard error of the ratio of means (nothing is capped), each side at ``alpha`` by
    Student's t: a bound for one look, with the errors that docs/method-details.md#the-mean-run gives. The bets of ``means``
    would take several times the blocks to exclude slow runs that nothing hints at. A standard error knows nothing of stalls
    that have not occurred yet, so there must be enough blocks to have met one if ``UNSEEN`` of the level's runs stall.
    """
    found = means(pairs, alpha, cap=cap, margin=margin)
    if pairs is None or found.ratio is None:
        return found
    level, reference = np.exp(pairs.level).mean(axis=1), np.exp(pairs.reference).mean(axis=1)
    influence = level / level.mean() - reference / reference.mean()
    units = len(level)
    error = math.sqrt(float((influence**2).sum()) / (units * (units - 1)))
    reach = quantile(min(2.0 * alpha, 0.999), units - 1) * error
    centre = math.log(float(level.mean() / reference.mean()))
    enough = pairs.level.size >= math.log(alpha) / math.log1p(-UNSEEN)
    return replace(found, equivalent=enough and abs(centre) + reach <= math.log1p(margin))


def fewest_blocks(response: Response, spec: Spec) -> int:
    """Return the minimum number of blocks for *equivalent* in this statistic, reached if all runs are alike and none is slow.

    For a mean: until no unseen share of runs at the cap can change it by the margin. For a quantile: until it has an upper
    bound. With controls, the injected slowdown must be detected in the statistic too, in every second block.
    """
    own = blocks_needed(response, spec.primary_alpha, spec.margin)
    if not spec.controls:
        return own
    seen = blocks_needed(response, spec.alpha, (spec.injected - 1.0) / spec.injected)
    return max(own, 2 * seen - 1)


def blocks_needed(response: Response, alpha: float, margin: float) -> int:
    """Return the minimum number of units to exclude a change by ``margin``, in both directions, if no two runs differ."""
    if response.statistic == MEAN:
        log_limit = math.log(2.0 / alpha) - math.log(WEIGHTS[0])
        return FEWEST + math.floor(log_limit / math.log1p(margin / response.cap))
    return _fewest(1.0 - quantile_of(response.statistic), alpha / 2.0)


def quantile_of(statistic: str) -> float:
    """Return the quantile of a name such as ``p99`` or ``p99.9``, as a fraction."""
    return float(statistic.removeprefix("p")) / 100.0


class _Capped:
    """Capped run times as fractions of the cap: one mean per unit, starting with the first unit with a known typical time."""

    def __init__(self, pairs: PairedRuns, cap: float) -> None:
        limit = typical_before(pairs) + math.log(cap)
        self.level = capped(pairs.level[FEWEST:], limit).mean(axis=1)
        self.reference = capped(pairs.reference[FEWEST:], limit).mean(axis=1)
        #: by how many caps the runs of an arm exceed the cap, each exceeding run
        self.excess = [
            np.exp(np.minimum(beyond[beyond > 0.0], _LOG_LARGEST)) - 1.0
            for beyond in (side[FEWEST:] - limit for side in (pairs.level, pairs.reference))
        ]
        self._runs = pairs.level[FEWEST:].size

    @property
    def estimate(self) -> float:
        """ln of the ratio of the means."""
        return math.log(float(self.level.sum() / self.reference.sum()))

    def room(self, margin: float) -> tuple[float, float]:
        """Return what is left of a margin (logarithm) downwards and upwards once capped runs count in full."""
        parts = [
            math.log1p(float(excess.sum()) / self._runs / float(arm.mean()))
            for excess, arm in zip(self.excess, (self.level, self.reference), strict=True)
        ]
        return margin - parts[1], margin - parts[0]

    def against_from_above(self, log_ratio: float) -> float:
        """Return ln of the capital of the bets on a smaller ratio; increases with the ratio."""
        return self._won(-(self.level - math.exp(log_ratio) * self.reference))

    def against_from_below(self, log_inverse: float) -> float:
        """Return ln of the capital of the bets on a larger ratio; increases with the inverse of the ratio."""
        return self._won(math.exp(log_inverse) * self.level - self.reference)

    def _won(self, x: Floats) -> float:
        with np.errstate(divide="ignore"):
            return log_mixture(np.log1p(np.maximum(PARTS[:, None] * x, -1.0)).sum(axis=1))


def _of_means(runs: _Capped, alpha: float, units: int) -> Interval:
    log_limit = math.log(2.0 / alpha)
    high = first_at(runs.against_from_above, log_limit, -_FARTHEST, _FARTHEST)
    low = -first_at(runs.against_from_below, log_limit, -_FARTHEST, _FARTHEST)
    log_e = float(np.logaddexp(runs.against_from_above(0.0), runs.against_from_below(0.0))) - math.log(2.0)
    return Interval(
        estimate=min(max(runs.estimate, low), high),
        low=None if low <= -_FARTHEST else low,
        high=None if high >= _FARTHEST else high,
        p_anytime=math.exp(min(0.0, -log_e)),
        e_value=math.exp(min(log_e, _LOG_LARGEST)),
        blocks=units,
    )


def _of_quantiles(pairs: PairedRuns, share: float, alpha: float, units: int) -> Interval:
    level, reference = np.sort(pairs.level.ravel()), np.sort(pairs.reference.ravel())

    def ends(at: float) -> tuple[float, float]:
        (a, b), (c, d) = (quantile_bounds(one, share, at / 2.0) for one in (level, reference))
        return a - d, b - c

    low, high = ends(alpha)
    estimate = float(
        np.quantile(level, share, method="inverted_cdf")
        - np.quantile(reference, share, method="inverted_cdf")
    )
    p = _least_level(lambda at: not ends(at)[0] <= 0.0 <= ends(at)[1])
    return Interval(
        estimate=estimate,
        low=None if math.isinf(low) else low,
        high=None if math.isinf(high) else high,
        p_anytime=p,
        e_value=1.0 / p,
        blocks=units,
    )


def quantile_bounds(values: Floats, share: float, alpha: float) -> tuple[float, float]:
    """Return bounds on the ``share``-quantile of sorted values; infinite if there is no bound yet.

    They hold at every look at once with probability 1 - ``alpha``, both ends together.
    """
    fewest, most = exceeding_bounds(values.size, 1.0 - share, alpha)
    low = -math.inf if most >= values.size else float(values[values.size - most - 1])
    high = math.inf if fewest < 1 else float(values[values.size - fewest])
    return low, high


def exceeding_bounds(runs: int, chance: float, alpha: float) -> tuple[int, int]:
    """Return bounds on how many of ``runs`` runs exceed a time that each exceeds with probability ``chance``.

    The bounds hold at every look at once with probability 1 - ``alpha``.
    """
    log_limit = math.log(2.0 / alpha)

    def too_few(exceeding: int) -> bool:
        return _log_few(runs, exceeding, chance) >= log_limit

    def too_many(exceeding: int) -> bool:
        return _log_many(runs, exceeding, chance) >= log_limit

    fewest = _first(lambda k: not too_few(k), 0, runs)
    most = _first(lambda k: too_many(k + 1), 0, runs)
    return fewest, most


def _log_few(runs: int, exceeding: int, chance: float) -> float:
    """Return ln of the capital of bets on fewer exceedances than expected."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = exceeding * np.log1p(-PARTS * (1.0 - chance)) if exceeding else 0.0
        return log_mixture((runs - exceeding) * np.log1p(PARTS * chance) + lost)


def _log_many(runs: int, exceeding: int, chance: float) -> float:
    """Return ln of the capital of bets on more exceedances than expected; the largest bets that keep it non-negative."""
    parts = PARTS / chance
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = (runs - exceeding) * np.log1p(-parts * chance) if exceeding < runs else 0.0
        return log_mixture(exceeding * np.log1p(parts * (1.0 - chance)) + lost)


def _fewest(chance: float, alpha: float) -> int:
    """Return the number of runs after which a quantile, exceeded with this probability, has an upper bound."""
    return next(n for n in range(1, 10_000_000) if _log_few(n, 0, chance) >= math.log(2.0 / alpha))


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number from ``low`` on for which a monotone predicate holds; ``high`` if there is none."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _least_level(excludes: Callable[[float], bool]) -> float:
    """Return the smallest level at which "no effect" is excluded, to .01 in its logarithm; 1 if it is not excluded."""
    low, high = math.log(_LEAST_ALPHA), math.log(0.999)
    if not excludes(math.exp(high)):
        return 1.0
    while high - low > 0.01:
        middle = (low + high) / 2.0
        low, high = (low, middle) if excludes(math.exp(middle)) else (middle, high)
    return math.exp(high)
