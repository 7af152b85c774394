"""Other load on this machine: CPU time of other processes, steal time, pressure, and the busiest processes.

It takes two snapshots of monotonic counters and uses the difference. Pressure stall information may be missing (psi=0, or a
kernel without it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iotrial.errors import TargetError
from iotrial.lab.machine.processor import names_in, read_if_readable
from iotrial.lab.target import Target

PRESSURES = ("cpu", "io", "memory")
#: fields of the first line of /proc/stat, proc_stat(5); guest time is already included in user and nice
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_IDLE = ("idle", "iowait", "steal")
MOST_NAMED = 3
#: shares from which other load is worth a word, and from which it is a warning
STOLEN = (0.01, 0.05)
BUSY = (0.05, 0.25)
PRESSURE = (0.05, 0.25)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Shares of all processors' time over ``seconds`` (0 to 1): ``busy`` with anything, ``stolen`` by the host.

    ``pressure``, by resource: the share of that time in which some task waited for it. ``busiest``: (process, number of
    processors it kept busy). ``load`` is the one-minute load average.
    """

    seconds: float
    busy: float
    stolen: float
    pressure: Mapping[str, float]
    busiest: tuple[tuple[str, float], ...]
    load: float | None


def ticks(stat: str) -> dict[str, int] | None:
    """Parse /proc/stat: time of all processors by kind, in clock ticks. None if the text has another format."""
    first = stat.split("\n", 1)[0].split()
    numbers = first[1:]
    if not first or first[0] != "cpu" or len(numbers) < 4 or not all(map(str.isdecimal, numbers)):
        return None
    return dict(zip(_FIELDS, map(int, numbers), strict=False))


def stalled_us(pressure: str) -> int | None:
    """Parse a file of /proc/pressure: microseconds in which some task was stalled. None if it has another format."""
    for line in pressure.splitlines():
        words = line.split()
        if words and words[0] == "some" and words[-1].startswith("total=") and words[-1][6:].isdecimal():
            return int(words[-1][6:])
    return None


def process_ticks(stat: str) -> tuple[str, int] | None:
    """Parse /proc/PID/stat, proc_pid_stat(5): name and CPU time in clock ticks. None if it has another format."""
    head, bracket, tail = stat.rpartition(")")
    fields = tail.split()
    if not bracket or len(fields) < 13 or not (fields[11].isdecimal() and fields[12].isdecimal()):
        return None
    return head.partition("(")[2], int(fields[11]) + int(fields[12])


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[float, float]:
    """Return the busy and stolen shares of all processors' time between two snapshots; 0 and 0 if no time has passed."""
    passed = {kind: max(0, after[kind] - before.get(kind, 0)) for kind in after}
    total = sum(passed.values())
    if total == 0:
        return 0.0, 0.0
    busy = sum(ticks for kind, ticks in passed.items() if kind not in _IDLE)
    return busy / total, passed.get("steal", 0) / total


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    ticks: dict[str, int] | None
    stalled: dict[str, int]
    processes: dict[str, tuple[str, int]]


def look(
    target: Target,
    seconds: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Neighbours:
    """Observe the machine for this many seconds. The probe itself is not counted among the processes."""
    own = str(target.call("hello")["pid"])
    first = _look(target, own, now())
    sleep(seconds)
    last = _look(target, own, now())
    passed = max(last.at - first.at, 1e-9)
    busy, stolen = shares(first.ticks, last.ticks) if first.ticks and last.ticks else (0.0, 0.0)
    all_ticks = sum((last.ticks or {}).values()) - sum((first.ticks or {}).values())
    processors = (read_if_readable(target, "/proc/stat") or "").count("\ncpu")
    load = (read_if_readable(target, "/proc/loadavg") or "").split()
    return Neighbours(
        seconds=passed,
        busy=busy,
        stolen=stolen,
        pressure={
            name: min(1.0, max(0.0, (last.stalled[name] - first.stalled[name]) / 1e6 / passed))
            for name in PRESSURES
            if name in first.stalled and name in last.stalled
        },
        busiest=_busiest(first, last, all_ticks / max(processors, 1)),
        load=float(load[0]) if load and load[0].replace(".", "", 1).isdecimal() else None,
    )


def _look(target: Target, own: str, at: float) -> _Look:
    stalled = {
        name: stalled_us(read_if_readable(target, f"/proc/pressure/{name}") or "") for name in PRESSURES
    }
    processes = {}
    for pid in filter(str.isdecimal, names_in(target, "/proc")):
        try:
            found = process_ticks(target.read(f"/proc/{pid}/stat")) if pid != own else None
        except TargetError:
            continue  # it ended in the meantime
        if found is not None:
            processes[pid] = found
    return _Look(
        at,
        ticks(read_if_readable(target, "/proc/stat") or ""),
        {name: us for name, us in stalled.items() if us is not None},
        processes,
    )


def _busiest(first: _Look, last: _Look, ticks_each: float) -> tuple[tuple[str, float], ...]:
    """Return the processes that used most CPU, busiest first, with the number of processors they kept busy (at least 0.02).

    ``ticks_each``: clock ticks passed on each processor, so that the length of a tick need not be known.
    """
    used = []
    for pid, (name, spent) in last.processes.items():
        before = first.processes.get(pid)
        if before is not None and ticks_each > 0 and before[0] == name:
            used.append((f"{name} ({pid})", (spent - before[1]) / ticks_each))
    busy = sorted((one for one in used if one[1] >= 0.02), key=lambda one: -one[1])
    return tuple(busy[:MOST_NAMED])
