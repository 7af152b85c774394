"""A place in the guest lab: a file system on a disk that a guest has to itself."""

from __future__ import annotations

import hashlib
from typing import Unpack

from iotrial.errors import LabError
from iotrial.lab import disk_identity
from iotrial.lab.disk import DiskOptions, DiskPlace, hold
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.polling import attempts

#: virtio-blk, NVMe and ATA have no longer serial numbers
_LONGEST_SERIAL = 20
#: controllers other than virtio-blk look for their disks after their driver is loaded
_FOUND_WITHIN_S, _LOOKS_EVERY_S = 20.0, 0.05


class GuestPlace(DiskPlace):
    """A file system on the guest's disk with the place's serial number."""

    kind = "guest"

    def __init__(self, name: str, target: Target, journal: Journal, **common: Unpack[DiskOptions]) -> None:
        super().__init__(name, target, journal, **common)
        self._serial = serial_of(name)

    @property
    def label(self) -> str:
        return f"{self.filesystem} on {self.device or 'a disk'} of {self.target.name}"

    def _attach(self) -> None:
        self.device = disk_with_serial(self.target, self._serial)
        hold(self.target, self.device)

    def _detach(self) -> None:
        if self.device is not None:
            self.target.call("device_close", device=self.device)
            self.device = None


def disk_with_serial(target: Target, serial: str, *, within_s: float = _FOUND_WITHIN_S) -> str:
    """Return the guest's disk with this serial number, on any controller. Raises LabError if it does not appear in time."""
    for _ in attempts(within_s, _LOOKS_EVERY_S):
        names = target.call("list", path="/sys/block")["names"]
        for name in names:
            if serial in disk_identity.reported(target, f"/sys/block/{name}"):
                return str(name)
    raise LabError(f"{target.name}: no disk has the serial number {serial}, found {', '.join(names)}")


def serials_of(place: str, disks: int) -> list[str]:
    """Return the serial numbers of a place's disks."""
    return [serial_of(place if disks == 1 else f"{place}.{number}") for number in range(disks)]


def serial_of(place: str) -> str:
    """Return the serial number of a place's disk: its name, or a hash of the name if that is too long."""
    if place and len(place.encode()) <= _LONGEST_SERIAL:
        return place
    return hashlib.sha256(place.encode()).hexdigest()[:_LONGEST_SERIAL]
