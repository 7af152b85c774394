"""A place of the guest lab: a file system on a virtio disk of a guest, which has it for itself alone."""

from __future__ import annotations

import hashlib
from typing import Unpack

from iotrial.errors import LabError
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target

#: virtio-blk tells no more of a serial number
_LONGEST_SERIAL = 20


class GuestPlace(DiskPlace):
    """A file system of its own on the disk of the guest that has the place's serial number."""

    kind = "guest"

    def __init__(self, name: str, target: Target, journal: Journal, **common: Unpack[DiskOptions]) -> None:
        super().__init__(name, target, journal, **common)
        self._serial = serial_of(name)

    @property
    def label(self) -> str:
        return f"{self.filesystem} on {self.device or 'a disk'} of {self.target.name}"

    def open(self) -> None:
        self.device = disk_with_serial(self.target, self._serial)
        hold(self.target, self.device)
        self.target.call("mkdir", path=self.root, mode="0755")
        self._open_log()
        self.format()

    def close(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._close_log()
        if self.device is not None:
            self.target.call("device_close", device=self.device)
            self.device = None


def disk_with_serial(target: Target, serial: str) -> str:
    """The disk of a guest with this serial number. Raises LabError where there is none."""
    names = target.call("list", path="/sys/block")["names"]
    for name in names:
        if target.read_or_none(f"/sys/block/{name}/serial") == serial:
            return str(name)
    raise LabError(f"{target.name}: no disk has the serial number {serial}, found {', '.join(names)}")


def hold(target: Target, device: str) -> None:
    """Have the probe keep a device open, so that it can empty what is cached of the device itself. It claims it for that, and
    lets go of the claim: mount(2) wants it for itself."""
    target.call("device_claim", path=f"/dev/{device}")
    target.call("device_release", device=device)


def serials_of(place: str, disks: int) -> list[str]:
    """The serial numbers of the disks of a place."""
    return [serial_of(place if disks == 1 else f"{place}.{number}") for number in range(disks)]


def serial_of(place: str) -> str:
    """The serial number of the disk of a place: its name, or of a long one what makes it no other's."""
    if place and len(place.encode()) <= _LONGEST_SERIAL:
        return place
    return hashlib.sha256(place.encode()).hexdigest()[:_LONGEST_SERIAL]
