"""Effects that a comparison of typical runs misses: rare slow runs, and a ratio of means that differs from the typical ratio.

The interval of a log ratio is about its centre of symmetry. A dozen or so blocks show that well, and one run in a hundred
that takes ten times as long hardly moves it. This module therefore answers two further questions.

**Slow runs.** A run is slow if it takes more than ``SLOW`` times the typical time of its arm, so a level that makes every
run slower has no more slow runs for that. The typical times of the arms differ by the median of the contrasts over the last
``WINDOW`` blocks before this one; that of the reference is the larger of the medians of both arms over these blocks, the
level's divided by that ratio. (The arms' own medians would not do: where runs have two speeds, they differ by chance.) So
both thresholds are fixed before the block. If the arms differ by a constant factor alone, and the thresholds by this factor,
swapping the two runs of a block swaps which arm was slow, and the sign of

    Z = share of slow runs at the level - share of slow runs at the reference

is a fair coin in each block with nonzero Z, whatever happened before: stalls may come in bursts. The factor is estimated
from the blocks before; docs/method-details.md says what that costs. The first ``FEWEST`` blocks only establish the typical
times. The bets have the form of Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting" (2024): a candidate mean m is rejected from above when

    U(m) = sum over c of w_c * product over blocks of (1 - c' (Z - m)),  c' = c / max(1, 1 - m),  0 < c <= 1

reaches 2/alpha, and from below by the mirror image. Each product is a non-negative martingale if m is the mean of Z given
the past, so by Ville's inequality the bounds hold simultaneously at every look with probability at least 1 - alpha. U
increases with m, so bisection finds each bound. If the mean changes over time and m >= 0, the bound from above holds for
the average of the means so far, because ln is concave. At m = 0 this is a bet on the sign of Z alone.

**Means.** ``mean_ratio`` compares the ratio of the arms' mean values with the ratio of typical runs. If the arms differ only
by a constant factor, the two are the same, however skewed the runs; if the level adds a constant, they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iotrial.stats.contrast import Contrasts, PairedRuns
from iotrial.stats.model import Interval, MeanRatio, Share, SlowRuns
from iotrial.stats.verdict import is_rate, is_time
from iotrial.study.model import Better, Response, Scale

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SLOW = 1.5
FEWEST = 5
WINDOW = 100
#: the fraction of its capital that each strategy bets, and its initial capital; betting all is best while no run was slow
PARTS = np.array([1.0, 0.9, 0.75, 0.6, 0.45, 0.32, 0.22, 0.15, 0.1, 0.06])
WEIGHTS = np.array([0.5] + [0.5 / (len(PARTS) - 1)] * (len(PARTS) - 1))
_ROWS = 4096
_STEPS = 40  # bisections of an interval of length 2
_SMALLEST = 1e-12
_ROUNDING = 1e-9  # rounding error of the log of a ratio of means
#: minimum number of blocks for comparing the two ratios, and the p-value below which they are reported to differ
FEWEST_FOR_MEANS = 20
MEANS_DIFFER = 0.02


def slow_runs(pairs: PairedRuns | None, response: Response, alpha: float) -> SlowRuns | None:
    """Count the slow runs of both arms, with bounds on the shares and on their difference, each at ``alpha``.

    None unless the response is a time or a rate compared by ratio and there are more than ``FEWEST`` blocks.
    """
    flags = None if pairs is None else which_slow(pairs, response)
    if flags is None:
        return None
    slow_level, slow_reference = flags
    shares = slow_level.mean(axis=1), slow_reference.mean(axis=1)
    low, high = mean_bounds(shares[0] - shares[1], alpha)
    return SlowRuns(
        factor=SLOW,
        level=_share(slow_level, shares[0], alpha),
        reference=_share(slow_reference, shares[1], alpha),
        difference=float((shares[0] - shares[1]).mean()),
        low=low,
        high=high,
        alpha=alpha,
    )


def which_slow(pairs: PairedRuns, response: Response) -> tuple[Flags, Flags] | None:
    """Flag the slow runs of the level and of the reference, shape (units, runs), after the first ``FEWEST`` units.

    None unless the response is a time or a rate compared by ratio and there are more than ``FEWEST`` units.
    """
    sign = _towards_slow(response)
    if sign is None or len(pairs.level) <= FEWEST:
        return None
    level, reference = sign * pairs.level, sign * pairs.reference
    ratio = _medians_before(level - reference)
    limit = np.maximum(_medians_before(level) - ratio, _medians_before(reference)) + math.log(SLOW)
    return level[FEWEST:] > limit + ratio, reference[FEWEST:] > limit


def typical_before(pairs: PairedRuns) -> Floats:
    """Return ln of the typical time before each unit after the first ``FEWEST``: the larger of the arms' medians."""
    return np.maximum(_medians_before(pairs.level), _medians_before(pairs.reference))


def capped(values: Floats, limit: Floats) -> Floats:
    """Return values, given by their logarithms, as fractions of e to the ``limit``; those above it as 1."""
    fractions: Floats = np.exp(np.minimum(values - limit, 0.0))
    return fractions


def mean_bounds(values: Floats, alpha: float, *, least: float = -1.0) -> tuple[float, float]:
    """Return bounds on the mean of ``values`` given the past, valid at any time at once with probability 1 - ``alpha``.

    ``values``: one number per block between ``least`` (-1 or 0) and 1. The bounds are in the same range.
    """
    found, counts = np.unique(values, return_counts=True)
    log_limit = math.log(2.0 / alpha)

    def from_above(mean: float) -> float:
        return _log_capital(found, counts, mean, most=1.0)

    def from_below(mirrored: float) -> float:
        return _log_capital(-found, counts, mirrored, most=-least)

    high = first_at(from_above, log_limit, least, 1.0)
    low = -first_at(from_below, log_limit, -1.0, -least)
    return low, high


def mean_ratio(
    pairs: PairedRuns | None, contrasts: Contrasts, response: Response, found: Interval, margin: float
) -> MeanRatio | None:
    """Return the ratio of the arms' mean values, and whether it differs relevantly from the ratio of typical runs.

    The ratio of typical runs is the mean of D. A relevant difference exceeds the margin or is outside the interval ``found``.

    With r the mean of D, z = y(level) exp(-r/2) - y(reference) exp(r/2) changes sign when the runs of a block are swapped, if
    the arms differ only by a constant factor. The test statistic is the sum of z over the root of the sum of squares of its
    influence (r is estimated). Sign symmetry keeps it near normal whatever the tails (Efron 1969). Valid at a single look;
    it gives no verdict. None for differences, for fewer than ``FEWEST_FOR_MEANS`` blocks and for more than one pair of arms.
    """
    if pairs is None or response.scale is not Scale.LOG or pairs.level.shape[1] != 1:
        return None
    if len(contrasts.values) < FEWEST_FOR_MEANS or len(contrasts.values) != len(pairs.level):
        return None
    level, reference = pairs.level[:, 0], pairs.reference[:, 0]
    top = max(float(level.max()), float(reference.max()))
    y, x = np.exp(level - top), np.exp(reference - top)
    d = level - reference
    centre = float(d.mean())
    scaled_y, scaled_x = y * math.exp(-centre / 2), x * math.exp(centre / 2)
    z = scaled_y - scaled_x
    slope = -float((scaled_y + scaled_x).mean()) / 2.0
    influence = z - z.mean() + slope * (d - centre)
    # n - 2 because two parameters are estimated: the mean of D and the slope
    error = math.sqrt(float((influence**2).sum()) * len(z) / (len(z) - 2))
    ratio = float(y.mean() / x.mean())
    apart = abs(math.log(ratio) - centre)
    same = apart <= _ROUNDING
    outside = (found.low is not None and math.log(ratio) < found.low) or (
        found.high is not None and math.log(ratio) > found.high
    )
    matters = outside or apart > math.log1p(margin)
    p = 1.0 if same or error == 0.0 else math.erfc(abs(float(z.sum()) / error) / math.sqrt(2.0))
    return MeanRatio(ratio=ratio, typical=math.exp(centre), p=p, differs=p < MEANS_DIFFER and matters)


def _towards_slow(response: Response) -> float | None:
    """Return 1 for a time, -1 for a rate (its logarithm falls if a run is slow), None for other responses."""
    if response.scale is not Scale.LOG:
        return None
    if is_time(response) and response.better is not Better.HIGHER:
        return 1.0
    return -1.0 if is_rate(response) and response.better is not Better.LOWER else None


def _medians_before(values: Floats) -> Floats:
    """Return, for each block after the first ``FEWEST``, the median of the up to ``WINDOW`` blocks before it."""
    blocks = len(values)
    out = np.empty((blocks - FEWEST, values.shape[1]))
    early = values[:WINDOW]
    counts = np.arange(FEWEST, len(early))
    counted = np.arange(len(early)) < counts[:, None]
    ordered = np.sort(np.where(counted[..., None], early, np.inf), axis=1)
    rows = np.arange(counts.size)
    out[rows] = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2.0
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW, axis=0) if blocks > WINDOW else ()
    for at in range(WINDOW, blocks, _ROWS):
        until = min(at + _ROWS, blocks)
        out[at - FEWEST : until - FEWEST] = np.median(windows[at - WINDOW : until - WINDOW], axis=-1)
    return out


def _share(slow: Flags, shares: Floats, alpha: float) -> Share:
    low, high = mean_bounds(shares, alpha, least=0.0)
    return Share(slow=int(slow.sum()), runs=int(slow.size), low=low, high=high)


def _log_capital(values: Floats, counts: npt.NDArray[np.intp], mean: float, *, most: float) -> float:
    """Return ln U(mean) of values that occur ``counts`` times and are at most ``most`` (1 or 0).

    The bets are the largest that keep every factor at least 0; for a mean of at least 0 they do not depend on it.
    """
    parts = PARTS / max(most, most - mean, _SMALLEST)
    factors = 1.0 - parts[:, None] * (values - mean)
    with np.errstate(divide="ignore"):
        return log_mixture((np.log(np.maximum(factors, 0.0)) * counts).sum(axis=1))


def log_mixture(logs: Floats) -> float:
    """Return ln of the total capital of all strategies; ``logs`` is ln of what each made of an initial 1."""
    return float(np.logaddexp.reduce(logs + np.log(WEIGHTS)))


def first_at(rising: Callable[[float], float], limit: float, low: float, high: float) -> float:
    """Return where an increasing function reaches ``limit`` between ``low`` and ``high``, rounded up; else ``high``."""
    if rising(high) < limit:
        return high
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if rising(middle) < limit:
            low = middle
        else:
            high = middle
    return high
