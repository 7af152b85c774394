"""Count failed runs: by arm, and which levels the failed combinations of several factors have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from iotrial.stats.model import FailureCounts, ObservedBlock


def count_failures(blocks: Sequence[ObservedBlock]) -> FailureCounts:
    """Count failed runs by arm, including those of void blocks.

    With several factors, also return the levels that all failed combinations share, if more than one combination failed and
    that factor ran at other levels too.
    """
    failed: Counter[str] = Counter()
    treatments: dict[str, Mapping[str, str]] = {}
    run: dict[str, set[str]] = {}
    for block in blocks:
        for one in block.observations:
            for factor, label in one.treatment.items():
                run.setdefault(factor, set()).add(label)
            if one.failure is not None:
                failed[one.arm] += 1
                treatments[one.arm] = one.treatment
    shared: list[tuple[str, str]] = []
    if len(run) > 1 and len(treatments) > 1:
        for factor, labels in run.items():
            found = {treatment.get(factor, "") for treatment in treatments.values()}
            if len(found) == 1 and len(labels) > 1:
                shared.append((factor, found.pop()))
    return FailureCounts(tuple(sorted(failed.items())), tuple(shared), factors=len(run))
