"""Pairs of a control and its original, block by block, with everything else that differed between the two runs.

This is the input of all checks for likely causes. A control and its original are the two sides of the control's contrast.
Values are on the response's scale of comparison (natural logarithms for ratios).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind
from iotrial.stats.contrast import usable
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.study.model import Response, Scale

Floats = npt.NDArray[np.float64]
RunKey = tuple[str, int, int]
# (share of the mean, run) for each run of one side
_Side = tuple[tuple[float, Observation], ...]

FEWEST = 10  # minimum number of pairs for a fit
_OUTLYING = 6.0  # pairs are clipped at this many scaled median absolute deviations from the median


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Recorded facts about a run other than its responses: counters, the injected ratio that the probe reports, its files."""

    evidence: Mapping[str, float] = field(default_factory=dict)
    injected: float | None = None
    files: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Arrays with one entry for each block that has both, in time order. ``differences`` are control minus original.

    ``slots``: slot of the control minus that of the original. ``levels``: the median of the block's other runs; ``lows``:
    the smallest of all its runs. ``before``: the arms that ran just before control and original. ``counters``: each counter
    that all runs have, control minus original. ``control`` and ``original``: the values of each. ``missing``: number of runs
    of each without a usable value. ``single``: each side is one run, not the mean of several. ``columns``: both sides are
    treatments, halves of the rows of a design.
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
        """Number of pairs."""
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
    """Fit of the deviations on a covariate: ``share`` of the mean deviation that the covariate accounts for, ``slope``, and
    ``evidence`` (-log10 of the slope's p-value by the normal approximation)."""

    share: float
    slope: float
    evidence: float


def pair_up(
    blocks: Sequence[ObservedBlock],
    response: Response,
    weights: Mapping[str, float],
    facts: Mapping[RunKey, RunFacts],
) -> Pairs:
    """Build the pairs of one condition; ``blocks`` are in time order. Void blocks and blocks that lack an arm are skipped.

    ``weights`` is the control's contrast, by arm name: one run against one, a plot against a plot, or half of the rows
    of a design against the other half. A side with several runs is compared by their mean.
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
    """Return the runs of both sides in this block with their shares, which sum to 1 per side; None if an arm is missing."""
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
    """Return the facts of a side: those of its single run, or the means over several runs (without files)."""
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
    """Return the preceding arm in the block, by ``id`` of the run; the first run of a block has none."""
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
    """Return control minus original of the counters and other responses that all runs of every pair have."""
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
    """Clip outliers, so that single stalls neither create nor hide a slope."""
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    reach = _OUTLYING * spread
    return np.clip(values, middle - reach, middle + reach) if spread > 0.0 else values


def fit(deviations: Floats, covariate: Floats, *, calm: bool = True) -> Fit | None:
    """Fit the deviations by least squares on a covariate that is 0 if both runs had the same of it.

    None if the covariate does not vary, the mean deviation is 0 or there are too few pairs. ``calm``: clip outliers first.
    """
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
    """Return the least-squares slope and its evidence; None if the covariate is constant or there are too few values."""
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
    """Return -log10 of the two-sided p-value of a standard normal value, at most 30."""
    p = math.erfc(abs(z) / math.sqrt(2.0))
    return 30.0 if p < 1e-30 else -math.log10(p)


def evidence_of_split(a: int, b: int) -> float:
    """Return -log10 of the two-sided p-value of counts ``a`` and ``b`` under a fair coin; exact below 1000 in total."""
    n, k = a + b, min(a, b)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n if n < 1000 else None
    if tail is None:
        return evidence_of((a - b) / math.sqrt(n))
    return -math.log10(max(min(1.0, 2.0 * tail), 1e-30))


def raw(values: Floats, response: Response) -> Floats:
    """Return values on the measured scale."""
    return np.exp(values) if response.scale is Scale.LOG else values
