"""Diagnose why a trial is invalid: likely causes of a failed control, from the recorded data, the most likely first.

A cause has a ``weight``: the share of the control's deviation that it accounts for, reduced if the evidence for it is weak.
For a covariate of both runs of a pair (slot in the block, a counter, a slow mode), the share is the part of the mean
deviation that a least-squares line removes when the covariate is the same in both. A cause that accounts for less than a
third, or has a p-value above .001, is not listed. Several causes may apply, or none. A cause shows where to look first and
is not a proof: correlation with a deviation is not causation. The trial stays invalid whatever is found here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from iotrial.design.model import ArmKind
from iotrial.design.plan import condition_key
from iotrial.stats.model import Analysis, Control, ObservedBlock
from iotrial.stats.reasons import arms
from iotrial.stats.reasons.case import FULL_EVIDENCE, LEAST_EVIDENCE, LEAST_SHARE, Case, Reason
from iotrial.stats.reasons.pairs import FEWEST, RunFacts, RunKey, calmed, evidence_of, pair_up, raw, slope
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
    for look in (*arms.LOOKS, *(LOOKS if control.kind == ArmKind.POSITIVE.value else ())):
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


# Causes of a positive control that measures its slowdown at the wrong size.


def _spun_wrong(case: Case) -> Iterator[Reason]:
    """The probe injected a different ratio than requested."""
    if case.pairs.injected is None or not (case.pairs.injected > 0.0).all():
        return
    sign = math.copysign(1.0, case.truth)  # a rate shrinks by the ratio that a time grows by
    put_in = float(np.median(sign * np.log(case.pairs.injected)))
    share = 1.0 - abs((case.mean + case.truth - put_in) / case.mean) if case.mean else 0.0
    if abs(put_in - case.truth) < 0.02 * abs(case.truth) or share < LEAST_SHARE:
        return
    yield case.reason(
        "spin",
        f"the injected slowdown itself was {math.exp(sign * put_in):.4g} instead of {math.exp(abs(case.truth)):.4g} times",
        "the probe could not spin as long as requested: check the clock source, steal time and other work on this machine",
        share,
    )


def _not_in_response(case: Case) -> Iterator[Reason]:
    """The response contains none of the slowdown, or only a part."""
    found = (case.mean + case.truth) / case.truth
    noise = float(calmed(case.deviations).std(ddof=1)) / math.sqrt(case.pairs.count)
    if (
        evidence_of(case.mean / noise if noise > 0.0 else math.inf) < LEAST_EVIDENCE
        or not -0.35 <= found < 0.9
    ):
        return
    if found < 0.35:
        yield case.reason(
            "not_in_response",
            f"{case.response.name} does not include the slowdown: it grew by {case.size(case.mean + case.truth)} where "
            f"{case.size(case.truth)} was injected",
            "use a time measured by the probe (wall, or the time of an operation) as primary response",
            0.9 * (1.0 - abs(found)),
        )
        return
    yield case.reason(
        "part_of_response",
        f"only a part of {case.response.name} was slowed down: it grew by {case.size(case.mean + case.truth)} where "
        f"{case.size(case.truth)} was injected",
        "check what the response contains besides the timed work: processes that continue after the command, a "
        "step or an operation that is not slowed",
        0.5,
    )


def _not_proportional(case: Case) -> Iterator[Reason]:
    """The slowdown varies with the duration of the work, as a fixed delay would, instead of being a constant ratio."""
    levels = case.pairs.levels - case.pairs.levels.mean()
    spread = float(levels.std())
    found = slope(calmed(case.deviations), levels)
    if found is None or found[1] < LEAST_EVIDENCE:
        return
    change = found[0] * spread
    moved = abs(change / case.truth)
    if moved < 0.1:
        return
    way = "smaller" if change * case.truth < 0.0 else "larger"
    yield case.reason(
        "not_proportional",
        f"the slowdown is {way} in blocks where the work takes longer (by {case.size(change)} over a "
        "standard deviation of the level): it is not a constant ratio",
        "look for a fixed cost in the response (program start, a lock, a pause), or for changes of machine "
        "speed within blocks",
        0.75 * min(1.0, found[1] / FULL_EVIDENCE) * min(1.0, 5.0 * moved),
    )


def _coarse(case: Case) -> Iterator[Reason]:
    """The resolution of the response is too coarse to show the slowdown."""
    if case.response.scale is not Scale.LOG:
        return
    values = raw(np.concatenate([case.pairs.control, case.pairs.original]), case.response)
    distinct = np.unique(np.round(values, 12))
    if len(distinct) > len(values) / 3 or len(distinct) < 2:
        return
    step = float(np.diff(distinct).min()) / float(np.median(values))
    if step < case.margin / 2.0:
        return
    yield case.reason(
        "coarse",
        f"{case.response.name} comes in steps of {100 * step:.2g} % ({len(distinct)} different values in "
        f"{len(values)} runs), too coarse for a slowdown of {case.size(case.truth)}",
        "do more work per run (more files or replicates), or choose a response with a finer clock",
        min(0.95, 0.6 + step),
    )


def _left_running(case: Case) -> Iterator[Reason]:
    """Commands leave processes behind, which no response includes the time of."""
    runs = [facts.evidence.get("stragglers", 0.0) for pair in case.pairs.files for facts in pair]
    if np.mean(np.array(runs) > 0.0) < 0.1:
        return
    yield case.reason(
        "left_running",
        f"the command leaves processes behind in {100 * np.mean(np.array(runs) > 0.0):.0f} % of its runs: their "
        f"work is not included in its time, and they compete with the slowdown for the CPU",
        "let the command wait for its child processes",
        0.65,
    )


LOOKS: tuple[Callable[[Case], Iterator[Reason]], ...] = (
    _spun_wrong,
    _not_in_response,
    _not_proportional,
    _coarse,
    _left_running,
)
