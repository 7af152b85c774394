"""The comparisons of a trial, fixed before its first run: the part of a plan that the analysis needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.design.model import ArmKind, Condition, Term, TermKind
from iotrial.design.plan import Plan
from iotrial.stats.verdict import INJECTED, is_rate, is_time
from iotrial.study.model import DesignKind, Response, Scale

# The level shared by all control effects of a trial, low enough that a sound trial is hardly ever declared invalid.
CONTROL_LEVEL = 0.001
_SHARES = ("user", "sys")


@dataclass(frozen=True, slots=True)
class DeclaredBudget:
    """The budget at the start of a trial: measuring time in seconds, blocks per condition, ``share`` of the stake on it.

    Resuming or continuing the trial later does not change it.
    """

    share: float
    time_s: float
    blocks: int

    @classmethod
    def of(cls, options: Mapping[str, object]) -> DeclaredBudget | None:
        """Read it from the options of a trial's header; None without a budget bet, as in trials of earlier versions."""
        share, time_s, blocks = (options.get(name) for name in ("budget_share", "time_s", "blocks"))
        if not isinstance(share, float) or not 0.0 < share < 1.0:
            return None
        if not isinstance(time_s, int | float) or not isinstance(blocks, int):
            return None
        return cls(share, float(time_s), blocks)


@dataclass(frozen=True, slots=True)
class Spec:
    """The comparisons of a trial. ``injected`` is the ratio 1 + 2m by which the positive control is slowed down.

    ``terms`` are the judged contrasts, ``control_weights`` those of the controls. ``primary_effects`` is the number of
    effects that share ``alpha`` equally. ``copied_stretch``: the negative control is a separate stretch. ``stretched_each``
    names the workloads in which each time is slowed down separately. ``precise``: the trial continues to the required
    interval width, however large the effect. ``budget``: the declared budget of a trial with a budget bet, else None.
    """

    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]
    control_weights: Mapping[ArmKind, Mapping[str, float]]
    responses: tuple[Response, ...]
    alpha: float
    margin: float
    controls: bool
    injected: float
    primary_effects: int
    whole_plots: bool = False
    copied_plot: bool = False
    #: each level also runs just after itself, often enough to tell what a switch costs
    after_itself: bool = False
    stretched_each: frozenset[str] = frozenset()
    precise: bool = False
    budget: DeclaredBudget | None = None
    #: the reference arm of a race; None for other designs
    race_against: str | None = None

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        options: Mapping[str, object] = MappingProxyType({}),
        *,
        alpha: float | None = None,
        margin: float | None = None,
    ) -> Spec:
        """Build the comparisons of a plan, at the study's alpha and margin unless others are given.

        ``options``: the run options in the trial's header.
        """
        study = plan.study
        margin = study.margin if margin is None else margin
        return cls(
            conditions=plan.conditions,
            terms=plan.terms,
            control_weights=plan.control_weights,
            responses=study.responses,
            alpha=study.alpha if alpha is None else alpha,
            margin=margin,
            controls=plan.controls,
            injected=1.0 + INJECTED * margin,
            primary_effects=plan.primary_effects,
            whole_plots=plan.whole_plots,
            copied_plot=plan.whole_plots and not plan.control_columns,
            after_itself=plan.after_itself and plan.controls and not plan.whole_plots,
            stretched_each=frozenset(w.name for w in study.workloads if w.work.stretches_each()),
            precise=options.get("precise") is True,
            budget=DeclaredBudget.of(options),
            race_against=plan.reference.name if study.design.kind is DesignKind.RACE else None,
        )

    def margin_of(self, response: Response) -> float:
        """Return the margin on the scale of the response's contrasts; 0 if it has none."""
        return math.log1p(self.margin) if response.scale is Scale.LOG else 0.0

    @property
    def primary_alpha(self) -> float:
        """Alpha of each primary effect."""
        return self.alpha / max(1, self.primary_effects)

    @property
    def pools(self) -> Mapping[str, tuple[Condition, ...]]:
        """The conditions of each workload that runs under more than one."""
        found: dict[str, tuple[Condition, ...]] = {}
        for condition in self.conditions:
            found[condition.workload] = (*found.get(condition.workload, ()), condition)
        return {workload: some for workload, some in found.items() if len(some) > 1}

    @property
    def pooled_alpha(self) -> float:
        """Alpha of each pooled effect; pooled effects are a separate family."""
        terms = sum(term.primary for term in self.terms)
        pooled = sum(terms * len(self.responses_of(some[0], primary=True)) for some in self.pools.values())
        return self.alpha / max(1, pooled)

    def alpha_of(self, term: Term, response: Response) -> float:
        """Return the alpha of one effect.

        Primary effects share the study's alpha. Interactions that the study does not name share it as a separate family.
        Each effect on an exploratory response has the full alpha; these are selected by e-BH.
        """
        if not response.primary:
            return self.alpha
        if term.primary:
            return self.primary_alpha
        unnamed = sum(not other.primary for other in self.terms)
        primaries = sum(len(self.responses_of(condition, primary=True)) for condition in self.conditions)
        return self.alpha / max(1, unnamed * primaries)

    @property
    def cells(self) -> int:
        """The number of effects in cells (``analyse.cell_effects``): of each level, at each level of each other factor."""
        mains = [term for term in self.terms if term.kind is TermKind.MAIN]
        levels = {term.factor: 1 + sum(one.factor == term.factor for one in mains) for term in mains}
        each = sum(sum(levels.values()) - levels[term.factor] for term in mains)
        return each * sum(len(self.responses_of(condition, primary=True)) for condition in self.conditions)

    @property
    def control_alpha(self) -> float:
        """Alpha of each control effect."""
        effects = sum(
            len(self.negative_responses(condition)) + len(self.positive_responses(condition))
            for condition in self.conditions
        )
        return CONTROL_LEVEL / max(1, effects)

    def copy_of_reference(self, term: Term, response: Response) -> Mapping[str, float] | None:
        """Return the weights of the copy against its original, if an effect compares one arm with just this original.

        Then the bets on the effect use the copy (``betting.py``). None for other effects, and for differences, which are
        equivalent only if they are 0 in every block.
        """
        return None if term.whole else self.copy_against(term.weights, response)

    def copy_against(self, compared: Mapping[str, float], response: Response) -> Mapping[str, float] | None:
        """Return these weights for a contrast by its weights, such as that of the slowed run against its original."""
        weights = self.control_weights.get(ArmKind.NEGATIVE, {}) if self.controls else {}
        originals = [arm for arm, weight in weights.items() if weight == -1.0]
        if self.copied_plot or response.scale is not Scale.LOG or len(weights) != 2:
            return None
        same = len(compared) == 2 and len(originals) == 1 and compared.get(originals[0]) == -1.0
        return weights if same and not set(weights) <= set(compared) else None

    def condition(self, key: str) -> Condition:
        """Return the condition with this key; KeyError if there is none."""
        for condition in self.conditions:
            if condition.key == key:
                return condition
        raise KeyError(key)

    def responses_of(self, condition: Condition, *, primary: bool) -> tuple[Response, ...]:
        """Return the primary or the exploratory responses of the condition's workload."""
        return tuple(r for r in self.responses if r.workload == condition.workload and r.primary is primary)

    def main_response(self, condition: Condition) -> Response | None:
        """Return the first primary response of the condition's workload; its first response if none is primary."""
        return next(
            iter((*self.responses_of(condition, primary=True), *self.responses_of(condition, primary=False))),
            None,
        )

    def negative_responses(self, condition: Condition) -> tuple[Response, ...]:
        """Return the responses for the negative control: each that gets a verdict; the first if none does."""
        main = self.main_response(condition)
        return self.responses_of(condition, primary=True) or (() if main is None else (main,))

    def positive_response(self, condition: Condition) -> Response | None:
        """Return the response for the positive control: the one into which the slowdown is injected."""
        return stretched_response(r for r in self.responses if r.workload == condition.workload)

    def only_counts(self, condition: Condition) -> bool:
        """Return whether the workload has no response that is a time or a rate.

        Then no slowdown can be injected, and none is needed: counts are equivalent only if they are the same in every block,
        so there is no margin within which an effect could be missed.
        """
        own = (*self.responses_of(condition, primary=True), *self.responses_of(condition, primary=False))
        return all(r.scale is Scale.DIFFERENCE and not is_time(r) and not is_rate(r) for r in own)

    def positive_responses(self, condition: Condition) -> tuple[Response, ...]:
        """Return all responses for the positive control: that of ``positive_response`` or, in a workload in which each time
        is slowed down separately, each primary response with its own time."""
        first = self.positive_response(condition)
        if first is None or condition.workload not in self.stretched_each or not first.primary:
            return () if first is None else (first,)
        if _by_processor(first):
            return (first,)
        return tuple(
            r for r in self.responses_of(condition, primary=True) if _can_hold(r) and not _by_processor(r)
        )

    def injected_ratio(self, response: Response) -> float:
        """Return the ratio that the slowdown causes in a response; the inverse for a rate."""
        return 1.0 / self.injected if is_rate(response) else self.injected


def stretched_response(responses: Iterable[Response]) -> Response | None:
    """Return the response of a workload that the positive control slows down and is judged by.

    It is the first primary response, else the first of all, that is a time or a rate compared by ratio.

    A slowdown changes neither counts nor sizes, and a ratio is not a constant difference. The kernel estimates the ``user``
    and ``sys`` shares of CPU time from scheduler ticks, so no known amount can be injected into either. Values that a program
    reports about itself cannot be changed from outside. Percentiles are of the operations as they ran, without the injection.
    """
    fit = [response for response in responses if _can_hold(response)]
    return next(iter(sorted(fit, key=lambda response: not response.primary)), None)


def _can_hold(response: Response) -> bool:
    known = response.stretchable and (is_time(response) or is_rate(response))
    return known and response.scale is Scale.LOG and response.name not in _SHARES


def _by_processor(response: Response) -> bool:
    """Return whether the response is CPU time, which is slowed down by a different clock than the rest."""
    return response.name == "cpu" or response.name.startswith("cpu.")
