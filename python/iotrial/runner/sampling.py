"""Samples taken during a run: processors, page cache and the lab's device over time.

They are taken on the machine that has the lab's disk: on this machine by a second probe, in a guest by a thread of the
guest's own probe; its CPU time is then part of the guest's.

The kernel's counters become shares, rates and levels, one value per interval between two samples, placed at
its middle, in seconds since the timed part began. A run with fewer than four intervals has no samples: it is
too short to show anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from iotrial.errors import ProbeError, TargetError
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner.guest import clock_ahead_ns

FEWEST = 4
_KIB = 1024.0
_CPU = ("user", "sys", "iowait", "steal", "idle")
_LEVELS = {"cached_kib": "cached_bytes", "dirty_kib": "dirty_bytes", "write_back_kib": "write_back_bytes"}


class Sampler:
    """Takes a sample every ``period_s`` seconds during a run; ``own``: by a second probe on this machine."""

    def __init__(self, period_s: float, *, own: bool) -> None:
        self.period_s = period_s
        self._probe = Probe(isolate=False) if own else None

    def sampled(self, place: Place, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the answer of ``run`` and, as ``samples``, the counters of each sample, with times in the worker's clock."""
        probe = Target(self._probe) if self._probe is not None else place.target
        device = place.device
        probe.call(
            "sample_start",
            devices=[] if device is None else [device],
            period_ms=round(1000 * self.period_s),
        )
        try:
            answer = run()
        except Exception:
            with suppress(ProbeError, TargetError):
                probe.call("sample_stop")
            raise
        samples = probe.call("sample_stop")
        if place.worker is not place.target:  # a server's clock is not that of its client
            later_ns = clock_ahead_ns(place.target) - clock_ahead_ns(place.worker)
            samples["at_ns"] = [at_ns - later_ns for at_ns in samples["at_ns"]]
        return {**answer, "samples": samples}

    def close(self) -> None:
        """End the sampling process, if there is one."""
        if self._probe is not None:
            self._probe.close()


def series_of(
    samples: Mapping[str, Any], device: str | None, *, started_ns: int, wall_ns: int
) -> dict[str, list[float]] | None:
    """Return, by name, one number per interval of the timed part; ``at_s`` is its middle. None if the run is too short."""
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
    """Return processor states as shares of the total time in each interval."""
    columns = {name: samples[f"cpu_{name}_ns"] for name in _CPU}
    found: dict[str, list[float]] = {f"cpu_{name}": [] for name in _CPU}
    for before, after in inside:
        # iowait may go backwards: clamp at 0
        spent = {name: max(0, column[after] - column[before]) for name, column in columns.items()}
        total = max(1, sum(spent.values()))
        for name, ns in spent.items():
            found[f"cpu_{name}"].append(round(ns / total, 4))
    return found


def _short(number: float) -> float:
    """Round to four significant digits; a sample has no more."""
    return float(f"{number:.4g}")
