"""From a study's lab to the place that it is: an image, or the disk that the user has named."""

from __future__ import annotations

from typing import TypedDict

from iotrial.conduct.resolve import Resolved, disk_bytes
from iotrial.errors import RequestError
from iotrial.lab.device import DevicePlace
from iotrial.lab.disk import DiskPlace
from iotrial.lab.guard import LOOK_IT_UP, Consent
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.knobs.mount import MountOption
from iotrial.lab.target import Target


class _Common(TypedDict):
    """What every place with a file system of its own is made with."""

    mount_point: str
    filesystem: str
    size_bytes: int
    mkfs_options: tuple[str, ...]
    mount_options: tuple[str, ...]
    boot_id: str
    trial: str


def place_for(
    resolved: Resolved,
    filesystem: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    mounts: str,
    consent: Consent | None,
    boot_id: str,
    trial: str,
) -> DiskPlace:
    """The place for one type of file system, not open yet. ``folder`` holds images, ``mounts`` mount points.

    Raises RequestError for a device lab without consent.
    """
    lab = resolved.study.lab
    common: _Common = {
        "mount_point": f"{mounts}/{filesystem}",
        "filesystem": filesystem,
        "size_bytes": disk_bytes(resolved.study) if resolved.lab == "device" else lab.size_bytes,
        "mkfs_options": lab.mkfs_options if filesystem == lab.filesystem else (),
        "mount_options": tuple(
            o for o in lab.mount_options if filesystem in MountOption.ALLOWED[o.partition("=")[0]]
        ),
        "boot_id": boot_id,
        "trial": trial,
    }
    if resolved.lab != "device":
        return ImagePlace(filesystem, target, journal, folder=folder, **common)
    if consent is None:
        raise RequestError("a device lab: no disk is named, and none is chosen for you", hint=LOOK_IT_UP)
    return DevicePlace(filesystem, target, journal, consent=consent, **common)
