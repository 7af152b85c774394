"""Kernel counters read around a run, as evidence: names with units, from the probe's answer.

- ``device_``: the lab's own device (with a log on a second device: both together). ``log_``: the log's
  device.
- ``work_``: file I/O of the probe and of the programs it started.
- ``system_`` and ``energy``: the whole machine, other processes included.

Counters that this kernel does not provide are left out. None of these is a response: they show how a
treatment works, not how good it is. docs/evidence.md defines each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NS = 1e-9
_KIB = 1024.0

# The probe's names mapped to ours; times become seconds.
_DEVICE = {
    "read_ios": "device_read_ios",
    "write_ios": "device_write_ios",
    "read_merges": "device_read_merges",
    "write_merges": "device_write_merges",
    "flush_ios": "device_flush_ios",
    "discard_ios": "device_discard_ios",
    "discard_bytes": "device_discard_bytes",
    "read_ns": "device_read_time",
    "write_ns": "device_write_time",
    "flush_ns": "device_flush_time",
    "discard_ns": "device_discard_time",
    "queue_ns": "device_queue_time",
    "busy_ns": "device_busy_time",
    "inodes_dirty_more": "device_inodes_dirtied",
    "inodes_dirty_by_time_more": "device_inodes_dirtied_by_time",
    "dirtied_bytes": "device_dirtied_bytes",
    "written_back_bytes": "device_written_back_bytes",
}
# Also counted up to the end of a sync after the run: the total cost of the treatment for the device.
_SYNCED = ("write_ios", "write_merges", "flush_ios", "discard_ios", "discard_bytes", "queue_ns", "busy_ns")
_KIB_COUNTS = {"read_kib": "read_bytes", "written_kib": "written_bytes"}


def counted(
    answer: Mapping[str, Any], devices: Mapping[str, str], disks: Sequence[str] = ()
) -> dict[str, float]:
    """Return all counters of one run, by name.

    ``devices`` maps what each device of the lab holds to its name; it is empty if the lab has no device of
    its own. Several devices are added up, and those other than "data" are also listed separately. ``disks``
    are the disks of an array.
    """
    around = answer.get("around") or {}
    apart = {holds: [name] for holds, name in devices.items() if holds != "data"}
    return {
        **_of_devices(answer, "device", devices.values()),
        **{
            name: number
            for holds, names in apart.items()
            for name, number in _of_devices(answer, holds.replace(" ", "_"), names).items()
        },
        **(_of_disks(answer, disks) if len(disks) > 1 else {}),
        **{f"work_{name}": float(count) for name, count in (around.get("process") or {}).items()},
        **_of_system(around.get("system") or {}),
        **_stalls(around.get("pressure") or {}),
        **_energy(around.get("energy") or {}),
    }


def summed(devices: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, int]:
    """Return the sum of these devices' counters by name. A counter that one of them lacks is left out."""
    found = [counters for name in names if (counters := (devices or {}).get(name))]
    if not found:
        return {}
    return {its: sum(counters[its] for counters in found) for its in found[0] if all(its in c for c in found)}


def _of_devices(answer: Mapping[str, Any], prefix: str, names: Iterable[str]) -> dict[str, float]:
    names = list(names)
    during, synced = (summed(answer.get(key), names) for key in ("devices", "devices_after_sync"))
    # read and write bytes of all devices together are responses of their own
    bytes_too = (
        {} if prefix == "device" else {"read_bytes": "device_read_bytes", "write_bytes": "device_write_bytes"}
    )
    found = {ours: _value(its, during[its]) for its, ours in (_DEVICE | bytes_too).items() if its in during}
    found |= {f"{_DEVICE[its]}_synced": _value(its, synced[its]) for its in _SYNCED if its in synced}
    return {f"{prefix}{name.removeprefix('device')}": number for name, number in found.items()}


def _of_disks(answer: Mapping[str, Any], disks: Sequence[str]) -> dict[str, float]:
    """Return the summed counters of an array's disks, and the byte share of the busiest disk in percent (its imbalance)."""
    found = _of_devices(answer, "disks", disks)
    counters = answer.get("devices") or {}
    for kind in ("read", "write"):
        each = [counters[disk][f"{kind}_bytes"] for disk in disks if disk in counters]
        if sum(each) > 0:
            found[f"disks_{kind}_share_most"] = 100.0 * max(each) / sum(each)
    return found


def _of_system(counts: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"system_{_KIB_COUNTS.get(name, name)}": count * (_KIB if name in _KIB_COUNTS else 1.0)
        for name, count in counts.items()
    }


def _stalls(pressure: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"system_{resource}_pressure_{who}_time": stalled[f"{who}_ns"] * _NS
        for resource, stalled in pressure.items()
        for who in ("some", "full")
    }


def _energy(zones: Mapping[str, Any]) -> dict[str, float]:
    """Return the joules of all packages and, where it is metered separately, of their memory."""
    if not zones:
        return {}
    return {"energy": sum(zone["uj"] for zone in zones.values()) / 1e6}


def _value(name: str, count: float) -> float:
    return count * _NS if name.endswith("_ns") else float(count)
