"""The image lab: a file system on a loop device, on an image file in a folder on the user's disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.journal import Journal
from iotrial.lab.loop_image import LoopImage
from iotrial.lab.simulated_disk import WriteLogging
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.study.disks import DiskSpec, described


class ImagePlace(DiskPlace):
    """A file system on a loop device over an unnamed, fully written image."""

    kind = "image"

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        folder: str,
        disk: DiskSpec | None = None,
        logging: WriteLogging | None = None,
        **common: Unpack[DiskOptions],
    ) -> None:
        super().__init__(name, target, journal, **common)
        self._image = LoopImage(
            name,
            target,
            journal,
            folder=folder,
            disk=disk,
            logging=logging,
            boot_id=self._boot_id,
            trial=self._trial,
        )
        self._disk = disk
        self._direct_io = False

    @property
    def label(self) -> str:
        modelled = "" if self._disk is None else f", modelled {self._disk.model}"
        return f"{self.filesystem} on {self.device or 'an image'}{modelled}"

    @property
    def modelled(self) -> tuple[str, ...]:
        return (*self._image.modelled, *super().modelled)

    def _attach(self) -> None:
        loop = self._image.attach(self._size)
        self.device = loop.device
        self.queue_before = loop.queue_before
        self._direct_io = loop.direct_io

    def _renew(self) -> None:
        # mkfs.xfs leaves the device with 512-byte blocks; the next mkfs writes in these and takes 1.6 times as long
        if self.device is not None:
            self.target.call("image_renew", device=f"/dev/{self.device}")

    def _detach(self) -> None:
        self._image.detach()
        self.device = None

    def facts(self) -> Mapping[str, object]:
        disk = {} if self._disk is None else {"modelled": described(self._disk)}
        return {**super().facts(), "direct_io": self._direct_io, **disk}


def no_lab(target: Target) -> RunContext:
    """Return the context of a run in an image lab that is not made: enough to ask knobs for their levels and needs."""
    journal = Journal(state_folder() / "journal")
    place = ImagePlace("ext4", target, journal, folder="", mount_point="", filesystem="ext4", size_bytes=0)
    place.device = "loop0"
    return RunContext(target=target, place=place, journal=journal, files=None, work=WorkDraft())
