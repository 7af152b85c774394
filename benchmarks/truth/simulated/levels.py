"""Changes of level in a series: how often one is marked where none is, and found where one is."""

from __future__ import annotations

import math

import numpy as np

from exact import rate
from iotrial.analysis.changes import changes
from simulated.noise import Floats, Rng

CORRELATIONS = (0.0, 0.4, 0.6, 0.8)
LENGTHS = (60, 100, 400)
STEP, STEP_LENGTH, STEP_CORRELATION, NEAR = 3.0, 120, 0.4, 2


def changes_of_level(rng: Rng, scale: float) -> str:
    """Series of normal values whose neighbours correlate, without a change and with one."""
    series = max(50, int(2000 * scale))
    out = [
        f"**Series marked though their level never changes: {series} series for each cell** [95 % bounds]",
        "",
        "| correlation of neighbours | " + " | ".join(f"{length} values" for length in LENGTHS) + " |",
        "| --- |" + " --- |" * len(LENGTHS),
    ]
    for correlation in CORRELATIONS:
        cells = [
            rate(sum(bool(changes(one)) for one in correlated(rng, series, length, correlation)), series)
            for length in LENGTHS
        ]
        out.append(f"| {correlation:.1f} | " + " | ".join(cells) + " |")
    found = near = 0
    for one in correlated(rng, series, STEP_LENGTH, STEP_CORRELATION):
        place = int(rng.integers(STEP_LENGTH // 4, 3 * STEP_LENGTH // 4))
        marked = changes(one + STEP * (np.arange(STEP_LENGTH) >= place))
        found += bool(marked)
        near += any(abs(change.place - place) <= NEAR for change in marked)
    out += [
        "",
        f"A step of {STEP:g} standard deviations in the middle half of {STEP_LENGTH} values whose neighbours correlate by "
        f"{STEP_CORRELATION:g}: marked in {rate(found, series)} of {series} series, within {NEAR} values of its place in "
        f"{rate(near, series)}.",
    ]
    return "\n".join(out)


def correlated(rng: Rng, trials: int, values: int, correlation: float) -> Floats:
    """Stationary normal series of standard deviation 1, of which neighbours correlate."""
    out: Floats = rng.normal(size=(trials, values))
    for i in range(1, values):
        out[:, i] = correlation * out[:, i - 1] + math.sqrt(1 - correlation**2) * out[:, i]
    return out
