"""From a study's lab to the place that it is: an image, or the disk that the user has named."""

from __future__ import annotations

from iotrial.conduct.resolve import Resolved, disk_bytes, image_bytes
from iotrial.lab.device import DevicePlace
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.knobs.mount import MountOption
from iotrial.lab.target import Target


def place_for(
    resolved: Resolved,
    filesystem: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    mounts: str,
    boot_id: str,
    trial: str,
) -> DiskPlace:
    """The place for one type of file system, not open yet. ``folder`` holds images, ``mounts`` mount points."""
    lab = resolved.study.lab
    common: DiskOptions = {
        "mount_point": f"{mounts}/{filesystem}",
        "filesystem": filesystem,
        "size_bytes": disk_bytes(resolved.study) if resolved.lab == "device" else image_bytes(resolved.study),
        "mkfs_options": {lab.filesystem: lab.mkfs_options},
        "mount_options": {
            kind: tuple(o for o in lab.mount_options if kind in MountOption.ALLOWED[o.partition("=")[0]])
            for kind in FILESYSTEMS
        },
        "boot_id": boot_id,
        "trial": trial,
    }
    if resolved.lab != "device":
        return ImagePlace(filesystem, target, journal, folder=folder, disk=lab.disk, **common)
    assert resolved.consent is not None  # else it would not have been resolved
    return DevicePlace(filesystem, target, journal, consent=resolved.consent, **common)
