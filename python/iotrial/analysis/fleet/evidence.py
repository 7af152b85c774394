"""Combined evidence of several hosts against "no effect on any host": product and mean of e-values.

If there is no effect on a host, its e-value is a martingale with mean at most 1, whenever the host stops. If the hosts'
random orders are independent, so is the product. Under "no effect anywhere" it therefore ever reaches 1/alpha with
probability at most alpha, with looks at any time (Vovk and Wang, "E-values: calibration, combination and applications",
Annals of Statistics 49, 2021). The product detects effects on most hosts; a single host among many has little influence on
it. The mean is an e-value for any dependence between hosts (but then at one time only, chosen beforehand or by each host
alone), and detects an effect on a single host. The test uses half the sum of both, since choosing the better of the two
would not be valid. Hosts that share a server share noise, but not random orders: given all magnitudes their coins are
independent, so the product is valid for them too.

Number of hosts with an effect, by closed testing with the mean: every set of hosts whose mean reaches 1/alpha has a member
with an effect, and the worst set of each size has the smallest e-values. So at least H - s hosts have an effect, with s the
largest number of hosts whose smallest e-values average below 1/alpha (Vovk and Wang, "Confidence and discoveries with
e-values", Statistical Science 38, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.analysis.fleet.model import Evidence

# exp(690) is still finite; larger e-values are capped
_LOG_LARGEST = 690.0


def evidence(log_e: Sequence[float], alpha: float) -> Evidence:
    """Combine e-values (natural logarithms, one per host) at level ``alpha``; ValueError for NaN or an invalid alpha."""
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
