"""Changes in time, of a level and of an effect: false alarms, and detection of real changes; the rule of steady state."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from exact import bounds, rate
from iotrial.stats.change_points import changes
from iotrial.stats.chunked import run
from iotrial.stats.confidence_set import hull
from iotrial.stats.eprocess import interval
from iotrial.stats.steady_state import steady_state
from simulated.noise import Floats, Rng, correlated, heavy_tailed, spiky

CORRELATIONS = (0.0, 0.4, 0.6, 0.8)
LENGTHS = (60, 100, 400)
END_BLOCKS, END_ALPHA = 120, 0.0125
STEP, STEP_LENGTH, STEP_CORRELATION, NEAR = 3.0, 120, 0.4, 2
DRIFTS, SCATTERS, RUNS = (0.0, 0.05, 0.1, 0.2, 0.4), (0.02, 0.05, 0.1, 0.2), (10, 30, 100)
ALIKE = 0.4  # correlation of neighbouring runs


def changes_of_level(rng: Rng, scale: float) -> str:
    """Mark changes in series of correlated normal values, without a change and with one."""
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
    """Tabulate intervals whose blocks contradict each other, for constant effects and one that changes half-way."""
    series = max(30, int(400 * scale))
    kinds: dict[str, Callable[[int], Floats]] = {
        "normal": lambda blocks: rng.normal(size=(series, blocks)),
        "heavy-tailed (t, 3 df)": lambda blocks: heavy_tailed(rng, series, blocks),
        "spiky (1 run in 20 stalls)": lambda blocks: spiky(rng, series, blocks) - spiky(rng, series, blocks),
        "neighbours correlate by .3": lambda blocks: correlated(rng, series, blocks, 0.3),
        "neighbours correlate by .6": lambda blocks: correlated(rng, series, blocks, 0.6),
        "normal, and the effect changes by 1 SD half-way": lambda blocks: (
            rng.normal(size=(series, blocks)) + 1.0 * (np.arange(blocks) >= blocks // 2)
        ),
        "normal, and the effect changes by 3 SD half-way": lambda blocks: (
            rng.normal(size=(series, blocks)) + 3.0 * (np.arange(blocks) >= blocks // 2)
        ),
    }
    out = [
        f"**Comparisons in which all blocks contradict the first ones: {series} of each of {END_BLOCKS} blocks, alpha "
        f"{END_ALPHA}** [95 % bounds]",
        "",
        "*Missed*: the effect, or its mean over the blocks where it changes, is outside the interval.",
        "",
        "| contrasts | leaning | missed by what no look excluded | missed by what is reported |",
        "| --- | --- | --- | --- |",
    ]
    for name, noise in kinds.items():
        contrasts = noise(END_BLOCKS)
        change = 3.0 if "3 SD" in name else 1.0 if "1 SD" in name else 0.0
        cells = [
            rate(count, series) for count in np.sum([_leaning(row, change / 2) for row in contrasts], axis=0)
        ]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def _leaning(contrasts: Floats, effect: float) -> tuple[bool, bool, bool]:
    """Return whether it leans, and whether the hull over all looks and the reported interval miss the effect."""
    found = interval(contrasts, END_ALPHA)
    (ever,) = run([hull(contrasts, math.log(1 / END_ALPHA))])
    by_looks = ever is None or not ever[0] <= effect <= ever[1]
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    return found.leaning, by_looks, found.empty or not low <= effect <= high


def steady_states(rng: Rng, scale: float) -> str:
    """Apply the rule of steady state to trials whose level drifts by a known amount, at several scatters of runs."""
    trials = max(50, int(4000 * scale))
    low, high = bounds(trials // 2, trials)
    names = [f"{scatter:.0%}".replace("%", " %") for scatter in SCATTERS]
    out = [
        f"**Trials called steady by the rule of the SNIA: {trials} for each cell** [95 % bounds: at most "
        f"{(high - low) / 2:.3f} either way]",
        "",
        "Rows: how many runs of the arm, and by how much their level rises over the trial in a straight line. Columns: the "
        f"coefficient of variation of single runs, normal; the last with neighbours that correlate by {ALIKE:g}.",
        "",
        f"| runs | drift | {' | '.join(names)} | {names[2]}, correlated |",
        "| --- | --- |" + " --- |" * (len(SCATTERS) + 1),
    ]
    for runs in RUNS:
        noises = [(scatter, rng.normal(size=(trials, runs))) for scatter in SCATTERS]
        noises.append((SCATTERS[2], correlated(rng, trials, runs, ALIKE)))
        for drift in DRIFTS:
            level = 1.0 + drift * np.linspace(0.0, 1.0, runs)
            cells = [f"{_steady(level * (1.0 + scatter * noise)):.3f}" for scatter, noise in noises]
            out.append(f"| {runs} | {drift:.0%}".replace("%", " %") + f" | {' | '.join(cells)} |")
    return "\n".join(out)


def _steady(trials: Floats) -> float:
    """Return the share of the trials that pass."""
    found = [steady_state(values) for values in trials]
    return float(np.mean([one is not None and one.steady for one in found]))
