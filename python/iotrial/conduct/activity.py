"""How busy the machine and the lab's device were during a run: shares of its timed part, from the kernel's counters.

Evidence of every run, and responses where a study names them (docs/study-files.md, `[[response]]`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def activity(answer: Mapping[str, Any], device: str | None) -> dict[str, float]:
    """``io_wait`` and ``io_wait_most`` in percent, of all processors and of the one that waited most; ``device_busy`` in
    percent and ``device_depth``, the requests under way on average, where the lab has a device of its own."""
    around = answer.get("around") or {}
    lasted = (around.get("lasted_ns") or 0) - answer.get("spun", {}).get("wall_ns", 0)
    if lasted <= 0:
        return {}
    found: dict[str, float] = {}
    processors = around.get("processors")
    if processors:
        # Ticks of a hundredth of a second: of a short run they may be more than its time.
        found["io_wait"] = min(100.0, 100.0 * processors["iowait_ns"] / (lasted * processors["count"]))
        each = processors["iowait_each_ns"]
        if each:
            found["io_wait_most"] = min(100.0, 100.0 * max(each) / lasted)
    counters = (answer.get("devices") or {}).get(device or "")
    if counters:
        found["device_busy"] = min(100.0, 100.0 * counters["busy_ns"] / lasted)
        found["device_depth"] = counters["queue_ns"] / lasted
    return found
