"""What a trial compares, fixed before its first run: the part of a plan that the analysis needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.analysis.verdict import is_rate, is_time
from iotrial.design.model import ArmKind, Condition, Term
from iotrial.design.plan import Plan
from iotrial.study.model import Response, Scale

# The level shared over all control effects of a trial, so that a sound trial is hardly ever called unsound.
CONTROL_LEVEL = 0.001
_SHARES = ("user", "sys")


@dataclass(frozen=True, slots=True)
class DeclaredBudget:
    """The budget that a trial began with: seconds of measuring, blocks of each condition, the ``share`` of the stake on it.

    What it is resumed with or continued to later changes nothing of this.
    """

    share: float
    time_s: float
    blocks: int

    @classmethod
    def of(cls, options: Mapping[str, object]) -> DeclaredBudget | None:
        """From the options of a trial's header; None where it has no such bet, as trials of earlier versions."""
        share, time_s, blocks = (options.get(name) for name in ("budget_share", "time_s", "blocks"))
        if not isinstance(share, float) or not 0.0 < share < 1.0:
            return None
        if not isinstance(time_s, int | float) or not isinstance(blocks, int):
            return None
        return cls(share, float(time_s), blocks)


@dataclass(frozen=True, slots=True)
class Spec:
    """The comparisons of a trial. ``injected`` is the ratio 1 + 2m by which the positive control is
    stretched.

    ``terms`` are the contrasts that are judged, ``control_weights`` those of the controls. ``primary_effects`` is how many
    effects share ``alpha`` equally. ``copied_stretch``: the negative control is a stretch of its own. ``stretched_each``
    names the workloads whose every time is stretched by itself. ``precise``: a trial goes on to the width, however large the
    effect. ``budget``: of a trial that bets on being decided within what was declared when it began, else None.
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
    copied_stretch: bool = False
    stretched_each: frozenset[str] = frozenset()
    precise: bool = False
    budget: DeclaredBudget | None = None

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        options: Mapping[str, object] = MappingProxyType({}),
        *,
        alpha: float | None = None,
        margin: float | None = None,
    ) -> Spec:
        """The comparisons of a plan, at the study's alpha and margin unless others are given.

        ``options``: those of the trial's header, which say how it was to be run.
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
            injected=1.0 + 2.0 * margin,
            primary_effects=plan.primary_effects,
            whole_plots=plan.whole_plots,
            copied_stretch=plan.whole_plots and not plan.control_columns,
            stretched_each=frozenset(w.name for w in study.workloads if w.work.stretches_each),
            precise=options.get("precise") is True,
            budget=DeclaredBudget.of(options),
        )

    def margin_of(self, response: Response) -> float:
        """The margin on the scale that contrasts of the response have; 0 where it has none."""
        return math.log1p(self.margin) if response.scale is Scale.LOG else 0.0

    @property
    def primary_alpha(self) -> float:
        """The level of each primary effect."""
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
        """The level of each pooled effect: they are a family of their own."""
        terms = sum(term.primary for term in self.terms)
        pooled = sum(terms * len(self.responses_of(some[0], primary=True)) for some in self.pools.values())
        return self.alpha / max(1, pooled)

    def alpha_of(self, term: Term, response: Response) -> float:
        """The level of one effect. Primary ones share the study's, interactions that it does not name share it as a family of
        their own; effects on exploratory responses have it whole, each, and are sorted by e-BH."""
        if not response.primary:
            return self.alpha
        if term.primary:
            return self.primary_alpha
        unnamed = sum(not other.primary for other in self.terms)
        primaries = sum(len(self.responses_of(condition, primary=True)) for condition in self.conditions)
        return self.alpha / max(1, unnamed * primaries)

    @property
    def control_alpha(self) -> float:
        """The level of each control effect."""
        effects = sum(
            len(self.negative_responses(condition)) + len(self.positive_responses(condition))
            for condition in self.conditions
        )
        return CONTROL_LEVEL / max(1, effects)

    def condition(self, key: str) -> Condition:
        """The condition of this key; KeyError where there is none."""
        for condition in self.conditions:
            if condition.key == key:
                return condition
        raise KeyError(key)

    def responses_of(self, condition: Condition, *, primary: bool) -> tuple[Response, ...]:
        """The primary, or the exploratory, responses of the condition's workload."""
        return tuple(r for r in self.responses if r.workload == condition.workload and r.primary is primary)

    def main_response(self, condition: Condition) -> Response | None:
        """The first primary response of the condition's workload; its first where none is primary."""
        return next(
            iter((*self.responses_of(condition, primary=True), *self.responses_of(condition, primary=False))),
            None,
        )

    def negative_responses(self, condition: Condition) -> tuple[Response, ...]:
        """What the negative control is judged by: each response that gets a verdict; the first where none does."""
        main = self.main_response(condition)
        return self.responses_of(condition, primary=True) or (() if main is None else (main,))

    def positive_response(self, condition: Condition) -> Response | None:
        """What the positive control is judged by: the response that the stretch is put into."""
        return stretched_response(r for r in self.responses if r.workload == condition.workload)

    def only_counts(self, condition: Condition) -> bool:
        """Whether nothing of the workload is a time or a rate. Then no slow-down can be put in, and none is needed: counts
        are equivalent only where they are the same in every block, which leaves no margin to be blind in."""
        own = (*self.responses_of(condition, primary=True), *self.responses_of(condition, primary=False))
        return all(r.scale is Scale.DIFFERENCE and not is_time(r) and not is_rate(r) for r in own)

    def positive_responses(self, condition: Condition) -> tuple[Response, ...]:
        """That response; of a workload whose every time is stretched, each primary one with a time of its own."""
        first = self.positive_response(condition)
        if first is None or condition.workload not in self.stretched_each or not first.primary:
            return () if first is None else (first,)
        if _by_processor(first):
            return (first,)
        return tuple(
            r for r in self.responses_of(condition, primary=True) if _can_hold(r) and not _by_processor(r)
        )

    def injected_ratio(self, response: Response) -> float:
        """The ratio that the stretch makes in a response: of a rate it is the inverse."""
        return 1.0 / self.injected if is_rate(response) else self.injected


def stretched_response(responses: Iterable[Response]) -> Response | None:
    """Of a workload's responses the one that the positive control stretches, and is judged by: the first primary one,
    else the first of all, that is a time or a rate compared by ratio.

    A stretch in time moves neither a count nor a size, and a ratio is no constant difference. The shares of ``user`` and
    ``sys`` in the CPU time are guessed from the scheduler's ticks, so that nothing of known
    size can be put into either; from outside nothing can be put into what a program says of
    itself; and percentiles are of the operations as they were.
    """
    fit = [response for response in responses if _can_hold(response)]
    return next(iter(sorted(fit, key=lambda response: not response.primary)), None)


def _can_hold(response: Response) -> bool:
    known = response.stretchable and (is_time(response) or is_rate(response))
    return known and response.scale is Scale.LOG and response.name not in _SHARES


def _by_processor(response: Response) -> bool:
    """Whether it is stretched by another clock than the rest."""
    return response.name == "cpu" or response.name.startswith("cpu.")
