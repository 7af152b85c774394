"""Thrown-out blocks: how many by rule and level, and whether a rule prefers one level.

A void rule that meets one arm more often than the other selects what is left and makes effects. With arms
that the rule looks at alike, the run whose check failed is equally likely to be any of its block. For each
level that is bet against: with p the share of its runs in the block, and I = 1 where the check failed at this
level, prod over void blocks of 1 + lambda (I/p - 1) has mean 1, so the mean over a few lambda reaches 1/alpha
with probability at most alpha, whenever one looks. Only at the control level, shared over the levels, does it
make a trial invalid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from iotrial.analysis.model import Observation, ObservedBlock, VoidCount
from iotrial.analysis.spec import CONTROL_LEVEL

_STAKES = (0.1, 0.3, 0.6, 0.9)
_UNKNOWN = ""
_NOTE_LEVEL = 0.05


def count_voids(blocks: Sequence[ObservedBlock]) -> tuple[VoidCount, ...]:
    """Void blocks by rule and by the level whose check failed (an empty text where no level is known)."""
    counts = Counter((block.void, block.void_level or _UNKNOWN) for block in blocks if block.void is not None)
    return tuple(VoidCount(rule, level, count) for (rule, level), count in sorted(counts.items()))


def compare_void_rates(blocks: Sequence[ObservedBlock]) -> tuple[list[str], list[str]]:
    """Notes on levels that are void conspicuously often, and the reasons for which that makes the trial
    invalid."""
    void = [block for block in blocks if block.void is not None and block.void_level]
    levels = sorted({block.void_level for block in void if block.void_level})
    compared = max(len(levels), len({run.arm for block in void for run in block.observations}))
    notes: list[str] = []
    reasons: list[str] = []
    for level in levels:
        log_e = largest_log_e(void, level)
        count = sum(block.void_level == level for block in void)
        text = f"{count} of {len(void)} void blocks are due to {level}"
        if log_e >= math.log(compared / CONTROL_LEVEL):
            reasons.append(f"{text}: the void rule does not treat the levels alike")
        elif log_e >= math.log(compared / _NOTE_LEVEL):
            notes.append(f"{text}, more than its share")
    return notes, reasons


def largest_log_e(void: Sequence[ObservedBlock], level: str) -> float:
    """ln of the largest value that the bet on ``level`` had over these void blocks (time order)."""
    logs = [0.0] * len(_STAKES)
    largest = 0.0
    for block in void:
        share = sum(_is_of(run, level) for run in block.observations) / max(1, len(block.observations))
        if not 0.0 < share < 1.0:
            continue
        gain = (1.0 / share if block.void_level == level else 0.0) - 1.0
        logs = [log + math.log1p(stake * gain) for log, stake in zip(logs, _STAKES, strict=True)]
        top = max(logs)
        largest = max(largest, top + math.log(sum(math.exp(log - top) for log in logs) / len(logs)))
    return largest


def _is_of(run: Observation, level: str) -> bool:
    """Whether a failed check of this run is put down to ``level``: an arm, a label, or labels joined by +.

    The control arms run at the reference's labels; counting them makes its share larger, never smaller.
    """
    labels = run.treatment.values()
    return level in (run.arm, "+".join(labels)) or level in labels
