"""What a comparison of typical runs cannot show: rare slow runs, and a ratio of means that is another one.

The interval of a log ratio is about its centre of symmetry, which some dozen blocks show well and which a run in a hundred
that takes ten times as long hardly moves. Two questions are therefore answered beside it.

**Slow runs.** A run is slow if it takes more than ``SLOW`` times as long as is typical. Typical is the larger of the medians
of the two arms, each over the last ``WINDOW`` blocks before this one. Both arms of a block thus have the same threshold,
fixed before the block. Exchanging the two runs of a block exchanges who was slow, so where the level changes nothing, the
sign of

    Z = share of slow runs at the level - share of slow runs at the reference

is a fair coin in each block with Z other than 0, whatever went before: stalls may come in bursts. The first ``FEWEST``
blocks only say what is typical. Bets are of the form of Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting" (2024): a candidate mean m is given up from above where

    U(m) = sum over c of w_c * product over blocks of (1 - c' (Z - m)),  c' = c / max(1, 1 - m),  0 < c <= 1

reaches 2/alpha, and from below by the mirror image. Each product is a non-negative martingale if m is the mean of Z given
the past, so by Ville's inequality the bounds hold at every look at once with probability at least 1 - alpha. U rises with m,
so each bound is found by bisection. Where the mean changes over time and m >= 0, ln is concave and the bound from above
holds for the average of the means so far. At m = 0 this is a bet on the sign of Z alone.

**Means.** ``mean_ratio`` compares the ratio of the arms' mean values with the ratio of typical runs. Where a constant factor
is all that differs they are the same, however skewed the runs are; where the level adds a constant, they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iotrial.analysis.contrast import Contrasts, PairedRuns
from iotrial.analysis.model import Interval, MeanRatio, Share, SlowRuns
from iotrial.analysis.verdict import is_rate, is_time
from iotrial.study.model import Better, Response, Scale

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SLOW = 1.5
FEWEST = 5
WINDOW = 100
#: the parts of the capital that are bet, and what each strategy begins with; all of it is best while nothing was slow
PARTS = np.array([1.0, 0.9, 0.75, 0.6, 0.45, 0.32, 0.22, 0.15, 0.1, 0.06])
WEIGHTS = np.array([0.5] + [0.5 / (len(PARTS) - 1)] * (len(PARTS) - 1))
_ROWS = 4096
_STEPS = 40  # halvings of an interval of length 2
_SMALLEST = 1e-12
_ROUNDING = 1e-9  # of a logarithm of a ratio of means
#: blocks from which on the two ratios are compared, and the p below which they are said to differ
FEWEST_FOR_MEANS = 20
MEANS_DIFFER = 0.02


def slow_runs(pairs: PairedRuns | None, response: Response, alpha: float) -> SlowRuns | None:
    """How many runs of either arm were slow, with bounds on the shares and on their difference, each at ``alpha``.

    None for what is neither a time nor a rate compared by ratio, and where no block came after the first ``FEWEST``.
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
    """Which runs of the level and of the reference were slow, units by runs, from the unit after the first ``FEWEST`` on.

    None for what is neither a time nor a rate compared by ratio, and where no unit is left.
    """
    sign = _towards_slow(response)
    if sign is None or len(pairs.level) <= FEWEST:
        return None
    level, reference = sign * pairs.level, sign * pairs.reference
    towards = PairedRuns(level, reference)
    limit = typical_before(towards) + math.log(SLOW)
    return level[FEWEST:] > limit, reference[FEWEST:] > limit


def typical_before(pairs: PairedRuns) -> Floats:
    """ln of what is typical before each unit from the ``FEWEST``-th on, the same for both arms: the larger of their
    medians."""
    return np.maximum(_medians_before(pairs.level), _medians_before(pairs.reference))


def mean_bounds(values: Floats, alpha: float, *, least: float = -1.0) -> tuple[float, float]:
    """Bounds on the mean of ``values`` given the past, valid at every look at once with probability 1 - ``alpha``.

    ``values``: one number a block between ``least`` (-1 or 0) and 1. The bounds lie there too.
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
    """The ratio of the arms' mean values, and whether it differs from the ratio of typical runs (the mean of D) in a way that
    matters: by more than the margin, or so far that it lies outside the interval ``found``.

    With r the mean of D, z = y(level) exp(-r/2) - y(reference) exp(r/2) changes its sign where the runs of a block are
    exchanged and a constant factor is all that differs. The test is the sum of z over the root of the sum of squares of its
    influence, r being estimated, which sign symmetry keeps near normal whatever the tails (Efron 1969). One look, no verdict.
    None for differences, for fewer than ``FEWEST_FOR_MEANS`` blocks and for more than one pair of arms.
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
    # two numbers are estimated beside it: the mean of D and the slope
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
    """1 for a time, -1 for a rate, whose logarithm falls where a run is slow; None for the rest."""
    if response.scale is not Scale.LOG:
        return None
    if is_time(response) and response.better is not Better.HIGHER:
        return 1.0
    return -1.0 if is_rate(response) and response.better is not Better.LOWER else None


def _medians_before(values: Floats) -> Floats:
    """Of each block from the ``FEWEST``-th on the median of the blocks before it, of the last ``WINDOW`` where there are
    more."""
    blocks = len(values)
    out = np.empty((blocks - FEWEST, values.shape[1]))
    for at in range(FEWEST, min(WINDOW, blocks)):
        out[at - FEWEST] = np.median(values[:at], axis=0)
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW, axis=0) if blocks > WINDOW else ()
    for at in range(WINDOW, blocks, _ROWS):
        until = min(at + _ROWS, blocks)
        out[at - FEWEST : until - FEWEST] = np.median(windows[at - WINDOW : until - WINDOW], axis=-1)
    return out


def _share(slow: Flags, shares: Floats, alpha: float) -> Share:
    low, high = mean_bounds(shares, alpha, least=0.0)
    return Share(slow=int(slow.sum()), runs=int(slow.size), low=low, high=high)


def _log_capital(values: Floats, counts: npt.NDArray[np.intp], mean: float, *, most: float) -> float:
    """ln U(mean) of values that occur ``counts`` times and are at most ``most`` (1 or 0). The bets are as large as leaves
    every factor at least 0; for a mean of at least 0 they do not depend on it."""
    parts = PARTS / max(most, most - mean, _SMALLEST)
    factors = 1.0 - parts[:, None] * (values - mean)
    with np.errstate(divide="ignore"):
        return log_mixture((np.log(np.maximum(factors, 0.0)) * counts).sum(axis=1))


def log_mixture(logs: Floats) -> float:
    """ln of the capital of all strategies together, ``logs`` being ln of what each made of 1."""
    return float(np.logaddexp.reduce(logs + np.log(WEIGHTS)))


def first_at(rising: Callable[[float], float], limit: float, low: float, high: float) -> float:
    """Where a rising function reaches ``limit`` between ``low`` and ``high``; ``high`` where it does not. Rounded
    outwards."""
    if rising(high) < limit:
        return high
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if rising(middle) < limit:
            low = middle
        else:
            high = middle
    return high
