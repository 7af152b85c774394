"""Hosts whose effect does not fit the others: leave-one-out residuals, Holm's correction over all hosts.

For each host, mean and spread of all others are found without it; its distance from their mean in units of
sqrt(own variance + spread^2 + variance of the mean) is held against Student's t with H - 2 degrees of freedom (Viechtbauer
and Cheung, Research Synthesis Methods 1, 2010). Holm's step-down keeps the chance to name any host falsely at alpha, as far
as effects between hosts are normal. Two outlying hosts can hide each other: each widens the spread of the other's others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iotrial.analysis.audit.student import two_sided
from iotrial.analysis.fleet.leave_one_out import direct, distances
from iotrial.analysis.fleet.model import Outlier
from iotrial.analysis.fleet.spread import Floats, checked

#: with fewer hosts the others say too little about their own spread
FEWEST = 5
#: fitted one without the other by themselves: quick enough, and simpler
FEW = 64


def outliers(names: Sequence[str], estimates: Floats, errors: Floats, alpha: float) -> tuple[Outlier, ...]:
    """The hosts named at level ``alpha``, the farthest first; none where there are fewer than ``FEWEST``."""
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
    """Of each host from the mean of all others, in standard deviations of the difference."""
    if values.size <= FEW:
        return direct(values, variances, np.arange(values.size))
    return distances(values, variances)
