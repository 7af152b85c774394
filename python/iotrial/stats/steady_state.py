"""Steady state, by the rule of the SNIA Solid State Storage Performance Test Specification (PTS 2.0.2, 2.1.24).

Over a measurement window of five rounds, the largest value less the smallest is at most 20 % of the average, and the
least-squares line through the values rises or falls by at most 10 % of the average from the first round to the last.

A test of the PTS goes on until its last five rounds pass. A trial ends for other reasons, and its verdict uses every block,
so here the window is the whole trial: a round is a fifth of the runs of one arm, in the order they ran, and its value is
their mean.

The rule knows nothing of noise. Single runs that scatter fail it without any drift, and a drift of 10 % passes it (how often:
docs/method-tables.md). It is printed with a trial and decides nothing, because a change of level is the same for all arms
of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.documents import Amount, Count

ROUNDS = 5
MOST_RANGE, MOST_SLOPE = 0.2, 0.1
#: two runs a round
FEWEST = 10


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Whether ``runs`` of one arm pass the rule. ``range`` and ``slope`` are shares of the average of the rounds; the slope
    is the rise of the line over the window, negative where it falls."""

    steady: bool
    runs: Count
    range: Amount
    slope: float


def steady_state(values: npt.NDArray[np.float64]) -> SteadyState | None:
    """Judge the times or rates of one arm, in the order they ran.

    None for fewer than ``FEWEST`` runs, and for values that are not finite or not positive.
    """
    if values.size < FEWEST or not np.isfinite(values).all() or values.min() <= 0.0:
        return None
    scaled = values / values.max()  # so that no sum overflows
    rounds = np.array([part.mean() for part in np.array_split(scaled, ROUNDS)])
    shares = rounds / rounds.mean()
    at = np.arange(ROUNDS) - (ROUNDS - 1) / 2
    spread = float(np.ptp(shares))
    rise = float((at * shares).sum() / (at**2).sum()) * (ROUNDS - 1)
    return SteadyState(spread <= MOST_RANGE and abs(rise) <= MOST_SLOPE, int(values.size), spread, rise)
