"""Void (discarded) blocks: the rules, counts by rule and level, and a test whether a rule hits one level more often.

A void rule that hits one arm more often than the other selects the remaining blocks and so creates effects. If the
rule treats all arms alike, the run that failed the check is equally likely to be any run of its block. For each tested
level, let p be the share of its runs in the block, and I = 1 if the check failed at this level. Then the product over
void blocks of 1 + lambda (I/p - 1) has mean 1, so its mean over a few lambda reaches 1/alpha with probability at most
alpha, at any look. It makes a trial invalid only at the control level, shared by the levels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iotrial.design.treatments import join
from iotrial.stats.model import Observation, ObservedBlock, VoidCount
from iotrial.stats.spec import CONTROL_LEVEL


class Void(StrEnum):
    """A rule by which a block is discarded, whatever it measured. Stored with the block."""

    COLD_WAS_NOT_COLD = "cold_was_not_cold"
    COLD_DATA_WAS_KEPT = "cold_data_was_kept"
    WARM_WAS_NOT_WARM = "warm_was_not_warm"
    READ_BACK_FAILED = "read_back_failed"
    SETTING_CHANGED = "setting_changed"
    WASH_IN_FAILED = "wash_in_failed"
    METRIC_LOST = "metric_lost"
    NO_VALUE = "window_without_value"
    CLOCK_SET = "clock_set"
    SLEPT = "machine_slept"
    LATE = "window_late"
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True)
class VoidRule:
    """A rule in words: what happened, and what to change. Both are clauses."""

    what: str
    change: str

    @property
    def sentence(self) -> str:
        """The rule as two sentences without the last stop."""
        return f"{self.what}. {self.change[:1].upper()}{self.change[1:]}"


VOID_RULES: Mapping[Void, VoidRule] = {
    Void.COLD_WAS_NOT_COLD: VoidRule(
        "a cold run read less from the device than it should have",
        "stop other programs that read the same files, or use --cache cold-system",
    ),
    Void.COLD_DATA_WAS_KEPT: VoidRule(
        "the kernel kept the data of files in memory that were to be cold",
        "stop the program that has them mapped or locked",
    ),
    Void.WARM_WAS_NOT_WARM: VoidRule(
        "a warm run had to read from the device",
        "use less data or free memory; work with O_DIRECT or on other files each time cannot be warm: use --cache cold",
    ),
    Void.READ_BACK_FAILED: VoidRule(
        "the kernel did not take a setting",
        "leave out this level (device, driver or another setting rules it out), or make the lab larger for files that need "
        "contiguous space",
    ),
    Void.SETTING_CHANGED: VoidRule(
        "something else changed a setting during a run",
        "stop it while the trial runs: tuned, a udev rule or another service",
    ),
    Void.WASH_IN_FAILED: VoidRule(
        "an unmeasured run before a measured one failed",
        "run the work by itself until it no longer fails",
    ),
    Void.METRIC_LOST: VoidRule(
        "a metric could not be read",
        "check the source of --metric and of the guards",
    ),
    Void.NO_VALUE: VoidRule(
        "a window had no value",
        "use longer windows (--window)",
    ),
    Void.CLOCK_SET: VoidRule(
        "the clock was set in a window",
        "wait until the clock is synchronised",
    ),
    Void.SLEPT: VoidRule(
        "the machine slept in a window",
        "prevent suspending it, or its host from stopping it, while the trial runs",
    ),
    Void.LATE: VoidRule(
        "a window began or ended late",
        "use hours of less load (--quiet-hours)",
    ),
    Void.CUT_OFF: VoidRule(
        "the trial was cut off in the middle of a block",
        "nothing to change: the next block takes its place",
    ),
}

_STAKES = (0.1, 0.3, 0.6, 0.9)
_UNKNOWN = ""
_NOTE_LEVEL = 0.05

#: whether the check that voided a block failed at a level, and that level's share of the block's runs
Hit = tuple[bool, float]


def count_voids(blocks: Sequence[ObservedBlock]) -> tuple[VoidCount, ...]:
    """Count void blocks by rule and by the level that failed the check (an empty string if the level is not known)."""
    counts = Counter((block.void, block.void_level or _UNKNOWN) for block in blocks if block.void is not None)
    return tuple(VoidCount(rule, level, count) for (rule, level), count in sorted(counts.items()))


def compare_void_rates(blocks: Sequence[ObservedBlock]) -> tuple[list[str], list[str]]:
    """Return notes on levels that are void conspicuously often, and the reasons that make the trial invalid.

    If treatments are combinations of factors, each level of each factor is tested too, since a level may stand out although
    no single combination does.
    """
    void = [block for block in blocks if block.void is not None and block.void_level]
    runs = [run for block in void for run in block.observations]
    treatments = sorted({block.void_level for block in void if block.void_level})
    single = sorted({item for run in runs if len(run.treatment) > 1 for item in run.treatment.items()})
    compared = len({run.arm for run in runs}.union(treatments)) + len(single)
    notes: list[str] = []
    reasons: list[str] = []
    for name, hits in [*_of_treatments(void, treatments), *_of_levels(void, single)]:
        log_e = largest_log_e(hits)
        text = f"{sum(hit for hit, _ in hits)} of {len(void)} void blocks are due to {name}"
        if log_e >= math.log(compared / CONTROL_LEVEL):
            reasons.append(f"{text}: the void rule does not treat the levels equally")
        elif log_e >= math.log(compared / _NOTE_LEVEL):
            notes.append(f"{text}, more than its share")
    return notes, reasons


def largest_log_e(hits: Sequence[Hit]) -> float:
    """Return ln of the largest value that the bet on a level reached over these void blocks (time order)."""
    logs = [0.0] * len(_STAKES)
    largest = 0.0
    for hit, share in hits:
        if not 0.0 < share < 1.0:
            continue
        gain = (1.0 / share if hit else 0.0) - 1.0
        logs = [log + math.log1p(stake * gain) for log, stake in zip(logs, _STAKES, strict=True)]
        top = max(logs)
        largest = max(largest, top + math.log(sum(math.exp(log - top) for log in logs) / len(logs)))
    return largest


def _of_treatments(
    void: Sequence[ObservedBlock], treatments: Sequence[str]
) -> Iterator[tuple[str, list[Hit]]]:
    """Yield each treatment's name (of the arm, or its joined labels) with its hits."""
    for name in treatments:
        yield (
            name,
            [(b.void_level == name, _share([_is_of(run, name) for run in b.observations])) for b in void],
        )


def _of_levels(
    void: Sequence[ObservedBlock], single: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, list[Hit]]]:
    """Yield each level of one of several factors with its hits, if more than one combination with this level failed."""
    failed = [_failed(block) for block in void]
    for factor, label in single:
        hits = [treatment.get(factor) == label for treatment in failed]
        if len({block.void_level for block, hit in zip(void, hits, strict=True) if hit}) > 1:
            shares = [_share([run.treatment.get(factor) == label for run in b.observations]) for b in void]
            yield f"{factor} {label}", list(zip(hits, shares, strict=True))


def _failed(block: ObservedBlock) -> Mapping[str, str]:
    """Return the treatment that failed its check in this block; empty if it is not one of the block's."""
    level = block.void_level or _UNKNOWN
    return next((run.treatment for run in block.observations if _is_of(run, level)), {})


def _share(held: Sequence[bool]) -> float:
    """Return the share of a block's runs.

    Control arms run at the reference's labels. Counting them can only increase the reference's share.
    """
    return sum(held) / max(1, len(held))


def _is_of(run: Observation, level: str) -> bool:
    """Return whether a failed check of this run is attributed to ``level``: an arm's name, or its labels joined by +."""
    return level in (run.arm, join(list(run.treatment.values())))
