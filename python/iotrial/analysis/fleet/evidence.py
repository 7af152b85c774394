"""Evidence of several hosts against "no effect on any host": e-values multiplied and averaged.

The e-value of a host is a martingale of mean at most 1 while there is no effect on it, whenever the host stops. For hosts
whose draws are independent the product is one too, so under "no effect anywhere" it ever reaches 1/alpha with probability
at most alpha, with a look at any moment (Vovk and Wang, "E-values: calibration, combination and applications", Annals of
Statistics 49, 2021). The product speaks for effects on most hosts; one host among many is drowned in it. The mean is an
e-value whatever the dependence between hosts (but then at one moment, decided beforehand or by each host alone), and speaks
for one. Half the sum of both is what is judged, since the better of two may not be picked. Hosts that share a server share
noise and no draws: given all magnitudes their coins are independent, so the product holds for them too.

By closed testing with the mean: every set of hosts whose mean reaches 1/alpha has a member with an effect, and the worst set
of its size is that of the smallest e-values. So at least H - s hosts have one, with s the most hosts whose smallest e-values
average below 1/alpha (Vovk and Wang, "Confidence and discoveries with e-values", Statistical Science 38, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.analysis.fleet.model import Evidence

# exp(690) is still finite; an e-value beyond it says no more
_LOG_LARGEST = 690.0


def evidence(log_e: Sequence[float], alpha: float) -> Evidence:
    """What e-values (their natural logarithms, one a host) say together at level ``alpha``; ValueError for NaN."""
    values = np.minimum(np.asarray(log_e, dtype=np.float64), _LOG_LARGEST)
    if np.isnan(values).any():
        raise ValueError("an e-value is no number")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    if values.size == 0:
        return Evidence(0, 0.0, 0.0, 0.0, 0, excluded=False)
    product = float(values.sum())
    mean = _log_mean(values)
    both = _log_mean(np.array([product, mean]))
    threshold = math.log(1.0 / alpha)
    return Evidence(
        hosts=int(values.size),
        log_product=product,
        log_mean=mean,
        log_e=both,
        least=_least(np.sort(values), threshold),
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
