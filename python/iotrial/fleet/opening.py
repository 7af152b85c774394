"""From a store to the verdict over one of its fleets. Only the store is read; what was looked at is remembered beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from iotrial.fleet.kept import summed_up
from iotrial.fleet.membership import Fleet, chosen, fleets
from iotrial.fleet.verdict import FleetReport, fleet_report
from iotrial.store import Store
from iotrial.store.outline import outlines


def fleets_of(path: Path) -> tuple[tuple[Fleet, ...], tuple[str, ...]]:
    """The fleets of the store in this file, the newest last, and what must be known of the file as a whole."""
    found, warnings = outlines(path)
    return fleets(found), warnings


def report_of(
    path: Path, ref: str | None = None, *, told: Callable[[int, int], None] | None = None
) -> tuple[FleetReport, tuple[str, ...]]:
    """The verdict over a fleet (None: the newest), and warnings on the file. ``told`` hears how many hosts are done, of how
    many. RequestError or UnknownName where there is no such fleet."""
    found, warnings = fleets_of(path)
    fleet = chosen(found, ref)
    count = len(fleet.trials)
    with Store.open(path, read_only=True, checked=False) as store:
        hosts = tuple(
            summed_up(store, fleet.trials, None if told is None else lambda done: told(done, count))
        )
    return fleet_report(fleet, hosts), warnings
