"""Wash-in: which unmeasured runs go before each measured one, and when there are more of them.

Without a sign of carry-over there are none. When runs seem to depend on those before them, the next blocks *draw* the level
of one unmeasured run: the run's own or another. That separates two causes, because four kinds of runs can be compared:

    run of the reference    after itself    after another level    slower by a, or by c
    run of another level    after itself    after the reference    faster by a, or slower by c

a is carry-over: whatever runs after the other level is slower. c is the cost of switching: whatever runs after a level that
is not its own is slower, in both directions or in one. The patterns of ``dependence.py`` are fitted to these blocks and to
those before the wash-in, with every unmeasured run in its place, and the cause is that of the pattern that fits best. If the
switch costs, a run of the *same* level goes before each measured one; else a neutral run, of the *reference* (which also
helps if only the switch back to the reference costs). If runs still depend on those before them, there are 3 such runs, and
then 6. While two causes fit about as well, the drawing goes on. Each stage is judged by its own blocks, since each begins at
a stopping time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.design.model import Before, WashIn
from iotrial.stats.contrast import usable
from iotrial.stats.controls import on_scale
from iotrial.stats.dependence import Dependence
from iotrial.stats.model import ObservedBlock, SwitchCost
from iotrial.stats.spec import Spec
from iotrial.study.model import Better, Response

#: numbers of unmeasured runs, one stage after the other
RUNS = (1, 3, 6)
#: blocks with drawn levels: at least, and at most
LEAST, MOST = 8, 48
_SURE = 3.0  # score from which a pattern counts as found
_BETTER = 9.0  # difference in chi-square from which one cause counts as the better explanation


def judged(blocks: Sequence[ObservedBlock]) -> list[ObservedBlock]:
    """Return the blocks of one condition to analyse: those with the same wash-in as the newest.

    A wash-in begins or grows when runs seem to depend on those before them, which is a stopping time. Every test restarts
    there, so the error levels hold."""
    return [block for block in blocks if block.wash_in == blocks[-1].wash_in]


def is_longest(wash_in: WashIn | None) -> bool:
    """Return whether there is no stage after this one."""
    return wash_in is not None and wash_in.runs == RUNS[-1]


def upcoming(spec: Spec, wash_in: WashIn | None, switching: Switching | None) -> WashIn:
    """Return the stage after ``wash_in`` in a trial in which runs seem to depend on those before them."""
    if wash_in is None:
        return WashIn(Before.REFERENCE if spec.whole_plots else Before.DRAWN)
    if wash_in.before is Before.DRAWN:
        if switching is None or not switching.decided:
            return wash_in
        return WashIn(Before.SAME if switching.costs else Before.REFERENCE, RUNS[switching.lasts])
    return WashIn(wash_in.before, next((runs for runs in RUNS if runs > wash_in.runs), RUNS[-1]))


@dataclass(frozen=True, slots=True)
class Switching:
    """What the runs before the wash-in, and those with drawn levels, show.

    ``switched`` and ``carried``: the pattern that fits best of those of a cost of switching, and of all others. ``typical``:
    the median of runs after their own level, on the response's scale of comparison. ``blocks``: those with drawn levels."""

    switched: Dependence | None
    carried: Dependence | None
    typical: float
    blocks: int

    @property
    def costs(self) -> bool:
        """Whether it is the switch that costs, rather than the level before."""
        return self._better >= _BETTER

    @property
    def decided(self) -> bool:
        """Whether the blocks with drawn levels are enough. Where both causes remain possible they never are."""
        if self.blocks < LEAST:
            return False
        nothing = max(_square(self.switched), _square(self.carried)) < _SURE**2
        return abs(self._better) >= _BETTER or (nothing and self.blocks >= MOST)

    @property
    def lasts(self) -> bool:
        """Whether more than one earlier run matters."""
        return not self.costs and self.carried is not None and self.carried.pattern.weights != (1.0,)

    @property
    def _better(self) -> float:
        """By how much (in chi-square) a cost of switching fits better than carry-over."""
        return _square(self.switched) - _square(self.carried)

    def in_units(self, response: Response) -> SwitchCost | None:
        """Return the cost of a switch as it is reported; None if the switch is not what costs."""
        if not self.costs or self.switched is None:
            return None
        worse = -1.0 if response.better is Better.HIGHER else 1.0
        away = 1.0 if self.switched.pattern.switched else -1.0
        size, typical = (on_scale(value, response) for value in (away * self.switched.size, self.typical))
        assert size is not None
        assert typical is not None
        return SwitchCost(size, typical, worse * away * self.switched.score)


def judge_switching(
    response: Response, blocks: Sequence[ObservedBlock], found: Sequence[Dependence]
) -> Switching | None:
    """Judge what the patterns fitted to the runs before the wash-in and with drawn levels (``found``) say about the cause;
    None with too few blocks with drawn levels among the condition's ``blocks``."""
    drawn = [
        block
        for block in blocks
        if block.void is None and block.wash_in is not None and block.wash_in.before is Before.DRAWN
    ]
    if len(drawn) < LEAST:
        return None
    worse = -1.0 if response.better is Better.HIGHER else 1.0
    costs = [
        one for one in found if one.pattern.switched or (one.pattern.of_switching and worse * one.score < 0.0)
    ]
    others = [one for one in found if not one.pattern.of_switching]
    values = [usable(run, response) for block in drawn for run in block.observations if not run.after_other]
    own = [value for value in values if value is not None]
    return Switching(
        switched=max(costs, key=_square, default=None),
        carried=max(others, key=_square, default=None),
        typical=float(np.median(own)) if own else math.nan,
        blocks=len(drawn),
    )


def _square(one: Dependence | None) -> float:
    """Return the squared score, rounded because the last digits differ between processors."""
    return 0.0 if one is None else round(one.score**2, 6)
