"""The closed e-BH procedure: false discovery rate control for many e-values, with no independence assumption.

Sources: Wang and Ramdas, "False discovery rate control with e-values", JRSS B 84 (2022); closure: arXiv 2504.11759. It finds
all that e-BH finds, and more: in simulated families of 10 to 30 responses 1.03 to 1.38 times as many (400 families each).

``movements`` finds with it which of many counters changed with a treatment. The test is the same as for responses: the
contrasts of complete blocks, in time order, bet against the hypothesis that only the order differed. Counters are compared by
difference, since many of them are zero. They are exploratory: the result is a list of likely mechanisms with a controlled
false discovery rate, not a verdict.

A counter with contrasts that are all zero carries no information and is not counted among the hypotheses. Omitting it depends
on magnitudes alone; given these, the signs are fair coins if there is no effect.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from iotrial.stats.betting import Floats, log_process

K = TypeVar("K", bound=Hashable)
# exp(690) is still finite; larger e-values are capped.
_LOG_LARGEST = 690.0
#: hypotheses up to which the procedure is closed; it takes their number cubed
MOST = 300


def discoveries(e_values: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Return which hypotheses are rejected with a false discovery rate of at most ``alpha``.

    Reject the r largest, for the largest r such that every set of hypotheses has a mean e-value of at least
    1 / alpha times the share of the r that are in it. The set of all true hypotheses has a mean e-value of expectation at
    most 1, so the expected share of false discoveries is at most alpha.

    Beyond ``MOST`` hypotheses, only the r largest for which the r-th is at least K / (alpha r) (e-BH), a part of these.
    """
    total = len(e_values)
    ranked = sorted(range(total), key=lambda i: -e_values[i])
    values = np.array([e_values[i] for i in ranked], dtype=np.float64)
    sizes = np.arange(1, total + 1)
    enough = np.flatnonzero(values * alpha * sizes >= total)
    rejected = int(enough[-1]) + 1 if enough.size else 0
    if total <= MOST and total and values.mean() * alpha >= 1.0:
        rejected = next((r for r in range(total, rejected, -1) if _closed(values, r, alpha)), rejected)
    chosen = set(ranked[:rejected])
    return tuple(i in chosen for i in range(total))


def _closed(values: Floats, rejected: int, alpha: float) -> bool:
    """Return whether every set has enough evidence; of sets alike in numbers the one with the smallest values decides."""
    others = np.append(0.0, np.cumsum(values[rejected:][::-1]))
    count = np.arange(others.size)
    inside = 0.0
    for k, value in enumerate(values[:rejected][::-1].tolist(), start=1):
        inside += value
        if ((inside + others) * alpha * rejected < k * (k + count)).any():
            return False
    return True


def movements(contrasts: Mapping[K, Floats], alpha: float) -> dict[K, tuple[float, bool]]:
    """Return for each hypothesis, by key, the e-value against "no effect" and whether it is a discovery at ``alpha``.

    ``contrasts``: level minus reference, one finite number per block, in time order.
    """
    varying = {key: values for key, values in contrasts.items() if values.size and values.any()}
    e_values = {key: e_value(values) for key, values in varying.items()}
    found = discoveries(list(e_values.values()), alpha)
    silent = {key: (1.0, False) for key in contrasts if key not in varying}
    return silent | {key: (e, one) for (key, e), one in zip(e_values.items(), found, strict=True)}


def e_value(contrasts: Floats) -> float:
    """Return the e-value against "only the order differs" after the last block."""
    return math.exp(min(log_process(contrasts, 0.0)[1], _LOG_LARGEST))
