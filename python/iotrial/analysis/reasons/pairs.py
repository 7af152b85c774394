"""A control beside its original, block by block: what is compared, and what else was different between the two runs.

The raw material of all reasons. The original of a control is the arm of the same treatment in the same block. Values are
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
# control, original, their values, level, index and least value of the block
_Row = tuple[Observation, Observation, float, float, float, int, float]

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

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self.differences)


@dataclass(frozen=True, slots=True)
class Fit:
    """What is left of a mean deviation once a covariate is nil: ``share`` of it that the covariate accounts for, ``slope``
    and ``evidence`` (-log10 of the slope's p by the normal approximation)."""

    share: float
    slope: float
    evidence: float


def pair_up(
    blocks: Sequence[ObservedBlock], response: Response, kind: ArmKind, facts: Mapping[RunKey, RunFacts]
) -> Pairs:
    """The pairs of one condition; ``blocks`` in time order, void ones are passed over."""
    rows: list[_Row] = []
    missing = [0, 0]
    before = _predecessors(blocks)
    for block in blocks:
        control = next((run for run in block.observations if run.kind is kind), None)
        if control is None or block.void is not None:
            continue
        original = next(
            (
                run
                for run in block.observations
                if run.kind is ArmKind.TREATMENT and run.treatment == control.treatment
            ),
            None,
        )
        if original is None:
            continue
        mine, its = usable(control, response), usable(original, response)
        missing[0] += mine is None
        missing[1] += its is None
        if mine is None or its is None:
            continue
        others = [usable(run, response) for run in block.observations if run not in (control, original)]
        known = [value for value in others if value is not None] or [(mine + its) / 2.0]
        low = min(mine, its, *known)
        rows.append((control, original, mine, its, float(np.median(known)), block.index, low))
    keys = [
        tuple((blocks[0].condition, row[5], run.slot) for run in row[:2]) for row in rows
    ]  # the facts of both runs
    known_facts = tuple((facts.get(mine, RunFacts()), facts.get(its, RunFacts())) for mine, its in keys)
    injected = [mine.injected for mine, _ in known_facts]
    column = [np.array([row[i] for row in rows], dtype=np.float64) for i in (2, 3, 4, 6)]
    return Pairs(
        differences=column[0] - column[1],
        control=column[0],
        original=column[1],
        slots=np.array([float(row[0].slot - row[1].slot) for row in rows]),
        levels=column[2],
        lows=column[3],
        before=tuple((before.get(id(row[0]), ""), before.get(id(row[1]), "")) for row in rows),
        counters=_counters(rows, known_facts, response),
        injected=np.array(injected, dtype=np.float64) if rows and None not in injected else None,
        files=known_facts,
        blocks=tuple(row[5] for row in rows),
        missing=(missing[0], missing[1]),
    )


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
    """Counters and other responses that both runs of every pair have, control less original."""
    both = [
        ({**row[0].responses, **mine.evidence}, {**row[1].responses, **its.evidence})
        for row, (mine, its) in zip(rows, facts, strict=True)
    ]
    names = set.intersection(*(set(mine) & set(its) for mine, its in both)) if both else set()
    return {
        name: np.array([mine[name] - its[name] for mine, its in both])
        for name in sorted(names - {response.name})
    }


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
