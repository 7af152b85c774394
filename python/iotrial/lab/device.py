"""The device lab: a file system on a disk that the user has consented to erase, claimed for the whole trial.

mkfs runs on a loop device over the lab's part of the disk. mkfs.xfs clears the last MiB of the device it is given,
beyond the size passed to it, and no program can write beyond the loop device. What is mounted and measured is the
disk itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack
from uuid import uuid4

from iotrial.errors import IotrialError, LabError, TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab import guard
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.filesystem import Filesystem
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.device import LabDevice, mark
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.target import Target


class DevicePlace(DiskPlace):
    """A file system made by the lab on the first bytes of a disk."""

    kind = "device"

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        consent: guard.Consent,
        **common: Unpack[DiskOptions],
    ) -> None:
        super().__init__(name, target, journal, **common)
        self._size = guard.whole_blocks(self._size)
        self._consent = consent
        self._disk: guard.Disk | None = None
        self._entry: Entry | None = None

    @property
    def label(self) -> str:
        return f"{self.filesystem} on {self.device or 'a disk'}"

    @property
    def disk_name(self) -> str:
        """The serial number or WWN with which the user identified the disk."""
        return self._consent.name

    @property
    def source(self) -> str:
        return f"{self.root}.disk"  # the lab's own device node: the name in /dev may change

    def _attach(self) -> None:
        self._disk = guard.claim(self.target, self._consent, self._size, node=self.source)
        self.device = self._disk.device
        self._entry = LabDevice().take(self.target, self._journal, self._disk, self._size, trial=self._trial)

    def _detach(self) -> None:
        if self._disk is None:
            return
        if self._entry is not None:
            claimed = {"size": self._disk.size_bytes, "partitions": [], "descriptor": self._disk.descriptor}
            done = LabDevice().empty(self.target, self._journal, self._entry, self._disk.device, claimed)
            if done is Undone.FOREIGN:
                raise LabError(f"emptying {self._disk.device}: another program has written to it")
            self._journal.drop(self._entry)
            self._entry = None
        self.target.call("device_close", device=self._disk.device)
        self._disk = self.device = None

    def facts(self) -> Mapping[str, object]:
        disk = self._disk
        return {
            **super().facts(),
            "model": disk.model if disk else "",
            "disk_bytes": disk.size_bytes if disk else None,
        }

    def _make(self, argv: list[str], kind: Filesystem) -> None:
        disk, entry = self._disk, self._entry
        assert disk is not None
        assert entry is not None
        uuid = str(uuid4())
        self._entry = entry = LabDevice().making(self._journal, entry, uuid)
        window = self.target.call("device_window", device=disk.device, size=self._size)
        loop = LabLoop().attach(
            self.target,
            self._journal,
            window["image"],
            window["inode"],
            boot_id=self._boot_id,
            trial=self._trial,
        )
        try:
            self._tool([*argv, *kind.uuid_option(uuid), f"/dev/{loop.device}"], kind)
        except IotrialError:
            self._close_window(loop.device)
            raise
        self._close_window(loop.device)
        self.target.call("evict_device", device=f"/dev/{disk.device}")
        self._entry = LabDevice().made(self._journal, entry)

    def _close_window(self, loop: str) -> None:
        self.target.call("loop_detach", device=f"/dev/{loop}")
        LabLoop().put_back(self.target, self._journal, loop)

    def _mount(self, options: tuple[str, ...]) -> None:
        """Mount the disk. mount(2) claims it for the file system, so the probe has to release its own claim first."""
        self.target.call("device_release", device=self.device)
        try:
            super()._mount(options)
        except TargetError:
            self._take_back()
            raise

    def _unmount(self) -> None:
        super()._unmount()
        self._take_back()

    def _take_back(self) -> None:
        """Claim the disk again and check the trial's mark behind the lab.

        Raises TargetError or ProbeError if something else claimed it first, LabError if the mark is gone.
        """
        self.target.call("device_reclaim", device=self.device)
        assert self._entry is not None
        found = self.target.call("device_marked", device=self.device, offset=self._size)["text"]
        if found != mark(self._entry):
            raise LabError(
                f"taking {self.device} back: expected the mark of this trial behind the lab, found {found or 'none'}",
                hint="another program is writing to this disk",
            )
