"""What fio says of several clients: ``client_stats``, an entry for each and, where there are several, "All clients"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iotrial.conduct.crowd.figures import fairness
from iotrial.legible import shown

ALL = "All clients"
_WAYS = ("read", "write", "trim")


def of_clients(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with ``all``, the sum (one client's own where there is one), beside what it has."""
    each, whole = _entries(result)
    return {**result, "all": whole or (each[0] if len(each) == 1 else {})}


def evenness(result: Mapping[str, Any]) -> float | None:
    """Jain's index of the clients' rates, all their bytes together; None where nobody moved any."""
    rates = [sum(_rate(entry.get(way)) for way in _WAYS) for entry in _entries(result)[0]]
    return fairness(rates) if any(rate > 0 for rate in rates) else None


def missing_of(result: Mapping[str, Any], wanted: int) -> str | None:
    """In words what is wrong with it: a client that gave nothing, or whose job failed."""
    each, _ = _entries(result)
    for entry in each:
        if entry.get("error") != 0:
            who = shown(f"{entry.get('hostname')} port {entry.get('port')}"[:100])
            return f"fio's client {who} ended with error {shown(str(entry.get('error'))[:20])}"
    # numjobs gives an entry for each process, none of another client
    came = {(entry.get("hostname"), entry.get("port")) for entry in each}
    return None if len(came) >= wanted else f"fio had results of {len(came)} of {wanted} clients"


def _entries(result: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
    found = result.get("client_stats")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    whole = next((entry for entry in entries if entry.get("jobname") == ALL), None)
    return [entry for entry in entries if entry is not whole], whole


def _rate(way: object) -> float:
    rate = way.get("bw_bytes") if isinstance(way, dict) else None
    plain = isinstance(rate, int | float) and math.isfinite(rate) and rate >= 0
    return float(rate) if plain and rate is not None else 0.0
