"""Samples within a run: processors, page cache and the lab's device over its time, by a probe beside the one that works.

The kernel's counters become shares, rates and levels, one for each interval between two samples, at the middle of it, in
seconds since the timed part began. A run that gives fewer than four has none: it is over before anything can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from iotrial.probe.client import Probe

FEWEST = 4
_KIB = 1024.0
_CPU = ("user", "sys", "iowait", "steal", "idle")
_LEVELS = {"cached_kib": "cached_bytes", "dirty_kib": "dirty_bytes", "write_back_kib": "write_back_bytes"}


class Sampler:
    """Takes samples every ``period_s`` while a run lasts."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self._probe = Probe(isolate=False)

    def start(self, devices: Sequence[str]) -> None:
        """Begin, just before the run is asked for."""
        self._probe.call("sample_start", devices=list(devices), period_ms=round(1000 * self.period_s))

    def stop(self) -> dict[str, Any]:
        """The counters at each moment since then."""
        return self._probe.call("sample_stop")

    def close(self) -> None:
        """End the process."""
        self._probe.close()


def series_of(
    samples: Mapping[str, Any], device: str | None, *, started_ns: int, wall_ns: int
) -> dict[str, list[float]] | None:
    """By name one number for each interval of the timed part; ``at_s`` is where it lies. None for a run too short."""
    at_ns = samples["at_ns"]
    inside = [
        (before, after)
        for before, after in pairwise(range(len(at_ns)))
        if started_ns <= (at_ns[before] + at_ns[after]) / 2 <= started_ns + wall_ns
    ]
    if len(inside) < FEWEST:
        return None

    def rates(column: Sequence[int]) -> list[float]:
        return [
            _short(1e9 * (column[after] - column[before]) / max(1, at_ns[after] - at_ns[before]))
            for before, after in inside
        ]

    found = {
        "at_s": [round((at_ns[before] + at_ns[after] - 2 * started_ns) / 2e9, 4) for before, after in inside],
        **_shares(samples, inside),
        **{
            ours: [_KIB * (samples[its][before] + samples[its][after]) / 2 for before, after in inside]
            for its, ours in _LEVELS.items()
        },
    }
    counters = samples["devices"].get(device or "")
    if counters:
        found["device_read_rate"] = rates(counters["read_bytes"])
        found["device_write_rate"] = rates(counters["write_bytes"])
        found["device_busy"] = [min(1.0, rate / 1e9) for rate in rates(counters["busy_ns"])]
    return found


def _shares(samples: Mapping[str, Any], inside: Sequence[tuple[int, int]]) -> dict[str, list[float]]:
    """What the processors did, as shares of all their time in the interval."""
    columns = {name: samples[f"cpu_{name}_ns"] for name in _CPU}
    found: dict[str, list[float]] = {f"cpu_{name}": [] for name in _CPU}
    for before, after in inside:
        # waiting may be counted back: it is never less than nothing
        spent = {name: max(0, column[after] - column[before]) for name, column in columns.items()}
        total = max(1, sum(spent.values()))
        for name, ns in spent.items():
            found[f"cpu_{name}"].append(round(ns / total, 4))
    return found


def _short(number: float) -> float:
    """Four digits are more than a sample has."""
    return float(f"{number:.4g}")
