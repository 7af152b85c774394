"""Blocks that the catalogue's packed trials need to a final verdict: by the former bets, and by the current ones.

    python benchmarks/truth/replay.py [--draws N] [--seed N] [FOLDER]

Each primary comparison by ratio is replayed: its blocks are drawn with replacement into a long series, whole, so that a
block keeps its copy of the reference; which of the two is called the copy is drawn, or a chance difference between them in
the recorded blocks would be an effect in the series. As in a trial, copies are in the first 24 blocks and then in every
second block.
Both methods look at the same series as a trial does. *Before*: bets on the sign of the contrast alone, six with equal
weights. *Now*: bets on which run of the block is the level's, with the weights of ``betting.mixture``. A comparison is
final once it is equivalent, its interval lies beyond the margin, or 0 is excluded and the interval is narrow enough; the
half-way point of the interval stands for the estimate. A trial takes the blocks of its slowest comparison, summed over
its conditions. The positive control is taken as seen. Comparisons without a copy (means over several arms, whole plots)
differ by their weights only. The table is in BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iotrial.report.opening import spec_of
from iotrial.stats.analyse import look_due
from iotrial.stats.betting import Blocks, Floats, Side, log_cosh, log_sum
from iotrial.stats.contrast import Responses, Runs
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.model import TYPICAL, Scale

CATALOGUE = Path(__file__).resolve().parents[2] / "docs" / "catalogue"
MOST = 3000
#: fewest blocks to draw from
FEWEST = 8
#: maximum of comparisons replayed per condition: a screen has thirty that hardly differ
PER_CONDITION = 6
FORMER_BETS = (0.15, 0.3, 0.6, 1.0, 1.6)
STAGES = (60, 240, 960, MOST)
POINTS = 161

#: ln M after every block of each candidate
Process = Callable[[Blocks, Floats, float, Side], Floats]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One comparison of a packed trial: the numbers of its blocks, and the parameters of its verdict."""

    condition: str
    alpha: float
    margin: float
    blocks: Blocks


def comparisons(packed: Path) -> Iterator[Replayed]:
    """Yield a packed trial's primary comparisons by ratio that have enough blocks to draw from, and no failures."""
    with open_packed(packed) as file, Store.in_memory() as store:
        trial = store.unpack(read_packed(file, packed.name), source=packed.name)
        data = store.data(trial.header.id)
    spec = spec_of(trial.header)
    for condition in spec.conditions:
        runs = Runs([block for block in data.blocks if block.condition == condition.key])
        found = 0
        for response in spec.responses_of(condition, primary=True):
            if response.scale is not Scale.LOG or response.statistic != TYPICAL:
                continue
            table = Responses(runs, response)
            for term in spec.terms:
                copy = spec.copy_of_reference(term, response)
                contrasts = table.contrasts(term.weights, whole=term.whole, copy=copy)
                usable = not contrasts.failures and not contrasts.unusable and len(contrasts.values) >= FEWEST
                if term.primary and usable and found < PER_CONDITION and np.ptp(contrasts.values) > 0.0:
                    found += 1
                    blocks = Blocks.of(contrasts.values, contrasts.copies)
                    yield Replayed(condition.key, spec.alpha_of(term, response), spec.margin, blocks)


def drawn(blocks: Blocks, rng: np.random.Generator) -> Blocks:
    """Return a series of ``MOST`` blocks, drawn with replacement: with a copy where a trial has one, without elsewhere."""
    at = np.arange(MOST)
    copied = (at < 24) | (at % 2 == 0)
    with_copy = np.flatnonzero(blocks.copied)
    if with_copy.size < FEWEST:
        places = rng.integers(blocks.size, size=MOST)
        return Blocks.of(blocks.contrasts[places])
    places = np.where(copied, rng.choice(with_copy, MOST), rng.integers(blocks.size, size=MOST))
    contrasts, copies = blocks.contrasts[places], np.where(copied, blocks.copies[places], math.nan)
    swapped = copied & (rng.random(MOST) < 0.5)
    return Blocks.of(np.where(swapped, contrasts - copies, contrasts), np.where(swapped, -copies, copies))


def former(blocks: Blocks, candidates: Floats, aim: float, side: Side) -> Floats:
    """Return ln M of the former bets: on the sign of D - d, with equal weights."""
    x = blocks.contrasts[None, :] - candidates[:, None]
    rms = np.sqrt(np.cumsum(x * x, axis=1) / np.arange(1, x.shape[1] + 1))
    rms[rms == 0.0] = np.inf
    logs = []
    for scale in (*FORMER_BETS, aim / rms):
        stake = scale * x / rms
        towards, against = np.cumsum(stake, axis=1), np.cumsum(log_cosh(stake), axis=1)
        logs += [sign * towards - against - math.log(6 * len(side.signs)) for sign in side.signs]
    return log_sum(np.stack(logs))


def current(blocks: Blocks, candidates: Floats, aim: float, side: Side) -> Floats:
    """Return ln M of the current bets."""
    return blocks.against(candidates, aim=aim, side=side)


def first(one: Replayed, series: Blocks, process: Process) -> int:
    """Return the look at which a series is first decided, MOST + 1 if never."""
    for stage in STAGES:
        final = decided(one, series.first(stage), process)
        last = 0
        for blocks in range(1, stage + 1):
            if look_due(blocks, last):
                last = blocks
                if final[blocks - 1]:
                    return blocks
    return MOST + 1


def decided(one: Replayed, series: Blocks, process: Process) -> np.ndarray:
    """Return whether the comparison is final after every block, to the step of a grid of candidates."""
    margin, threshold = math.log1p(one.margin), math.log(1.0 / one.alpha)
    centre, sd = float(np.median(series.contrasts)), float(series.contrasts.std())
    reach = max(6.0 * sd, 2.0 * margin)
    grid = np.union1d(np.linspace(centre - reach, centre + reach, POINTS), [-margin, 0.0, margin])

    def left(candidates: Floats, side: Side) -> np.ndarray:
        heights = process(series, candidates, margin, side)
        alive: np.ndarray = np.maximum.accumulate(heights, axis=1) < threshold
        return alive

    alive = left(grid, Side.BOTH)
    low, high = grid[alive.argmax(axis=0)], grid[grid.size - 1 - alive[::-1].argmax(axis=0)]
    bounded = ~alive[0] & ~alive[-1] & alive.any(axis=0)
    equivalent = ~left(np.array([margin]), Side.SMALLER)[0] & ~left(np.array([-margin]), Side.LARGER)[0]
    beyond = (low > margin) | (high < -margin)
    narrow = ((low > 0.0) | (high < 0.0)) & (
        (high - low) / 2.0 <= np.maximum(margin, np.abs(low + high) / 8.0)
    )
    found: np.ndarray = bounded & (equivalent | beyond | narrow)
    return found


def main() -> None:
    """Replay all packed trials and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="other packed trials than the catalogue's")
    parser.add_argument("--draws", type=int, default=1, help="series of each comparison")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(6), "big"))
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    trials: dict[str, list[float]] = {"trials": [], "trials with copies": []}
    single: dict[str, list[float]] = {"comparisons": [], "comparisons with copies": []}
    never = [0, 0]
    found = arguments.folder.glob("*.iotrial") if arguments.folder else CATALOGUE.glob("*/*.iotrial")
    for packed in sorted(found):
        replayed = list(comparisons(packed))
        copied = bool(replayed) and all(one.blocks.copied.sum() >= FEWEST for one in replayed)
        for _ in range(arguments.draws if replayed else 0):
            slowest: dict[str, tuple[int, int]] = {}
            for one in replayed:
                series = drawn(one.blocks, rng)
                took = first(one, series, former), first(one, series, current)
                never = [count + (blocks > MOST) for count, blocks in zip(never, took, strict=True)]
                single["comparisons"].append(took[1] / took[0])
                if series.copied.any():
                    single["comparisons with copies"].append(took[1] / took[0])
                known = slowest.get(one.condition, (0, 0))
                slowest[one.condition] = max(known[0], took[0]), max(known[1], took[1])
            before, now = (sum(took[side] for took in slowest.values()) for side in (0, 1))
            trials["trials"].append(now / before)
            if copied:
                trials["trials with copies"].append(now / before)
    print(f"seed {arguments.seed}; {arguments.draws} series of each comparison\n")
    print(
        "| blocks to a final verdict, now / before | 10 % | 25 % | median | 75 % | 90 % |\n"
        + "|"
        + " --- |" * 6
    )
    for name, ratios in (trials | single).items():
        if ratios:
            cells = " | ".join(f"{value:.2f}" for value in np.quantile(ratios, (0.1, 0.25, 0.5, 0.75, 0.9)))
            print(f"| {len(ratios)} {name} | {cells} |")
    print(f"\nNot final within {MOST} blocks: {never[0]} comparisons before, {never[1]} now.")


if __name__ == "__main__":
    main()
