"""A run whose files another guest serves: what that one and the network did meanwhile, beside what the work itself counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iotrial.lab.disk import DiskPlace

_NS = 1e-9


def measured(place: DiskPlace, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer of the job, its devices those of the machine that serves, and ``served``: seconds of processor time there
    (``nas_cpu``, of which ``nas_interrupts``), the share of the time that its processors were busy, bytes, packets and
    interrupts of the link.

    Read just before the job is sent and just after it has answered: what is written back after the timed part is in it.
    """
    assert place.share is not None
    link = place.share.link
    devices = list(dict.fromkeys((*place.queues, *place.devices.values())))
    before = link.counters()
    place.target.call("watch_start", devices=devices)
    answer = job()
    there = place.target.call("watch_stop")
    after = link.counters()
    around = there["around"]
    processors = around["processors"] or {}
    lasted = around["lasted_ns"]
    found = {name: after[name] - before[name] for name in before}
    if processors and lasted > 0:
        spent = processors["user_ns"] + processors["sys_ns"]
        found |= {
            "nas_cpu": spent * _NS,
            "nas_interrupts": processors["interrupt_ns"] * _NS,
            "nas_busy": min(100.0, 100.0 * spent / (lasted * processors["count"])),
        }
    synced = {"devices_after_sync": there["devices"]} if answer.get("devices_after_sync") is not None else {}
    return {**answer, "devices": there["devices"], **synced, "served": found}
