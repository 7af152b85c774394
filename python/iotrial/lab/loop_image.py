"""A loop device over an unnamed, fully written file on the user's disk.

Cleanup is left to the kernel where possible: the image is an unnamed file, and the loop device is autoclear and held by the
probe. When the probe dies, both vanish, and the disk space is freed.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from iotrial.errors import OTHER_FOLDER, NoSpace, TargetError
from iotrial.lab import simulated_disk
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.loop import Attached, LabLoop
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import FULL, check_space
from iotrial.lab.simulated_disk import WriteLogging
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec


class LoopImage:
    """One image, in a folder or on a simulated disk, and the block device on it.

    ``name`` is a part of the image's file name, for the moment that it has one. ``logging``: on a disk that logs its writes
    instead.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        folder: str,
        boot_id: str,
        trial: str,
        disk: DiskSpec | None = None,
        logging: WriteLogging | None = None,
    ) -> None:
        self._name = name
        self._target = target
        self._journal = journal
        self._folder = folder
        self._boot_id = boot_id
        self._trial = trial
        self._disk = disk
        self._logging = logging
        self._device: str | None = None

    @property
    def modelled(self) -> tuple[str, ...]:
        """The device's name while it is attached, if a disk model determines its speed."""
        return () if self._disk is None or self._device is None else (self._device,)

    def attach(self, size_bytes: int) -> Attached:
        """Create the image and attach a loop device. Raises NoSpace, RequestError, LabError, TargetError."""
        if self._logging is not None:
            image = simulated_disk.make_logging(self._target, self._logging, size_bytes)
        elif self._disk is None:
            check_space(self._target, self._folder, size_bytes)
            image = self._make(size_bytes)
        else:
            image = simulated_disk.make(self._target, self._disk, size_bytes)
        attached = LabLoop().attach(
            self._target,
            self._journal,
            image["image"],
            image["inode"],
            boot_id=self._boot_id,
            trial=self._trial,
            rotational=None if self._disk is None else self._disk.turning,
        )
        self._device = attached.device
        return attached

    def detach(self) -> None:
        """Detach the device, which also deletes the image. Does nothing if none is attached."""
        if self._device is not None:
            self._target.call("loop_detach", device=f"/dev/{self._device}")
            self._device = None

    def _make(self, size_bytes: int) -> Mapping[str, int]:
        try:
            return self._image(size_bytes)
        except TargetError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        # A file system without O_TMPFILE: the image has a name for a moment, so that goes into the journal.
        path = f"{self._folder.rstrip('/')}/.iotrial-{self._trial}-{self._name}.image"
        entry: Entry = LabPath().announce(self._target, self._journal, path, fleeting=True, trial=self._trial)
        image = self._image(size_bytes, path=path)
        LabPath().undo(self._target, entry, self._journal)
        self._journal.drop(entry)
        return image

    def _image(self, size_bytes: int, **more: str) -> Mapping[str, int]:
        try:
            return self._target.call("image", folder=self._folder, size=size_bytes, fill="write", **more)
        except TargetError as error:
            if error.errno not in FULL:  # the free space was checked a moment ago
                raise
            raise NoSpace(
                f"lab in {self._folder}: writing an image of {size_bytes >> 20} MiB: {error.message}",
                hint=OTHER_FOLDER,
            ) from error
