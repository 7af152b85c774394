"""Discoveries among many e-values: the e-BH procedure, which needs no independence.

Source: Wang and Ramdas, "False discovery rate control with e-values", JRSS B 84 (2022).
"""

from __future__ import annotations

from collections.abc import Sequence


def discoveries(e_values: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Which hypotheses are rejected so that the expected share of false ones among them is at most ``alpha``.

    With K e-values, the k largest are rejected for the largest k whose k-th value is at least K / (alpha k).
    """
    total = len(e_values)
    ranked = sorted(range(total), key=lambda i: -e_values[i])
    rejected = 0
    for k, i in enumerate(ranked, start=1):
        if e_values[i] * alpha * k >= total:
            rejected = k
    chosen = set(ranked[:rejected])
    return tuple(i in chosen for i in range(total))
