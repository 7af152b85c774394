"""The machine that keeps the settings: its files, its kernel files, its mounts and its programs.

Everything that ``apply`` and ``revert`` read or change goes through here. With another root than ``/`` the kernel files
below it are plain files, programs are not started and mounts are not changed: a tree can be prepared for another machine,
and everything can be tested without touching this one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from iotrial.documents import JsonObject
from iotrial.durable import LONGEST, kind_of, replacing, sync_folder
from iotrial.errors import LabError, TargetError
from iotrial.lab.in_place import MOUNTINFO
from iotrial.lab.target import MountInfo, parse_mountinfo

#: where the kernel keeps what can be set while it runs
_LIVE = ("/proc/sys/", "/sys/")
#: a file that is not complete yet has this in its name, and no program reads it as configuration
DRAFT = ".iotrial-draft"
_REMOUNT, _BIND = 0x20, 0x1000
#: mount(2) and linux/mount.h
_FLAGS = {
    "ro": 0x1,
    "nosuid": 0x2,
    "nodev": 0x4,
    "noexec": 0x8,
    "sync": 0x10,
    "dirsync": 0x80,
    "noatime": 0x400,
    "nodiratime": 0x800,
    "relatime": 0x200000,
    "strictatime": 0x1000000,
    "lazytime": 0x2000000,
}
ATIME = ("noatime", "relatime", "strictatime", "nodiratime")


#: bytes read at once
_PART = 1 << 16


class Machine:
    """This machine, or a tree of files that looks like one."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @property
    def is_this(self) -> bool:
        """Whether it is the machine that runs this program."""
        return self.root == Path("/")

    def at(self, path: str) -> Path:
        """Return where a path of the machine lies."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none. A device is empty: a link to /dev/null masks a file.

        Raises LabError for anything else, as a FIFO, which would be waited for.
        """
        try:
            descriptor = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                mode = os.fstat(descriptor).st_mode
                if stat.S_ISCHR(mode):
                    return b""
                if not stat.S_ISREG(mode):
                    raise LabError(f"reading {path}: expected a file, found {kind_of(mode)}")
                content = bytearray()
                # in parts: the kernel refuses to read a file of /proc/sys into a buffer of megabytes
                while len(content) <= LONGEST and (part := os.read(descriptor, _PART)):
                    content += part
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LabError(f"reading {path}: {error.strerror}") from error
        if len(content) > LONGEST:
            raise LabError(f"reading {path}: it is longer than {LONGEST >> 20} MiB")
        return bytes(content)

    def text(self, path: str) -> str | None:
        """Return a file as text without trailing line breaks; None if there is none, or it cannot be read."""
        try:
            content = self.read(path)
        except LabError:
            return None
        return None if content is None else content.decode(errors="replace").rstrip("\n")

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""
        try:
            return sorted(path.name for path in self.at(folder).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether a path exists; a dangling link counts."""
        return os.path.lexists(self.at(path))

    def mounts(self) -> Iterator[MountInfo]:
        """Yield what is mounted, in the order of mounting."""
        for line in (self.text(str(MOUNTINFO)) or "").split("\n"):
            try:
                yield parse_mountinfo(line)
            except TargetError:
                continue

    def mount_at(self, target: str) -> MountInfo | None:
        """Return the mount at a mount point; of several, the topmost."""
        return next((one for one in reversed(list(self.mounts())) if one.target == target), None)

    @property
    def boot(self) -> str:
        """The id of the boot."""
        return self.text("/proc/sys/kernel/random/boot_id") or "unknown"

    @property
    def kernel(self) -> str:
        """The release of the kernel."""
        return self.text("/proc/sys/kernel/osrelease") or "unknown"

    @property
    def uptime_s(self) -> float:
        """Seconds since the boot, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    # changes

    def replace(self, path: str, content: bytes, *, like: FileFacts) -> None:
        """Write a file in one step and durably: a reader finds the old or the new content, also after a power cut."""
        place = self.at(path)
        with replacing(place, place.with_name(place.name + DRAFT)) as file:
            file.write(content)
            file.flush()  # before its times are set
            descriptor = file.fileno()
            os.fchown(descriptor, like.uid, like.gid)
            os.fchmod(descriptor, like.mode)
            for name, value in like.attributes.items():
                os.setxattr(descriptor, name, value)
            if like.modified_ns is not None:
                os.utime(descriptor, ns=(like.modified_ns, like.modified_ns))

    def sync(self, path: str) -> None:
        """Make durable what another program has written, if the file is there."""
        place = self.at(path)
        with suppress(FileNotFoundError), place.open("rb") as file:
            os.fsync(file.fileno())
            sync_folder(place.parent)

    def remove(self, path: str) -> None:
        """Remove a file or a link durably, with a draft that an interrupted write has left."""
        place = self.at(path)
        place.with_name(place.name + DRAFT).unlink(missing_ok=True)
        try:
            place.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        sync_folder(place.parent)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        self.at(path).symlink_to(target)
        sync_folder(self.at(path).parent)

    def make_folder(self, path: str) -> None:
        """Make a folder that everybody may read."""
        self.at(path).mkdir(exist_ok=True)
        self.at(path).chmod(0o755)
        sync_folder(self.at(path).parent)

    def remove_folder(self, path: str) -> None:
        """Remove a folder if it is empty."""
        try:
            self.at(path).rmdir()
            sync_folder(self.at(path).parent)
        except OSError:
            return

    def write_live(self, path: str, value: str) -> None:
        """Write a kernel file: the only place where a setting of the running kernel is changed, but for ``remount``."""
        if not path.startswith(_LIVE) or ".." in path.split("/"):
            raise LabError(f"{path} is not a kernel file")
        try:
            descriptor = os.open(
                self.at(path), os.O_WRONLY | os.O_CLOEXEC | (0 if self.is_this else os.O_TRUNC)
            )
            try:
                os.write(descriptor, value.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LabError(f'writing "{value}" to {path}: {error.strerror}') from error

    def remount(self, mount: MountInfo, atime: Sequence[str], option: str = "") -> None:
        """Change access time flags of a mount, or one option of its file system; all other flags stay.

        mount(2) is called directly: in a remount mount(8) passes on the flags that it finds in fstab.
        """
        if not self.is_this:
            return
        kept = {"ro", "nosuid", "nodev", "noexec"} & mount.mount_options
        flags = 0
        if option:
            kept |= {"ro", "sync", "dirsync", "lazytime"} & mount.super_options
        else:
            flags = _BIND
        modes = [word for word in atime if word in ATIME]
        modes += [] if {"noatime", "relatime", "strictatime"} & set(modes) else ["strictatime"]
        data = "" if option in ("lazytime", "nolazytime") else option
        if option == "lazytime":
            kept |= {"lazytime"}
        elif option == "nolazytime":
            kept -= {"lazytime"}
        for word in (*kept, *modes):
            flags |= _FLAGS[word]
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.mount(
            None,
            mount.target.encode(),
            None,
            ctypes.c_ulong(flags | _REMOUNT),
            data.encode() if data else None,
        )
        if done != 0:
            reason = os.strerror(ctypes.get_errno())
            raise LabError(f"remounting {mount.target} with {option or ','.join(modes)}: {reason}")

    def has_program(self, name: str) -> bool:
        """Return whether a program is installed; a prepared tree has all of them."""
        return not self.is_this or shutil.which(name, path=_program_path()) is not None

    def run(self, *argv: str, timeout_s: float = 60) -> None:
        """Run a program of the machine. Raises LabError if it fails or is missing; does nothing in a prepared tree."""
        if not self.is_this:
            return
        try:
            done = subprocess.run(
                [shutil.which(argv[0], path=_program_path()) or argv[0], *argv[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"running {' '.join(argv)}: {error}") from error
        if done.returncode != 0:
            raise LabError(
                f"{' '.join(argv)} ended with status {done.returncode}: {done.stderr.strip()[-300:]}"
            )


def _program_path() -> str:
    """Return where programs are looked for: cron and a boot unit have a PATH without those of the system."""
    return os.pathsep.join(filter(None, (os.environ.get("PATH"), "/usr/sbin:/usr/bin:/sbin:/bin")))


class FileFacts(JsonObject, frozen=True):
    """Mode, owner, extended attributes and modification time of a file."""

    mode: int
    uid: int
    gid: int
    attributes: Mapping[str, bytes] = {}
    modified_ns: int | None = None

    @classmethod
    def of_file(cls, path: Path) -> FileFacts:
        """Return those of a file."""
        seen = path.stat()
        try:
            attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        except OSError:
            attributes = {}
        return cls(stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid, attributes, seen.st_mtime_ns)

    @classmethod
    def ours(cls) -> FileFacts:
        """Return those of a new file that everybody may read."""
        return cls(0o644, os.geteuid(), os.getegid())
