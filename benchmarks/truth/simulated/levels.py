"""Changes in time: of a level, and of an effect. How often one is told where none is, and where one is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exact import rate
from iotrial.analysis.changes import changes
from iotrial.analysis.eprocess import interval
from iotrial.report.shifting import at_an_end
from simulated.noise import Floats, Rng, correlated, heavy_tailed, spiky

CORRELATIONS = (0.0, 0.4, 0.6, 0.8)
LENGTHS = (60, 100, 400)
END_BLOCKS, END_ALPHA = (12, 30, 120), 0.0125
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


def ends(rng: Rng, scale: float) -> str:
    """Estimates at an end of their interval, for effects that stay and for one that changes half-way."""
    series = max(30, int(400 * scale))
    kinds: dict[str, Callable[[int], Floats]] = {
        "normal": lambda blocks: rng.normal(size=(series, blocks)),
        "heavy-tailed (t, 3 df)": lambda blocks: heavy_tailed(rng, series, blocks),
        "spiky (1 run in 20 stalls)": lambda blocks: spiky(rng, series, blocks) - spiky(rng, series, blocks),
        "neighbours correlate by .6": lambda blocks: correlated(rng, series, blocks, 0.6),
        "normal, and the effect changes by 1 SD half-way": lambda blocks: (
            rng.normal(size=(series, blocks)) + 1.0 * (np.arange(blocks) >= blocks // 2)
        ),
        "normal, and the effect changes by 3 SD half-way": lambda blocks: (
            rng.normal(size=(series, blocks)) + 3.0 * (np.arange(blocks) >= blocks // 2)
        ),
    }
    out = [
        f"**Comparisons whose estimate is at an end of their interval: {series} of each, alpha {END_ALPHA}** [95 % bounds]",
        "",
        "| contrasts | " + " | ".join(f"{blocks} blocks" for blocks in END_BLOCKS) + " |",
        "| --- |" + " --- |" * len(END_BLOCKS),
    ]
    for name, noise in kinds.items():
        cells = [rate(sum(map(_at_an_end, noise(blocks))), series) for blocks in END_BLOCKS]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def _at_an_end(contrasts: Floats) -> bool:
    found = interval(contrasts, END_ALPHA)
    return at_an_end(found.estimate, found.low, found.high)
