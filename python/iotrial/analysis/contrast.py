"""Contrasts: for each effect one number a block, on which test, interval, verdict and planning all rest.

Scale log: ln y at the level minus ln y at the reference; with several treatment factors the mean of that over
the combinations of the other factors. Scale difference: the same without logarithms. A control is
compared with the reference's own arm of the same block.

A void block gives no contrast. Nor does one in which an arm involved failed, or has no usable value (missing,
not finite, or not positive on a log scale, as CPU time is that the kernel counts as none). Leaving such a block
out depends on what was measured, so both are counted, apart, and cap the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.design.model import ArmKind
from iotrial.study.model import Response, Scale


@dataclass(frozen=True, slots=True)
class Contrasts:
    """One number for each usable block, in time order; how many runs of the arms involved failed, and how many ran
    but gave no usable value."""

    values: tuple[float, ...]
    failures: int
    unusable: int = 0


def level_contrasts(
    blocks: Sequence[ObservedBlock], response: Response, *, factor: str, level: str, reference: str
) -> Contrasts:
    """Level against reference of one treatment factor; ``blocks`` of one condition in time order."""
    values: list[float] = []
    failures = unusable = 0
    for block in blocks:
        at_level: list[Observation] = []
        at_reference: list[Observation] = []
        for run in block.observations:
            if run.kind is not ArmKind.TREATMENT:
                continue
            label = run.treatment.get(factor)
            if label == level:
                at_level.append(run)
            elif label == reference:
                at_reference.append(run)
        value, failed, without = _compare(block, at_level, at_reference, response)
        failures += failed
        unusable += without
        if value is not None:
            values.append(value)
    return Contrasts(tuple(values), failures, unusable)


def control_contrasts(
    blocks: Sequence[ObservedBlock], response: Response, *, kind: ArmKind, reference: Mapping[str, str]
) -> Contrasts:
    """A control arm against the reference's own arm, over the blocks that hold both."""
    values: list[float] = []
    failures = unusable = 0
    for block in blocks:
        control = [run for run in block.observations if run.kind is kind]
        original = [
            run for run in block.observations if run.kind is ArmKind.TREATMENT and run.treatment == reference
        ]
        if not control:
            continue
        value, failed, without = _compare(block, control, original, response)
        failures += failed
        unusable += without
        if value is not None:
            values.append(value)
    return Contrasts(tuple(values), failures, unusable)


def usable(run: Observation, response: Response) -> float | None:
    """The response on the scale it is compared on (its logarithm on a log scale), or None where there is
    none."""
    if run.failure is not None:
        return None
    value = run.responses.get(response.name)
    if value is None or not math.isfinite(value):
        return None
    if response.scale is Scale.DIFFERENCE:
        return value
    return math.log(value) if value > 0.0 else None


def _compare(
    block: ObservedBlock,
    at_level: Sequence[Observation],
    at_reference: Sequence[Observation],
    response: Response,
) -> tuple[float | None, int, int]:
    """The contrast of one block, None where it gives none; runs in it that failed, and that gave no usable value."""
    runs = (*at_level, *at_reference)
    failed = sum(run.failure is not None for run in runs)
    if block.void is not None:
        return None, failed, 0
    levels = [usable(run, response) for run in at_level]
    references = [usable(run, response) for run in at_reference]
    missing = levels.count(None) + references.count(None)
    # Only blocks that hold every arm of both sides compare like with like.
    if missing or not levels or len(levels) != len(references):
        return None, failed, missing - failed
    total = math.fsum(v for v in levels if v is not None) - math.fsum(v for v in references if v is not None)
    return total / len(levels), 0, 0
