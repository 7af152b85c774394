"""Rare slow runs, and effects that are no constant factor: what is said where the ratio of typical runs does not show
them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exact import rate
from iotrial.analysis.beyond_typical import FEWEST, mean_bounds, mean_ratio, which_slow
from iotrial.analysis.contrast import Contrasts, PairedRuns
from iotrial.analysis.eprocess import interval
from iotrial.analysis.verdict import judge
from iotrial.study.model import Better, Response, Scale
from simulated.noise import Floats, Rng

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
MARGIN, SD, BLOCKS, ALPHA = 0.03, 0.10, 1000, 0.05
LOOKS = sorted({round(20 * 1.15**step) for step in range(29)} & set(range(BLOCKS + 1)))
Arms = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class _Stalls:
    """Runs of each arm that take ``times`` as long; ``burst`` is the mean number of runs in a row, of either arm."""

    level: float
    reference: float
    times: float
    burst: float = 1.0

    def arms(self, rng: Rng, blocks: int) -> Arms:
        """ln of the run times of level and reference, in an order drawn in each block."""
        slots = rng.random((blocks, 2)).argsort(axis=1)
        chance = np.array([self.level, self.reference])
        stalled = rng.random((blocks, 2)) < chance
        if self.burst > 1.0:
            in_time = _bursts(rng, 2 * blocks, self.level, self.burst).reshape(blocks, 2)
            stalled = np.take_along_axis(in_time, slots, axis=1)
        runs = rng.normal(0.0, SD / math.sqrt(2.0), (blocks, 2)) + math.log(self.times) * stalled
        return runs[:, 0], runs[:, 1]

    @property
    def difference(self) -> float:
        """The true difference in the share of slow runs."""
        return self.level - self.reference


STALLS = {
    "no stalls": _Stalls(0.0, 0.0, 10.0),
    "2 % of all runs tenfold": _Stalls(0.02, 0.02, 10.0),
    "5 % of all runs tenfold, 10 in a row": _Stalls(0.05, 0.05, 10.0, burst=10.0),
    "1 % of the level's runs tenfold": _Stalls(0.01, 0.0, 10.0),
    "5 % of the level's runs doubled": _Stalls(0.05, 0.0, 2.0),
    "5 % of the level's runs tenfold": _Stalls(0.05, 0.0, 10.0),
    "5 % at the level, 1 % at the reference, tenfold": _Stalls(0.05, 0.01, 10.0),
}


def slow_runs_table(rng: Rng, scale: float) -> str:
    """What trials of equally fast arms say of stalls where they stop, and which bounds ever miss."""
    trials = max(40, int(300 * scale))
    out = [
        f"**Equally fast typical runs, margin {MARGIN:.0%}, block SD {SD:.0%}, alpha {ALPHA}: {trials} trials of at "
        f"most {BLOCKS} blocks** [95 % bounds]",
        "",
        "The first columns are of the block at which the verdict is final, the last two of every look up to the last block.",
        "",
        "| runs that stall | inside the margin | plainly equivalent | more slow runs found | blocks | at most more slow | "
        f"found in {BLOCKS} blocks | bounds ever miss |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, stalls in STALLS.items():
        found = [_trial(*stalls.arms(rng, BLOCKS), stalls.difference) for _ in range(trials)]
        inside = sum(one.inside for one in found)
        plain = sum(one.inside and not one.found for one in found)
        out.append(
            f"| {name} | {inside / trials:.3f} | {plain / trials:.3f} | {rate(sum(one.found for one in found), trials)} | "
            f"{np.median([one.blocks for one in found]):.0f} | {np.median([one.high for one in found]):.1%} | "
            f"{rate(sum(one.ever for one in found), trials)} | {rate(sum(one.missed for one in found), trials)} |"
        )
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class _Said:
    """Of one trial: where it stopped, and over all its looks."""

    inside: bool
    found: bool
    blocks: int
    high: float
    ever: bool
    missed: bool


def _trial(level: Floats, reference: Floats, truth: float) -> _Said:
    stop = BLOCKS
    inside = False
    for blocks in LOOKS:
        judged = judge(interval(level[:blocks] - reference[:blocks], ALPHA), TIME, margin=MARGIN)
        if judged.decided:
            stop, inside = blocks, judged.verdict == "equivalent"
            break
    flags = which_slow(PairedRuns(level[:, None], reference[:, None]), TIME)
    assert flags is not None
    z = flags[0][:, 0].astype(float) - flags[1][:, 0]
    looks = {blocks: mean_bounds(z[: blocks - FEWEST], ALPHA) for blocks in LOOKS}
    low, high = looks[max(blocks for blocks in LOOKS if blocks <= stop)]
    return _Said(
        inside=inside,
        found=low > 0.0 or high < 0.0,
        blocks=stop,
        high=high,
        ever=any(low > 0.0 or high < 0.0 for low, high in looks.values()),
        missed=not all(low <= truth <= high for low, high in looks.values()),
    )


def _bursts(rng: Rng, slots: int, share: float, length: float) -> np.ndarray:
    """Runs in the order of time of which a share stalls, ``length`` in a row on average: a two-state Markov chain."""
    begins, ends = share / (1.0 - share) / length, 1.0 / length
    out = np.empty(slots, dtype=bool)
    state = rng.random() < share
    for slot in range(slots):
        out[slot] = state
        state = rng.random() >= ends if state else rng.random() < begins
    return out


# times of a run before anything is added, with their mean
_SKEWED: dict[str, tuple[Callable[[Rng, int], Floats], float]] = {
    "exponential + .05": (lambda rng, n: 0.05 + rng.exponential(size=n), 1.05),
    "exponential + .2": (lambda rng, n: 0.2 + rng.exponential(size=n), 1.2),
    "log-normal, .8": (lambda rng, n: np.exp(rng.normal(0, 0.8, n)), math.exp(0.32)),
    "log-normal, .5": (lambda rng, n: np.exp(rng.normal(0, 0.5, n)), math.exp(0.125)),
}


def _alone(draw: Callable[[Rng, int], Floats], mean: float, added: float) -> Callable[[Rng, int], Arms]:
    return lambda rng, n: (np.log(draw(rng, n) + added * mean), np.log(draw(rng, n)))


def _shared(sd: float, added: float) -> Callable[[Rng, int], Arms]:
    """Log-normal times that the runs of a block share, with noise of 10 % of their own."""

    def arms(rng: Rng, n: int) -> Arms:
        block = np.exp(rng.normal(0, sd, n))
        level = block * np.exp(rng.normal(0, 0.1, n)) + added * math.exp(sd**2 / 2 + 0.005)
        return np.log(level), np.log(block) + rng.normal(0, 0.1, n)

    return arms


def _factor(draw: Callable[[Rng, int], Floats]) -> Callable[[Rng, int], Arms]:
    return lambda rng, n: (math.log(1.3) + np.log(draw(rng, n)), np.log(draw(rng, n)))


def _symmetric() -> dict[str, Callable[[Rng, int], Arms]]:
    return {
        "+30 % as a factor, normal, 10 %": _factor(lambda rng, n: np.exp(rng.normal(0, 0.1, n))),
        "+30 % as a factor, heavy-tailed (t, 3 df)": _factor(
            lambda rng, n: np.exp(0.1 * rng.standard_t(3, n))
        ),
        "+30 % as a factor, log-normal, .8": _factor(_SKEWED["log-normal, .8"][0]),
        "+30 % as a factor, exponential + .05": _factor(_SKEWED["exponential + .05"][0]),
        "+30 % as a factor, 1 run in 20 stalls": _factor(
            lambda rng, n: (
                np.exp(rng.normal(0, 0.1, n)) * np.where(rng.random(n) < 0.05, rng.uniform(2, 20, n), 1.0)
            )
        ),
    }


def mean_ratio_table(rng: Rng, scale: float) -> str:
    """How often the interval of the ratio misses the ratio of mean times, and how often the report says that they differ."""
    trials = max(40, int(400 * scale))
    kinds = {f"+30 % added, {name}": _alone(draw, mean, 0.3) for name, (draw, mean) in _SKEWED.items()}
    kinds["+30 % added, log-normal, .6, shared by a block"] = _shared(0.6, 0.3)
    kinds |= _symmetric()
    sizes = (30, 100, 300)
    out = [
        f"**The ratio of mean times is 1.3: how often the interval at .05 misses it, the report points to the mean, "
        f"{trials} trials**",
        "",
        "Each cell: interval misses / report points to the mean / the same among trials that miss.",
        "",
        "| effect and run times | " + " | ".join(f"{n} blocks" for n in sizes) + " |",
        "| --- |" + " --- |" * len(sizes),
    ]
    for name, draw in kinds.items():
        cells = []
        for blocks in sizes:
            missed = pointed = both = 0
            for _ in range(trials):
                level, reference = draw(rng, blocks)
                pairs = PairedRuns(level[:, None], reference[:, None])
                d = level - reference
                found = mean_ratio(pairs, Contrasts(tuple(d.tolist()), 0), TIME)
                ends = interval(d, ALPHA)
                low = -math.inf if ends.low is None else ends.low
                high = math.inf if ends.high is None else ends.high
                misses = ends.empty or not low <= math.log(1.3) <= high
                points = found is not None and found.differs
                missed, pointed, both = missed + misses, pointed + points, both + (misses and points)
            among = f"{both / missed:.2f}" if missed else "–"
            cells.append(f"{missed / trials:.2f} / {pointed / trials:.3f} / {among}")
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)
