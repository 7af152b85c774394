"""Check whether the lab's file system still works after something in it has failed.

After disk errors the kernel makes ext4 and btrfs read-only and shuts xfs down, and a disk may be unplugged. From then on runs
fail in every arm. That is no effect of a treatment, and the trial must not count it as one.
"""

from __future__ import annotations

import errno
import os

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import FileSelection
from iotrial.lab.disk import DiskPlace
from iotrial.lab.in_place import InPlace
from iotrial.lab.place import Place

#: errors of a file system that has shut down or lost its disk
BROKEN = frozenset(
    # file systems return EUCLEAN for a damaged structure and EBADMSG for a wrong checksum
    {errno.EIO, errno.EROFS, errno.ESHUTDOWN, errno.EUCLEAN, errno.EBADMSG, errno.ENODEV, errno.ENXIO}
)
#: mount options that mountinfo then shows, if the kernel reports it (ext4 since Linux 6.15 and 5.18)
FLAGS = ("emergency_ro", "shutdown")
HINT = "the kernel's log (dmesg) says why; check the disk. Finished runs are kept: `iotrial resume` continues in a new lab"


def check(place: Place, cause: str, *, number: int | None = None, files: FileSelection | None = None) -> None:
    """Raise LabError if the place no longer works. ``cause``: the failure that led here, and ``number`` its errno.

    ``files``: read these files too, because programs do not say why they failed.
    """
    found = _gone(place) or _shown(place) or _written(place) or _read(place, files)
    if found is None and number in BROKEN - {errno.EROFS}:
        found = os.strerror(int(number or 0))
    if found is not None:
        raise LabError(f"the lab has failed, {place.label}: {found}; noticed at: {cause}", hint=HINT)


def _gone(place: Place) -> str | None:
    """Return in words that a disk was unplugged: the kernel keeps the mount, but has no such device any more."""
    for device in dict.fromkeys((*place.devices.values(), *place.queues)):
        if not place.target.exists(f"/sys/class/block/{device.replace('/', '!')}"):
            return f"the device {device} is gone"
    return None


def _shown(place: Place) -> str | None:
    """Return what mountinfo shows: unexpectedly read-only, or shut down."""
    info = place.worker.mount_at(place.root)
    if info is None:
        return None
    for flag in FLAGS:
        if flag in info.options:
            return f"the kernel reports it as {flag}"
    if "ro" in info.options and _writable(place):
        return "it became read-only"
    return None


def _written(place: Place) -> str | None:
    """Return the error of a test write: some kernels do not show that they have shut a file system down."""
    if not _writable(place):
        return None
    try:
        path = f"{place.root}/.iotrial-health"
        place.worker.call("mkdir", path=path)
        place.worker.call("remove", path=path)
        place.syncfs()
    except TargetError as error:
        return error.message if error.errno in BROKEN else None
    return None


def _read(place: Place, files: FileSelection | None) -> str | None:
    if files is None:
        return None
    try:
        if place.data is None:
            place.worker.call("warm", set=files.set, files=files.wire, names=False)
    except TargetError as error:
        return error.message if error.errno in BROKEN else None
    return None


def _writable(place: Place) -> bool:
    return not isinstance(place, InPlace) and (not isinstance(place, DiskPlace) or not place.read_only)
