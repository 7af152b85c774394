"""What a trial compares, fixed before its first run: the part of a plan that the analysis needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iotrial.analysis.verdict import is_rate, is_time
from iotrial.design.model import Condition
from iotrial.design.plan import Plan
from iotrial.study.model import Response, Scale

# The level shared over all control effects of a trial, so that a sound trial is hardly ever called unsound.
CONTROL_LEVEL = 0.001


@dataclass(frozen=True, slots=True)
class ComparedFactor:
    """A treatment factor: the labels that are each compared with the reference."""

    name: str
    levels: tuple[str, ...]
    reference: str


@dataclass(frozen=True, slots=True)
class Spec:
    """The comparisons of a trial. ``injected`` is the ratio 1 + 2m by which the positive control is
    stretched.

    ``primary_effects`` is how many effects share ``alpha`` equally.
    """

    conditions: tuple[Condition, ...]
    factors: tuple[ComparedFactor, ...]
    responses: tuple[Response, ...]
    alpha: float
    margin: float
    controls: bool
    injected: float
    primary_effects: int

    @classmethod
    def from_plan(cls, plan: Plan, *, alpha: float | None = None, margin: float | None = None) -> Spec:
        """The comparisons of a plan, at the study's alpha and margin unless others are given."""
        study = plan.study
        margin = study.margin if margin is None else margin
        return cls(
            conditions=plan.conditions,
            factors=tuple(
                ComparedFactor(
                    factor.name,
                    tuple(level.label for level in factor.levels if level.label != factor.reference),
                    factor.reference,
                )
                for factor in study.treatment_factors
            ),
            responses=study.responses,
            alpha=study.alpha if alpha is None else alpha,
            margin=margin,
            controls=plan.controls,
            injected=1.0 + 2.0 * margin,
            primary_effects=plan.primary_effects,
        )

    @property
    def reference(self) -> Mapping[str, str]:
        """The reference treatment: the reference of every factor."""
        return {factor.name: factor.reference for factor in self.factors}

    @property
    def primary_alpha(self) -> float:
        """The level of each primary effect."""
        return self.alpha / max(1, self.primary_effects)

    @property
    def control_alpha(self) -> float:
        """The level of each control effect."""
        effects = sum(
            (self.negative_response(condition) is not None) + (self.positive_response(condition) is not None)
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

    def negative_response(self, condition: Condition) -> Response | None:
        """What the negative control is judged by."""
        return self.main_response(condition)

    def positive_response(self, condition: Condition) -> Response | None:
        """What the positive control is judged by: the main response, or, since a stretch in time moves
        neither a count nor a size, the first that is a time or a rate."""
        both = (*self.responses_of(condition, primary=True), *self.responses_of(condition, primary=False))
        return next((r for r in both if r.scale is Scale.LOG and (is_time(r) or is_rate(r))), None)

    def injected_ratio(self, response: Response) -> float:
        """The ratio that the stretch makes in a response: of a rate it is the inverse."""
        return 1.0 / self.injected if is_rate(response) else self.injected
