"""Assignment of noise in time order to arms: by the project's own random order, and by two fixed orders."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iotrial.design.keyed import Stream
from simulated.noise import Floats, Rng

Ints = npt.NDArray[np.int64]


def drawn_orders(seed: str, trials: int, blocks: int, arms: int) -> Ints:
    """Return the slot of each arm in each block (trials by blocks by arms), from the plan's keyed generator."""
    out = np.empty((trials, blocks, arms), dtype=np.int64)
    for trial in range(trials):
        condition = f"trial={trial}"
        for block in range(blocks):
            out[trial, block, list(Stream(seed, "order", condition, block).permutation(arms))] = np.arange(
                arms
            )
    return out


def quick_orders(rng: Rng, trials: int, blocks: int, arms: int) -> Ints:
    """Return the same from numpy's generator, for millions of orders."""
    return rng.random((trials, blocks, arms)).argsort(axis=2)


def by_arm(noise: Floats, slots: Ints) -> Floats:
    """Return the noise of each arm (trials by blocks by arms): ``noise`` (trials by slots) cut into blocks and reordered."""
    trials, blocks, arms = slots.shape
    return np.take_along_axis(noise[:, : blocks * arms].reshape(trials, blocks, arms), slots, axis=2)


def alternating(noise: Floats) -> Floats:
    """Return D of two identical arms in the order ABABAB."""
    return noise[:, 1::2] - noise[:, 0::2]


def one_then_the_other(noise: Floats) -> Floats:
    """Return D of two identical arms, all of A and then all of B, run i paired with run i."""
    half = noise.shape[1] // 2
    return noise[:, half : 2 * half] - noise[:, :half]
