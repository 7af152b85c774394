"""Metrics that the kernel counts itself: a device's requests, pressure, and processors.

    device:latency-p50, latency-p99    by a BPF program at the completion of each request (root, Linux 5.16)
    device:latency                     mean, from /sys/class/block/NAME/stat
    device:throughput, requests        bytes and requests of reads and writes, per second
    device:utilisation                 share of the time with a request in flight
    psi:io, cpu, memory                share of the time in which some task was stalled; psi:io:full: all tasks
    cpu                                share of the time of all processors that was busy

Sources: Documentation/block/stat.rst, Documentation/accounting/psi.rst and proc_stat(5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from iotrial.errors import IotrialError, RequestError, UnknownName
from iotrial.live.sources.base import (
    Metric,
    MetricLost,
    Polled,
    Reading,
    bucket_quantile,
    elapsed_s,
    no_number,
    nothing,
    unreadable,
    was_reset,
)
from iotrial.probe.client import Probe

#: time between two readings
EVERY_S = 1.0
SECTOR = 512
BLOCK = Path("/sys/class/block")
PRESSURE = Path("/proc/pressure")
PROC_STAT = Path("/proc/stat")
PRESSURES = ("io", "cpu", "memory")
#: metrics of a device: unit, whether lower is better, and the quantile if it is one
DEVICE_METRICS: Mapping[str, tuple[str, bool, float | None]] = {
    "latency-p50": ("s", True, 0.5),
    "latency-p99": ("s", True, 0.99),
    "latency": ("s", True, None),
    "throughput": ("bytes/s", False, None),
    "requests": ("1/s", False, None),
    "utilisation": ("%", True, None),
}
#: kinds of request that a service waits for; flushes and discards are counted apart
_KINDS = ("read", "write")
#: share of requests that the BPF program may miss because it is busy with another one
_MOST_LOST = 0.01


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """Of reads and writes since boot."""

    requests: int
    sectors: int
    waited_ms: int
    busy_ms: int


def device_counters(text: str) -> DeviceCounters:
    """Parse the file ``stat`` of a block device. Raises MetricLost."""
    fields = text.split()
    if len(fields) < 11 or not all(map(_is_count, fields[:11])):
        raise no_number("counters of the device", text)
    numbers = [int(one) for one in fields[:11]]
    return DeviceCounters(
        requests=numbers[0] + numbers[4],
        sectors=numbers[2] + numbers[6],
        waited_ms=numbers[3] + numbers[7],
        busy_ms=numbers[9],
    )


class DeviceStat(Polled[DeviceCounters]):
    """A metric from the counters of a block device."""

    def __init__(self, metric: Metric, device: str, what: str) -> None:
        super().__init__(metric)
        self._file, self._what = _device(device) / "stat", what
        self.reach_s = 0.0

    def read(self) -> DeviceCounters:
        return device_counters(_text(self._file))

    def value(self, readings: Sequence[Reading[DeviceCounters]]) -> float:
        for one, other in pairwise(readings):
            if other.value.requests < one.value.requests or other.value.sectors < one.value.sectors:
                raise was_reset(self.name)
        first, last, length_s = readings[0].value, readings[-1].value, elapsed_s(readings)
        requests = last.requests - first.requests
        match self._what:
            case "throughput":
                return SECTOR * (last.sectors - first.sectors) / length_s
            case "requests":
                return requests / length_s
            case "utilisation":
                return min(100.0, (last.busy_ms - first.busy_ms) / (10.0 * length_s))
        if requests <= 0:
            raise nothing(self.name)
        return (last.waited_ms - first.waited_ms) / 1000.0 / requests


class DeviceLatency(Polled[Mapping[int, int]]):
    """A quantile of the latencies of a device's reads and writes, counted by the probe with a BPF program.

    A reading maps the upper end of a bar, in nanoseconds, to the number of requests since ``start``. Bars are a quarter of
    an octave wide; a quantile is interpolated within its bar.
    """

    def __init__(self, metric: Metric, device: str, share: float) -> None:
        super().__init__(metric)
        self._device, self._share = whole_device(device), share
        self._probe: Probe | None = None
        self.reach_s = 0.0

    def read(self) -> Mapping[int, int]:
        # in this thread: the kernel ends a probe with the thread that has started it
        try:
            if self._probe is None:
                self._probe = Probe()
                self._probe.call("requests_start", devices=[self._device])
            return bars_of(self._probe.call("requests_read"), self._device)
        except MetricLost:
            raise
        except IotrialError as error:
            raise MetricLost(
                f"metric {self.name}: latencies of {self._device}: {error.message}",
                hint=error.hint or "device:latency, the mean, needs neither root nor BPF",
            ) from error

    def value(self, readings: Sequence[Reading[Mapping[int, int]]]) -> float:
        first, last = readings[0].value, readings[-1].value
        more = {end: count - first.get(end, 0) for end, count in last.items()}
        if any(count < 0 for count in more.values()):
            raise was_reset(self.name)
        ends = sorted(end for end, count in more.items() if count)
        if not ends:
            raise nothing(self.name)
        return bar_quantile(self._share, ends, [more[end] for end in ends]) / 1e9

    def stop(self) -> None:
        super().stop()
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()


def bars_of(answer: Mapping[str, Any], device: str) -> dict[int, int]:
    """Return the bars of reads and writes together, from the probe's answer. Raises MetricLost."""
    found: dict[int, int] = {}
    kinds = (answer.get("requests") or {}).get(device)
    if not isinstance(kinds, dict):
        raise no_number(f"latencies of {device}", kinds)
    for kind in _KINDS:
        for end_ns, count in kinds.get(kind, {}).get("histogram", []):
            found[end_ns] = found.get(end_ns, 0) + count
    lost = answer.get("requests_lost", 0)
    if lost > _MOST_LOST * sum(found.values()):
        raise MetricLost(f"latencies of {device}: {lost} requests were not seen")
    return found


def bar_quantile(share: float, ends_ns: Sequence[int], counts: Sequence[int]) -> float:
    """Return a quantile of bars that are a quarter of an octave wide each, in nanoseconds."""
    bounds: list[float] = []
    filled: list[float] = []
    for end, count in zip(ends_ns, counts, strict=True):
        low = lower_end(end)
        if low > (bounds[-1] if bounds else 0.0):
            bounds.append(low)  # an empty bar between two that are not
            filled.append(0.0)
        bounds.append(float(end))
        filled.append(float(count))
    return bucket_quantile(share, bounds, filled)


def lower_end(end_ns: int) -> float:
    """Return the highest latency of the bar below that with this highest latency."""
    octave = 1 << max(0, (end_ns + 1).bit_length() - 1)
    if octave == end_ns + 1:
        octave >>= 1
    return float(max(0, end_ns - max(1, octave >> 2)))


class Pressure(Polled[int]):
    """Share of the time in which tasks were stalled, in percent, from the running total of /proc/pressure."""

    def __init__(self, metric: Metric, resource: str, *, full: bool) -> None:
        super().__init__(metric)
        self._file, self._who = PRESSURE / resource, "full" if full else "some"
        self.reach_s = 0.0

    def read(self) -> int:
        return stalled_us(_text(self._file), self._who)

    def value(self, readings: Sequence[Reading[int]]) -> float:
        more = readings[-1].value - readings[0].value
        return min(100.0, more / (10_000.0 * elapsed_s(readings)))


def stalled_us(text: str, who: str) -> int:
    """Return the total of the line ``some`` or ``full``, in microseconds. Raises MetricLost."""
    for line in text.splitlines():
        first, *rest = line.split() or [""]
        if first == who:
            for one in rest:
                name, _, number = one.partition("=")
                if name == "total" and _is_count(number):
                    return int(number)
    raise no_number(f"pressure: total of {who}", text)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Of all processors since boot."""

    busy: int
    all: int


class Processors(Polled[Ticks]):
    """Share of the time of all processors that was not idle, in percent. Waiting for I/O is idle, stolen time is busy."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self.reach_s = 0.0

    def read(self) -> Ticks:
        return ticks(_text(PROC_STAT))

    def value(self, readings: Sequence[Reading[Ticks]]) -> float:
        first, last = readings[0].value, readings[-1].value
        passed = last.all - first.all
        if passed <= 0:
            raise nothing(self.name)
        return min(100.0, max(0.0, 100.0 * (last.busy - first.busy) / passed))


def ticks(text: str) -> Ticks:
    """Parse the first line of /proc/stat. Raises MetricLost."""
    first, *rest = text.partition("\n")[0].split() or [""]
    numbers = [int(one) for one in rest[:8] if _is_count(one)]
    if first != "cpu" or len(numbers) < 8:
        raise no_number("times of all processors in /proc/stat", text)
    return Ticks(sum(numbers) - numbers[3] - numbers[4], sum(numbers))


def _is_count(text: str) -> bool:
    """Return whether this is a number of the kernel: at most 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= 20


def _device(name: str) -> Path:
    """Return the folder of a block device in /sys. Raises RequestError."""
    short = name.removeprefix("/dev/")
    if not short or "/" in short or short.startswith(".") or not (BLOCK / short).is_dir():
        known = sorted(one.name for one in BLOCK.iterdir()) if BLOCK.is_dir() else []
        raise UnknownName("block device", name, known)
    return BLOCK / short


def whole_device(name: str) -> str:
    """Return the name of the disk that a partition is on, or of the disk itself. Raises RequestError."""
    folder = _device(name)
    return folder.resolve().parent.name if (folder / "partition").exists() else folder.name


def device_source(metric: Metric, device: str, what: str) -> DeviceStat | DeviceLatency:
    """Return the source of a device's metric. Raises RequestError."""
    if what not in DEVICE_METRICS:
        raise UnknownName("metric of a device", what, DEVICE_METRICS)
    share = DEVICE_METRICS[what][2]
    return DeviceStat(metric, device, what) if share is None else DeviceLatency(metric, device, share)


def pressure_source(metric: Metric, text: str) -> Pressure:
    """Return the source of ``io``, ``cpu`` or ``memory``, each with ``:full`` or without. Raises RequestError."""
    resource, _, who = text.partition(":")
    if resource not in PRESSURES or who not in ("", "some", "full"):
        raise UnknownName("pressure", text, [*PRESSURES, *(f"{one}:full" for one in PRESSURES)])
    if not PRESSURE.is_dir():
        raise RequestError("psi: this kernel has no /proc/pressure", hint="boot with psi=1")
    return Pressure(metric, resource, full=who == "full")


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise unreadable(file, error.strerror) from error
