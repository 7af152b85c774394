"""How busy the machine and the lab's device were during a run: shares of its timed part, from kernel counters.

Evidence of every run, and responses if a study names them (docs/study-files.md, `[[response]]`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def activity(answer: Mapping[str, Any], device: str | None) -> dict[str, float]:
    """Return I/O wait of the processors and utilisation of the lab's device.

    - ``io_wait`` and ``io_wait_most``: percent, of all processors and of the one that waited most.
    - ``device_busy`` in percent and ``device_depth``, the mean number of requests in flight: only if the lab
      has its own device.
    """
    around = answer.get("around") or {}
    lasted = (around.get("lasted_ns") or 0) - answer.get("spun", {}).get("wall_ns", 0)
    if lasted <= 0:
        return {}
    found: dict[str, float] = {}
    processors = around.get("processors")
    if processors:
        # iowait is counted in ticks of 1/100 s: in a short run it may exceed the run's time.
        found["io_wait"] = min(100.0, 100.0 * processors["iowait_ns"] / (lasted * processors["count"]))
        each = processors["iowait_each_ns"]
        if each:
            found["io_wait_most"] = min(100.0, 100.0 * max(each) / lasted)
    counters = (answer.get("devices") or {}).get(device or "")
    if counters:
        found["device_busy"] = min(100.0, 100.0 * counters["busy_ns"] / lasted)
        found["device_depth"] = counters["queue_ns"] / lasted
    return found
