"""Combine one comparison over all hosts: select the hosts that count, then combine their results.

The selection uses only facts that are blind to the labels of the arms (controls, failures, number of blocks, whether the
host has finished), never the size of an effect: selecting on the result would create effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iotrial.analysis.fleet.evidence import evidence
from iotrial.analysis.fleet.model import FleetEffect, HostEffect, Mean
from iotrial.analysis.fleet.moderators import moderators
from iotrial.analysis.fleet.outliers import FEWEST, outliers
from iotrial.analysis.fleet.spread import mean_of

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
