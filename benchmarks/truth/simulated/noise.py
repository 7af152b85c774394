"""Noise of single runs in time order: trials by slots, in units of about one standard deviation.

The truth suite's six kinds, and two more from docs/method-details.md. Each trial gets fresh noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Rng = np.random.Generator
Floats = npt.NDArray[np.float64]
Noise = Callable[[Rng, int, int], Floats]


def normal(rng: Rng, trials: int, slots: int) -> Floats:
    """Independent and normal."""
    return rng.normal(size=(trials, slots))


def heavy_tailed(rng: Rng, trials: int, slots: int) -> Floats:
    """Student's t with 3 degrees of freedom: runs of ten standard deviations happen."""
    return rng.standard_t(3, size=(trials, slots))


def spiky(rng: Rng, trials: int, slots: int) -> Floats:
    """Normal, and one run in twenty stalls for 5 to 50 standard deviations."""
    stalls = rng.random((trials, slots)) < 0.05
    return rng.normal(size=(trials, slots)) + stalls * rng.uniform(5, 50, size=(trials, slots))


def autocorrelated(rng: Rng, trials: int, slots: int) -> Floats:
    """Lag-1 autocorrelation .9 from run to run, stationary."""
    return correlated(rng, trials, slots, 0.9)


def correlated(rng: Rng, trials: int, slots: int, correlation: float) -> Floats:
    """Normal, stationary AR(1) with standard deviation 1."""
    out: Floats = rng.normal(size=(trials, slots))
    for i in range(1, slots):
        out[:, i] = correlation * out[:, i - 1] + math.sqrt(1 - correlation**2) * out[:, i]
    return out


def drifting(rng: Rng, trials: int, slots: int) -> Floats:
    """A random walk, a decaying warm-up, a step at a random time, and growing noise."""
    walk = np.cumsum(0.2 * rng.normal(size=(trials, slots)), axis=1)
    at = np.arange(slots)
    warm = 10.0 * np.exp(-at / 30.0)
    step = rng.normal(0, 5, size=(trials, 1)) * (at > rng.integers(0, slots, size=(trials, 1)))
    growth = np.linspace(0.5, 2.0, slots)
    out: Floats = walk + warm + step + growth * rng.normal(size=(trials, slots))
    return out


def periodic(rng: Rng, trials: int, slots: int) -> Floats:
    """Every second run disturbed, by an amount that changes slowly, and a wave with a period of 6 to 40 runs."""
    at = np.arange(slots)
    every_second = np.where(at % 2 == 0, 1.0, -1.0) * np.abs(autocorrelated(rng, trials, slots)) * 2
    period = rng.uniform(6, 40, size=(trials, 1))
    wave = 2 * np.sin(2 * math.pi * (at / period + rng.random((trials, 1))))
    out: Floats = every_second + wave + 0.5 * rng.normal(size=(trials, slots))
    return out


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy-tailed (t, 3 df)": heavy_tailed,
    "spiky (1 run in 20 stalls)": spiky,
    "autocorrelated (.9)": autocorrelated,
    "drifting": drifting,
    "periodic": periodic,
}
