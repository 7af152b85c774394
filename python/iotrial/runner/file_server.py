"""A run on files that another guest serves: measures the server and the network as well."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from iotrial.errors import ProbeError, TargetError
from iotrial.guest.link import MARKS, SERVER, WIRE
from iotrial.lab.disk import DiskPlace

_NS = 1e-9
#: The card's counters mapped to traffic on the link, as the server sees it.
_LINK = {
    "rx_bytes": "link_to_server_bytes",
    "rx_packets": "link_to_server_packets",
    "tx_bytes": "link_from_server_bytes",
    "tx_packets": "link_from_server_packets",
    "interrupts": "link_interrupts",
}


def measured(place: DiskPlace, job: Callable[[dict[str, object]], dict[str, Any]]) -> dict[str, Any]:
    """Return the job's answer, with the serving machine's devices and an additional key ``served``.

    ``served`` holds processor seconds of the server (``nas_cpu``, of which ``nas_interrupts``), the share of
    the time that its processors were busy in percent, and bytes, packets and interrupts of the link, all of the
    timed part; then ``nas_sync``, the seconds that the server took to write to its disk what it had received
    and only held in memory. ``job`` is called with the fields that let the working probe tell the other one
    when its timed part begins and ends.
    """
    devices = list(dict.fromkeys((*place.queues, *place.devices.values())))
    place.target.call("watch_start", devices=devices, cards=[WIRE], listen=f"{SERVER}:{MARKS}")
    try:
        answer = job({"peer": f"{SERVER}:{MARKS}"})
        synced = place.target.call("syncfs", path=place.root)
    except Exception:
        with suppress(ProbeError, TargetError):
            place.target.call("watch_stop")
        raise
    there = place.target.call("watch_stop")
    around = there["around"]
    found = {_LINK[name]: float(more) for name, more in there["cards"][WIRE].items()}
    found["nas_sync"] = synced["wall_ns"] * _NS
    processors, lasted = around["processors"] or {}, around["lasted_ns"]
    if processors and lasted > 0:
        spent = processors["user_ns"] + processors["sys_ns"]
        found |= {
            "nas_cpu": spent * _NS,
            "nas_interrupts": processors["interrupt_ns"] * _NS,
            "nas_busy": min(100.0, 100.0 * spent / (lasted * processors["count"])),
        }
    return {**answer, "devices": there["devices"], "devices_after_sync": None, "served": found}
