"""Accounted repetitions: what they count, and the fields of the probe's job and answer.

The job is that of a run, with additional fields for what is traced (docs/probe-protocol.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iotrial.errors import ProbeError
from iotrial.study.model import Study
from iotrial.study.places import DISK_LABS
from iotrial.study.work import calls_of

REPETITIONS = 3
#: Kinds of requests that the device's own counters distinguish, each as ``KIND_ios``.
_COUNTED_BY_DEVICE = ("read", "write", "flush", "discard")


class Lost(ProbeError):
    """Not every request was seen, so that counts are too low."""


class Counted(StrEnum):
    """What can be counted; the values are used in messages."""

    CALLS = "system calls"
    REQUESTS = "requests"


def is_accounted(study: Study) -> bool:
    """Return whether a study's trial may have accounted repetitions.

    False if the study disables them, and for screening designs: these have dozens of arms, no two of which
    differ in one factor.
    """
    return study.account and study.design.kind.crossed


def accounts(study: Study, lab: str) -> Mapping[str, frozenset[Counted]]:
    """Return what is counted of each workload: system calls of commands, and requests if the lab has its own
    block device.
    """
    if not is_accounted(study):
        return {}
    found = {}
    for workload in study.workloads:
        calls = {Counted.CALLS} if workload.work.accountable else set()
        requests = {Counted.REQUESTS} if lab in DISK_LABS and study.lab.link is None else set()
        if calls or requests:
            found[workload.name] = frozenset(calls | requests)
    return found


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """``calls`` by name and ``requests`` of the lab's device by kind, as the probe reports them; None: not counted."""

    calls: Mapping[str, Any] | None = None
    requests: Mapping[str, Any] | None = None


def request_fields(what: frozenset[Counted]) -> dict[str, object]:
    """Return the job's additional fields."""
    return {
        **({"account": True} if Counted.CALLS in what else {}),
        "account_requests": Counted.REQUESTS in what,
    }


def counts_of(answer: Mapping[str, Any], what: frozenset[Counted], devices: Sequence[str]) -> TraceCounts:
    """Return the counts, summed over all devices.

    Raises ProbeError if system calls were lost or something is missing, Lost if a device has counted more
    requests than were seen.
    """
    return TraceCounts(
        calls_of(answer) if Counted.CALLS in what else None,
        _together([_requests_of(answer, device) for device in devices]) if Counted.REQUESTS in what else None,
    )


def _together(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the requests of several devices, summed by kind."""
    if len(found) == 1:
        return found[0]
    kinds = dict.fromkeys(kind for requests in found for kind in requests)
    return {kind: _merged([requests[kind] for requests in found if kind in requests]) for kind in kinds}


def _merged(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    bars: Counter[int] = Counter()
    for row in rows:
        for latency_ns, count in row["histogram"]:
            bars[latency_ns] += count
    return {
        "count": sum(row["count"] for row in rows),
        "total_ns": sum(row["total_ns"] for row in rows),
        "histogram": [[latency_ns, count] for latency_ns, count in sorted(bars.items())],
    }


def _requests_of(answer: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    found = (answer.get("requests") or {}).get(device)
    if not isinstance(found, dict):
        raise ProbeError(f"counting requests: expected requests of {device}, found none")
    # Tracing starts before these counters are read and stops after, so it can only see more.
    counters = [(answer.get(key) or {}).get(device) or {} for key in ("devices", "devices_in_sync")]
    for kind in _COUNTED_BY_DEVICE:
        seen = found.get(kind, {}).get("count", 0)
        there = sum(counter.get(f"{kind}_ios", 0) for counter in counters)
        if seen < there:
            raise Lost(
                f"counting requests: {device} counted {there} of kind {kind}, of which {seen} were seen"
            )
    return found
