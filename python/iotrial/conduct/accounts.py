"""What the kernel counted around a run, as evidence: names with units, from the probe's answer.

``device_`` is the lab's own device alone, ``work_`` what the probe and the programs that it started asked of files;
``system_`` and ``energy`` are the whole machine's, neighbours included. What this kernel does not count is left out. Nothing
here is a response: these numbers say how a treatment works, not what it is worth. docs/evidence.md says what each is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NS = 1e-9
_KIB = 1024.0

# In the probe's words and in ours; times become seconds.
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
# Up to the end of a sync after the run: what the treatment owes the device in all.
_SYNCED = ("write_ios", "write_merges", "flush_ios", "discard_ios", "discard_bytes", "queue_ns", "busy_ns")
_KIB_COUNTS = {"read_kib": "read_bytes", "written_kib": "written_bytes"}


def counted(answer: Mapping[str, Any], device: str | None) -> dict[str, float]:
    """All that was counted around one run, by name. ``device``: the lab's, None where it has none of its own."""
    around = answer.get("around") or {}
    return {
        **_of_device(answer.get("devices"), device),
        **_synced(answer.get("devices_after_sync"), device),
        **{f"work_{name}": float(count) for name, count in (around.get("process") or {}).items()},
        **_of_system(around.get("system") or {}),
        **_stalls(around.get("pressure") or {}),
        **_energy(around.get("energy") or {}),
    }


def _of_device(devices: Mapping[str, Any] | None, device: str | None) -> dict[str, float]:
    counters = (devices or {}).get(device or "") or {}
    return {ours: _value(its, counters[its]) for its, ours in _DEVICE.items() if its in counters}


def _synced(devices: Mapping[str, Any] | None, device: str | None) -> dict[str, float]:
    counters = (devices or {}).get(device or "") or {}
    return {f"{_DEVICE[its]}_synced": _value(its, counters[its]) for its in _SYNCED if its in counters}


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
    """Joules of all packages and, where it is metered apart, their memory."""
    if not zones:
        return {}
    return {"energy": sum(zone["uj"] for zone in zones.values()) / 1e6}


def _value(name: str, count: float) -> float:
    return count * _NS if name.endswith("_ns") else float(count)
