"""A control beside its original, block by block: what is compared, and what else was different between the two runs.

The raw material of all reasons. A control and its original are the two sides of the control's contrast. Values are
on the scale that the response is compared on (natural logarithms for ratios).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iotrial.analysis.contrast import usable
from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.design.model import ArmKind
from iotrial.study.model import Response, Scale

Floats = npt.NDArray[np.float64]
RunKey = tuple[str, int, int]
# a run with its share of the mean, for each run
_Side = tuple[tuple[float, Observation], ...]

FEWEST = 10  # pairs, below which nothing is fitted
_OUTLYING = 6.0  # scaled absolute deviations from the median, where a pair is pulled in


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run besides its responses: counters, the ratio that the probe says it injected, its files."""

    evidence: Mapping[str, float] = field(default_factory=dict)
    injected: float | None = None
    files: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Arrays with one entry for each block that holds both, in time order. ``differences`` are control less original.

    ``slots``: slot of the control less that of the original. ``levels``: the median of the block's other runs, ``lows``
    the least of all its runs.
    ``before``: the arms that ran just before control and original. ``counters``: each counter, control less original, where
    all runs have it. ``control`` and ``original``: the values of each. ``missing``: runs of each that gave none.
    ``single``: each is one run, not the mean of several; ``columns``: both are treatments, halves of the rows of a design.
    """

    differences: Floats
    control: Floats
    original: Floats
    slots: Floats
    levels: Floats
    lows: Floats
    before: tuple[tuple[str, str], ...]
    counters: Mapping[str, Floats]
    injected: Floats | None
    files: tuple[tuple[RunFacts, RunFacts], ...]
    blocks: tuple[int, ...]
    missing: tuple[int, int]
    single: bool = True
    columns: bool = False

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self.differences)


@dataclass(frozen=True, slots=True)
class _Row:
    mine: _Side
    its: _Side
    control: float
    original: float
    level: float
    low: float
    index: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What is left of a mean deviation once a covariate is nil: ``share`` of it that the covariate accounts for, ``slope``
    and ``evidence`` (-log10 of the slope's p by the normal approximation)."""

    share: float
    slope: float
    evidence: float


def pair_up(
    blocks: Sequence[ObservedBlock],
    response: Response,
    weights: Mapping[str, float],
    facts: Mapping[RunKey, RunFacts],
) -> Pairs:
    """The pairs of one condition; ``blocks`` in time order, void ones and those that lack an arm are passed over.

    ``weights`` are the control's contrast, by name of the arm: one run against one, a stretch against a stretch, or half of
    the rows of a design against the other. Where a side has several runs, it is their mean that is compared.
    """
    rows: list[_Row] = []
    missing = [0, 0]
    before = _predecessors(blocks)
    for block in blocks:
        sides = _sides(block, weights)
        if sides is None or block.void is not None:
            continue
        values = {run.slot: usable(run, response) for run in block.observations}
        lost = [sum(values[run.slot] is None for _, run in side) for side in sides]
        missing = [total + more for total, more in zip(missing, lost, strict=True)]
        if any(lost):
            continue
        mine, its = (math.fsum(share * (values[run.slot] or 0.0) for share, run in side) for side in sides)
        compared = {run.slot for side in sides for _, run in side}
        known = [value for slot, value in values.items() if slot not in compared and value is not None]
        low = min(value for value in values.values() if value is not None)
        level = float(np.median(known or [(mine + its) / 2.0]))
        rows.append(_Row(sides[0], sides[1], mine, its, level, low, block.index))
    condition = blocks[0].condition if blocks else ""
    known_facts = tuple(
        (_known(row.mine, row, condition, facts), _known(row.its, row, condition, facts)) for row in rows
    )
    injected = [mine.injected for mine, _ in known_facts]
    return Pairs(
        differences=np.array([row.control - row.original for row in rows], dtype=np.float64),
        control=np.array([row.control for row in rows], dtype=np.float64),
        original=np.array([row.original for row in rows], dtype=np.float64),
        slots=np.array([_mean_slot(row.mine) - _mean_slot(row.its) for row in rows]),
        levels=np.array([row.level for row in rows], dtype=np.float64),
        lows=np.array([row.low for row in rows], dtype=np.float64),
        before=tuple((_before(row.mine, before), _before(row.its, before)) for row in rows),
        counters=_counters(rows, known_facts, response),
        injected=np.array(injected, dtype=np.float64) if rows and None not in injected else None,
        files=known_facts,
        blocks=tuple(row.index for row in rows),
        missing=(missing[0], missing[1]),
        single=all(len(row.mine) == len(row.its) == 1 for row in rows),
        columns=all(run.kind is ArmKind.TREATMENT for row in rows for _, run in row.mine),
    )


def _sides(block: ObservedBlock, weights: Mapping[str, float]) -> tuple[_Side, _Side] | None:
    """The runs of either side in this block with their shares, which sum to 1; None where an arm is not in it."""
    runs: dict[str, list[Observation]] = {}
    for run in block.observations:
        if weights.get(run.arm):
            runs.setdefault(run.arm, []).append(run)
    if not weights or any(weight and arm not in runs for arm, weight in weights.items()):
        return None
    found = []
    for sign in (1.0, -1.0):
        side = [
            (sign * weights[arm] / len(own), run)
            for arm, own in runs.items()
            if sign * weights[arm] > 0.0
            for run in own
        ]
        total = math.fsum(share for share, _ in side)
        if total <= 0.0:
            return None
        found.append(tuple((share / total, run) for share, run in side))
    return found[0], found[1]


def _known(side: _Side, row: _Row, condition: str, facts: Mapping[RunKey, RunFacts]) -> RunFacts:
    """The facts of a side's runs: of one as they are, of several their means (files have none)."""
    every = [(share, facts.get((condition, row.index, run.slot), RunFacts())) for share, run in side]
    if len(every) == 1:
        return every[0][1]
    names = set.intersection(*(set(one.evidence) for _, one in every))
    evidence = {name: math.fsum(share * one.evidence[name] for share, one in every) for name in names}
    ratios = [(share, one.injected) for share, one in every]
    logs = [share * math.log(ratio) for share, ratio in ratios if ratio is not None and ratio > 0.0]
    return RunFacts(evidence, math.exp(math.fsum(logs)) if len(logs) == len(every) else None)


def _mean_slot(side: _Side) -> float:
    return math.fsum(share * run.slot for share, run in side)


def _before(side: _Side, before: Mapping[int, str]) -> str:
    return before.get(id(side[0][1]), "") if len(side) == 1 else ""


def _predecessors(blocks: Sequence[ObservedBlock]) -> dict[int, str]:
    """By identity of the run, the arm before it in its block; the first of a block has none."""
    found: dict[int, str] = {}
    for block in blocks:
        runs = sorted(block.observations, key=lambda run: run.slot)
        for earlier, run in itertools.pairwise(runs):
            found[id(run)] = earlier.arm
    return found


def _counters(
    rows: Sequence[_Row],
    facts: Sequence[tuple[RunFacts, RunFacts]],
    response: Response,
) -> dict[str, Floats]:
    """Counters and other responses that all runs of every pair have, control less original."""
    both = [
        (
            {**_mean_responses(row.mine), **mine.evidence},
            {**_mean_responses(row.its), **its.evidence},
        )
        for row, (mine, its) in zip(rows, facts, strict=True)
    ]
    names = set.intersection(*(set(mine) & set(its) for mine, its in both)) if both else set()
    return {
        name: np.array([mine[name] - its[name] for mine, its in both])
        for name in sorted(names - {response.name})
    }


def _mean_responses(side: _Side) -> dict[str, float]:
    names = set.intersection(*(set(run.responses) for _, run in side))
    return {name: math.fsum(share * run.responses[name] for share, run in side) for name in names}


def calmed(values: Floats) -> Floats:
    """The values with those far out pulled in, so that single stalls do not make or hide a slope."""
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    reach = _OUTLYING * spread
    return np.clip(values, middle - reach, middle + reach) if spread > 0.0 else values


def fit(deviations: Floats, covariate: Floats, *, calm: bool = True) -> Fit | None:
    """Least squares of the deviations on a covariate that is nil where both runs had the same of it; None where it does
    not vary or there are too few. ``calm``: pairs far out are pulled in before."""
    if len(deviations) < FEWEST:
        return None
    values = calmed(deviations) if calm else deviations
    mean = float(values.mean())
    found = slope(values, covariate)
    if found is None or mean == 0.0:
        return None
    left = mean - found[0] * float(covariate.mean())
    return Fit(max(0.0, 1.0 - abs(left / mean)), *found)


def slope(values: Floats, covariate: Floats) -> tuple[float, float] | None:
    """The least-squares slope of the values, and its evidence; None where the covariate does not vary or there are
    too few."""
    n = len(values)
    centred = covariate - covariate.mean() if n >= FEWEST else covariate
    total = float((centred**2).sum())
    if n < FEWEST or total <= 0.0:
        return None
    y = values
    found = float((centred * y).sum()) / total
    residual = y - y.mean() - found * centred
    error = math.sqrt(float((residual**2).sum()) / (n - 2) / total)
    z = found / error if error > 0.0 else math.inf if found else 0.0
    return found, evidence_of(z)


def evidence_of(z: float) -> float:
    """-log10 of the two-sided p of a standard normal value, at most 30."""
    p = math.erfc(abs(z) / math.sqrt(2.0))
    return 30.0 if p < 1e-30 else -math.log10(p)


def evidence_of_split(a: int, b: int) -> float:
    """-log10 of the two-sided p that ``a`` and ``b`` are from a fair coin, exact."""
    n, k = a + b, min(a, b)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n if n < 1000 else None
    if tail is None:
        return evidence_of((a - b) / math.sqrt(n))
    return -math.log10(max(min(1.0, 2.0 * tail), 1e-30))


def raw(values: Floats, response: Response) -> Floats:
    """Values as they were measured."""
    return np.exp(values) if response.scale is Scale.LOG else values
