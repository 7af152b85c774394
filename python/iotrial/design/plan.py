"""The plan of a study: its conditions and arms, and the random order and assignment of every block.

Everything is a pure function of the study and the seed; nothing is stored but these two. The order of each
(condition, block) is drawn independently of all others and of the past, uniformly over the permutations of
its arms: this draw alone is what the test of the analysis rests on. Which files an arm works on is drawn anew
in every block too, so that place on disk cannot pass for an effect.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

from iotrial.design.keyed import Stream, new_seed, seed_bytes, seed_from_user
from iotrial.design.model import Arm, ArmKind, Block, Condition, PlannedRun
from iotrial.errors import RequestError
from iotrial.study.model import Factor, Response, Study, Workload

__all__ = ["NEGATIVE_ARM", "POSITIVE_ARM", "Plan", "new_seed", "seed_from_user"]

NEGATIVE_ARM = "control:negative"
POSITIVE_ARM = "control:positive"
MAX_ARMS = 1024  # of one block: beyond, a block is no short stretch of time
MAX_CONDITIONS = 10_000


class Plan:
    """The randomised runs of a study. ``study`` is already narrowed to the levels and workloads that run.

    ``seed`` is 32 hexadecimal digits. Without ``controls`` no block holds a control arm. Raises
    RequestError where the study leaves nothing to compare or nothing to compare with.
    """

    def __init__(self, study: Study, seed: str, *, controls: bool = True) -> None:
        seed_bytes(seed)
        _check(study)
        self.study = study
        self.seed = seed.lower()
        self.controls = controls
        self.conditions = _conditions(study)
        self.treatments = _treatments(study.treatment_factors)
        self.reference = _reference(study.treatment_factors, self.treatments)
        for workload in {condition.workload for condition in self.conditions}:
            self._check_pool(study.workload(workload))

    @property
    def primary_effects(self) -> int:
        """How many effects share the study's alpha: fixed before the first run."""
        levels = sum(len(factor.levels) - 1 for factor in self.study.treatment_factors)
        primaries = [
            sum(response.primary for response in self.responses(condition.workload))
            for condition in self.conditions
        ]
        return levels * sum(primaries)

    def responses(self, workload: str) -> tuple[Response, ...]:
        """The responses of one workload, in the study's order."""
        return tuple(response for response in self.study.responses if response.workload == workload)

    def condition(self, key: str) -> Condition:
        """The condition of this key; KeyError where there is none."""
        for condition in self.conditions:
            if condition.key == key:
                return condition
        raise KeyError(key)

    def arms(self, *, controls: bool) -> tuple[Arm, ...]:
        """The members of a block in declared order, with the control arms or without."""
        if not (controls and self.controls):
            return self.treatments
        return (
            *self.treatments,
            Arm(NEGATIVE_ARM, ArmKind.NEGATIVE, self.reference.treatment),
            Arm(POSITIVE_ARM, ArmKind.POSITIVE, self.reference.treatment),
        )

    def pool_size(self, workload: Workload) -> int:
        """How many files the workload needs to exist, for its runs to draw from."""
        return workload.work.pool or 2 * len(self.arms(controls=True)) * workload.work.files

    def block(self, condition: Condition, index: int) -> Block:
        """Block ``index`` (from 0) of a condition. Controls take part where the index is even."""
        controls = self.controls and index % 2 == 0
        arms = self.arms(controls=controls)
        order = self._order(condition, index, len(arms))
        files = self._files(condition, index, arms)
        runs = tuple(PlannedRun(slot, arms[arm], files[arm]) for slot, arm in enumerate(order))
        return Block(condition, index, controls, runs)

    def order(self, condition: Condition, index: int) -> tuple[Arm, ...]:
        """The arms of ``block(condition, index)`` in the order of its slots, without drawing its files."""
        arms = self.arms(controls=index % 2 == 0)
        return tuple(arms[arm] for arm in self._order(condition, index, len(arms)))

    def round(self, number: int, undecided: Collection[Condition]) -> tuple[Condition, ...]:
        """The undecided conditions in the random order of round ``number``, one block of each."""
        waiting = sorted(undecided, key=lambda condition: condition.index)
        order = Stream(self.seed, "round", number).permutation(len(waiting))
        return tuple(waiting[i] for i in order)

    def _order(self, condition: Condition, index: int, arms: int) -> tuple[int, ...]:
        return Stream(self.seed, "order", condition.key, index).permutation(arms)

    def _files(self, condition: Condition, index: int, arms: Sequence[Arm]) -> list[tuple[int, ...] | None]:
        """What each arm works on, in the order of ``arms``."""
        workload = self.study.workload(condition.workload)
        files, pool = workload.work.files, self.pool_size(workload)
        if pool == files:
            return [None] * len(arms)
        if workload.work.contiguous:
            groups = Stream(self.seed, "assignment", condition.key, index).sample(pool // files, len(arms))
            return [tuple(range(group * files, (group + 1) * files)) for group in groups]
        if pool >= len(arms) * files:
            drawn = Stream(self.seed, "assignment", condition.key, index).sample(pool, len(arms) * files)
            return [drawn[i * files : (i + 1) * files] for i in range(len(arms))]
        return [
            Stream(self.seed, "assignment", condition.key, index, arm.name).sample(pool, files)
            for arm in arms
        ]

    def _check_pool(self, workload: Workload) -> None:
        if workload.work.files < 1:
            raise RequestError(
                f"workload {workload.name}: a run needs at least one file, found {workload.work.files}"
            )
        if self.pool_size(workload) < workload.work.files:
            raise RequestError(
                f"workload {workload.name}: a run needs {workload.work.files} files, "
                f"its pool holds {workload.work.pool}"
            )
        pool, files = self.pool_size(workload), workload.work.files
        arms = len(self.arms(controls=True))
        if workload.work.contiguous and pool != files and pool // files < arms:
            raise RequestError(
                f"workload {workload.name}: a block needs {arms} times {files} neighbours, its pool of {pool} holds "
                f"them {pool // files} times"
            )


def condition_key(workload: str, levels: Mapping[str, str]) -> str:
    """The stable text of a condition: ``name=label`` sorted by name; ``\\``, ``,`` and ``=`` escaped by
    ``\\``."""
    pairs = sorted({**levels, "workload": workload}.items())
    return ",".join(f"{_escaped(name, ',=')}={_escaped(label, ',=')}" for name, label in pairs)


def _check(study: Study) -> None:
    if not study.treatment_factors:
        raise RequestError(f"study {study.name}: no factor of role treatment, so nothing to compare")
    for factor in study.factors:
        if factor.name == "workload":
            raise RequestError(f'study {study.name}: "workload" cannot be the name of a factor')
        labels = [level.label for level in factor.levels]
        if len(set(labels)) != len(labels) or not labels:
            raise RequestError(
                f"study {study.name}: factor {factor.name} needs levels of different labels, found {labels}"
            )
    for factor in study.treatment_factors:
        labels = [level.label for level in factor.levels]
        if factor.reference not in labels:
            raise RequestError(
                f'study {study.name}: factor {factor.name} is compared with "{factor.reference}", '
                f"which is not among its levels {labels}"
            )
    if all(len(factor.levels) < 2 for factor in study.treatment_factors):
        raise RequestError(f"study {study.name}: one level of each factor is left, so nothing to compare")
    _check_counts(study)


def _check_counts(study: Study) -> None:
    """A handful of factors can multiply to more than any machine can hold."""
    arms = math.prod(len(factor.levels) for factor in study.treatment_factors)
    if arms > MAX_ARMS:
        raise RequestError(
            f"study {study.name}: its treatments multiply to {arms:,} arms, a block holds at most {MAX_ARMS:,}",
            hint="choose fewer levels with --set",
        )
    conditions = math.prod(len(factor.levels) for factor in study.condition_factors) * len(study.workloads)
    if conditions > MAX_CONDITIONS:
        raise RequestError(
            f"study {study.name}: {conditions:,} conditions, a trial holds at most {MAX_CONDITIONS:,}",
            hint="choose fewer levels with --condition",
        )


def _conditions(study: Study) -> tuple[Condition, ...]:
    names = [factor.name for factor in study.condition_factors]
    labels = [[level.label for level in factor.levels] for factor in study.condition_factors]
    found: list[Condition] = []
    for workload in study.workloads:
        for combination in itertools.product(*labels):
            levels = dict(zip(names, combination, strict=True))
            if all(levels.get(name) in allowed for name, allowed in workload.only.items()):
                found.append(
                    Condition(len(found), condition_key(workload.name, levels), workload.name, levels)
                )
    if not found:
        raise RequestError(f"study {study.name}: no workload runs under any of the chosen conditions")
    return tuple(found)


def _treatments(factors: Sequence[Factor]) -> tuple[Arm, ...]:
    arms = []
    for levels in itertools.product(*(factor.levels for factor in factors)):
        labels = [level.label for level in levels]
        name = labels[0] if len(labels) == 1 else "+".join(_escaped(label, "+") for label in labels)
        if name in (NEGATIVE_ARM, POSITIVE_ARM):
            raise RequestError(f'"{name}" is the name of a control and cannot be a level')
        treatment = {factor.name: label for factor, label in zip(factors, labels, strict=True)}
        arms.append(Arm(name, ArmKind.TREATMENT, treatment))
    return tuple(arms)


def _reference(factors: Sequence[Factor], treatments: Sequence[Arm]) -> Arm:
    wanted = {factor.name: factor.reference for factor in factors}
    return next(arm for arm in treatments if arm.treatment == wanted)


def _escaped(text: str, special: str) -> str:
    return "".join("\\" + c if c in special or c == "\\" else c for c in text)
