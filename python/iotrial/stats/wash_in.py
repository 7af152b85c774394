"""Wash-in: which unmeasured runs go before each measured one, and when there are more of them.

Without a sign of carry-over there are none. When runs seem to depend on those before them, the next blocks *draw* the level
of one unmeasured run: the run's own or another. That separates two causes, because four kinds of runs can be compared:

    run of the reference    after itself    after another level    slower by a, or by c
    run of another level    after itself    after the reference    faster by a, or slower by c

a is carry-over: whatever runs after the other level is slower. c is the cost of switching: whatever runs after a level that
is not its own is slower, in both directions or in one. If the switch costs, a run of the *same* level goes before each
measured one; else a neutral run, of the *reference*. If runs still depend on those before them, there are 3 such runs, and
then 6. Each stage is judged by its own blocks, since each begins at a stopping time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.design.model import Before, WashIn
from iotrial.stats.contrast import usable
from iotrial.stats.controls import on_scale
from iotrial.stats.dependence import Floats, Residuals, arranged, normal_score
from iotrial.stats.model import ObservedBlock, SwitchCost
from iotrial.stats.spec import Spec
from iotrial.study.model import Better, Response

#: numbers of unmeasured runs, one stage after the other
RUNS = (1, 3, 6)
#: blocks with drawn levels: at least, and at most
LEAST, MOST = 8, 48
_SURE = 3.0  # score from which a cause counts as found
_BETTER = 6.0  # difference in chi-square from which one cause counts as the better explanation
#: what each cause adds to runs of the reference, and of other levels, after a level that is not their own. If only the switch
#: back to the reference costs, a neutral run helps as it does against carry-over.
_CARRIED = (np.array([1.0, -1.0]), np.array([1.0, 0.0]))
_SWITCHED = (np.array([1.0, 1.0]), np.array([0.0, 1.0]))
_AVERAGE = np.array([0.5, 0.5])
_ROUNDING = 1e-12  # relative to the largest covariance
_CONDITION = 1e8  # of a covariance, from which it is only a rounding error
_LIKELY = 2.0  # score of a cost of switching that is enough after the most blocks


def judged(blocks: Sequence[ObservedBlock]) -> list[ObservedBlock]:
    """Return the blocks of one condition to analyse: those with the same wash-in as the newest.

    A wash-in begins or grows when runs seem to depend on those before them, which is a stopping time. Every test restarts
    there, so the error levels hold."""
    return [block for block in blocks if block.wash_in == blocks[-1].wash_in]


def is_longest(wash_in: WashIn | None) -> bool:
    """Return whether there is no stage after this one."""
    return wash_in is not None and wash_in.runs == RUNS[-1]


def upcoming(spec: Spec, wash_in: WashIn | None, switching: Switching | None, *, lasting: bool) -> WashIn:
    """Return the stage after ``wash_in`` in a trial in which runs seem to depend on those before them.

    ``lasting``: they depend on the measured run before the one with a drawn level, too, so one run is not enough."""
    if wash_in is None:
        return WashIn(Before.REFERENCE if spec.whole_plots else Before.DRAWN)
    if wash_in.before is Before.DRAWN:
        if switching is None or not switching.decided:
            return wash_in
        return WashIn(Before.SAME if switching.costs else Before.REFERENCE, RUNS[lasting])
    return WashIn(wash_in.before, next((runs for runs in RUNS if runs > wash_in.runs), RUNS[-1]))


@dataclass(frozen=True, slots=True)
class Cause:
    """How one cause fits: its score, positive if runs get worse, and by how much (in chi-square) it misses the sizes."""

    score: float
    misses: float


@dataclass(frozen=True, slots=True)
class Switching:
    """What the drawn levels show, on the response's scale of comparison.

    ``cost``: how much worse a run is after another level, averaged over both directions, with its score. ``carried``: how
    carry-over fits, or a cost of the switch back to the reference alone, and ``switched`` a cost of switching in both
    directions, or only away from the reference; in each case whichever fits better.
    ``typical``: the median of runs after their own level, on that scale. ``blocks``: those with a value in every run."""

    cost: float
    cost_score: float
    carried: Cause
    switched: Cause
    typical: float
    blocks: int

    @property
    def costs(self) -> bool:
        """Whether it is the switch that costs, rather than the level before."""
        if self.blocks >= MOST:
            return self.switched.score >= _LIKELY and self._better > 0.0
        return self.switched.score >= _SURE and self._better >= _BETTER

    @property
    def decided(self) -> bool:
        """Whether the blocks with drawn levels are enough."""
        if self.blocks < LEAST:
            return False
        carried = abs(self.carried.score) >= _SURE and self._better <= -_BETTER
        return self.costs or carried or self.blocks >= MOST

    @property
    def _better(self) -> float:
        """By how much (in chi-square) a cost of switching fits better than carry-over."""
        return self.carried.misses - self.switched.misses

    def in_units(self, response: Response) -> SwitchCost | None:
        """Return the cost of a switch as it is reported; None if the switch is not what costs."""
        if not self.costs:
            return None
        size, typical = (on_scale(value, response) for value in (self.cost, self.typical))
        assert size is not None
        assert typical is not None
        return SwitchCost(size, typical, self.cost_score)


def judge_switching(spec: Spec, response: Response, blocks: Sequence[ObservedBlock]) -> Switching | None:
    """Judge those of a condition's blocks that had a wash-in with drawn levels; None with too few."""
    references = {term.factor: term.reference for term in spec.terms}
    known = [
        block
        for block in blocks
        if block.void is None and block.wash_in is not None and block.wash_in.before is Before.DRAWN
    ]
    if len(known) < LEAST:
        return None
    runs = [sorted(block.observations, key=lambda run: run.slot) for block in known]
    values = [[usable(run, response) for run in block] for block in runs]
    table, _ = arranged(
        [[math.nan if value is None else value for value in block] for block in values],
        [[run.arm for run in block] for block in runs],
        list(range(len(runs))),
        [True] * len(runs),
    )
    if not table.counted.any():
        return None
    every = [run for block in runs for run in block]
    other = np.array([run.after_other for run in every])
    neutral = np.array(
        [all(references.get(name, label) == label for name, label in run.treatment.items()) for run in every]
    )
    # the measured runs before a run are covariates, since carry-over may last longer than the unmeasured run
    earlier = [np.concatenate([np.zeros(lag, dtype=bool), ~neutral[:-lag]]) for lag in (1, 2)]
    columns = np.column_stack([other & neutral, other & ~neutral, *earlier])[table.counted]
    residuals = Residuals(table, columns.astype(np.float64))
    found = residuals.together()
    if found is None:
        return None
    size, covariance, freedom = found
    size, covariance = size[:2], covariance[:2, :2]
    worse = -1.0 if response.better is Better.HIGHER else 1.0
    carried = [_cause(one, size, covariance, freedom, worse) for one in _CARRIED]
    switched = [_cause(one, size, covariance, freedom, worse) for one in _SWITCHED]
    own = table.value[table.counted & ~other]
    return Switching(
        cost=float(_AVERAGE @ size),
        cost_score=worse * _score(_AVERAGE, size, covariance, freedom),
        carried=min(carried, key=lambda cause: cause.misses),
        switched=min(switched, key=lambda cause: (cause.score < _LIKELY, cause.misses)),
        typical=float(np.median(own)) if own.size else math.nan,
        blocks=residuals.blocks,
    )


def _cause(direction: Floats, size: Floats, covariance: Floats, freedom: float, worse: float) -> Cause:
    """Fit the sizes as a multiple of ``direction`` by least squares."""
    if freedom < 1.0 or np.linalg.cond(covariance) > _CONDITION:
        return Cause(0.0, 0.0)
    weights: Floats = np.asarray(np.linalg.solve(covariance, direction), dtype=np.float64)
    left = size - direction * float(weights @ size) / float(weights @ direction)
    missed = math.sqrt(max(0.0, float(left @ np.linalg.solve(covariance, left))))
    misses = float(normal_score(np.array(missed), np.array(freedom))) ** 2
    return Cause(worse * _score(weights, size, covariance, freedom), misses)


def _score(weights: Floats, size: Floats, covariance: Floats, freedom: float) -> float:
    variance = float(weights @ covariance @ weights)
    if (
        variance <= _ROUNDING * float(np.abs(covariance).max()) * float(np.abs(weights).max()) ** 2
        or freedom < 1.0
    ):
        return 0.0  # nothing but a rounding error, which may be below 0
    return float(normal_score(np.array(float(weights @ size) / math.sqrt(variance)), np.array(freedom)))
