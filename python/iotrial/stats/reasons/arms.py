"""Causes of a difference between two arms: order, carry-over, counters, bimodality, a change over time, file placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from iotrial.stats.reasons.case import (
    FULL_EVIDENCE,
    LEAST_EVIDENCE,
    LEAST_SHARE,
    Case,
    Reason,
    accounts,
    weighed,
)
from iotrial.stats.reasons.pairs import FEWEST, Floats, calmed, evidence_of, evidence_of_split, fit

_MODES_APART = (
    0.85  # between-part share of the variance; it is 2/pi for a normal distribution, 3/4 for a uniform one
)
_FEWEST_OF_PART = 5
_LEAST_OF_KIND = 0.08

# Code, explanation and remedy of a counter that correlates with the deviation, by counter name.
_COUNTERS = {
    "switches_involuntary": (
        "neighbour",
        "other processes competed for the CPU (involuntary context switches)",
        "stop other work on this machine, or use an idle machine",
    ),
    "switches_voluntary": (
        "waiting",
        "the runs waited more often for a lock or a shared disk (voluntary context switches)",
        "check what else uses the same disk or file system",
    ),
    "faults_major": (
        "memory",
        "programs or data had to be read back into memory (major page faults)",
        "free memory, or make the workload smaller",
    ),
    "device_read_bytes": (
        "cache",
        "the cache was not in the same state (bytes read from the device)",
        "choose a cache state that is prepared before every run (cold or warm, not as-is)",
    ),
    "device_write_bytes": (
        "write_back",
        "write-back happened in the timed part (bytes written to the device)",
        "let each run start after a sync (a cold cache state), or write less before it",
    ),
}


def _order(case: Case) -> Iterator[Reason]:
    """The control ran later, or earlier, more often than chance explains; or later slots are slower and it ran later."""
    slots = case.pairs.slots
    later, earlier = int((slots > 0).sum()), int((slots < 0).sum())
    split = evidence_of_split(later, earlier)
    found = fit(case.deviations, slots)
    text = f"the {case.name} ran after {case.other} in {later} of {later + earlier} blocks"
    sloped = accounts(found)
    if split < LEAST_EVIDENCE and not sloped:
        return
    weight = weighed(found.share, found.evidence) if found is not None and sloped else 0.0
    if found is not None and sloped:
        text += f", and a later slot changes {case.response.name} by {case.size(found.slope)} each"
    if found is None:
        text += ", always by the same number of slots, so order and arm cannot be separated"
        weight = 1.0
    yield case.reason(
        "order",
        f"order within the block: {text}",
        "randomise the order of every block (iotrial does; imported trials may not), and look for what builds "
        "up from run to run: dirty data, a filling cache, heat",
        max(weight, 0.5 * min(1.0, split / FULL_EVIDENCE) if split >= LEAST_EVIDENCE else 0.0),
    )


def _carry_over(case: Case) -> Iterator[Reason]:
    """A preceding arm affects the next run, and one of the two followed this arm more often."""
    arms = sorted({arm for pair in case.pairs.before for arm in pair if arm})
    for arm in arms:
        had = np.array([float(mine == arm) - float(its == arm) for mine, its in case.pairs.before])
        found = fit(case.deviations, had)
        if found is None or not accounts(found) or found.evidence - math.log10(len(arms)) < LEAST_EVIDENCE:
            continue
        files = ", on the same files" if case.same_files else ""
        yield case.reason(
            "carry_over",
            f"carry-over from the previous run: a run right after {arm}{files} differs by {case.size(found.slope)}",
            "choose a cache state that is prepared before every run"
            + (", or give the workload a pool of more files than a run takes" if case.same_files else ""),
            weighed(found.share, found.evidence),
        )


def _counters(case: Case) -> Iterator[Reason]:
    """A counter is higher in one arm and correlates with the difference."""
    for name, (code, meaning, remedy) in _COUNTERS.items():
        more = case.pairs.counters.get(name)
        found = None if more is None else fit(case.deviations, more)
        if more is None or found is None or not accounts(found):
            continue
        yield case.reason(
            code,
            f"{meaning}: {float(more.mean()):+.3g} a run in the {case.name}, which explains {100 * found.share:.0f} % of "
            f"the difference",
            remedy,
            weighed(found.share, found.evidence),
        )


def _modes(case: Case) -> Iterator[Reason]:
    """Runs are bimodal (fast and slow), and the control is in the slow mode more often, or less often."""
    pairs = case.pairs
    if not pairs.single:
        return  # means of several runs belong to no mode
    values = np.concatenate([pairs.control - pairs.lows, pairs.original - pairs.lows])
    threshold = _between_modes(values)
    if threshold is None:
        return
    slow = values > threshold
    mine, its = slow[: pairs.count], slow[pairs.count :]
    if max(min(float(arm.mean()), 1.0 - float(arm.mean())) for arm in (mine, its)) < _LEAST_OF_KIND:
        return  # each arm is one mode: that is the deviation itself, not its cause
    found = fit(case.deviations, mine.astype(float) - its.astype(float), calm=False)
    if found is None or not accounts(found):
        return
    yield case.reason(
        "two_modes",
        f"two kinds of runs, {case.size(abs(found.slope))} apart: {100 * mine.mean():.0f} % of the runs of the {case.name} "
        f"are of the slow kind, {100 * its.mean():.0f} % of those of {case.other}",
        "find what switches between them (cache hits, write-back, CPU frequency), and fix it or make it a factor",
        # Ranks below the cause of the slow mode, if that is found too.
        0.85 * weighed(found.share, found.evidence),
    )


def _between_modes(values: Floats) -> float | None:
    """Return the threshold that splits the values with the most variance between the parts; None below ``_MODES_APART``."""
    ordered = np.sort(values)
    n = len(ordered)
    total = float(((ordered - ordered.mean()) ** 2).sum())
    if n < 2 * FEWEST or total <= 0.0:
        return None
    low = np.arange(1, n)
    means_low = np.cumsum(ordered)[:-1] / low
    means_high = (ordered.sum() - np.cumsum(ordered)[:-1]) / (n - low)
    between = low * (n - low) / n * (means_high - means_low) ** 2 / total
    between[: _FEWEST_OF_PART - 1] = between[n - _FEWEST_OF_PART :] = 0.0
    at = int(np.argmax(between))
    return float(ordered[at] + ordered[at + 1]) / 2.0 if between[at] >= _MODES_APART else None


def _regime(case: Case) -> Iterator[Reason]:
    """The deviation exists only before, or only after, some time."""
    y = calmed(case.deviations)
    n = len(y)
    edge = max(_FEWEST_OF_PART, n // 10)
    at = np.arange(edge, n - edge + 1)
    sums = np.cumsum(y)
    first, second = sums[at - 1] / at, (sums[-1] - sums[at - 1]) / (n - at)
    # residual squares of both parts about their own means, so that the step itself does not count as noise
    squares = float((y**2).sum()) - at * first**2 - (n - at) * second**2
    error = np.sqrt(np.maximum(squares, 1e-300) / (n - 2) * (1.0 / at + 1.0 / (n - at)))
    z = (second - first) / error
    best = int(np.argmax(np.abs(z)))
    evidence = evidence_of(float(z[best])) - math.log10(len(at))
    before, after = float(first[best]), float(second[best])
    small, large = sorted((abs(before), abs(after)))
    share = 1.0 - small / large if large > 0.0 else 0.0
    if evidence < LEAST_EVIDENCE or share < LEAST_SHARE:
        return
    block = case.pairs.blocks[int(at[best])]
    yield case.reason(
        "regime_change",
        f"something changed during the trial: the {case.name} is off by {case.size(before)} before block {block} and by "
        f"{case.size(after)} from there on",
        "find what started or stopped then (the report shows runs in order of time), and run again without it",
        weighed(share, evidence),
    )


def _places(case: Case) -> Iterator[Reason]:
    """Each arm always used the same files, different from the other's: location on disk is confounded with the arm."""
    mine = {facts.files for facts, _ in case.pairs.files}
    its = {facts.files for _, facts in case.pairs.files}
    if len(mine) == len(its) == 1 and None not in mine | its and mine != its:
        yield case.reason(
            "assignment",
            f"the files of the arms were not randomised: the {case.name} always used the same files, {case.other} on others",
            "randomise the files of every run in every block (iotrial does; imported trials may not)",
            0.8,
        )


def left_out(case: Case) -> Reason | None:
    """One of the two lacks usable values more often, so its remaining runs are a biased selection."""
    mine, its = case.pairs.missing
    evidence = evidence_of_split(mine, its) if mine + its else 0.0
    if evidence < LEAST_EVIDENCE:
        return None
    return case.reason(
        "left_out",
        f"runs that failed or gave no usable {case.response.name}: {mine} of the {case.name}, {its} of {case.other}; "
        "the remaining blocks are a biased selection",
        "find out why they fail; if CPU time is 0, use a longer workload",
        0.7 * min(1.0, evidence / FULL_EVIDENCE),
    )


LOOKS: tuple[Callable[[Case], Iterator[Reason]], ...] = (
    _order,
    _carry_over,
    _counters,
    _modes,
    _regime,
    _places,
)
