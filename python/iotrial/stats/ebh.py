"""The e-BH procedure: false discovery rate control for many e-values, with no independence assumption.

Source: Wang and Ramdas, "False discovery rate control with e-values", JRSS B 84 (2022).
"""

from __future__ import annotations

from collections.abc import Sequence


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
