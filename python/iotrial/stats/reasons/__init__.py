"""Diagnose why a trial is invalid: likely causes of a failed control, from the recorded data, the most likely first.

A cause has a ``weight``: the share of the control's deviation that it accounts for, reduced if the evidence for it is weak.
For a covariate of both runs of a pair (slot in the block, a counter, a slow mode), the share is the part of the mean
deviation that a least-squares line removes when the covariate is the same in both. A cause that accounts for less than a
third, or has a p-value above .001, is not listed. Several causes may apply, or none. A cause shows where to look first and
is not a proof: correlation with a deviation is not causation. The trial stays invalid whatever is found here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from iotrial.design.model import ArmKind
from iotrial.design.plan import condition_key
from iotrial.stats.model import Analysis, Control, ObservedBlock
from iotrial.stats.reasons import arms, stretch
from iotrial.stats.reasons.case import Case, Reason
from iotrial.stats.reasons.pairs import FEWEST, RunFacts, RunKey, pair_up
from iotrial.stats.voids import compare_void_rates
from iotrial.study.model import Response, Scale

__all__ = ["Reason", "RunFacts", "likely_reasons"]


def likely_reasons(
    analysis: Analysis,
    blocks: Sequence[ObservedBlock],
    responses: Sequence[Response],
    facts: Mapping[RunKey, RunFacts],
    *,
    weights: Mapping[ArmKind, Mapping[str, float]],
    margin: float,
    same_files: frozenset[str] = frozenset(),
    mixed: Mapping[ArmKind, Sequence[str]] | None = None,
) -> tuple[Reason, ...]:
    """Return the likely causes of an invalid trial, the most likely first (empty if it is valid).

    ``blocks`` of all conditions in time order; ``facts`` by (condition, block, slot); ``weights``: the controls' contrasts,
    by kind (``Plan.control_weights``); ``same_files`` names the workloads in which all arms work on the same files; ``mixed``
    are the interactions confounded with the control columns of a design.
    """
    found: list[Reason] = []
    for control in analysis.controls:
        if not control.passed:
            own = weights.get(ArmKind(control.kind), {})
            found += _of_control(control, blocks, responses, facts, own, margin, same_files)
            found += _of_design(control, (mixed or {}).get(ArmKind(control.kind), ()))
    found += [
        Reason("void_rule", text, "find out why runs at this level fail their check", 0.9, {}, "")
        for text in compare_void_rates(blocks)[1]
    ]
    return _merged(found)


def _of_control(
    control: Control,
    blocks: Sequence[ObservedBlock],
    responses: Sequence[Response],
    facts: Mapping[RunKey, RunFacts],
    weights: Mapping[str, float],
    margin: float,
    same_files: frozenset[str],
) -> Iterator[Reason]:
    workload = control.condition.get("workload", "")
    levels = {name: label for name, label in control.condition.items() if name != "workload"}
    key = condition_key(workload, levels)
    response = next((r for r in responses if (r.workload, r.name) == (workload, control.response)), None)
    own = [block for block in blocks if block.condition == key]
    if response is None or not own:
        return
    pairs = pair_up(own, response, weights, facts)
    truth = math.log(control.injected) if response.scale is Scale.LOG else control.injected
    case = Case(control, response, pairs, pairs.differences - truth, truth, margin, workload in same_files)
    if (reason := arms.left_out(case)) is not None:
        yield reason
    if pairs.count < FEWEST:
        return
    for look in (*arms.LOOKS, *(stretch.LOOKS if control.kind == ArmKind.POSITIVE.value else ())):
        yield from look(case)


def _of_design(control: Control, mixed: Sequence[str]) -> Iterator[Reason]:
    """Yield the design itself as a cause: interactions confounded with the control's column, which no run can separate."""
    if mixed:
        yield Reason(
            "mixed_design",
            f"the design mixes {len(mixed)} interactions of two factors into the column of this control "
            f"({', '.join(mixed[:3])}{', ...' if len(mixed) > 3 else ''}): if one of them exists, it moves the control",
            "fold the design over, or use resolution 4: main effects of this design are as biased as the control",
            0.5,
            dict(control.condition),
            control.response,
        )


def _merged(found: Sequence[Reason]) -> tuple[Reason, ...]:
    """Keep the reason with the largest weight of each code, sorted by weight."""
    best: dict[str, Reason] = {}
    for reason in sorted(found, key=lambda reason: -reason.weight):
        first = best.get(reason.code)
        best[reason.code] = reason if first is None else replace(first, controls=first.controls + 1)
    return tuple(best.values())
