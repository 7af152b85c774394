"""Causes of a positive control that measures its slowdown at the wrong size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from iotrial.stats.reasons.case import FULL_EVIDENCE, LEAST_EVIDENCE, LEAST_SHARE, Case, Reason
from iotrial.stats.reasons.pairs import calmed, evidence_of, raw, slope
from iotrial.study.model import Scale


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
