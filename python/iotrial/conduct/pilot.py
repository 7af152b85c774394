"""A pilot: a short blind A/A of a study's own reference, to see how long a verdict will take.

It is conducted as the trial would be: the same plan, blocks, lab, cache states, knob transitions, controls and
analysis, in the same kind of session with the same journal. Only the values differ: whatever an arm is called, its
knobs are turned to the reference's. So nothing of the question can be seen in it, the arms of a block are all
copies of one treatment, and a block takes as long as one of the trial (where the other levels take as long as the
reference: that alone a blind pilot cannot know). It is kept in memory and never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from iotrial.analysis.analyse import Spec
from iotrial.analysis.contrast import usable
from iotrial.analysis.forecast import Comparison, Forecast, Line, Rules, forecast
from iotrial.analysis.model import ObservedBlock
from iotrial.analysis.scatter import FEWEST_BLOCKS, scatter_of
from iotrial.conduct.progress import Snapshot, Watcher
from iotrial.conduct.resolve import Resolved
from iotrial.conduct.start import Ended, begin
from iotrial.conduct.trial import Limits
from iotrial.design.model import ArmKind, Condition
from iotrial.design.plan import Plan
from iotrial.store import Store
from iotrial.store.model import TrialData
from iotrial.study.model import Factor, Response, Role, Scale

MOST_BLOCKS = 100_000


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a pilot measured: its blocks, the seconds that each took by condition, what making the lab took, failures.

    ``ended`` says how it ended (a signal, perhaps).
    """

    data: TrialData
    ended: Ended
    block_s: Mapping[str, float]
    setup_s: float
    seconds: float

    @property
    def blocks(self) -> int:
        """Complete blocks that count."""
        return sum(block.void is None for block in self.data.blocks)

    @property
    def void(self) -> int:
        """Blocks thrown out by a rule."""
        return len(self.data.blocks) - self.blocks

    @property
    def failures(self) -> int:
        """Runs that failed."""
        return sum(run.failure is not None for run in self.data.runs)


def blinded(resolved: Resolved) -> Resolved:
    """The same, with every level of every treatment factor at the reference's values."""
    turns = dict(resolved.turns)
    for factor in resolved.study.factors:
        if factor.role is Role.TREATMENT:
            for level in factor.levels:
                turns[factor.name, level.label] = resolved.turns[factor.name, factor.reference]
    return replace(resolved, turns=turns)


def conduct_pilot(resolved: Resolved, plan: Plan, watcher: Watcher, *, time_s: float, folder: str) -> Pilot:
    """Conduct a pilot of about ``time_s`` seconds of measuring. Raises what a trial raises; leaves nothing behind.

    A condition has at least one block of it, where the first round comes to its end in time.
    """
    clock = _Clock(watcher)
    with Store.in_memory() as store:
        ended = begin(
            blinded(resolved),
            plan,
            store,
            Limits(time_s, MOST_BLOCKS, stop_when_decided=False),
            clock,
            folder=folder,
            seed_chosen=False,
            options={"pilot": True, "controls": plan.controls},
        )
        data = store.data(ended.trial.header.id)
    return Pilot(data, ended, _block_seconds(data, clock.block_s), clock.setup_s, sum(clock.block_s))


def predict(pilot: Pilot, plan: Plan, *, budget_s: float, budget_blocks: int) -> Forecast:
    """What the trial of this plan will need, and what its budget can resolve."""
    spec = Spec.from_plan(plan)
    rules = Rules(
        margin=spec.margin,
        alpha=spec.alpha,
        effect_alpha=spec.primary_alpha,
        controls=spec.controls,
        budget_s=budget_s,
        budget_blocks=budget_blocks,
    )
    lines = [
        Line(
            condition.key,
            tuple(
                _comparison(pilot.data.blocks, condition, response, plan)
                for response in spec.responses_of(condition, primary=True)
            ),
            pilot.block_s.get(condition.key),
        )
        for condition in plan.conditions
    ]
    return forecast(lines, rules)


def _comparison(
    blocks: tuple[ObservedBlock, ...], condition: Condition, response: Response, plan: Plan
) -> Comparison:
    if response.scale is Scale.DIFFERENCE:
        return Comparison(response.name, None, reason="it is compared by difference, which has no margin")
    own = [block for block in blocks if block.condition == condition.key and block.void is None]
    copies = copies_of(own, response)
    found = scatter_of(copies)
    arms = min(arms_at_a_level(plan, factor) for factor in plan.study.treatment_factors)
    reason = None
    if found is None:
        reason = f"the pilot has {len(copies)} usable blocks of it, and {FEWEST_BLOCKS} are needed"
    return Comparison(response.name, found, arms, reason)


def copies_of(blocks: list[ObservedBlock], response: Response) -> list[list[float]]:
    """The logarithms of all arms of each block but the stretched one; blocks with a run that has none are left out."""
    found = []
    for block in blocks:
        values = [usable(run, response) for run in block.observations if run.kind is not ArmKind.POSITIVE]
        if None not in values:
            found.append([value for value in values if value is not None])
    return found


def arms_at_a_level(plan: Plan, factor: Factor) -> int:
    """How many treatments share a level of the factor: their mean is what is compared."""
    return sum(arm.treatment.get(factor.name) == factor.reference for arm in plan.treatments)


def _block_seconds(data: TrialData, seconds: list[float]) -> Mapping[str, float]:
    """The mean time of a block of each condition, blocks with controls and without counted alike."""
    by_condition: dict[str, dict[bool, list[float]]] = {}
    for end, taken in zip(data.ends, seconds, strict=False):  # a signal ends the last block without a word
        by_condition.setdefault(end.condition, {}).setdefault(end.controls, []).append(taken)
    return {
        key: math.fsum(sum(times) / len(times) for times in kinds.values()) / len(kinds)
        for key, kinds in by_condition.items()
    }


class _Clock:
    """A watcher that notes when each block ended, and lets another one watch.

    The conductor is told of nothing but time; what was measured is not looked at until the end.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._began = time.monotonic()
        self._last = 0.0
        self.block_s: list[float] = []
        self.setup_s = 0.0

    def say(self, text: str) -> None:
        self._watcher.say(text)

    def update(self, snapshot: Snapshot) -> None:
        if not self.block_s:
            self.setup_s = time.monotonic() - self._began - snapshot.elapsed_s
        self.block_s.append(snapshot.elapsed_s - self._last)
        self._last = snapshot.elapsed_s
        self._watcher.update(replace(snapshot, effects=()))
