"""The e-BH procedure: false discovery rate control for many e-values, with no independence assumption.

Source: Wang and Ramdas, "False discovery rate control with e-values", JRSS B 84 (2022).

``movements`` finds with it which of many counters changed with a treatment. The test is the same as for responses: the
contrasts of complete blocks, in time order, bet against the hypothesis that only the order differed. Counters are compared by
difference, since many of them are zero. They are exploratory: the result is a list of likely mechanisms with a controlled
false discovery rate, not a verdict.

A counter whose contrasts are all zero carries no information and is not counted among the hypotheses. Omitting it depends
on magnitudes alone; given these, the signs are fair coins if there is no effect.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from iotrial.stats.betting import Floats, log_process

K = TypeVar("K", bound=Hashable)
# exp(690) is still finite; larger e-values are capped.
_LOG_LARGEST = 690.0


def discoveries(e_values: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Return which hypotheses are rejected with a false discovery rate of at most ``alpha``.

    With K e-values, reject the k largest, for the largest k whose k-th largest value is at least K / (alpha k).
    """
    total = len(e_values)
    ranked = sorted(range(total), key=lambda i: -e_values[i])
    rejected = 0
    for k, i in enumerate(ranked, start=1):
        if e_values[i] * alpha * k >= total:
            rejected = k
    chosen = set(ranked[:rejected])
    return tuple(i in chosen for i in range(total))


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
