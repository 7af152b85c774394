"""The place where runs happen: the interface of all kinds of places, and the files in it.

A new folder in one of the user's (``lab.directory``), that folder itself with what holds it (``lab.in_place``), a file
system on a loop device over an image (``lab.image``), on a spare disk (``lab.device``), or in a guest (``iotrial.guest``).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.errors import LARGER_LAB, OTHER_FOLDER, LabError, NoSpace, RequestError, TargetError
from iotrial.lab.target import Target

MEMORY_FILE_SYSTEMS = {"0x1021994": "tmpfs", "0x858458f6": "ramfs"}
MARGIN_BYTES = 1 << 30
#: longest time for copying the user's files
COPY_S = 3600.0
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class FileSet:
    """N files of one size that form a set; created on the target from a seed."""

    name: str
    folder: str
    count: int
    bytes_each: int
    content: str
    directories: int
    #: folders without files, for works that create the files
    empty: bool = False


class Place(ABC):
    """Where runs happen.

    ``root`` is the folder of the files, ``device`` the block device that I/O is counted on (None: unknown).
    """

    kind: str
    root: str
    device: str | None
    #: its name in the study, as a level of ``lab.device``
    site: str = ""
    #: queue settings of the device before the lab took it, if taking it changes some
    queue_before: Mapping[str, str] = MappingProxyType({})
    #: True if making a new file system resets the settings of its device
    forgets_settings = False
    #: folder of the user's files, or of a copy of them, that works use; None: the lab makes their files
    data: str | None = None
    #: False if other programs use its device too: their requests are in the device's counters
    own_device = True
    #: hint for the case that it is too small
    more_space = OTHER_FOLDER

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.sets: dict[str, FileSet] = {}

    @property
    def worker(self) -> Target:
        """The machine that accesses its files: its own, unless the place is served to another."""
        return self.target

    @property
    def devices(self) -> Mapping[str, str]:
        """Its block devices by content: ``data``, and ``log`` if the file system has an external log."""
        return {} if self.device is None else {"data": self.device}

    @property
    def whole(self) -> str | None:
        """The block device that has read-ahead and limits for its file system: not a partition of it."""
        return self.device

    @property
    def mount_point(self) -> str:
        """Where the file system of its files is mounted."""
        return self.root

    @property
    def number(self) -> str:
        """MAJOR:MINOR of files that count as its own wherever they lie; none do, as a rule."""
        return "0:0"

    @property
    def queues(self) -> tuple[str, ...]:
        """The block devices with the queues that are set: its own, or its member disks."""
        return () if self.device is None else (self.device,)

    @property
    @abstractmethod
    def label(self) -> str:
        """The place in words, for messages."""

    @abstractmethod
    def open(self) -> None:
        """Create the place. Raises NoSpace, MissingTool, LabError."""

    @abstractmethod
    def close(self) -> None:
        """Remove the place. Safe to call twice, and after a failed ``open``."""

    @abstractmethod
    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Return to the state from which every run starts: writable, with the base options.

        ``always``: make the transition even if the place is already in that state, as for runs that vary a mount knob.
        ``fresh``: by unmounting instead of remounting.
        """

    @abstractmethod
    def settle(self, *, always: bool, fresh: bool) -> None:
        """Apply the mount knobs' requests. ``always`` as in ``to_neutral``; ``fresh``: by unmounting, so that inodes, names
        and data are cold."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """Return what the report shows about the place."""

    def make_files(self, files: FileSet, seed: int, *, owner: Mapping[str, int] | None = None) -> None:
        """Create a file set and register it. ``owner``: user and group (``uid``, ``gid``) that own the files.

        Raises NoSpace if the place is too small for it.
        """
        try:
            self.worker.call(
                "fileset",
                set=files.name,
                dir=files.folder,
                count=files.count,
                size=files.bytes_each,
                seed=seed,
                content=files.content,
                directories=files.directories,
                mode="0644",
                create=True,
                empty=files.empty,
                owner=owner,
            )
        except TargetError as error:
            if error.errno not in FULL:
                raise
            raise NoSpace(
                f"making {files.count} files of {files.bytes_each} bytes on {self.label}: {error.message}",
                hint=self.more_space,
            ) from error
        self.sets[files.name] = files

    @property
    def lab_folder(self) -> str:
        """The folder that iotrial may fill as it likes: all of the place, unless its files are the user's."""
        return self.root

    @property
    def scratch(self) -> str:
        """The folder for the files that a run writes: ``{out}`` in its commands."""
        return f"{self.lab_folder}/out"

    def make_scratch(self, owner: Mapping[str, int] | None) -> str:
        """Create an empty folder for the files that a run writes, deleting the previous run's; returns its path.

        The folder is re-created, not emptied, because a directory keeps the size that many names have given it. It does not
        descend into mounts: if there is one below, it raises TargetError (EXDEV).
        """
        self.worker.call("remove", path=self.scratch, recursive=True)
        self.worker.call("mkdir", path=self.scratch, exclusive=True, owner=owner)
        return self.scratch

    def copy_in(self, folder: str) -> None:
        """Copy a folder of the user's to ``data``, with owners, times and links. Raises NoSpace or LabError."""
        assert self.data is not None
        done = self.worker.run(["cp", "-a", "--reflink=never", f"{folder}/.", self.data], timeout_s=COPY_S)
        if done.exit_status != 0:
            problem = done.stderr.strip()[-300:] or "it took too long"
            if "No space left" in done.stderr:
                raise NoSpace(f"copying {folder} to {self.label}: {problem}", hint=LARGER_LAB)
            raise LabError(f"copying {folder} to {self.label}: {problem}")
        self.syncfs()

    def empty_device_cache(self) -> None:
        """Empty what the layers between file system and disk keep in memory, apart from the page cache: here nothing."""

    def syncfs(self) -> None:
        """Write back all dirty data of this file system."""
        self.worker.call("syncfs", path=self.root)


def check_space(target: Target, folder: str, wanted: int, margin: int = MARGIN_BYTES) -> None:
    """Raise NoSpace if ``wanted`` bytes would leave less than ``margin`` free, RequestError on tmpfs and ramfs."""
    facts = target.call("statfs", path=folder)
    if str(facts["type"]).lower() in MEMORY_FILE_SYSTEMS:
        raise RequestError(
            f"lab in {folder}: this is memory ({MEMORY_FILE_SYSTEMS[str(facts['type']).lower()]}), not a disk",
            hint=OTHER_FOLDER,
        )
    free = int(facts["available_bytes"])
    if free < wanted + margin:
        raise NoSpace(
            f"lab in {folder}: expected {wanted >> 20} MiB and a margin of {margin >> 20} MiB, found {free >> 20} MiB free",
            hint=OTHER_FOLDER,
        )
