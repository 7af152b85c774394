"""The plan of a study: its conditions and arms, and the random order and file assignment of every block.

Everything is a pure function of the study and the seed. Only these two are stored and, for a screening design, its coded
rows, because another version of the library that generates them may generate different ones. The order of each (condition,
block) is drawn independently of all others and of the past, uniformly over the permutations of its arms. The test of the
analysis rests on this draw alone. The files of each arm are also drawn at random in every block, so that their location on
disk cannot be mistaken for an effect.

A study with whole-plot factors has blocks of plots, one for each combination of their levels, in random order. In each
plot the other treatments run ``repeats`` times, in a new random order each time. Every even block has one extra plot,
a copy of the reference's (negative control); in every odd block each plot has one extra arm (positive control).

To see what a switch costs, each level must also run just after itself. The copy and the border between two blocks do that
for the reference. With two arms, the slowed-down run is of the other arm. With more, an unmeasured run of the same arm comes
just before some of the runs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from iotrial.design.keyed import Stream, new_seed, seed_bytes, seed_from_user
from iotrial.design.model import Arm, ArmKind, Before, Block, Condition, PlannedRun, Term, WashIn
from iotrial.design.treatments import NEGATIVE_ARM, POSITIVE_ARM, escaped, treatments
from iotrial.errors import RequestError
from iotrial.study.model import Response, Study, Workload

__all__ = ["NEGATIVE_ARM", "POSITIVE_ARM", "Plan", "new_seed", "seed_from_user"]

MAX_CONDITIONS = 10_000
#: default for new trials: each of this many first blocks of a condition includes control arms. Detecting a slowdown of
#: twice the margin takes some 10 to 25 blocks, and a trial with a clear effect ends after as few (METHOD.md).
CONTROLS_FIRST = 24

#: number of first blocks in which half of the arms run just after themselves, so that this is soon known of each
_AFTER_ITSELF_SOON = 10

Repeat = tuple[int | None, tuple[Arm, ...]]  # a plot, and the arms of one of its repeats in run order


class Plan:
    """The randomised runs of a study. ``study`` is already narrowed to the levels and workloads that run.

    ``seed`` is 32 hexadecimal digits. Without ``controls`` no block has controls. Control arms take part in the first
    ``controls_first`` blocks of a condition, then in every second block; for trials stored without that number it is 0.
    ``after_itself``: every level also runs just after itself (false for trials stored before that).
    ``design_rows`` are the rows of a stored screening design; if empty, the design is generated. Raises RequestError if the
    study has nothing to compare or no reference to compare with.
    """

    #: True if the workloads are smaller than the study declares, as in a rehearsal
    cut_down: ClassVar[bool] = False

    def __init__(
        self,
        study: Study,
        seed: str,
        *,
        controls: bool = True,
        controls_first: int = 0,
        design_rows: Sequence[str] = (),
        after_itself: bool = False,
    ) -> None:
        seed_bytes(seed)
        _check(study)
        self.study = study
        self.seed = seed.lower()
        # nothing can be injected into a service in use, and its windows are too long for copies
        self.controls = controls = controls and not study.in_windows
        self.controls_first = controls_first if controls else 0
        self.after_itself = after_itself and not study.in_windows
        self.conditions = _conditions(study)
        self._made = treatments(study, controls=controls, design_rows=design_rows)
        self.treatments = self._made.arms
        self.reference = self._made.reference
        self.whole_plots = any(factor.whole_plot for factor in study.treatment_factors)
        for workload in {condition.workload for condition in self.conditions}:
            self._check_pool(study.workload(workload))

    @classmethod
    def stored(cls, study: Study, seed: str, options: Mapping[str, object]) -> Plan:
        """Build the plan of a stored trial from the options in its header."""
        first, rows = options.get("controls_first", 0), options.get("design_rows")
        return cls(
            study,
            seed,
            controls=bool(options.get("controls", True)),
            controls_first=first if isinstance(first, int) else 0,
            design_rows=[str(row) for row in rows] if isinstance(rows, list) else (),
            after_itself=options.get("after_itself") is True,
        )

    @property
    def options(self) -> dict[str, object]:
        """The options of a trial's header that ``stored`` reads."""
        found: dict[str, object] = {"controls_first": self.controls_first, "after_itself": self.after_itself}
        return {**found, "design_rows": self._made.design_rows} if self._made.design_rows else found

    @property
    def terms(self) -> tuple[Term, ...]:
        """The contrasts that the treatments can estimate: main effects, then interactions."""
        return self._made.terms

    @property
    def control_columns(self) -> bool:
        """True if the controls are columns of the design and need no extra runs."""
        return self._made.control_columns

    @property
    def control_weights(self) -> Mapping[ArmKind, Mapping[str, float]]:
        """The contrasts of the controls, by kind: weights by arm name (empty without controls)."""
        if not self.controls:
            return {}
        if self._made.control_columns:
            return self._made.column_controls
        copies = self._negative_arms()
        share = 1.0 / len(copies)
        negative = {copy.name: share for copy in copies}
        originals = self._made.plots[self._reference_plot]
        negative |= (
            {arm.name: -share for arm in originals} if self.whole_plots else {self.reference.name: -1.0}
        )
        share = 1.0 / len(self._made.plots) if self.whole_plots else 1.0
        positive: dict[str, float] = {}
        for plot in range(len(self._made.plots) if self.whole_plots else 1):
            base = self._base(plot) if self.whole_plots else self._slowed
            positive |= {self._positive_arm(base).name: share, base.name: -share}
        return {ArmKind.NEGATIVE: negative, ArmKind.POSITIVE: positive}

    @property
    def primary_effects(self) -> int:
        """Number of effects that share the study's alpha; fixed before the first run."""
        primaries = [
            sum(response.primary for response in self.responses(condition.workload))
            for condition in self.conditions
        ]
        return sum(term.primary for term in self.terms) * sum(primaries)

    def responses(self, workload: str) -> tuple[Response, ...]:
        """Return the responses of one workload, in the study's order."""
        return tuple(response for response in self.study.responses if response.workload == workload)

    def condition(self, key: str) -> Condition:
        """Return the condition with this key; KeyError if there is none."""
        for condition in self.conditions:
            if condition.key == key:
                return condition
        raise KeyError(key)

    def arms(self, *, controls: bool) -> tuple[Arm, ...]:
        """Return the arms of a block in declared order, with or without the control arms."""
        if not (controls and self.controls) or self._made.control_columns:
            return self.treatments
        return self._with_controls

    @functools.cached_property
    def _with_controls(self) -> tuple[Arm, ...]:
        if self.whole_plots:
            plots = range(len(self._made.plots))
            positive = tuple(self._positive_arm(self._base(plot)) for plot in plots)
            return (*self.treatments, *self._negative_arms(), *positive)
        return (*self.treatments, *self._negative_arms(), self._positive_arm(self._slowed))

    @property
    def _slowed(self) -> Arm:
        """The arm that the slowed run repeats: of two arms the one without a copy, so that both levels follow themselves."""
        if self.after_itself and len(self.treatments) == 2:
            return next(arm for arm in self.treatments if arm is not self.reference)
        return self.reference

    def _negative_arms(self) -> tuple[Arm, ...]:
        """Return the copy of the reference; in a study with whole plots, copies of every arm of its plot."""
        originals = self._made.plots[self._reference_plot] if self.whole_plots else (self.reference,)
        if len(originals) == 1:
            return (Arm(NEGATIVE_ARM, ArmKind.NEGATIVE, originals[0].treatment),)
        return tuple(
            Arm(f"{NEGATIVE_ARM}+{arm.name}", ArmKind.NEGATIVE, arm.treatment, stretched=arm.stretched)
            for arm in originals
        )

    def _positive_arm(self, base: Arm) -> Arm:
        name = POSITIVE_ARM if len(self._made.plots) == 1 else f"{POSITIVE_ARM}+{base.name}"
        return Arm(name, ArmKind.POSITIVE, base.treatment, stretched=True)

    @property
    def _reference_plot(self) -> int:
        return next(i for i, plot in enumerate(self._made.plots) if self.reference in plot)

    def _base(self, plot: int) -> Arm:
        """Return the arm of a plot at the position that the reference has in its own plot."""
        return self._made.plots[plot][self._made.plots[self._reference_plot].index(self.reference)]

    def pool_size(self, workload: Workload) -> int:
        """Return how many files the workload needs for its runs to draw from."""
        return workload.work.pool or 2 * self._most_together * workload.work.files

    @property
    def _most_together(self) -> int:
        """Maximum number of arms that share a draw of files."""
        if not self.whole_plots:
            return len(self.arms(controls=True))
        alone = self.controls and not self._made.control_columns
        return len(self._made.plots[0]) + alone

    def block(self, condition: Condition, index: int, inside: Collection[str] | None = None) -> Block:
        """Return block ``index`` (from 0) of a condition. The first blocks and those of even index include control arms.

        ``inside`` names the arms that are still in a race; the controls stay.
        """
        runs: list[PlannedRun] = []
        for number, (plot, arms) in enumerate(self._repeats(condition, index, inside)):
            files = self._files(condition, index, arms, () if plot is None else (number,))
            for arm in arms:
                runs.append(PlannedRun(len(runs), arm, files[arm.name], plot))
        controls = any(run.arm.of_control for run in runs)
        return Block(condition, index, controls, tuple(runs), self._after_themselves(condition, index, runs))

    def wash_in(
        self, wash_in: WashIn, condition: Condition, index: int, run: PlannedRun
    ) -> tuple[PlannedRun, bool]:
        """Return the unmeasured run before a run of block ``index``, and whether it has another level than that run.

        It is never slowed down, and works on the files of the run that follows. In a study with whole plots the reference is
        the arm of the run's own plot that corresponds to it. For ``DRAWN`` a coin decides between the run's own level and
        another one: the reference, or any treatment before the reference and its copies.
        """
        own, reference = replace(run.arm, stretched=False), self.reference
        if self.whole_plots and (plot := self._own_plot(run.arm)) is not None:
            reference = self._base(plot)
        arm = reference if wash_in.before is Before.REFERENCE else own
        other = False
        if wash_in.before is Before.DRAWN:
            stream = Stream(self.seed, "wash-in", condition.key, index, run.slot)
            other = stream.below(2) == 1
            if other and own.treatment == reference.treatment:
                others = [one for one in self.treatments if one.treatment != own.treatment]
                arm = others[stream.below(len(others))]
            elif other:
                arm = reference
        return replace(run, arm=replace(arm, stretched=False)), other

    def _after_themselves(
        self, condition: Condition, index: int, runs: Sequence[PlannedRun]
    ) -> frozenset[int]:
        """Return the slots of the runs that come just after an unmeasured run of their own arm.

        The arms that alone have a level, and no copy, take turns in random order: half of them in each of the first
        blocks, one in a later block with controls. With two arms there is no such run: the slowed-down run serves. The first
        run of a block never is one, because the unmeasured run works on the files of the run before it."""
        if not self.after_itself or len(self.treatments) == 2 or self.whole_plots:
            return frozenset()
        alone = [run.slot for run in sorted(runs, key=lambda run: run.arm.name) if run.arm in self._alone]
        soon = index < _AFTER_ITSELF_SOON
        if not alone or not (soon or self._with_extras(index)):
            return frozenset()
        together = math.ceil(len(alone) / 2) if soon else 1
        turn, part = divmod(index, math.ceil(len(alone) / together))
        order = Stream(self.seed, "after itself", condition.key, turn).permutation(len(alone))
        drawn = {alone[one] for one in order[part * together : (part + 1) * together]}
        return frozenset(drawn - {0})

    @functools.cached_property
    def _alone(self) -> tuple[Arm, ...]:
        """The arms, without the reference, that are the only one with one of their levels."""
        levels = Counter(pair for arm in self.treatments for pair in arm.treatment.items())
        return tuple(
            arm
            for arm in self.treatments
            if arm is not self.reference and min(levels[pair] for pair in arm.treatment.items()) == 1
        )

    def _with_extras(self, index: int) -> bool:
        """Return whether block ``index`` has what not every block needs: controls, and a run that repeats."""
        return index < self.controls_first or index % 2 == 0

    def _own_plot(self, arm: Arm) -> int | None:
        """Return the plot of an arm; None for a copy, which belongs to the reference's."""
        for number, plot in enumerate(self._made.plots):
            if arm in plot or arm == self._positive_arm(self._base(number)):
                return number
        return None

    def order(
        self, condition: Condition, index: int, inside: Collection[str] | None = None
    ) -> tuple[Arm, ...]:
        """Return the arms of ``block(condition, index, inside)`` in slot order, without drawing its files."""
        repeats = self._repeats(condition, index, inside)
        return tuple(itertools.chain.from_iterable(arms for _, arms in repeats))

    def round(self, number: int, undecided: Collection[Condition]) -> tuple[Condition, ...]:
        """Return the undecided conditions in the random order of round ``number``; a round has one block of each."""
        waiting = sorted(undecided, key=lambda condition: condition.index)
        order = Stream(self.seed, "round", number).permutation(len(waiting))
        return tuple(waiting[i] for i in order)

    def _repeats(
        self, condition: Condition, index: int, inside: Collection[str] | None = None
    ) -> list[Repeat]:
        """Draw the order of a block. Each entry is one repeat, which runs every arm once."""
        if not self.whole_plots:
            arms = self.arms(controls=self._with_extras(index))
            if inside is not None:
                arms = tuple(arm for arm in arms if arm.of_control or arm.name in inside)
            return [(None, self._permuted(arms, "order", condition.key, index))]
        plots = [list(plot) for plot in self._made.plots]
        if self.controls and not self._made.control_columns:
            if index % 2 == 0:
                plots.append(list(self._negative_arms()))
            else:
                for number, plot in enumerate(plots):
                    plot.append(self._positive_arm(self._base(number)))
        order = Stream(self.seed, "stretches", condition.key, index).permutation(len(plots))
        return [
            (place, self._permuted(plots[which], "order", condition.key, index, place, repeat))
            for place, which in enumerate(order)
            for repeat in range(self.study.design.repeats)
        ]

    def _permuted(self, arms: Sequence[Arm], domain: str, *key: str | int) -> tuple[Arm, ...]:
        return tuple(arms[arm] for arm in Stream(self.seed, domain, *key).permutation(len(arms)))

    def _files(
        self, condition: Condition, index: int, order: Sequence[Arm], repeat: tuple[int, ...]
    ) -> dict[str, tuple[int, ...] | None]:
        """Draw the files of each arm, by name, in one repeat (``repeat`` is empty if there is only one)."""
        workload = self.study.workload(condition.workload)
        files, pool = workload.work.files, self.pool_size(workload)
        names = sorted((arm.name for arm in order), key=self._declared.__getitem__)
        key: tuple[str | int, ...] = (condition.key, index, *repeat)
        stream = Stream(self.seed, "assignment", *key)
        if pool == files:
            return dict.fromkeys(names)
        if workload.work.contiguous:
            groups = stream.sample(pool // files, len(names))
            return {n: tuple(range(g * files, (g + 1) * files)) for n, g in zip(names, groups, strict=True)}
        if pool >= len(names) * files:
            drawn = stream.sample(pool, len(names) * files)
            return {name: drawn[i * files : (i + 1) * files] for i, name in enumerate(names)}
        return {name: Stream(self.seed, "assignment", *key, name).sample(pool, files) for name in names}

    @functools.cached_property
    def _declared(self) -> dict[str, int]:
        return {arm.name: number for number, arm in enumerate(self.arms(controls=True))}

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
        arms = self._most_together
        if workload.work.contiguous and pool != files and pool // files < arms:
            raise RequestError(
                f"workload {workload.name}: a block needs {arms} times {files} neighbours, its pool of {pool} "
                f"is enough for {pool // files} times"
            )


def condition_key(workload: str, levels: Mapping[str, str]) -> str:
    """Return the stable text of a condition: ``name=label`` sorted by name; ``\\``, ``,`` and ``=`` escaped by ``\\``."""
    pairs = sorted({**levels, "workload": workload}.items())
    return ",".join(f"{escaped(name, ',=')}={escaped(label, ',=')}" for name, label in pairs)


def _check(study: Study) -> None:
    if not study.treatment_factors:
        raise RequestError(
            f"study {study.name}: no factor has the role treatment, so there is nothing to compare"
        )
    for factor in study.factors:
        if factor.name == "workload":
            raise RequestError(f'study {study.name}: "workload" cannot be the name of a factor')
        labels = [level.label for level in factor.levels]
        if len(set(labels)) != len(labels) or not labels:
            raise RequestError(
                f"study {study.name}: factor {factor.name} needs levels with different labels, found {labels}"
            )
    for factor in study.treatment_factors:
        labels = [level.label for level in factor.levels]
        if factor.reference not in labels:
            raise RequestError(
                f'study {study.name}: factor {factor.name} is compared with "{factor.reference}", '
                f"which is not among its levels {labels}"
            )
    if all(len(factor.levels) < 2 for factor in study.treatment_factors):
        raise RequestError(
            f"study {study.name}: only one level of each factor is left, so there is nothing to compare"
        )
    _check_counts(study)


def _check_counts(study: Study) -> None:
    """Limit the number of conditions: a few factors can multiply to more than fits in memory."""
    conditions = math.prod(len(factor.levels) for factor in study.condition_factors) * len(study.workloads)
    if conditions > MAX_CONDITIONS:
        raise RequestError(
            f"study {study.name}: {conditions:,} conditions, the maximum is {MAX_CONDITIONS:,}",
            hint="choose fewer levels with --condition",
        )


def _conditions(study: Study) -> tuple[Condition, ...]:
    names = [factor.name for factor in study.condition_factors]
    labels = [[level.label for level in factor.levels] for factor in study.condition_factors]
    found: list[Condition] = []
    for workload in study.workloads:
        for combination in itertools.product(*labels):
            levels = dict(zip(names, combination, strict=True))
            if not workload.work.possible(study.settings_under(levels)):
                continue
            if all(levels.get(name) in allowed for name, allowed in workload.only.items()):
                found.append(
                    Condition(len(found), condition_key(workload.name, levels), workload.name, levels)
                )
    if not found:
        raise RequestError(f"study {study.name}: no workload runs under any of the chosen conditions")
    return tuple(found)
