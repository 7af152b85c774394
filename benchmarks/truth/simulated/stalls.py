"""Rare slow runs, and effects that are no constant factor: the wording where the ratio of typical runs hides them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from exact import rate
from iotrial.stats.beyond_typical import FEWEST, mean_bounds, mean_ratio, which_slow
from iotrial.stats.contrast import Contrasts, PairedRuns
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Verdict
from iotrial.stats.run_statistics import means, statistic_interval
from iotrial.stats.verdict import judge
from iotrial.study.model import Better, Response, Scale
from simulated.noise import Floats, Rng, correlated, drifting

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
MARGIN, SDS, BLOCKS, ALPHA = 0.03, (0.03, 0.10), 1000, 0.05
LOOKS = sorted({round(12 * 1.15**step) for step in range(33)} & set(range(BLOCKS + 1)))
Arms = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Stalls:
    """Runs of each arm that take ``times`` as long; ``burst`` is the mean number of runs in a row, of either arm."""

    level: float
    reference: float
    times: float
    burst: float = 1.0

    def arms(self, rng: Rng, blocks: int, sd: float) -> Arms:
        """Return ln of the run times of level and reference, in random order in each block."""
        slots = rng.random((blocks, 2)).argsort(axis=1)
        chance = np.array([self.level, self.reference])
        stalled = rng.random((blocks, 2)) < chance
        if self.burst > 1.0:
            in_time = _bursts(rng, 2 * blocks, self.level, self.burst).reshape(blocks, 2)
            stalled = np.take_along_axis(in_time, slots, axis=1)
        runs = rng.normal(0.0, sd / math.sqrt(2.0), (blocks, 2)) + math.log(self.times) * stalled
        return runs[:, 0], runs[:, 1]

    @property
    def difference(self) -> float:
        """Return the true difference in the share of slow runs."""
        return self.level - self.reference


#: trials by the kind of stalls in them
STALLS = {
    "no stalls": Stalls(0.0, 0.0, 10.0),
    "2 % of all runs tenfold": Stalls(0.02, 0.02, 10.0),
    "5 % of all runs tenfold, 10 in a row": Stalls(0.05, 0.05, 10.0, burst=10.0),
    "1 % of the level's runs tenfold": Stalls(0.01, 0.0, 10.0),
    "5 % of the level's runs doubled": Stalls(0.05, 0.0, 2.0),
    "5 % of the level's runs tenfold": Stalls(0.05, 0.0, 10.0),
    "5 % at the level, 1 % at the reference, tenfold": Stalls(0.05, 0.01, 10.0),
}


def slow_runs_table(rng: Rng, scale: float) -> str:
    """Tabulate what trials with equally fast arms conclude about stalls when they stop, and which bounds ever miss."""
    trials = max(40, int(300 * scale))
    out = [
        f"**Equally fast typical runs, margin {MARGIN:.0%}, alpha {ALPHA}: {trials} trials of at "
        f"most {BLOCKS} blocks** [95 % bounds]",
        "",
        "Median blocks until the verdict is final, and that verdict; the last two columns are over all looks.",
        "",
        "| block SD | runs that stall | blocks | typical runs equivalent, no slow runs found | more slow runs found "
        f"| found in {BLOCKS} blocks | bounds ever miss |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for sd, (name, stalls) in itertools.product(SDS, STALLS.items()):
        found = [_trial(*stalls.arms(rng, BLOCKS, sd), stalls.difference) for _ in range(trials)]
        plain = sum(one.inside and not one.found for one in found)
        shown = sum(one.found for one in found)
        out.append(
            f"| {sd:.0%} | {name} | {np.median([one.blocks for one in found]):.0f} | {plain / trials:.3f} | "
            f"{shown / trials:.3f} | {sum(one.ever for one in found) / trials:.3f} | "
            f"{rate(sum(one.missed for one in found), trials)} |"
        )
    return "\n".join(out)


_SLOWER = (1.0, 1.4)
_ALIKE: dict[str, Callable[[Rng, int], Floats]] = {
    "normal, 10 %": lambda rng, n: rng.normal(0.0, 0.1, n),
    "normal, 30 %": lambda rng, n: rng.normal(0.0, 0.3, n),
    "log-normal, .6": lambda rng, n: rng.normal(0.0, 0.6, n),
    "exponential + .2": lambda rng, n: np.log(0.2 + rng.exponential(size=n)),
    "10 % of runs tripled": lambda rng, n: rng.normal(0.0, 0.07, n) + math.log(3.0) * (rng.random(n) < 0.1),
    "half of the runs doubled": lambda rng, n: (
        rng.normal(0.0, 0.07, n) + math.log(2.0) * (rng.random(n) < 0.5)
    ),
    "40 % of runs doubled": lambda rng, n: rng.normal(0.0, 0.07, n) + math.log(2.0) * (rng.random(n) < 0.4),
}


def slow_run_alarms(rng: Rng, scale: float) -> str:
    """Tabulate how often more slow runs are found although the arms differ by a factor alone."""
    trials, blocks, looks = max(40, int(400 * scale)), 200, (20, 30, 45, 70, 100, 150, 200)
    out = [
        f"**More or fewer slow runs found at any of {len(looks)} looks, arms that differ by a factor alone: {trials} trials "
        f"of {blocks} blocks, alpha {ALPHA}** [95 % bounds]",
        "",
        "| runs of both arms | " + " | ".join(f"B x {factor:g}" for factor in _SLOWER) + " |",
        "| --- |" + " --- |" * len(_SLOWER),
    ]
    for name, draw in _ALIKE.items():
        cells = []
        for factor in _SLOWER:
            found = 0
            for _ in range(trials):
                pairs = PairedRuns(
                    (draw(rng, blocks) + math.log(factor))[:, None], draw(rng, blocks)[:, None]
                )
                flags = which_slow(pairs, TIME)
                assert flags is not None
                z = flags[0][:, 0].astype(float) - flags[1][:, 0]
                ends = [mean_bounds(z[: n - FEWEST], ALPHA) for n in looks]
                found += any(low > 0.0 or high < 0.0 for low, high in ends)
            cells.append(rate(found, trials))
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class _Said:
    """Result of one trial: where it stopped, and over all its looks."""

    inside: bool
    found: bool
    blocks: int
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
        ever=any(low > 0.0 or high < 0.0 for low, high in looks.values()),
        missed=not all(low <= truth <= high for low, high in looks.values()),
    )


def _bursts(rng: Rng, slots: int, share: float, length: float) -> np.ndarray:
    """Return a two-state Markov chain in time order: ``share`` of the runs stall, on average ``length`` in a row."""
    begins, ends = share / (1.0 - share) / length, 1.0 / length
    out = np.empty(slots, dtype=bool)
    state = rng.random() < share
    for slot in range(slots):
        out[slot] = state
        state = rng.random() >= ends if state else rng.random() < begins
    return out


# run times before anything is added, with their mean
_SKEWED: dict[str, tuple[Callable[[Rng, int], Floats], float]] = {
    "exponential + .05": (lambda rng, n: 0.05 + rng.exponential(size=n), 1.05),
    "exponential + .2": (lambda rng, n: 0.2 + rng.exponential(size=n), 1.2),
    "log-normal, .8": (lambda rng, n: np.exp(rng.normal(0, 0.8, n)), math.exp(0.32)),
    "log-normal, .5": (lambda rng, n: np.exp(rng.normal(0, 0.5, n)), math.exp(0.125)),
}


def _alone(draw: Callable[[Rng, int], Floats], mean: float, added: float) -> Callable[[Rng, int], Arms]:
    return lambda rng, n: (np.log(draw(rng, n) + added * mean), np.log(draw(rng, n)))


def _shared(sd: float, added: float) -> Callable[[Rng, int], Arms]:
    """Return log-normal times that the runs of a block share, with 10 % noise per run."""

    def arms(rng: Rng, n: int) -> Arms:
        block = np.exp(rng.normal(0, sd, n))
        level = block * np.exp(rng.normal(0, 0.1, n)) + added * math.exp(sd**2 / 2 + 0.005)
        return np.log(level), np.log(block) + rng.normal(0, 0.1, n)

    return arms


def _factor(draw: Callable[[Rng, int], Floats]) -> Callable[[Rng, int], Arms]:
    return lambda rng, n: (math.log(1.3) + np.log(draw(rng, n)), np.log(draw(rng, n)))


def symmetric() -> dict[str, Callable[[Rng, int], Arms]]:
    """Return arms that differ only by a factor of 1.3: the ratio of means is that of typical runs."""
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
    """Tabulate how often the interval misses the ratio of mean times, and how often the report says that they differ."""
    trials = max(40, int(400 * scale))
    kinds = {f"+30 % added, {name}": _alone(draw, mean, 0.3) for name, (draw, mean) in _SKEWED.items()}
    kinds["+30 % added, log-normal, .6, shared by a block"] = _shared(0.6, 0.3)
    kinds |= symmetric()
    sizes = (30, 100, 300)
    out = [
        f"**The ratio of mean times is 1.3, the margin 3 %: the interval at .05 misses it, the report points to the mean, "
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
                ends = interval(d, ALPHA)
                found = mean_ratio(pairs, Contrasts(tuple(d.tolist()), 0), TIME, ends, MARGIN)
                low = -math.inf if ends.low is None else ends.low
                high = math.inf if ends.high is None else ends.high
                misses = ends.empty or not low <= math.log(1.3) <= high
                points = found is not None and found.differs
                missed, pointed, both = missed + misses, pointed + points, both + (misses and points)
            among = f"{both / missed:.2f}" if missed else "–"
            cells.append(f"{missed / trials:.2f} / {pointed / trials:.3f} / {among}")
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


# ratios of means and of quantiles, with their true values

STATISTICS = ("mean", "p90", "p99")
STATISTIC_LOOKS = (20, 40, 70, 120, 200, 350, 600, 1000)
_CAP = 10.0
_MANY = 400_000


def _stalling(rng: Rng, n: int) -> Arms:
    """Return noise of 7 % per run, where 1 % of the level's runs take ten times as long."""
    runs = rng.normal(0.0, 0.07, (2, n))
    return runs[0] + math.log(10.0) * (rng.random(n) < 0.01), runs[1]


def _in_bursts(rng: Rng, n: int) -> Arms:
    """Return a factor of 1.1 on the same noise; the machine stalls fivefold for 10 runs in a row, 5 % of the time."""
    slots = rng.random((n, 2)).argsort(axis=1)
    stalled = np.take_along_axis(_bursts(rng, 2 * n, 0.05, 10.0).reshape(n, 2), slots, axis=1)
    runs = rng.normal(0.0, 0.07, (n, 2)) + math.log(5.0) * stalled
    return math.log(1.1) + runs[:, 0], runs[:, 1]


def _in_time(noise: Callable[[Rng, int], Floats]) -> Callable[[Rng, int], Arms]:
    """Return a factor of 1.1 on noise in time order, in units of .2 of the logarithm."""

    def arms(rng: Rng, n: int) -> Arms:
        slots = rng.random((n, 2)).argsort(axis=1)
        runs = 0.2 * np.take_along_axis(noise(rng, 2 * n).reshape(n, 2), slots, axis=1)
        return math.log(1.1) + runs[:, 0], runs[:, 1]

    return arms


#: arms, and their ratio if it is one constant factor; None: computed from a large sample
_STATISTIC_CASES: dict[str, tuple[Callable[[Rng, int], Arms], float | None]] = {
    "log-normal, .8, times 1.3": (_factor(_SKEWED["log-normal, .8"][0]), 1.3),
    "log-normal, .8, + 30 %": (_alone(*_SKEWED["log-normal, .8"], 0.3), None),
    "exponential + .05, + 30 %": (_alone(*_SKEWED["exponential + .05"], 0.3), None),
    "noise of 7 %, 1 % of the level's runs tenfold": (_stalling, None),
    "both stall fivefold, 10 runs in a row, times 1.1": (_in_bursts, 1.1),
    "autocorrelated (.9), times 1.1": (_in_time(lambda rng, n: correlated(rng, 1, n, 0.9)[0]), 1.1),
    "drifting, times 1.1": (_in_time(lambda rng, n: drifting(rng, 1, n)[0]), 1.1),
}


def statistics_table(rng: Rng, scale: float) -> str:
    """Tabulate how often the intervals of means and quantiles miss, and how wide they are."""
    trials = max(40, int(300 * scale))
    out = [
        f"**Ratios of means (capped at ten times the typical time) and of quantiles, alpha {ALPHA}: {trials} trials of "
        f"{BLOCKS} blocks, {len(STATISTIC_LOOKS)} looks** [95 % bounds]",
        "",
        f"Each cell: the interval ever misses the true ratio; median of its ends after {BLOCKS} blocks (… none yet).",
        "",
        "| run times | " + " | ".join(STATISTICS) + " |",
        "| --- |" + " --- |" * len(STATISTICS),
    ]
    for name, (draw, factor) in _STATISTIC_CASES.items():
        arms = [draw(rng, BLOCKS) for _ in range(trials)]
        cells = []
        for statistic in STATISTICS:
            response = replace(TIME, statistic=statistic, cap=_CAP)
            truth = math.log(factor) if factor is not None else _true_ratio(statistic, *draw(rng, _MANY))
            missed, lows, highs = 0, [], []
            for level, reference in arms:
                ends = []
                for n in STATISTIC_LOOKS:
                    found = statistic_interval(
                        PairedRuns(level[:n, None], reference[:n, None]), response, ALPHA
                    )
                    low = -math.inf if found.low is None else found.low
                    high = math.inf if found.high is None else found.high
                    ends.append((low, high))
                missed += not all(low <= truth <= high for low, high in ends)
                lows.append(ends[-1][0])
                highs.append(ends[-1][1])
            cells.append(f"{math.exp(truth):.3f}: {rate(missed, trials)}; {_end(lows)} to {_end(highs)}")
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


#: share of the level's runs that are slow, and how many times as long these take
_CAPPED = (
    (0.0, 1.0),
    (0.001, 5.0),
    (0.001, 20.0),
    (0.001, 60.0),
    (0.001, 200.0),
    (0.01, 20.0),
    (0.01, 200.0),
)
_CAPPED_BLOCKS, _CAPPED_SD = 6000, 0.05


def capped_means_table(rng: Rng, scale: float) -> str:
    """Tabulate how often means are called "equivalent with runs capped" where a few of the level's runs are very slow."""
    trials = max(25, int(200 * scale))
    out = [
        f"**Comparing means, capped at ten times the typical time: {trials} trials of at most {_CAPPED_BLOCKS:,} blocks, "
        f"SD {100 * _CAPPED_SD:g} %, margin 3 %** [95 % bounds]",
        "",
        "| slow runs of the level | ratio of means | of capped means | equivalent with runs capped | slower | "
        "at block: median |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    response = replace(TIME, statistic="mean", cap=_CAP)
    looks = [n for n in (round(100 * 1.2**step) for step in range(30)) if n <= _CAPPED_BLOCKS]
    for share, times in _CAPPED:
        said, when = [], []
        for _ in range(trials):
            level, reference = Stalls(share, 0.0, times).arms(rng, _CAPPED_BLOCKS, _CAPPED_SD)
            for n in looks:
                pairs = PairedRuns(level[:n, None], reference[:n, None])
                found = statistic_interval(pairs, response, ALPHA)
                word = judge(
                    found, response, margin=MARGIN, means=means(pairs, ALPHA, cap=_CAP, margin=MARGIN)
                ).verdict
                if word is not Verdict.INCONCLUSIVE:
                    when.append(n)
                    break
            said.append(word)
        cells = [
            rate(sum(one is word for one in said), trials) for word in (Verdict.EQUIVALENT, Verdict.SLOWER)
        ]
        cells.append(f"{np.median(when):,.0f}" if when else "…")
        slow = f"{100 * share:g} %, times {times:g}" if share else "none"
        ratios = [f"{1.0 + share * (most - 1.0):.3f}" for most in (times, min(times, _CAP))]
        out.append(f"| {slow} | {' | '.join([*ratios, *cells])} |")
    return "\n".join(out)


def _true_ratio(statistic: str, level: Floats, reference: Floats) -> float:
    """Return ln of the ratio in a large sample."""
    if statistic != "mean":
        share = float(statistic[1:]) / 100.0
        return float(np.quantile(level, share) - np.quantile(reference, share))
    cap = max(float(np.median(level)), float(np.median(reference))) + math.log(_CAP)
    means = [np.exp(np.minimum(one, cap)).mean() for one in (level, reference)]
    return math.log(means[0] / means[1])


def _end(ends: list[float]) -> str:
    middle = float(np.median(ends))
    return f"{math.exp(middle):.2f}" if math.isfinite(middle) else "…"
