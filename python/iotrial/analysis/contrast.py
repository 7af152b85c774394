"""Contrasts: for each effect one number a block, on which test, interval, verdict and planning all rest.

A contrast is a weighted sum of the arms' values, natural logarithms on a log scale: level minus reference, averaged over the
combinations of the other factors, the signed mean of a factorial, or a control against its original. ``Responses`` holds one
response of the blocks of one condition, from which any number of contrasts is taken.

In a study with whole plots an arm is run several times in a block. These repeats are no blocks: what their stretch has in
common they all have. A contrast of whole plots takes their mean and has one number a block; one within the stretches has a
number for each repeat, averaged over the stretches, since their order was drawn each by itself.

A void block gives no contrast. Nor does one in which an arm involved failed, or has no usable value (missing,
not finite, or not positive on a log scale, as CPU time is that the kernel counts as none). Leaving such a block
out depends on what was measured, so both are counted, apart, and cap the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.study.model import Response, Scale

_ROUNDING = 1e-12  # of the sum of magnitudes


@dataclass(frozen=True, slots=True)
class Contrasts:
    """One number for each usable block (or repeat), in time order, and the index of the block that each is of; how many
    runs of the arms involved failed, and how many ran but gave no usable value."""

    values: tuple[float, ...]
    failures: int
    unusable: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    index: int
    void: bool
    values: Mapping[str, tuple[float | None, ...]]  # by arm, in time order
    failed: Mapping[str, int]  # failed runs by arm


class Responses:
    """One response of one condition's blocks (in time order), on the scale that it is compared on."""

    def __init__(self, blocks: Sequence[ObservedBlock], response: Response) -> None:
        self._rows = [_row(block, response) for block in blocks]

    def contrasts(self, weights: Mapping[str, float], *, whole: bool = False) -> Contrasts:
        """The contrast of these weights (by name of the arm). Blocks that lack one of the arms are passed over.

        ``whole``: the arms' repeats in a block are averaged; else each repeat gives a number.
        """
        values: list[float] = []
        blocks: list[int] = []
        failures = unusable = 0
        for row in self._rows:
            found = [row.values.get(arm) for arm in weights]
            failed = sum(row.failed.get(arm, 0) for arm in weights)
            failures += failed
            if row.void:
                continue
            missing = sum(runs.count(None) for runs in found if runs is not None)
            if missing:
                unusable += missing - failed
                continue
            # Only blocks that hold every arm compare like with like.
            if not found or any(runs is None or len(runs) != len(found[0] or ()) for runs in found):
                continue
            sums = [
                _weighted(weights.values(), [runs[repeat] or 0.0 for runs in found if runs])
                for repeat in range(len(found[0] or ()))
            ]
            numbers = [math.fsum(sums) / len(sums)] if whole else sums
            values += numbers
            blocks += [row.index] * len(numbers)
        return Contrasts(tuple(values), failures, unusable, tuple(blocks))


def _weighted(weights: Iterable[float], values: Sequence[float]) -> float:
    """The weighted sum; exactly 0 where nothing but rounding is left of it. Weights such as 1/3 are no binary numbers, and a
    count that no level changes would else differ from 0 in its last digit, in every block to the same side."""
    parts = [weight * value for weight, value in zip(weights, values, strict=True)]
    total = math.fsum(parts)
    return total if abs(total) > _ROUNDING * math.fsum(map(abs, parts)) else 0.0


def pooled(parts: Sequence[Contrasts]) -> Contrasts:
    """The mean of the conditions' contrasts over complete rounds: those in which every condition has one.

    A condition's block of an index is run in the round of that number.
    """
    by_round = [_by_round(part) for part in parts]
    common = set.intersection(*(set(one) for one in by_round)) if by_round else set()
    values: list[float] = []
    for number in sorted(common):
        repeats = [one[number] for one in by_round]
        if len({len(one) for one in repeats}) == 1:
            values += [math.fsum(numbers) / len(parts) for numbers in zip(*repeats, strict=True)]
    return Contrasts(
        tuple(values), sum(part.failures for part in parts), sum(part.unusable for part in parts)
    )


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


def _row(block: ObservedBlock, response: Response) -> _Row:
    values: dict[str, tuple[float | None, ...]] = {}
    failed: dict[str, int] = {}
    for run in sorted(block.observations, key=lambda run: run.slot):
        values[run.arm] = (*values.get(run.arm, ()), usable(run, response))
        if run.failure is not None:
            failed[run.arm] = failed.get(run.arm, 0) + 1
    return _Row(block.index, block.void is not None, values, failed)


def _by_round(part: Contrasts) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for value, index in zip(part.values, part.blocks, strict=True):
        found.setdefault(index, []).append(value)
    return found
