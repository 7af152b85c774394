"""Interim results of a fleet while it measures: the mean over hosts for a few comparisons, from running sums.

Each block is processed once, as it arrives, and leaves three numbers per host and comparison. The mean over
hosts is of the same plain means as in the fleet's report. Controls and verdicts are left to the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.design.model import Condition, Term
from iotrial.fleet.batch import Batch
from iotrial.report.conditions import Conditions
from iotrial.report.notation import bracketed
from iotrial.report.opening import spec_of
from iotrial.stats.fleet.combine import FEWEST_BLOCKS
from iotrial.stats.fleet.spread import mean_of
from iotrial.stats.model import Observation
from iotrial.stats.spec import Spec
from iotrial.store.model import RunRecord, TrialData, TrialHeader
from iotrial.study.model import Response, Scale
from iotrial.terminal import escape

#: number of comparisons that are followed, from the first of the plan
MOST = 3
#: maximum blocks when resuming a fleet; with more there are no interim results, since reading them would delay it
MOST_TAKEN_UP = 20_000


@dataclass(slots=True)
class _Sum:
    """Welford's running sums of one host's contrasts."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.squares += step * (value - self.mean)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(self.squares / (self.count - 1) / self.count)


@dataclass(frozen=True, slots=True)
class _Comparison:
    condition: Condition
    term: Term
    response: Response
    alpha: float
    text: str


@dataclass(frozen=True, slots=True)
class SoFar:
    """One comparison: its name and its mean over hosts with interval, as display text, and the number of hosts in it."""

    text: str
    mean: str
    hosts: int


class Interim:
    """The running sums of one fleet. Not thread-safe."""

    def __init__(self) -> None:
        self._comparisons: tuple[_Comparison, ...] | None = None
        self._sums: dict[str, list[_Sum]] = {}
        #: number of comparisons that are not followed
        self.further = 0

    def take_up(self, host: str, stored: TrialData) -> None:
        """Add what an earlier coordinator had stored of a host."""
        self._begin(stored.trial.header)
        for block in stored.blocks:
            if block.void is None:
                self._add(host, block.condition, block.observations)

    def add(self, host: str, batch: Batch, new: int) -> None:
        """Add the last ``new`` blocks of a batch that has been checked and stored."""
        if batch.header is not None:
            self._begin(batch.header)
        if not new or self._comparisons is None:
            return
        runs: dict[tuple[str, int], list[RunRecord]] = {}
        for packed in batch.runs:
            runs.setdefault((packed.run.condition, packed.run.block), []).append(packed.run)
        for end in batch.ends[-new:]:
            if end.void is None:
                self._add(host, end.condition, runs.get((end.condition, end.block), ()))

    def means(self) -> tuple[SoFar, ...]:
        """Return the mean of each comparison for which at least two hosts have the minimum number of blocks of the report."""
        found = []
        for place, one in enumerate(self._comparisons or ()):
            sums = [own[place] for own in self._sums.values() if own[place].count >= FEWEST_BLOCKS]
            estimates, errors = np.array([own.mean for own in sums]), np.array([own.error for own in sums])
            if len(sums) < 2 or not np.isfinite(estimates + errors).all():
                continue
            mean = mean_of(estimates, errors, one.alpha)
            numbers = (mean.value, mean.low, mean.high)
            if one.response.scale is Scale.LOG:
                ratios = [math.exp(min(number, 690.0)) for number in numbers]
                text = bracketed(*ratios)
            else:
                text = bracketed(*numbers, null=0.0, unit=one.response.unit)
            found.append(SoFar(one.text, text, len(sums)))
        return tuple(found)

    def _begin(self, header: TrialHeader) -> None:
        """Take the comparisons from the first host's plan: all hosts have the same study."""
        if self._comparisons is None:
            every = _comparisons(header)
            self._comparisons, self.further = tuple(every[:MOST]), len(every[MOST:])

    def _add(self, host: str, condition: str, runs: Iterable[RunRecord | Observation]) -> None:
        own = [
            (place, one)
            for place, one in enumerate(self._comparisons or ())
            if one.condition.key == condition
        ]
        if not own:
            return
        by_arm: dict[str, list[RunRecord | Observation]] = {}
        for run in runs:
            by_arm.setdefault(run.arm, []).append(run)
        sums = self._sums.setdefault(host, [_Sum() for _ in self._comparisons or ()])
        for place, one in own:
            value = _contrast(one, by_arm)
            if value is not None:
                sums[place].add(value)


def _contrast(one: _Comparison, by_arm: Mapping[str, Sequence[RunRecord | Observation]]) -> float | None:
    """Return the contrast of a block, averaging each arm's repeats; None if an arm has no usable value."""
    total = 0.0
    for arm, weight in one.term.weights.items():
        values = [_value(run, one.response) for run in by_arm.get(arm, ())]
        usable = [value for value in values if value is not None]
        if not usable or len(usable) < len(values):
            return None
        total += weight * math.fsum(usable) / len(usable)
    return total


def _value(run: RunRecord | Observation, response: Response) -> float | None:
    value = None if run.failure is not None else run.responses.get(response.name)
    if value is None or not math.isfinite(value):
        return None
    if response.scale is Scale.DIFFERENCE:
        return value
    return math.log(value) if value > 0.0 else None


def _comparisons(header: TrialHeader) -> list[_Comparison]:
    spec: Spec = spec_of(header)
    words = Conditions(header.study)
    found = []
    for condition in spec.conditions:
        where = words.of_levels(dict(condition.levels), condition.workload).behind
        for term in spec.terms:
            for response in spec.responses_of(condition, primary=True) if term.primary else ():
                text = f"{escape(term.factor)} {escape(term.level)} / {escape(term.reference)}{where}"
                found.append(_Comparison(condition, term, response, spec.alpha_of(term, response), text))
    return found
