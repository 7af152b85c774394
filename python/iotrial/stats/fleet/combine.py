"""Combine one comparison over all hosts: select the hosts that count, then combine their results.

The selection uses only facts that are blind to the labels of the arms (controls, failures, number of blocks, whether the
host has finished), never the size of an effect: selecting on the result would create effects.

Evidence against "no effect on any host": if there is no effect on a host, its e-value is a martingale with mean at most 1,
whenever the host stops. If the hosts' random orders are independent, so is the product. Under "no effect anywhere" it
therefore ever reaches 1/alpha with probability at most alpha, with looks at any time (Vovk and Wang, "E-values:
calibration, combination and applications", Annals of Statistics 49, 2021). The product detects effects on most hosts; a
single host among many has little influence on it. The mean is an e-value for any dependence between hosts (but then at one
time only, chosen beforehand or by each host alone), and detects an effect on a single host. The test uses half the sum of
both, since choosing the better of the two would not be valid. Hosts that share a server share noise, but not random orders:
given all magnitudes their coins are independent, so the product is valid for them too.

Number of hosts with an effect, by closed testing with the mean: each set of hosts with a mean of 1/alpha or more has a member
with an effect, and the worst set of each size has the smallest e-values. So at least H - s hosts have an effect, with s the
largest number of hosts with smallest e-values that average below 1/alpha (Vovk and Wang, "Confidence and discoveries with
e-values", Statistical Science 38, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.stats.fleet.model import Evidence, FleetEffect, HostEffect, Mean
from iotrial.stats.fleet.moderators import moderators
from iotrial.stats.fleet.outliers import FEWEST, outliers
from iotrial.stats.fleet.spread import mean_of

#: with fewer blocks no interval at .05 is finite, and the scatter over blocks is poorly known
FEWEST_BLOCKS = 8

LOWER, HIGHER, EQUIVALENT, INCONCLUSIVE, NONE = "lower", "higher", "equivalent", "inconclusive", "none"


def combine(hosts: Sequence[HostEffect], *, alpha: float, limit: float) -> FleetEffect:
    """Combine these hosts' results of one comparison at level ``alpha``.

    ``limit`` is the margin on the contrast's scale (ln 1.03; 0: nothing is called equivalent). Hosts keep their order.
    """
    trusted = [one for one in hosts if one.distrusted is None]
    averaged = [one for one in hosts if why_left_out(one) is None]
    estimates = np.array([one.estimate for one in averaged], dtype=np.float64)
    errors = np.array([one.error for one in averaged], dtype=np.float64)
    mean = mean_of(estimates, errors, alpha) if len(averaged) > 1 else None
    table, comparisons = (
        moderators([one.properties for one in averaged], estimates, errors, alpha) if mean else ((), 0)
    )
    return FleetEffect(
        hosts=tuple(hosts),
        alpha=alpha,
        evidence=evidence([one.log_e for one in trusted], alpha),
        mean=mean,
        word=NONE if mean is None else word_of(mean, limit),
        outliers=outliers([one.host for one in averaged], estimates, errors, alpha),
        outliers_sought=len(averaged) >= FEWEST,
        moderators=table,
        comparisons=comparisons,
    )


def why_left_out(one: HostEffect) -> str | None:
    """Return the reason why a host is not averaged; None if it is."""
    if one.why_not_averaged is not None:
        return one.why_not_averaged
    if one.blocks < FEWEST_BLOCKS:
        return f"{one.blocks} usable blocks, fewer than {FEWEST_BLOCKS}"
    if one.estimate is None or one.error is None or not math.isfinite(one.estimate + one.error):
        return "no estimate"
    return None


def word_of(mean: Mean, limit: float) -> str:
    """Classify the mean's interval relative to no effect and the margin."""
    if mean.low >= -limit and mean.high <= limit and limit > 0:
        return EQUIVALENT
    return LOWER if mean.high < 0 else HIGHER if mean.low > 0 else INCONCLUSIVE


# exp(690) is still finite; larger e-values are capped
_LOG_LARGEST = 690.0


def evidence(log_e: Sequence[float], alpha: float) -> Evidence:
    """Combine e-values (natural logarithms, one per host) at level ``alpha``; ValueError for NaN or an invalid alpha."""
    values = np.minimum(np.asarray(log_e, dtype=np.float64), _LOG_LARGEST)
    if np.isnan(values).any():
        raise ValueError("an e-value is not a number")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    if values.size == 0:
        return Evidence(0, 0.0, 0.0, 0.0, excluded=False, least_hosts_with_an_effect=0)
    product = float(values.sum())
    mean = _log_mean(values)
    both = _log_mean(np.array([product, mean]))
    threshold = math.log(1.0 / alpha)
    return Evidence(
        hosts=int(values.size),
        log_e_product=product,
        log_e_mean=mean,
        log_e=both,
        least_hosts_with_an_effect=_least(np.sort(values), threshold),
        excluded=both >= threshold,
    )


def _least(ascending: np.ndarray[tuple[int, ...], np.dtype[np.float64]], threshold: float) -> int:
    sums = np.logaddexp.accumulate(ascending)
    means = sums - np.log(np.arange(1, ascending.size + 1))
    return int((means >= threshold).sum())


def _log_mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    top = float(values.max())
    if math.isinf(top):
        return top
    return top + math.log(float(np.exp(values - top).mean()))
