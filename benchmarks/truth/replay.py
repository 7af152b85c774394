"""Blocks that the catalogue's packed trials need to a final verdict: by the former rules, and by the current ones.

    python benchmarks/truth/replay.py [--draws N] [--seed N] [FOLDER]

Each primary comparison by ratio is replayed: the contrasts of its blocks are drawn with replacement into a long
series, and both methods look at the same series as a trial does. *Before*: the five bets alone, equivalence by the
two-sided interval, and continuing to a width of a quarter of the effect (as with ``--precise``). *Now*: with the bet
aimed at the margin, equivalence from one side each, and an end once the interval is beyond the margin. A trial takes
the blocks of its slowest comparison, summed over its conditions. The positive control is taken as seen. The table is
in BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iotrial.report.opening import spec_of
from iotrial.stats.analyse import look_due
from iotrial.stats.budget_bet import SHARE, Budget
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.eprocess import interval
from iotrial.stats.verdict import judge
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.model import TYPICAL, Response, Scale

CATALOGUE = Path(__file__).resolve().parents[2] / "docs" / "catalogue"
MOST = 3000
FEWEST = 8
#: maximum of comparisons replayed per condition: a screen has thirty that hardly differ
PER_CONDITION = 6


@dataclass(frozen=True, slots=True)
class Replayed:
    """One comparison of a packed trial: the contrasts of its blocks, and the parameters of its verdict."""

    condition: str
    response: Response
    alpha: float
    margin: float
    contrasts: np.ndarray


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
                contrasts = table.contrasts(term.weights, whole=term.whole)
                usable = not contrasts.failures and not contrasts.unusable and len(contrasts.values) >= FEWEST
                if term.primary and usable and found < PER_CONDITION and np.ptp(contrasts.values) > 0.0:
                    found += 1
                    alpha = spec.alpha_of(term, response)
                    yield Replayed(condition.key, response, alpha, spec.margin, np.array(contrasts.values))


def looks() -> list[int]:
    """Return the blocks after which a trial looks."""
    found, last = [], 0
    for blocks in range(1, MOST + 1):
        if look_due(blocks, last):
            last = blocks
            if blocks >= FEWEST:
                found.append(blocks)
    return found


def decided(one: Replayed, series: np.ndarray, *, before: bool, budget: Budget | None = None) -> bool:
    """Return whether the comparison is decided after these contrasts."""
    margin = 0.0 if before else math.log1p(one.margin)
    found = interval(series, one.alpha, margin=margin, budget=budget)
    return judge(found, one.response, margin=one.margin, precise=before).decided


def first(one: Replayed, series: np.ndarray, *, before: bool) -> int:
    """Return the look at which it is first decided, MOST + 1 if never. Searches in doubling steps, then by bisection."""
    all_looks = looks()
    low, high, step = 0, 0, 1
    while not decided(one, series[: all_looks[high]], before=before):
        if high == len(all_looks) - 1:
            return MOST + 1
        low, high, step = high + 1, min(high + step, len(all_looks) - 1), 2 * step
    while low < high:
        middle = (low + high) // 2
        if decided(one, series[: all_looks[middle]], before=before):
            high = middle
        else:
            low = middle + 1
    return all_looks[high]


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
    trials: list[float] = []
    single: list[float] = []
    within: list[tuple[bool, bool, bool]] = []
    found = arguments.folder.glob("*.iotrial") if arguments.folder else CATALOGUE.glob("*/*.iotrial")
    for packed in sorted(found):
        replayed = list(comparisons(packed))
        for _ in range(arguments.draws if replayed else 0):
            slowest: dict[str, tuple[int, int]] = {}
            for one in replayed:
                series = rng.choice(one.contrasts, MOST)
                took = first(one, series, before=True), first(one, series, before=False)
                single.append(took[1] / took[0])
                known = slowest.get(one.condition, (0, 0))
                slowest[one.condition] = max(known[0], took[0]), max(known[1], took[1])
                own = one.contrasts.size
                budget = Budget(SHARE, np.arange(own, 0, -1, dtype=np.float64))
                within.append(
                    (took[0] <= own, took[1] <= own, decided(one, series[:own], before=False, budget=budget))
                )
            before, now = (sum(took[side] for took in slowest.values()) for side in (0, 1))
            trials.append(now / before)
    print(
        f"seed {arguments.seed}; {arguments.draws} series of each of {len(single) // arguments.draws} comparisons\n"
    )
    print(
        "| blocks to a final verdict, now / before | 10 % | 25 % | median | 75 % | 90 % |\n"
        + "|"
        + " --- |" * 6
    )
    for name, ratios in (("trials", trials), ("comparisons", single)):
        cells = " | ".join(f"{value:.2f}" for value in np.quantile(ratios, (0.1, 0.25, 0.5, 0.75, 0.9)))
        print(f"| {len(ratios)} {name} | {cells} |")
    shares = np.mean(np.array(within), axis=0)
    print(
        f"\nDone within the blocks that the trial had: {shares[0]:.2f} before, {shares[1]:.2f} now, {shares[2]:.2f} at the "
        "end with the bet that knows the budget (taken as that many blocks)."
    )


if __name__ == "__main__":
    main()
