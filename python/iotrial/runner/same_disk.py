"""Detects compared places that lie on one disk: then the trial would compare that disk with itself.

Looks at the user's folders and disks before anything is made, so that ``plan`` can report it.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from iotrial.documents import JsonObject
from iotrial.runner.backing import disks_under, kind_of_disk, shared
from iotrial.runner.places import Site
from iotrial.runner.resolve import Resolved
from iotrial.study.model import Holds


class Together(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Places that share disks.

    ``compared``: runs happen at more than one of them. ``log``: name of the log's place if it is among them.
    """

    places: tuple[str, ...]
    disks: tuple[str, ...]
    compared: bool
    log: str | UnsetType = UNSET


def sharing(resolved: Resolved, folder: str) -> tuple[Together, ...]:
    """Return the places that share disks. ``folder`` holds the places that the user has not located."""
    names = {_name(site): site for site in resolved.sites}
    found = []
    for places, disks in shared([(name, _disks(site, folder)) for name, site in names.items()]):
        holds = [names[name].holds for name in places]
        log = next((name for name in places if names[name].holds is Holds.LOG), UNSET)
        found.append(Together(places, disks, holds.count(Holds.RUNS) > 1, log))
    return tuple(found)


def disk_kinds(resolved: Resolved, folder: str) -> dict[str, dict[str, str | None]]:
    """Return the disks under each place, each "rotating", "solid-state" or None if the kernel does not say."""
    found = {_name(site): sorted(_disks(site, folder)) for site in resolved.sites}
    return {place: {disk: kind_of_disk(disk) for disk in disks} for place, disks in found.items() if disks}


def _name(site: Site) -> str:
    return site.name or "lab"


def _disks(site: Site, folder: str) -> frozenset[str]:
    if site.disk is not None:  # simulated in memory
        return frozenset()
    consent = site.where.consent
    if consent is None:
        return disks_under(site.where.folder or folder)
    return frozenset() if consent.path is None else disks_under(consent.path)
