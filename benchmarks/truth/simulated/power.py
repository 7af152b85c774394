"""Power and blocks to detection, compared with other common tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulated import group_sequential, others
from simulated.alarms import Design
from simulated.noise import NOISES, Floats, Rng
from simulated.process import first_exclusion

EFFECTS = (0.1, 0.3)
BLOCKS = 400
LOOKS = 10
Test = Callable[[Floats, Floats, Floats], Floats]


def tests() -> dict[str, Test]:
    """Return, by name, the block at which a test of the two arms (trials by blocks) rejects, infinite if never.

    The third argument is the copy less the reference, NaN in blocks without one.
    """
    return {
        "iotrial": lambda a, b, copies: first_exclusion(b - a, copies=copies),
        "iotrial without copies": lambda a, b, _: first_exclusion(b - a),
        "t, 10 looks, O'Brien-Fleming": lambda a, b, _: group_sequential.first_rejection(
            b - a, group_sequential.spending(LOOKS)
        ),
        "Welch once, 400": lambda a, b, _: np.where(others.welch_at(a, b, BLOCKS), float(BLOCKS), np.inf),
    }


def power(rng: Rng, scale: float) -> str:
    """Tabulate the share detected within 400 blocks, and the median number of blocks of those."""
    trials = max(50, int(500 * scale))
    design = Design(trials, BLOCKS)
    chosen = tests()
    out = [
        f"**Found within {BLOCKS} blocks, and median blocks until then: {trials} trials, alpha .05**",
        "",
        "Effects in block SDs. A test that looks once needs all its blocks.",
        "",
        f"| noise | effect | {' | '.join(chosen)} |",
        "| --- | --- |" + " --- |" * len(chosen),
    ]
    for name, make in NOISES.items():
        arms = design.arms(make(rng, trials, design.slots))
        unit = float(arms.contrasts.std())
        for effect in EFFECTS:
            cells = [
                _cell(test(arms.plain, arms.treated + effect * unit, arms.copies)) for test in chosen.values()
            ]
            out.append(f"| {name} | {effect:.1f} | {' | '.join(cells)} |")
    return "\n".join(out)


def _cell(stopped: Floats) -> str:
    found = np.isfinite(stopped)
    if not found.any():
        return "0.00"
    return f"{found.mean():.2f}, {np.median(stopped[found]):.0f}"
