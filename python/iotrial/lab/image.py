"""The image lab: a loop device over a file without a name, fully written, on the user's disk.

What the kernel can undo by itself is left to it: the image is an anonymous file, the loop device is
autoclear and held by the probe. When the probe dies both are gone, and the disk space with them.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Unpack

from iotrial.errors import NoSpace, TargetError
from iotrial.lab import modelled
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import FULL, check_space
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec, described


class ImagePlace(DiskPlace):
    """A file system of its own on a loop device over an anonymous, fully written image."""

    kind = "image"

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        folder: str,
        disk: DiskSpec | None = None,
        **common: Unpack[DiskOptions],
    ) -> None:
        super().__init__(name, target, journal, **common)
        self._folder = folder
        self._disk = disk
        self._direct_io = False

    @property
    def label(self) -> str:
        modelled = "" if self._disk is None else f", modelled {self._disk.model}"
        return f"{self.filesystem} on {self.device or 'an image'}{modelled}"

    def open(self) -> None:
        if self._disk is None:
            check_space(self.target, self._folder, self._size)
            image = self._make_image()
        else:
            image = modelled.make(self.target, self._disk, self._size)
        loop = LabLoop().attach(
            self.target,
            self._journal,
            image["image"],
            image["inode"],
            boot_id=self._boot_id,
            trial=self._trial,
            rotational=None if self._disk is None else self._disk.turning,
        )
        self.device = loop.device
        self.queue_before = loop.queue_before
        self._direct_io = loop.direct_io
        self.target.call("mkdir", path=self.root, mode="0755")
        self.format()

    def close(self) -> None:
        if self._mounted is not None:
            self._unmount()
        if self.device is not None:
            self.target.call("loop_detach", device=f"/dev/{self.device}")
            self.device = None

    def facts(self) -> Mapping[str, object]:
        disk = {} if self._disk is None else {"modelled": described(self._disk)}
        return {**super().facts(), "direct_io": self._direct_io, **disk}

    def _make_image(self) -> Mapping[str, int]:
        try:
            return self._image()
        except TargetError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        # A file system without anonymous files: for an instant the image has a name, so that goes into the journal.
        path = f"{self._folder.rstrip('/')}/.iotrial-{self._trial}-{self.name}.image"
        entry: Entry = LabPath().announce(self.target, self._journal, path, fleeting=True, trial=self._trial)
        image = self._image(path=path)
        LabPath().undo(self.target, entry, self._journal)
        self._journal.drop(entry)
        return image

    def _image(self, **more: str) -> Mapping[str, int]:
        try:
            return self.target.call("image", folder=self._folder, size=self._size, fill="write", **more)
        except TargetError as error:
            if error.errno not in FULL:  # there was enough a moment ago
                raise
            raise NoSpace(
                f"lab in {self._folder}: writing an image of {self._size >> 20} MiB: {error.message}",
                hint="somebody else is filling that disk: name another folder with --on FOLDER",
            ) from error
