"""A second block device of the lab, without a file system, for an external log: an XFS log or an ext4 journal.

If a study varies the location of the log, every place has such a device in all arms, and the log has the same size in all
arms. So the arms differ in the location only. Its queue is pinned like that of an image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from iotrial.errors import RequestError
from iotrial.lab.filesystem import EXT4_BLOCK, Filesystem
from iotrial.lab.journal import Journal
from iotrial.lab.loop_image import LoopImage
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec

INTERNAL, EXTERNAL = "internal", "external"
#: file systems that support an external log
LOGGED = ("ext4", "xfs")
#: mkfs.xfs's minimum for an internal log, unless a size is given
LOG_BYTES = 64 << 20
#: the kernel requires 1,024 blocks, plus the two with the superblock of an external journal
LEAST_BYTES = 5 << 20
_XFS_SIZE = re.compile(r"-l size=([0-9]+)m")
_EXT4_SIZE = re.compile(r"-J size=([0-9]+)")
_EXT4_BLOCK = re.compile(r"-b ([0-9]+)")


class LogPlace(Place):
    """The log device: a loop device over an image, without a file system."""

    kind = "log"

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        folder: str,
        size_bytes: int,
        disk: DiskSpec | None = None,
        boot_id: str = "",
        trial: str = "",
    ) -> None:
        super().__init__(name, target)
        self.root = ""
        self.device = None
        self.size_bytes = size_bytes
        self._image = LoopImage(name, target, journal, folder=folder, disk=disk, boot_id=boot_id, trial=trial)

    @property
    def label(self) -> str:
        return f"the log on {self.device or 'an image'}"

    @property
    def modelled(self) -> tuple[str, ...]:
        """The device's name, if a disk model determines its speed."""
        return self._image.modelled

    @property
    def path(self) -> str:
        """The device path."""
        return f"/dev/{self.device}"

    def open(self) -> None:
        loop = self._image.attach(self.size_bytes)
        self.device = loop.device
        self.queue_before = loop.queue_before

    def close(self) -> None:
        self._image.detach()
        self.device = None

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Do nothing: nothing is mounted."""

    def settle(self, *, always: bool, fresh: bool) -> None:
        """Do nothing: nothing is mounted."""

    def facts(self) -> Mapping[str, object]:
        return {"device": self.device, "size_bytes": self.size_bytes}

    def mkfs_options(self, kind: Filesystem, options: Sequence[str], where: str) -> tuple[str, ...]:
        """Return all mkfs options, with those that place the log. Its size is the one in ``options``, else this device's."""
        mib = self._mib(kind, options)
        own = [option for option in options if not _size_of(kind).fullmatch(option)]
        if kind.name == "xfs":
            device = f"logdev={self.path}," if where == EXTERNAL else ""
            return (*own, f"-l {device}size={mib}m")
        at = f"-J device={self.path}" if where == EXTERNAL else f"-J size={mib}"
        return (*own, at)

    def making(self, kind: Filesystem, options: Sequence[str], where: str) -> list[str] | None:
        """Return the command that formats the device as a log before mkfs, or None if none is needed."""
        if kind.name != "ext4" or where != EXTERNAL:
            return None
        blocks = [found[1] for option in (EXT4_BLOCK, *options) if (found := _EXT4_BLOCK.fullmatch(option))]
        count = (self._mib(kind, options) << 20) // int(blocks[-1])
        return [*kind.mkfs, "-b", blocks[-1], "-O", "journal_dev", self.path, str(count)]

    def mount_words(self, kind: str, where: str) -> tuple[str, ...]:
        """Return the mount options for the log. ext4 needs none: it finds its journal through the superblock."""
        return (f"logdev={self.path}",) if kind == "xfs" and where == EXTERNAL else ()

    def _mib(self, kind: Filesystem, options: Sequence[str]) -> int:
        sizes = [int(found[1]) for option in options if (found := _size_of(kind).fullmatch(option))]
        mib = sizes[-1] if sizes else self.size_bytes >> 20
        if mib << 20 > self.size_bytes:
            raise RequestError(
                f"a log of {mib} MiB on a device of {self.size_bytes >> 20} MiB",
                hint='make it larger: [[place]] name = "log", holds = "log", size = ...',
            )
        return mib


def _size_of(kind: Filesystem) -> re.Pattern[str]:
    return _XFS_SIZE if kind.name == "xfs" else _EXT4_SIZE


def log_bytes(requested_bytes: int | None, options: Sequence[str], lab_bytes: int) -> int:
    """Return the size needed for the log device: as requested, or what a lab of this size could also hold internally.

    It is large enough for every log size among these mkfs options.
    """
    sizes = [
        int(found[1]) << 20
        for option in options
        for pattern in (_XFS_SIZE, _EXT4_SIZE)
        if (found := pattern.fullmatch(option))
    ]
    own = min(LOG_BYTES, max(LEAST_BYTES, lab_bytes // 4 >> 20 << 20))
    return max([requested_bytes or own, *sizes])
