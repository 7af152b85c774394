"""The place where runs happen: what every kind of it can do, and the files in it.

A folder of the user's (``lab.directory``), a file system on a loop device over an image
(``lab.image``), or on a spare disk (``lab.device``).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.errors import NoSpace, RequestError, TargetError
from iotrial.lab.target import Target

MEMORY_FILE_SYSTEMS = {"0x1021994": "tmpfs", "0x858458f6": "ramfs"}
MARGIN_BYTES = 1 << 30
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class FileSet:
    """N files of one size that belong together; made on the target from a seed."""

    name: str
    folder: str
    count: int
    bytes_each: int
    content: str
    directories: int
    #: folders without files, for works that make them
    empty: bool = False


class Place(ABC):
    """Where runs happen. ``root`` is the folder of the files, ``device`` the block device counted
    (None: unknown)."""

    kind: str
    root: str
    device: str | None
    #: the name by which the study knows it as a level of ``lab.device``
    site: str = ""
    #: queue settings of the device as they were before the lab took it, where taking it changes some
    queue_before: Mapping[str, str] = MappingProxyType({})
    #: whether making its file system anew resets what was set of its device
    forgets_settings = False
    #: what to do where it is too small
    more_space = "make some room there, or name another folder with --on FOLDER"

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.sets: dict[str, FileSet] = {}

    @property
    def worker(self) -> Target:
        """The machine from which its files are reached: its own, unless it is served to another."""
        return self.target

    @property
    def devices(self) -> Mapping[str, str]:
        """Its block devices by what each holds: ``data``, and ``log`` where the file system is given one of its own."""
        return {} if self.device is None else {"data": self.device}

    @property
    def queues(self) -> tuple[str, ...]:
        """The block devices whose queues are set: its own, or those of the disks that it is made of."""
        return () if self.device is None else (self.device,)

    @property
    @abstractmethod
    def label(self) -> str:
        """The place in words, for messages."""

    @abstractmethod
    def open(self) -> None:
        """Make the place. Raises NoSpace, MissingTool, LabError."""

    @abstractmethod
    def close(self) -> None:
        """Take the place away. Safe to call twice, and after a failed ``open``."""

    @abstractmethod
    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """The state from which every run starts: writable, with the base options.

        ``always``: make the transition even where that state already stands, as runs do whose treatment is a knob of the
        mount. ``fresh``: through an unmount rather than a remount.
        """

    @abstractmethod
    def settle(self, *, always: bool, fresh: bool) -> None:
        """Carry out what the mount knobs wish. ``always`` as above; ``fresh``: through an unmount, so that inodes, names
        and data are cold."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """What a report should say of the place."""

    def make_files(self, files: FileSet, seed: int, *, owner: Mapping[str, int] | None = None) -> None:
        """Create a file set and remember it. ``owner``: user and group (``uid``, ``gid``) whose files they are to be.

        Raises NoSpace where the place is too small for it.
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
    def scratch(self) -> str:
        """The folder for what a run writes: ``{out}`` of its commands."""
        return f"{self.root}/out"

    def make_scratch(self, owner: Mapping[str, int] | None) -> str:
        """An empty folder for what a run writes, whatever the run before has left there; its path.

        A new folder and not an emptied one, which would keep the length that many names have given it. What is mounted below
        is not entered: then this raises TargetError (EXDEV).
        """
        self.worker.call("remove", path=self.scratch, recursive=True)
        self.worker.call("mkdir", path=self.scratch, exclusive=True, owner=owner)
        return self.scratch

    def syncfs(self) -> None:
        """Write everything back that this file system holds dirty."""
        self.worker.call("syncfs", path=self.root)


def check_space(target: Target, folder: str, wanted: int, margin: int = MARGIN_BYTES) -> None:
    """Raises NoSpace where ``wanted`` bytes would leave less than ``margin`` free, RequestError on tmpfs."""
    facts = target.call("statfs", path=folder)
    if str(facts["type"]).lower() in MEMORY_FILE_SYSTEMS:
        raise RequestError(
            f"lab in {folder}: that is memory ({MEMORY_FILE_SYSTEMS[str(facts['type']).lower()]}), not a disk",
            hint="name a folder on a disk with --on FOLDER",
        )
    free = int(facts["available_bytes"])
    if free < wanted + margin:
        raise NoSpace(
            f"lab in {folder}: wanted {wanted >> 20} MiB and a margin of {margin >> 20} MiB, found {free >> 20} MiB free",
            hint="name another folder with --on FOLDER, or make the lab smaller ([lab] size)",
        )
