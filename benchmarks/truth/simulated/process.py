"""The product's own test over many simulated trials at once, with a margin of ``MARGIN`` block SDs.

``contrasts`` and ``copies`` have shape (trials, blocks). ``copies``: the copy of the reference less the reference, NaN in
blocks without one; None if the bets do not use copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from iotrial.stats.betting import Side, log_paths
from iotrial.stats.eprocess import interval
from simulated.noise import Floats

ALPHA = 0.05
MARGIN = 0.3
_ROWS = 250


def largest(contrasts: Floats, copies: Floats | None = None) -> Floats:
    """Return ln f(0) of each trial after its last block: the maximum of the process so far (contrasts: trials by blocks)."""
    return np.concatenate([paths.max(axis=1) for paths in _paths(contrasts, copies)])


def equivalent(
    contrasts: Floats, margin: float, alpha: float = ALPHA, *, copies: Floats | None = None
) -> Floats:
    """Return the block after which each side's bets have excluded every effect beyond the margin, infinite if never.

    Tested at the margin itself, which is excluded last.
    """
    threshold = math.log(1 / alpha)
    above = _paths(contrasts - margin, copies, aim=margin, side=Side.SMALLER)
    below = _paths(contrasts + margin, copies, aim=margin, side=Side.LARGER)
    found = []
    for one, other in zip(above, below, strict=True):
        out = (np.maximum.accumulate(one, axis=1) >= threshold) & (
            np.maximum.accumulate(other, axis=1) >= threshold
        )
        found.append(np.where(out.any(axis=1), out.argmax(axis=1) + 1.0, np.inf))
    return np.concatenate(found)


def first_beyond(
    contrasts: Floats, candidate: float, aim: float, alpha: float = ALPHA, *, copies: Floats | None = None
) -> Floats:
    """Return the block after which a candidate is first excluded by the bets of both sides, infinite if never."""
    found = []
    for paths in _paths(contrasts - candidate, copies, aim=aim):
        out = paths >= math.log(1 / alpha)
        found.append(np.where(out.any(axis=1), out.argmax(axis=1) + 1.0, np.inf))
    return np.concatenate(found)


def _paths(
    contrasts: Floats, copies: Floats | None, *, aim: float | None = None, side: Side = Side.BOTH
) -> Iterator[Floats]:
    aim = MARGIN * float(contrasts.std()) if aim is None else aim
    for part in np.array_split(np.arange(len(contrasts)), -(-len(contrasts) // _ROWS)):
        own = None if copies is None else copies[part]
        yield log_paths(contrasts[part], copies=own, aim=aim, side=side)


def alarms(contrasts: Floats, alpha: float = ALPHA, *, copies: Floats | None = None) -> int:
    """Count the trials in which 0 is excluded at a look after any block."""
    return int((largest(contrasts, copies) >= math.log(1 / alpha)).sum())


def first_exclusion(contrasts: Floats, alpha: float = ALPHA, *, copies: Floats | None = None) -> Floats:
    """Return the block after which 0 is first excluded, infinite if never."""
    return first_beyond(contrasts, 0.0, MARGIN * float(contrasts.std()), alpha, copies=copies)


def misses(contrasts: Floats, effect: float, alpha: float = ALPHA, *, copies: Floats | None = None) -> int:
    """Count the trials whose interval misses ``effect`` after the last block, and has therefore missed it for good."""
    missed, margin = 0, MARGIN * float(contrasts.std())
    for place, row in enumerate(contrasts):
        found = interval(row, alpha, margin=margin, copies=() if copies is None else copies[place])
        low = -math.inf if found.low is None else found.low
        high = math.inf if found.high is None else found.high
        missed += found.empty or not low <= effect <= high
    return missed
