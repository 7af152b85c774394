"""Which of many counters moved with a treatment: one e-value each, sorted by e-BH.

The same test as for responses: the contrasts of complete blocks, in time order, bet against the order having been the only
difference. Counters are compared by difference, since many of them are zero. They are exploratory: what is found is a
mechanism to believe in as far as the share of false ones among all that are marked is held, not a verdict.

A counter whose contrasts are all zero says nothing and is not counted among the hypotheses. To leave it out depends on
magnitudes alone, given which the signs are fair coins where there is no effect.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from iotrial.analysis.betting import Floats, log_process
from iotrial.analysis.ebh import discoveries

K = TypeVar("K", bound=Hashable)
# exp(690) is still finite; an e-value beyond it says no more.
_LOG_LARGEST = 690.0


def movements(contrasts: Mapping[K, Floats], alpha: float) -> dict[K, tuple[float, bool]]:
    """For each hypothesis, by its key, the e-value against "no effect" and whether it is a discovery at ``alpha``.

    ``contrasts``: level minus reference, one finite number a block, in time order.
    """
    told = {key: values for key, values in contrasts.items() if values.size and values.any()}
    e_values = {key: e_value(values) for key, values in told.items()}
    found = discoveries(list(e_values.values()), alpha)
    silent = {key: (1.0, False) for key in contrasts if key not in told}
    return silent | {key: (e, one) for (key, e), one in zip(e_values.items(), found, strict=True)}


def e_value(contrasts: Floats) -> float:
    """The e-value of "the order is all that differs" after the last block."""
    return math.exp(min(log_process(contrasts, 0.0)[1], _LOG_LARGEST))
