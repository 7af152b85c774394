"""Requests of accounted repetitions as metrics of the evidence table: how many of each kind, and how long they took.

A percentile is of the requests of all repetitions together. It is the end of a bar of a histogram with four bars an octave,
so the time meant is at most a quarter shorter. Of fewer than a hundred requests there is no percentile 99.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence

import numpy as np

from iotrial.report.accounted import AccountedNumber
from iotrial.report.histograms import histogram_quantile
from iotrial.store.model import AccountedRequests

COUNT = "accounted_requests"
#: names of the times and the share of requests that took no longer
SHARES = {"accounted_request_p50": 0.5, "accounted_request_p99": 0.99}
#: as the probe calls them
KINDS = ("read", "write", "flush", "discard", "other")


def request_numbers(requests: Sequence[AccountedRequests], arms: Container[str]) -> Iterator[AccountedNumber]:
    """The numbers of these arms: ``accounted_requests.KIND`` of each repetition;
    ``accounted_request_p50.KIND`` and ``accounted_request_p99.KIND`` in seconds, from being made to being complete."""
    conditions: dict[str, list[AccountedRequests]] = {}
    for one in requests:
        if one.arm in arms:
            conditions.setdefault(one.condition, []).append(one)
    for condition, own in conditions.items():
        repetitions = list(dict.fromkeys((one.arm, one.repetition) for one in own))
        for kind in KINDS:
            of_kind = [one for one in own if one.kind == kind]
            if of_kind:
                yield from _of_kind(condition, kind, of_kind, repetitions)


def _of_kind(
    condition: str, kind: str, own: Sequence[AccountedRequests], repetitions: Sequence[tuple[str, int]]
) -> Iterator[AccountedNumber]:
    counts = {(one.arm, one.repetition): one.count for one in own}
    bars: dict[str, Counter[int]] = {}
    for one in own:
        for end_ns, count in one.histogram:
            bars.setdefault(one.arm, Counter())[end_ns] += count
    for arm, repetition in repetitions:
        yield AccountedNumber(condition, arm, f"{COUNT}.{kind}", float(counts.get((arm, repetition), 0)))
    for arm, histogram in bars.items():
        table = np.asarray(sorted(histogram.items()), dtype=np.float64)
        for name, share in SHARES.items():
            if histogram.total() >= round(1 / (1 - share)):  # else it is but the longest time
                time_s = histogram_quantile(table[:, 0], table[:, 1], share) / 1e9
                yield AccountedNumber(condition, arm, f"{name}.{kind}", time_s)
