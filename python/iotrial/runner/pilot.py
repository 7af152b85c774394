"""A pilot: a short blind A/A trial of a study's own reference, to predict how long a verdict will take.

It runs like the trial would: same plan, blocks, lab, cache states, knob transitions, controls and analysis,
in the same kind of session with the same journal. Only the values differ: in every arm, the knobs are set to
the reference's values. So it reveals nothing about the question, the arms of a block are all copies of one
treatment, and a block takes as long as one of the trial (if the other levels take as long as the reference,
which a blind pilot cannot know). It is kept in memory and never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.design.model import ArmKind, Condition
from iotrial.design.plan import Plan
from iotrial.runner.progress import Snapshot, Watcher
from iotrial.runner.resolve import Resolved
from iotrial.runner.start import Ended, begin
from iotrial.runner.trial import Limits
from iotrial.stats.analyse import Spec
from iotrial.stats.contrast import Responses, usable
from iotrial.stats.forecast import SCATTER_GROWS, Comparison, Forecast, Line, Rules, forecast
from iotrial.stats.model import ObservedBlock, Scatter
from iotrial.stats.run_statistics import fewest_blocks
from iotrial.stats.scatter import FEWEST_BLOCKS, scatter_of, scatter_of_contrasts
from iotrial.store import Store
from iotrial.store.model import TrialData
from iotrial.study.model import TYPICAL, Response, Role, Scale

MOST_BLOCKS = 100_000


@dataclass(frozen=True, slots=True)
class Pilot:
    """Result of a pilot: its blocks, timings and failures.

    By condition: ``first_s`` are the seconds of each complete block in order, including void blocks before
    it; ``block_s`` is the mean time of a block in the long run. ``once_s`` is the time the trial takes in
    addition to its blocks, from the first process it starts to the lab's end. ``ended`` says how it ended
    (perhaps by a signal).
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
        """Number of complete blocks that count."""
        return sum(block.void is None for block in self.data.blocks)

    @property
    def void(self) -> int:
        """Number of void blocks."""
        return len(self.data.blocks) - self.blocks

    @property
    def failures(self) -> int:
        """Number of failed runs."""
        return sum(run.failure is not None for run in self.data.runs)


def blinded(resolved: Resolved) -> Resolved:
    """Return a copy in which every level of every treatment factor has the reference's values."""
    settings = dict(resolved.settings)
    for factor in resolved.study.factors:
        if factor.role is Role.TREATMENT:
            for level in factor.levels:
                settings[factor.name, level.label] = resolved.settings[factor.name, factor.reference]
    return replace(resolved, settings=settings)


def conduct_pilot(resolved: Resolved, plan: Plan, watcher: Watcher, *, time_s: float, folder: str) -> Pilot:
    """Run a pilot that measures for about ``time_s`` seconds. Raises what a trial raises; leaves nothing behind.

    Every condition gets at least one block if the first round ends in time.
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
    """Predict what the trial of this plan will need, and what its budget can resolve."""
    spec = Spec.from_plan(plan)
    rules = replace(
        rules_of(spec, budget_s=budget_s, budget_blocks=budget_blocks),
        controls_first=0 if spec.whole_plots else plan.controls_first,
    )
    lines = [line_of(pilot, spec, condition) for condition in plan.conditions]
    return forecast(lines, rules, once_s=pilot.once_s)


def rules_of(spec: Spec, *, budget_s: float, budget_blocks: int) -> Rules:
    """Return the trial's stopping rules.

    If the design has columns for its controls, controls are in every block and use many arms.
    """
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
    """Return what the pilot measured of one condition."""
    blocks = [b for b in pilot.data.blocks if b.condition == condition.key and b.void is None]
    found: list[Comparison] = []
    for response in spec.responses_of(condition, primary=True):
        if response.scale is Scale.DIFFERENCE:
            why = "it is compared by difference, which has no margin"
            found.append(Comparison(response.name, None, reason=why))
        elif response.statistic != TYPICAL:
            least = fewest_blocks(response, spec)
            why = f"equivalence of its {response.statistic} takes at least {least:,} blocks, however small the scatter"
            found.append(Comparison(response.name, None, reason=why))
        elif spec.whole_plots:
            found += _of_plots(blocks, spec, response)
        else:
            primary = [term for term in spec.terms if term.primary]
            arms = min(arms_of(term.weights) for term in primary)
            copies = copies_of(blocks, spec, response)
            scatter = scatter_of(copies)
            copied = all(spec.copy_of_reference(term, response) for term in primary)
            found.append(
                _comparison(response, scatter, len(copies), arms=arms, effects=len(primary), copied=copied)
            )
    return Line(
        condition.key,
        tuple(found),
        pilot.block_s.get(condition.key),
        pilot.first_s.get(condition.key, ()),
    )


def _of_plots(blocks: list[ObservedBlock], spec: Spec, response: Response) -> list[Comparison]:
    """Compare between and within whole plots, from the same contrasts as the trial will use.

    The scatter common to a whole plot counts too, and no difference of two single arms shows it.
    """
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
    copied: bool = False,
) -> Comparison:
    reason = None
    if scatter is None:
        reason = f"the pilot has {blocks} usable blocks of it, and {FEWEST_BLOCKS} are needed"
    return Comparison(
        response.name, scatter, arms, reason, per_block, stratum, effects, SCATTER_GROWS, copied
    )


def copies_of(blocks: list[ObservedBlock], spec: Spec, response: Response) -> list[list[float]]:
    """Return the logarithms of all arms of each block except the slowed copy; skip blocks in which a run has no value.

    If the design has columns for its controls, half of its arms are slowed: there the injected slowdown is
    subtracted from the response it was injected into.
    """
    weights = spec.control_weights.get(ArmKind.POSITIVE, {}) if _in_columns(spec) else {}
    longer = {arm for arm, weight in weights.items() if weight > 0}
    own = any(response in spec.positive_responses(condition) for condition in spec.conditions)
    slowdown = math.log(spec.injected_ratio(response)) if own else 0.0
    found = []
    for block in blocks:
        runs = [run for run in block.observations if run.kind is not ArmKind.POSITIVE]
        values = [(usable(run, response), slowdown if run.arm in longer else 0.0) for run in runs]
        kept = [value - off for value, off in values if value is not None]
        if len(kept) == len(values):
            found.append(kept)
    return found


def _in_columns(spec: Spec) -> bool:
    """Return whether controls are contrasts of the treatments themselves instead of arms of their own."""
    positive = spec.control_weights.get(ArmKind.POSITIVE, {})
    own = {arm for term in spec.terms for arm in term.weights}
    return bool(positive) and set(positive) <= own


def arms_of(weights: Mapping[str, float]) -> float:
    """Return the number of arms per level at which the difference of two means scatters as much as this contrast."""
    return 2.0 / math.fsum(weight * weight for weight in weights.values())


def _block_seconds(
    data: TrialData, seconds: Sequence[float], arms: Mapping[bool, int]
) -> Mapping[str, float]:
    """Return each condition's mean block time in the long run: half the blocks with controls, half without.

    ``arms``: runs of a block with and without controls, to estimate a kind of block that the pilot has not
    reached.
    """
    by_condition: dict[str, dict[bool, list[float]]] = {}
    for end, taken in zip(data.ends, seconds, strict=False):  # a signal ends the last block without an entry
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
    """Return the seconds of each complete block of a condition, including the void blocks before it."""
    found: dict[str, list[float]] = {}
    lost: dict[str, float] = {}
    for end, taken in zip(data.ends, seconds, strict=False):
        if end.void is None:
            found.setdefault(end.condition, []).append(taken + lost.pop(end.condition, 0.0))
        else:
            lost[end.condition] = lost.get(end.condition, 0.0) + taken
    return {key: tuple(times) for key, times in found.items()}


class _Clock:
    """A watcher that records when each block ended and forwards to another watcher.

    Only times are recorded, and forwarded snapshots carry no effects: what was measured stays unseen until
    the end.
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
