"""Typical runs where contrasts are skewed: the interval of the median, and whether medians and means contradict a direction.

The interval of ``eprocess.py`` is about the centre of symmetry of the contrasts D. If the runs of one arm are skewed or stall
now and then, D has no such centre, and the bets, with stakes that grow with D, follow the few large ones. Bets on the
sign of D - d alone need no symmetry: they are about the median of D, the ratio that half of the blocks exceed. With p the
chance that D > d, the stake is spread evenly over all p from 1/2 to 1: after k of n contrasts above d the capital is

    2 * integral from 1/2 to 1 of (2p)^k (2 - 2p)^(n-k) dp = 2^(n+1) P(Bin(n+1, 1/2) <= k) / ((n + 1) C(n, k)),

a martingale of mean 1 if d is the median given the past, so d is excluded where it reaches 2/alpha, on either side. This
interval is wider by about a third on normal noise, so it is used only where the contrasts look skewed: by their third moment
(stalls), or by the distance between mean and median (two speeds).

Both limits were chosen by simulation on five kinds of skewed noise and judged on six others
(docs/method-details.md#skewed-runs). They need no error guarantee: both intervals are valid where D is symmetric, and only
the interval of the median where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from iotrial.stats.beyond_typical import capped, which_slow
from iotrial.stats.contrast import PairedRuns
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Interval
from iotrial.study.model import Response

Floats = npt.NDArray[np.float64]

FEWEST = 16
#: the third moment, and mean less median, in their standard errors on normal noise
THIRD_MOMENT = 2.0
MEAN_LESS_MEDIAN = 1.5
_ERROR_OF_MEDIAN = math.sqrt(math.pi / 2.0 - 1.0)  # of mean less median, in those of the mean
#: the largest share of blocks with a slow run, from the first such block on, that can still be stalls
_MOST_SLOW = 0.5
#: the other blocks are searched for a contradiction at this many times alpha: an effect may have changed as well
_STRICTER = 4.0
#: a run counts as at most this many times the typical value where the mean run is looked at besides the typical one
CAP = 2.0


def is_skewed(contrasts: Floats) -> bool:
    """Return whether contrasts look asymmetric; False with fewer than ``FEWEST``."""
    n = contrasts.size
    if n < FEWEST:
        return False
    x = contrasts - contrasts.mean()
    spread = float(np.sqrt((x**2).mean()))
    if spread <= 1e-12 * float(np.abs(contrasts).max(initial=1e-300)):
        return False
    third = abs(float((x**3).mean())) / spread**3 * math.sqrt(n / 6.0)
    apart = abs(float(np.median(x))) / spread * math.sqrt(n) / _ERROR_OF_MEDIAN
    return third > THIRD_MOMENT or apart > MEAN_LESS_MEDIAN


def typical_interval(
    found: Interval,
    contrasts: Sequence[float],
    pairs: PairedRuns | None,
    response: Response,
    alpha: float,
    margin: float,
) -> Interval:
    """Return ``found``, or the interval of the median of the contrasts if they are skewed.

    ``found`` is the interval that assumes symmetry; ``margin`` is on the scale of the contrasts. Where the blocks contradict
    each other, the interval of the median is used only if stalls are the cause (else the effect has changed), and is that of
    the blocks without them: stalls in a row break the order of the signs. Without pairs D is a mean over many runs, as in a
    fraction, so that the symmetry does not rest on single runs: then ``found`` stays.
    ``p_anytime`` and ``e_value`` stay: "no effect at all" implies symmetry.
    """
    values = np.asarray(contrasts, dtype=np.float64)
    contradiction = found.empty or found.leaning
    if pairs is None or values.size < FEWEST:
        return found
    if contradiction:
        calm = _without_stalls(values, pairs, response, alpha, margin)
        if calm is None:
            return found
        values = calm
    if not contradiction and not is_skewed(values):
        return found
    low, high = median_bounds(values, alpha)
    inner = median_bounds(values, 2.0 * alpha)  # each side at alpha
    inside = margin > 0.0 and -margin <= inner[0] and inner[1] <= margin
    return replace(
        found,
        estimate=float(np.median(values)),
        low=None if math.isinf(low) else low,
        high=None if math.isinf(high) else high,
        empty=False,
        leaning=False,
        bounds=inner if inside else None,
        skewed=True,
    )


def median_bounds(values: Floats, alpha: float) -> tuple[float, float]:
    """Return bounds on the median; infinite if there is none yet. They hold at every look at once with probability
    1 - ``alpha``, both together."""
    ordered = np.sort(values)
    rank = _rank(values.size, math.log(2.0 / alpha))
    if rank is None:
        return -math.inf, math.inf
    return float(ordered[rank]), float(ordered[values.size - 1 - rank])


@lru_cache(maxsize=4096)
def _rank(n: int, log_limit: float) -> int | None:
    """Return the largest j for which j of ``n`` values on one side of a candidate, n - j on the other, exclude it."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 2)))])  # of factorials
    ways = logs[n] - logs[: n + 1] - logs[n::-1]
    # of n + 1 fair coins, k or fewer fall on one side
    at_most = np.logaddexp.accumulate(logs[n + 1] - logs - logs[::-1])[: n + 1] - (n + 1) * math.log(2.0)
    log_capital = (n + 1) * math.log(2.0) - math.log(n + 1) - ways + at_most
    excluding = np.flatnonzero(log_capital[::-1][: n // 2 + 1] >= log_limit)
    return int(excluding[-1]) if excluding.size else None


def contradicts(pairs: PairedRuns | None, found: Interval) -> bool:
    """Return whether medians or means of the arms speak against the direction of ``found``.

    The arms' medians must not differ the other way. If the contrasts are skewed, the ratio of the medians must also lie in
    the interval, and the arms' means, each run counted as at most ``CAP`` times the typical value, must differ the same way.
    """
    if pairs is None or (found.low is None and found.high is None) or not len(pairs.level):
        return False
    rising = found.low is not None and found.low > 0.0
    falling = found.high is not None and found.high < 0.0
    if not rising and not falling:
        return False
    way = 1.0 if rising else -1.0
    medians = float((np.median(pairs.level, axis=0) - np.median(pairs.reference, axis=0)).mean())
    if way * medians < 0.0 or not found.skewed:
        return way * medians < 0.0
    outside = (found.low is not None and medians < found.low) or (
        found.high is not None and medians > found.high
    )
    return outside or way * _mean_difference(pairs) < 0.0


def _mean_difference(pairs: PairedRuns) -> float:
    """Return ln of the ratio of the arms' means, with runs capped at ``CAP`` times the larger of their medians."""
    medians = np.maximum(np.median(pairs.level, axis=0), np.median(pairs.reference, axis=0))
    level, reference = (capped(side, medians + math.log(CAP)) for side in (pairs.level, pairs.reference))
    return math.log(float(level.mean()) / float(reference.mean()))


def _without_stalls(
    values: Floats, pairs: PairedRuns, response: Response, alpha: float, margin: float
) -> Floats | None:
    """Return the contrasts of the blocks without a slow run; None if stalls are not why the blocks contradict each other.

    They are if the other blocks do not. Slow runs may come many in a row, but must end again: an effect that begins and stays
    is no stall. Exchanging the runs of a block does not change whether one is slow, so the rest is as symmetric as the whole.
    """
    flags = which_slow(pairs, response)
    if flags is None:
        return None
    slow = np.zeros(values.size, dtype=np.bool_)
    slow[values.size - len(flags[0]) :] = (flags[0] | flags[1]).any(axis=1)
    if not slow.any() or slow[slow.argmax() :].mean() > _MOST_SLOW:
        return None
    calm = values[~slow]
    rest = interval(calm, min(_STRICTER * alpha, 0.5), margin=margin)
    return None if rest.empty or rest.leaning else calm
