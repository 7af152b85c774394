"""From noise in the order of time to the arms that ran in it: the project's own draw, and two orders that nobody drew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iotrial.design.keyed import Stream
from simulated.noise import Floats, Rng

Ints = npt.NDArray[np.int64]


def drawn_orders(seed: str, trials: int, blocks: int, arms: int) -> Ints:
    """The slot of each arm in each block (trials by blocks by arms), from the plan's keyed generator."""
    out = np.empty((trials, blocks, arms), dtype=np.int64)
    for trial in range(trials):
        condition = f"trial={trial}"
        for block in range(blocks):
            out[trial, block, list(Stream(seed, "order", condition, block).permutation(arms))] = np.arange(
                arms
            )
    return out


def quick_orders(rng: Rng, trials: int, blocks: int, arms: int) -> Ints:
    """The same from numpy's generator, where millions are needed."""
    return rng.random((trials, blocks, arms)).argsort(axis=2)


def by_arm(noise: Floats, slots: Ints) -> Floats:
    """What each arm met (trials by blocks by arms): ``noise`` (trials by slots) cut into blocks and put in order."""
    trials, blocks, arms = slots.shape
    return np.take_along_axis(noise[:, : blocks * arms].reshape(trials, blocks, arms), slots, axis=2)


def alternating(noise: Floats) -> Floats:
    """D of two identical arms in the order ABABAB."""
    return noise[:, 1::2] - noise[:, 0::2]


def one_then_the_other(noise: Floats) -> Floats:
    """D of two identical arms, all of A and then all of B, run i with run i."""
    half = noise.shape[1] // 2
    return noise[:, half : 2 * half] - noise[:, :half]
