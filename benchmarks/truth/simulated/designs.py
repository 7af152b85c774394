"""Contrasts of several factors at once: factorial and screening designs in whole blocks, and whole plots."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.linalg import hadamard

from exact import rate
from simulated import order
from simulated.noise import NOISES, Floats, Noise, Rng
from simulated.process import alarms, largest


def full_factorial(factors: int) -> Floats:
    """Return rows by factors, -1 and +1, in standard order (the first factor changes fastest)."""
    rows: Floats = np.array(list(itertools.product((-1.0, 1.0), repeat=factors)))
    return rows[:, ::-1]


def screening(rows: int) -> Floats:
    """Return rows by rows - 1 factors: a Hadamard matrix without its column of ones (Plackett-Burman, for powers of 2)."""
    table: Floats = hadamard(rows).astype(float)
    return table[:, 1:]


def contrasts_of(column: np.ndarray, responses: Floats) -> Floats:
    """Return the mean over plus rows less that over minus rows (trials by blocks), from trials by blocks by rows."""
    upper: Floats = responses[:, :, column > 0].mean(axis=2)
    lower: Floats = responses[:, :, column < 0].mean(axis=2)
    return upper - lower


def in_blocks(rng: Rng, make: Noise, trials: int, blocks: int, effects: Floats, *, drawn: bool) -> Floats:
    """Return ln y, trials by blocks by rows: every row once per block, in random order or in the order of the table."""
    rows = effects.size
    noise = make(rng, trials, blocks * rows)
    if not drawn:
        return noise.reshape(trials, blocks, rows) + effects
    return order.by_arm(noise, order.quick_orders(rng, trials, blocks, rows)) + effects


def factorial(rng: Rng, scale: float) -> str:
    """Tabulate false alarms of a factor without effect among active ones, and coverage of an active one."""
    trials, blocks = max(50, int(500 * scale)), 100
    three = full_factorial(3)
    # the null factor is the first; the others have effects, and interact
    cube = 0.5 * three[:, 1] + 1.0 * three[:, 2] + 0.4 * three[:, 1] * three[:, 2]
    many = screening(16)
    weights = np.where(np.arange(15) % 3 == 0, 0.0, rng.normal(0, 0.7, 15))
    screen = many @ weights
    out = [
        f"**Factors at once: {trials} trials of {blocks} blocks, every row in each block** [95 % bounds]",
        "",
        "2^3: one factor of three is null, the two others act and interact. 16 rows: 15 factors, 5 of them null. "
        "*Missed*: the effect of an active factor excluded at .05; *any of 15*: one of all 15 intervals at .05/15 missed.",
        "",
        "| noise | 2^3, null factor | 2^3, active missed | 2^3, interaction missed | 16 rows, null factor | "
        "16 rows, any of 15 missed | 16 rows, null factor, rows in fixed order |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        y = in_blocks(rng, make, trials, blocks, cube, drawn=True)
        cells = [
            rate(alarms(contrasts_of(three[:, 0], y)), trials),
            rate(alarms(contrasts_of(three[:, 2], y) - 2.0), trials),
            rate(alarms(contrasts_of(three[:, 1] * three[:, 2], y) - 0.8), trials),
        ]
        y = in_blocks(rng, make, trials, blocks, screen, drawn=True)
        missed = np.zeros(trials, dtype=bool)
        for column, weight in zip(many.T, weights, strict=True):
            missed |= largest(contrasts_of(column, y) - 2 * weight) >= math.log(15 / 0.05)
        fixed = in_blocks(rng, make, trials, blocks, screen, drawn=False)
        cells += [
            rate(alarms(contrasts_of(many[:, 0], y)), trials),
            rate(int(missed.sum()), trials),
            rate(alarms(contrasts_of(many[:, 0], fixed)), trials),
        ]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def in_plots(rng: Rng, make: Noise, trials: int, blocks: int, inner: int, *, luck: float) -> Floats:
    """Return ln y without any effect: trials by blocks by whole-plot level by sub-block by sub-treatment (2 of each level).

    Each whole-plot level is one stretch of a block, in random order. All runs of a stretch share a random error (SD
    ``luck``, in SDs of the run noise).
    """
    noise = make(rng, trials, blocks * 2 * inner * 2)
    cut = noise.reshape(trials, blocks, 2, inner, 2) + luck * noise.std() * rng.normal(
        size=(trials, blocks, 2, 1, 1)
    )
    stretch = order.quick_orders(rng, trials, blocks, 2)[:, :, :, None, None]
    within = rng.random(cut.shape).argsort(axis=4)
    return np.take_along_axis(np.take_along_axis(cut, within, axis=4), stretch, axis=2)


def whole_plots(rng: Rng, scale: float) -> str:
    """Tabulate false alarms of a costly factor, with its repeats treated correctly and as blocks, and of a factor inside."""
    trials, blocks, inner = max(50, int(1000 * scale)), 40, 6
    out = [
        f"**Whole plots: false alarms at .05, {trials} trials of {blocks} blocks, {inner} sub-blocks in a stretch** "
        "[95 % bounds]",
        "",
        "| noise of the runs | whole-plot factor, one contrast a block | its sub-blocks taken for blocks | "
        "factor inside, one contrast a sub-block |",
        "| --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        y = in_plots(rng, make, trials, blocks, inner, luck=0.5)
        plots = y.mean(axis=4)
        apart = plots[:, :, 1] - plots[:, :, 0]
        inside = (y[..., 1] - y[..., 0]).mean(axis=2)
        cells = [
            rate(alarms(apart.mean(axis=2)), trials),
            rate(alarms(apart.reshape(trials, -1)), trials),
            rate(alarms(inside.reshape(trials, -1)), trials),
        ]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)
