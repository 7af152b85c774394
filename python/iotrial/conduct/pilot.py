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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.analysis.analyse import Spec
from iotrial.analysis.contrast import Responses, usable
from iotrial.analysis.forecast import SCATTER_GROWS, Comparison, Forecast, Line, Rules, forecast
from iotrial.analysis.model import ObservedBlock
from iotrial.analysis.run_statistics import fewest_blocks
from iotrial.analysis.scatter import FEWEST_BLOCKS, Scatter, scatter_of, scatter_of_contrasts
from iotrial.conduct.progress import Snapshot, Watcher
from iotrial.conduct.resolve import Resolved
from iotrial.conduct.start import Ended, begin
from iotrial.conduct.trial import Limits
from iotrial.design.model import ArmKind, Condition
from iotrial.design.plan import Plan
from iotrial.store import Store
from iotrial.store.model import TrialData
from iotrial.study.model import TYPICAL, Response, Role, Scale

MOST_BLOCKS = 100_000


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a pilot measured: its blocks, what making the lab took, failures.

    By condition: ``first_s`` are the seconds of each complete block in order, those of void blocks before it included,
    ``block_s`` what a block takes in the long run. ``once_s`` is what the trial takes besides its blocks, from the first
    process that it starts to the lab's end. ``ended`` says how it ended (a signal, perhaps).
    """

    data: TrialData
    ended: Ended
    block_s: Mapping[str, float]
    first_s: Mapping[str, tuple[float, ...]]
    once_s: float
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
    seconds = sum(clock.block_s)
    arms = {controls: len(plan.arms(controls=controls)) for controls in (False, True)}
    return Pilot(
        data,
        ended,
        _block_seconds(data, clock.block_s, arms),
        _first_seconds(data, clock.block_s),
        max(0.0, data.trial.duration_s - seconds),
        clock.setup_s,
        seconds,
    )


def predict(pilot: Pilot, plan: Plan, *, budget_s: float, budget_blocks: int) -> Forecast:
    """What the trial of this plan will need, and what its budget can resolve."""
    spec = Spec.from_plan(plan)
    rules = replace(
        rules_of(spec, budget_s=budget_s, budget_blocks=budget_blocks),
        controls_first=0 if spec.whole_plots else plan.controls_first,
    )
    lines = [line_of(pilot, spec, condition) for condition in plan.conditions]
    return forecast(lines, rules, once_s=pilot.once_s)


def rules_of(spec: Spec, *, budget_s: float, budget_blocks: int) -> Rules:
    """What the trial asks for. Where the design has columns for its controls, they are in every block, with many arms."""
    positive = spec.control_weights.get(ArmKind.POSITIVE, {})
    return Rules(
        margin=spec.margin,
        alpha=spec.alpha,
        effect_alpha=spec.primary_alpha,
        controls=spec.controls,
        budget_s=budget_s,
        budget_blocks=budget_blocks,
        control_every=1 if _in_columns(spec) else 2,
        control_arms=arms_of(positive) if positive and not spec.whole_plots else 1.0,
    )


def line_of(pilot: Pilot, spec: Spec, condition: Condition) -> Line:
    """What the pilot has measured of one condition."""
    blocks = [b for b in pilot.data.blocks if b.condition == condition.key and b.void is None]
    found: list[Comparison] = []
    for response in spec.responses_of(condition, primary=True):
        if response.scale is Scale.DIFFERENCE:
            why = "it is compared by difference, which has no margin"
            found.append(Comparison(response.name, None, reason=why))
        elif response.statistic != TYPICAL:
            least = fewest_blocks(response, spec)
            why = f"equivalence of its {response.statistic} takes at least {least:,} blocks, however little runs scatter"
            found.append(Comparison(response.name, None, reason=why))
        elif spec.whole_plots:
            found += _of_stretches(blocks, spec, response)
        else:
            primary = [term for term in spec.terms if term.primary]
            arms = min(arms_of(term.weights) for term in primary)
            copies = copies_of(blocks, spec, response)
            scatter = scatter_of(copies)
            found.append(_comparison(response, scatter, len(copies), arms=arms, effects=len(primary)))
    return Line(
        condition.key,
        tuple(found),
        pilot.block_s.get(condition.key),
        pilot.first_s.get(condition.key, ()),
    )


def _of_stretches(blocks: list[ObservedBlock], spec: Spec, response: Response) -> list[Comparison]:
    """Between stretches and within them, each from the contrasts that the trial will take: what a stretch has in common
    scatters too, and is no difference of two single arms."""
    responses = Responses(blocks, response)
    found = []
    for whole in (True, False):
        by_block: dict[int, list[float]] = {}
        counts = []
        for term in spec.terms:
            if term.primary and term.whole is whole:
                contrasts = responses.contrasts(term.weights, whole=whole)
                counts.append(len(contrasts.values) / max(1, len(set(contrasts.blocks))))
                for index, value in zip(contrasts.blocks, contrasts.values, strict=True):
                    by_block.setdefault(index, []).append(value)
        if counts:
            scatter = scatter_of_contrasts(list(by_block.values()))
            stratum = "whole plots" if whole else "within"
            per_block = max(1.0, min(counts))
            found.append(
                _comparison(
                    response,
                    scatter,
                    len(by_block),
                    per_block=per_block,
                    stratum=stratum,
                    effects=len(counts),
                )
            )
    return found


def _comparison(
    response: Response,
    scatter: Scatter | None,
    blocks: int,
    *,
    arms: float = 1.0,
    per_block: float = 1.0,
    stratum: str | None = None,
    effects: int = 1,
) -> Comparison:
    reason = None
    if scatter is None:
        reason = f"the pilot has {blocks} usable blocks of it, and {FEWEST_BLOCKS} are needed"
    return Comparison(response.name, scatter, arms, reason, per_block, stratum, effects, SCATTER_GROWS)


def copies_of(blocks: list[ObservedBlock], spec: Spec, response: Response) -> list[list[float]]:
    """The logarithms of all arms of each block but the stretched copy; blocks with a run that has none are left out.

    Where a design has columns for its controls, half of its arms are stretched: there the stretch is taken off the response
    that it is put into.
    """
    weights = spec.control_weights.get(ArmKind.POSITIVE, {}) if _in_columns(spec) else {}
    longer = {arm for arm, weight in weights.items() if weight > 0}
    own = any(response in spec.positive_responses(condition) for condition in spec.conditions)
    stretch = math.log(spec.injected_ratio(response)) if own else 0.0
    found = []
    for block in blocks:
        runs = [run for run in block.observations if run.kind is not ArmKind.POSITIVE]
        values = [(usable(run, response), stretch if run.arm in longer else 0.0) for run in runs]
        kept = [value - off for value, off in values if value is not None]
        if len(kept) == len(values):
            found.append(kept)
    return found


def _in_columns(spec: Spec) -> bool:
    """Whether the controls are contrasts of the treatments themselves, not arms of their own."""
    positive = spec.control_weights.get(ArmKind.POSITIVE, {})
    own = {arm for term in spec.terms for arm in term.weights}
    return bool(positive) and set(positive) <= own


def arms_of(weights: Mapping[str, float]) -> float:
    """How many arms at each of two levels have a mean difference that scatters as much as this contrast."""
    return 2.0 / math.fsum(weight * weight for weight in weights.values())


def _block_seconds(
    data: TrialData, seconds: Sequence[float], arms: Mapping[bool, int]
) -> Mapping[str, float]:
    """The mean time of a block of each condition in the long run: as many blocks with controls as without.

    ``arms``: the runs of a block with controls and without, for the kind of block that the pilot has not come to.
    """
    by_condition: dict[str, dict[bool, list[float]]] = {}
    for end, taken in zip(data.ends, seconds, strict=False):  # a signal ends the last block without a word
        by_condition.setdefault(end.condition, {}).setdefault(end.controls, []).append(taken)
    found = {}
    for key, kinds in by_condition.items():
        means = {kind: sum(times) / len(times) for kind, times in kinds.items()}
        known = next(iter(means))
        found[key] = sum(means.get(kind, means[known] * arms[kind] / arms[known]) for kind in arms) / len(
            arms
        )
    return found


def _first_seconds(data: TrialData, seconds: Sequence[float]) -> Mapping[str, tuple[float, ...]]:
    """What each complete block of a condition took, with the void ones before it."""
    found: dict[str, list[float]] = {}
    lost: dict[str, float] = {}
    for end, taken in zip(data.ends, seconds, strict=False):
        if end.void is None:
            found.setdefault(end.condition, []).append(taken + lost.pop(end.condition, 0.0))
        else:
            lost[end.condition] = lost.get(end.condition, 0.0) + taken
    return {key: tuple(times) for key, times in found.items()}


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
