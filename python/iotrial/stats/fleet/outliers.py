"""Outlying hosts: leave-one-out residuals with Holm's correction over all hosts.

For each host, mean and spread of all others are estimated without it. Its distance from their mean, in units of
sqrt(own variance + spread^2 + variance of the mean), is compared with Student's t with H - 2 degrees of freedom (Viechtbauer
and Cheung, Research Synthesis Methods 1, 2010). Holm's step-down keeps the probability of naming any host falsely at alpha,
if effects are normal between hosts. Two outlying hosts can mask each other: each increases the spread without the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iotrial.stats.fleet.leave_one_out import direct, distances
from iotrial.stats.fleet.model import Outlier
from iotrial.stats.fleet.spread import Floats, checked
from iotrial.stats.student import two_sided

#: with fewer hosts the spread of the others is too uncertain
FEWEST = 5
#: up to this many hosts a separate fit for each is fast enough, and simpler
FEW = 64


def outliers(names: Sequence[str], estimates: Floats, errors: Floats, alpha: float) -> tuple[Outlier, ...]:
    """Return the outliers at level ``alpha``, the farthest first; empty with fewer than ``FEWEST`` hosts."""
    values, variances = checked(estimates, errors)
    if values.size < FEWEST:
        return ()
    far = _distances(values, variances)
    p = np.array([two_sided(one, values.size - 2) for one in far.tolist()])
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * (values.size - np.arange(values.size))))
    found = [
        Outlier(names[at], float(far[at]), float(level))
        for at, level in zip(order.tolist(), adjusted.tolist(), strict=True)
        if level <= alpha
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.distance)))


def _distances(values: Floats, variances: Floats) -> Floats:
    """Return the distance of each host from the mean of all others, in standard deviations of the difference."""
    if values.size <= FEW:
        return direct(values, variances, np.arange(values.size))
    return distances(values, variances)
