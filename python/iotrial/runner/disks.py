"""Builds the places of a study: images, disks that the user has named, and the devices of their logs."""

from __future__ import annotations

from iotrial.guest.array import ArrayPlace
from iotrial.guest.link import Link
from iotrial.guest.place import GuestPlace, serials_of
from iotrial.guest.share import Share
from iotrial.lab.device import DevicePlace
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.knobs.mount import MountOption
from iotrial.lab.log_device import LogPlace
from iotrial.lab.simulated_disk import WriteLogging
from iotrial.lab.target import Target
from iotrial.runner.places import Site
from iotrial.runner.resolve import Resolved
from iotrial.study.model import Holds
from iotrial.study.places import GUEST


def place_for(
    resolved: Resolved,
    site: Site,
    filesystem: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    mounts: str,
    boot_id: str,
    trial: str,
    link: Link | None = None,
    logging: WriteLogging | None = None,
) -> DiskPlace:
    """Return the place for one type of file system, not open yet.

    ``folder`` holds images of places that the user has not located, ``mounts`` the mount points. ``link``
    leads to the machine that does the work, if it is another one. ``logging``: an image on a disk that logs.
    """
    lab = resolved.study.lab
    name = site.place(filesystem)
    common: DiskOptions = {
        "mount_point": f"{mounts}/{name}",
        "filesystem": filesystem,
        "size_bytes": site.size_bytes,
        "mkfs_options": {lab.filesystem: lab.mkfs_options},
        "mount_options": {
            kind: tuple(o for o in lab.mount_options if kind in MountOption.ALLOWED[o.partition("=")[0]])
            for kind in FILESYSTEMS
        },
        "boot_id": boot_id,
        "trial": trial,
        "share": None if link is None or site.holds is not Holds.RUNS else Share(link),
        "log": _log(resolved, site, name, target, journal, folder=folder, boot_id=boot_id, trial=trial),
    }
    if site.where.consent is not None:
        place: DiskPlace = DevicePlace(name, target, journal, consent=site.where.consent, **common)
    elif site.kind == GUEST and site.disks > 1:
        serials = tuple(serials_of(name, site.disks))
        place = ArrayPlace(name, target, journal, serials=serials, disk=site.disk, **common)
    elif site.kind == GUEST:
        place = GuestPlace(name, target, journal, **common)
    else:
        place = ImagePlace(
            name,
            target,
            journal,
            folder=site.where.folder or folder,
            disk=site.disk,
            logging=logging,
            **common,
        )
    place.site = site.name
    return place


def _log(
    resolved: Resolved,
    site: Site,
    name: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    boot_id: str,
    trial: str,
) -> LogPlace | None:
    """Return the log device for a place of runs if the study varies where logs lie; else None."""
    log = next((one for one in resolved.sites if one.holds is Holds.LOG), None)
    if log is None or site.holds is not Holds.RUNS:
        return None
    return LogPlace(
        f"{name}.{log.name}",
        target,
        journal,
        folder=log.where.folder or folder,
        size_bytes=log.size_bytes,
        disk=log.disk,
        boot_id=boot_id,
        trial=trial,
    )
