"""A bare block device beside a lab's own, which file systems can be given for their log: an XFS log, an ext4 journal.

Every place of a study that varies where the log lies has one, in all arms, and in all arms the log has the same size; so they
differ in where it is and in nothing else. Its queue is pinned like that of an image.
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
#: file systems that have one
LOGGED = ("ext4", "xfs")
#: what mkfs.xfs gives an internal log at the least, unless it is told otherwise
LOG_BYTES = 64 << 20
#: the kernel wants 1,024 blocks behind those two in which a journal on a device of its own says what it is
LEAST_BYTES = 5 << 20
_XFS_SIZE = re.compile(r"-l size=([0-9]+)m")
_EXT4_SIZE = re.compile(r"-J size=([0-9]+)")
_EXT4_BLOCK = re.compile(r"-b ([0-9]+)")


class LogPlace(Place):
    """The device of a log: a loop device over an image, without a file system of its own."""

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
        """The device's name, where a model says how fast it is."""
        return self._image.modelled

    @property
    def path(self) -> str:
        """The device's path."""
        return f"/dev/{self.device}"

    def open(self) -> None:
        loop = self._image.attach(self.size_bytes)
        self.device = loop.device
        self.queue_before = loop.queue_before

    def close(self) -> None:
        self._image.detach()
        self.device = None

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Nothing to do: nothing is mounted."""

    def settle(self, *, always: bool, fresh: bool) -> None:
        """Nothing to do: nothing is mounted."""

    def facts(self) -> Mapping[str, object]:
        return {"device": self.device, "size_bytes": self.size_bytes}

    def mkfs_options(self, kind: Filesystem, options: Sequence[str], where: str) -> tuple[str, ...]:
        """All options of mkfs with those that put the log where it is wanted, of the size that is asked for among them or
        else this device's."""
        mib = self._mib(kind, options)
        own = [option for option in options if not _size_of(kind).fullmatch(option)]
        if kind.name == "xfs":
            device = f"logdev={self.path}," if where == EXTERNAL else ""
            return (*own, f"-l {device}size={mib}m")
        at = f"-J device={self.path}" if where == EXTERNAL else f"-J size={mib}"
        return (*own, at)

    def making(self, kind: Filesystem, options: Sequence[str], where: str) -> list[str] | None:
        """The command by which the device becomes a log before mkfs is told of it; None where there is nothing to be done."""
        if kind.name != "ext4" or where != EXTERNAL:
            return None
        blocks = [found[1] for option in (EXT4_BLOCK, *options) if (found := _EXT4_BLOCK.fullmatch(option))]
        count = (self._mib(kind, options) << 20) // int(blocks[-1])
        return [*kind.mkfs, "-b", blocks[-1], "-O", "journal_dev", self.path, str(count)]

    def mount_words(self, kind: str, where: str) -> tuple[str, ...]:
        """What a mount has to be told; ext4 finds its journal by what its superblock says."""
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


def log_bytes(asked: int | None, options: Sequence[str], lab_bytes: int) -> int:
    """How large the device of a log has to be: as asked for, or what a lab of this size can hold in itself too; and large
    enough for every size among these options of mkfs."""
    sizes = [
        int(found[1]) << 20
        for option in options
        for pattern in (_XFS_SIZE, _EXT4_SIZE)
        if (found := pattern.fullmatch(option))
    ]
    own = min(LOG_BYTES, max(LEAST_BYTES, lab_bytes // 4 >> 20 << 20))
    return max([asked or own, *sizes])
