"""Carry-over: how often the control fires in valid trials, and how soon when a run affects the next one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exact import rate
from iotrial.design.keyed import Stream, new_seed
from iotrial.stats.carryover import Unit, paths
from simulated.noise import NOISES, Floats, Rng
from simulated.process import largest

BLOCK_SD = 0.05
EFFECT = math.log(1.3)
SLOWED = math.log(1.06)
CARRY = math.log(1.1)
LEVEL = 0.001 / 2  # one level, inside blocks and across them
CONTROLS_FIRST = 24
ARMS = ("A", "B", "copy", "slowed")


def carry_over(rng: Rng, scale: float) -> str:
    """Simulate two arms and their controls as the plan draws them: in the first 24 blocks, then in every second."""
    trials, blocks = max(20, int(1000 * scale)), 100
    out = [
        f"**Carry-over control at .001: {trials} trials of {blocks} blocks of two arms and their controls, block SD 5 %** "
        "[95 % bounds]",
        "",
        "Sound: one arm 30 % slower, no carry-over. Planted: no effect, but the run after one of the arms takes 10 % longer.",
        "",
        "| noise | sound: fires | planted: fires | at block: median, 90 % | planted: arms told apart |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        noise = make(rng, trials, blocks * len(ARMS))
        # robust scale of a difference inside a block, for any tails
        noise *= BLOCK_SD / (1.4826 * float(np.median(np.abs(np.diff(noise, axis=1)))))
        seed = new_seed()
        orders = [_orders(seed, trial, blocks) for trial in range(trials)]
        sound = [_fires(_trial(row, order, EFFECT, 0.0)) for row, order in zip(noise, orders, strict=True)]
        units = [_trial(row, order, 0.0, CARRY) for row, order in zip(noise, orders, strict=True)]
        planted = np.array([_fires(one) for one in units])
        fired = np.isfinite(planted)
        told = int((largest(np.array([_contrasts(one) for one in units])) >= math.log(1 / 0.05)).sum())
        when = np.sort(planted)
        soon = f"{when[trials // 2]:.0f}, {when[9 * trials // 10]:.0f}"
        cells = [rate(int(np.isfinite(sound).sum()), trials, 4), rate(int(fired.sum()), trials)]
        out.append(f"| {name} | {' | '.join(cells)} | {soon} | {rate(told, trials)} |")
    return "\n".join(out)


def _orders(seed: str, trial: int, blocks: int) -> list[tuple[str, ...]]:
    """Return the order of each block, by the plan's own generator."""
    found = []
    for block in range(blocks):
        arms = ARMS if block < CONTROLS_FIRST or block % 2 == 0 else ARMS[:2]
        drawn = Stream(seed, "order", f"trial={trial}", block).permutation(len(arms))
        found.append(tuple(arms[i] for i in drawn))
    return found


def _trial(noise: Floats, orders: Sequence[tuple[str, ...]], effect: float, carry: float) -> list[Unit]:
    """Return the blocks of one trial: noise in time order, plus the effects of arms and predecessors."""
    own = {"A": 0.0, "B": effect, "copy": 0.0, "slowed": SLOWED}
    found, at, before = [], 0, ""
    for key, order in enumerate(orders):
        values = []
        for arm in order:
            values.append(float(noise[at]) + own[arm] + (carry if before == "B" else 0.0))
            at, before = at + 1, arm
        levels = tuple({"arm": "B" if arm == "B" else "A"} for arm in order)
        control = tuple(arm in ARMS[2:] for arm in order)
        found.append(Unit(key, order, levels, tuple(values), control))
    return found


def _fires(units: Sequence[Unit]) -> float:
    """Return the number of blocks after which one of the two processes reaches its level; infinite if none does."""
    found = math.inf
    for path in paths(units, [("arm", "B")]):
        above = np.flatnonzero(path.log_e >= math.log(1 / LEVEL))
        if above.size:
            found = min(found, path.keys[int(above[0])] + 1.0)
    return found


def _contrasts(units: Sequence[Unit]) -> list[float]:
    return [unit.values[unit.arms.index("B")] - unit.values[unit.arms.index("A")] for unit in units]
