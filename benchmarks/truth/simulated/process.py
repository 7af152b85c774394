"""The product's own test over many simulated trials at once."""

from __future__ import annotations

import math

import numpy as np

from iotrial.analysis.betting import log_paths
from iotrial.analysis.eprocess import interval
from simulated.noise import Floats

ALPHA = 0.05
_ROWS = 250


def largest(contrasts: Floats) -> Floats:
    """ln f(0) of each trial after its last block: the largest that the process has been (trials by blocks)."""
    parts = np.array_split(contrasts, -(-len(contrasts) // _ROWS))
    return np.concatenate([log_paths(part).max(axis=1) for part in parts])


def alarms(contrasts: Floats, alpha: float = ALPHA) -> int:
    """Trials in which 0 is excluded at a look after some block."""
    return int((largest(contrasts) >= math.log(1 / alpha)).sum())


def first_exclusion(contrasts: Floats, alpha: float = ALPHA) -> Floats:
    """The block after which 0 is first excluded, infinite where it never is."""
    found = []
    for part in np.array_split(contrasts, -(-len(contrasts) // _ROWS)):
        out = log_paths(part) >= math.log(1 / alpha)
        found.append(np.where(out.any(axis=1), out.argmax(axis=1) + 1.0, np.inf))
    return np.concatenate(found)


def misses(contrasts: Floats, effect: float, alpha: float = ALPHA) -> int:
    """Trials whose reported interval misses ``effect`` after the last block, and so has missed it for good."""
    missed = 0
    for row in contrasts:
        found = interval(row, alpha)
        low = -math.inf if found.low is None else found.low
        high = math.inf if found.high is None else found.high
        missed += found.empty or not low <= effect <= high
    return missed
