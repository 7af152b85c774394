"""Detects compared places that lie on one disk: then the trial would compare that disk with itself.

Looks at the user's folders and disks before anything is made, so that ``plan`` can report it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, UnsetType

from iotrial.documents import JsonObject
from iotrial.lab.in_place import MOUNTINFO, SYS, mount_of, source_number, whole_disk
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
    """Return the disks under each place, each "rotating", "solid-state", "nvme" or None if the kernel does not say."""
    found = {_name(site): sorted(_disks(site, folder)) for site in resolved.sites}
    return {place: {disk: kind_of_disk(disk) for disk in disks} for place, disks in found.items() if disks}


def disk_hardware(
    resolved: Resolved, folder: str, machine: Machine | None = None
) -> dict[str, dict[str, str]]:
    """Return model and firmware of each disk under a place, as far as the kernel knows them."""
    disks = sorted({disk for site in resolved.sites for disk in _disks(site, folder)})
    return {disk: known for disk in disks if (known := hardware_of(disk, machine))}


def used_shares(resolved: Resolved, folder: str) -> dict[str, float]:
    """Return the share of each place's file system that is in use; that of the folder that holds it, for images.

    A disk that has been named as a whole has none. Rounded to a thousandth.
    """
    found = {}
    for site in resolved.sites:
        if site.where.consent is None and site.disk is None:
            with suppress(OSError):
                status = os.statvfs(site.where.folder or folder)
                found[_name(site)] = (
                    round(1.0 - status.f_bfree / status.f_blocks, 3) if status.f_blocks else 0.0
                )
    return found


def _name(site: Site) -> str:
    return site.name or "lab"


def _disks(site: Site, folder: str) -> frozenset[str]:
    if site.disk is not None:  # simulated in memory
        return frozenset()
    consent = site.where.consent
    if consent is None:
        return disks_under(site.where.folder or folder)
    return frozenset() if consent.path is None else disks_under(consent.path)


# Finds the disks that a folder lies on, so that two places on one disk are not taken for two disks.


_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to look."""

    sys: Path = SYS
    mountinfo: Path = MOUNTINFO


def disks_under(path: str, machine: Machine | None = None) -> frozenset[str]:
    """Return kernel names of the disks under a folder, or under a block device given by its path.

    Returns the device number itself if no disk is found (a network file system, for example).
    """
    machine = machine or Machine()
    found = Path(path)
    while (
        not found.exists() and found != found.parent
    ):  # a folder not made yet will lie where its parent does
        found = found.parent
    try:
        seen = found.stat()
    except OSError:
        return frozenset()
    block = found.is_block_device()
    number = seen.st_rdev if block else seen.st_dev
    return frozenset(_disks_of(number, str(found), machine, 0)) or frozenset({_text(number)})


def kind_of_disk(disk: str, machine: Machine | None = None) -> str | None:
    """Return whether the kernel reports a disk as rotating, solid-state or NVMe; None if it does not say.

    ``disk`` is a kernel name. A virtual machine's disk says nothing about the disk behind it.
    """
    machine = machine or Machine()
    words = {"1": "rotating", "0": "nvme" if disk.startswith("nvme") else "solid-state"}
    return words.get((_read(machine.sys / "block" / disk / "queue" / "rotational") or "").strip())


#: where the kernel has them, below the disk's folder in sysfs: NVMe; SCSI and ATA; MMC
_HARDWARE = {
    "model": ("device/model", "device/name"),
    "firmware": ("device/firmware_rev", "device/rev", "device/fwrev"),
}


def hardware_of(disk: str, machine: Machine | None = None) -> dict[str, str]:
    """Return ``model`` and ``firmware`` of a disk by its kernel name, as far as the kernel knows them; no serial number."""
    disk_folder = (machine or Machine()).sys / "block" / disk.replace("/", "!")
    found = {}
    for name, files in _HARDWARE.items():
        texts = (" ".join((_read(disk_folder / file) or "").split()) for file in files)
        if text := next(filter(None, texts), ""):
            found[name] = text
    return found


def shared(
    places: Sequence[tuple[str, frozenset[str]]],
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return groups of places (names) with disks in common, each with its disks. A place that shares none is left out."""
    groups: list[tuple[list[str], set[str]]] = []
    for name, disks in places:
        touching = [group for group in groups if group[1] & disks]
        merged = (
            [n for names, _ in touching for n in names] + [name],
            set(disks).union(*(d for _, d in touching)),
        )
        groups = [group for group in groups if group not in touching] + [merged]
    return tuple((tuple(names), tuple(sorted(disks))) for names, disks in groups if len(names) > 1)


def _text(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _disks_of(number: int, path: str, machine: Machine, depth: int) -> set[str]:
    if depth > _DEEPEST:
        return set()
    if os.major(number) == 0:
        # the mount is found by its path: subvolumes have further device numbers of their own
        mount = mount_of(path, machine.mountinfo)
        source = None if mount is None else source_number(mount)
        return set() if source is None else _disks_of(source, path, machine, depth + 1)
    node = machine.sys / "dev" / "block" / _text(number)
    if not node.exists():
        return set()
    folder = whole_disk(node)
    backing = _read(folder / "loop" / "backing_file")
    if backing is not None and Path(backing).exists():
        return _disks_of(Path(backing).stat().st_dev, backing, machine, depth + 1)
    members = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    found: set[str] = set()
    for member in members:
        inner = _read(member / "dev")
        if inner is not None:
            major, _, minor = inner.partition(":")
            found |= _disks_of(os.makedev(int(major), int(minor)), path, machine, depth + 1)
    return found or {folder.name.replace("!", "/")}


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
