"""How often something may happen by chance: bounds that a right program exceeds once in a million."""

from __future__ import annotations

from scipy import stats

#: of a test that fails although nothing is wrong
_RARELY = 1e-6


def at_most(trials: int, probability: float) -> int:
    """Return how often something of this probability happens at most."""
    return int(stats.binom.isf(_RARELY, trials, probability))


def at_least(trials: int, probability: float) -> int:
    """Return how often it happens at least."""
    return int(stats.binom.ppf(_RARELY, trials, probability))
