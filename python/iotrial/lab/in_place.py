"""The user's own folder, file system and device, used in place: nothing is made there but a folder for output and replays.

Settings act on what holds the folder. A mount's access time mode is changed only in the probe's own mount namespace: other
programs do not see it, and it ends with the probe; where a service in use is on trial (``shared``), it is changed for all
and journaled. Everything else (queue settings, options of the file system) affects the whole machine, and is journaled by
its knob. Other programs use the same device, so its counters also hold their requests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import LabError, RequestError, TargetError
from iotrial.knobs.block import BACKING
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import FileSet, Place
from iotrial.lab.target import MountInfo, Target, parse_mountinfo

MOUNTINFO = Path("/proc/self/mountinfo")
SYS = Path("/sys")
_DEEPEST = 16
#: flags of a mount that a remount must repeat, or they are lost
KEPT = ("ro", "nosuid", "nodev", "noexec")
ATIME = frozenset({"noatime", "relatime", "strictatime"})


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds a folder.

    ``device``: the file system's block device, as in /proc/diskstats, which may be a partition or an array; None if it has
    none (a network file system, or memory). ``whole``: that device, or the disk of the partition. ``queues``: the devices
    below it that queue requests. ``number``: MAJOR:MINOR of its files. ``backing``: the folders in sysfs with read-ahead and
    share of dirty pages: of the whole disk, or of the mount itself (NFS, SMB, FUSE, btrfs). Of an overlay, all but the mount
    and the number are those of its layers.
    """

    mount: MountInfo
    device: str | None
    whole: str | None
    queues: tuple[str, ...]
    number: str
    backing: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """The file system, its device and the queues, in words."""
        on = "no block device" if self.device is None else f"/dev/{self.device}"
        text = f"{self.mount.type} on {on}, mounted at {self.mount.target}"
        own = [folder.rpartition("/")[2] for folder in self.backing if folder.startswith(BACKING)]
        if own:
            text += f"; read-ahead and dirty pages are those of bdi {', '.join(own)}"
        if self.queues and self.queues != (self.device,):
            text += f"; requests are queued by {', '.join(self.queues)}"
        return text


def holding_of(folder: str, *, sys: Path = SYS, mountinfo: Path = MOUNTINFO) -> Holding:
    """Find the mount and the devices that hold a folder of this machine.

    Follows a partition to its disk, a mapping or an array to its members, and an overlay to its layers; a loop device has its
    own queue. Raises RequestError if the folder is not there.
    """
    try:
        seen = Path(folder).stat()
    except OSError as error:
        raise RequestError(f"folder {folder}: {error.strerror}", hint="name an existing folder") from error
    mount = mount_of(folder, mountinfo)
    if mount is None:
        raise LabError(f"folder {folder}: no mount holds it, according to {mountinfo}")
    number = f"{os.major(seen.st_dev)}:{os.minor(seen.st_dev)}"
    if mount.type == "overlay":
        return _of_layers(mount, number, sys, mountinfo)
    return _holding(mount, _devices_of(seen.st_dev, mount, sys), number, sys)


def holding_by_number(folder: str, *, sys: Path = SYS, mountinfo: Path = MOUNTINFO) -> Holding:
    """Find the same for a folder that is only named, from the number that mountinfo gives its mount.

    For a tree of files that looks like a machine. Raises LabError if nothing is mounted there.
    """
    mount = mount_of(folder, mountinfo)
    if mount is None:
        raise LabError(f"folder {folder}: no mount holds it, according to {mountinfo}")
    major, _, minor = mount.number.partition(":")
    return _holding(mount, _devices_of(os.makedev(int(major), int(minor)), mount, sys), mount.number, sys)


def _holding(mount: MountInfo, devices: list[str], number: str, sys: Path) -> Holding:
    own = _own_backing(mount, devices, number, sys)
    if not devices:
        return Holding(mount, None, None, (), number, own)
    first = devices[0]
    queues = dict.fromkeys(queue for device in devices for queue in _queues(device, sys, 0))
    whole = whole_disk(sys / "class" / "block" / first).name
    return Holding(mount, first, whole, tuple(queues), number, own or (f"/sys/block/{whole}",))


def _own_backing(mount: MountInfo, devices: list[str], number: str, sys: Path) -> tuple[str, ...]:
    """Return the backing device of a mount that does not use its disk's.

    The kernel names it by the number of the mount (NFS, FUSE; ``super_setup_bdi_name``), or by type and a count (SMB, btrfs;
    ``super_setup_bdi``). Only btrfs says which one; of others the one is taken if there is only one of the type.
    """
    if mount.type == "btrfs":
        for found in (sys / "fs" / "btrfs").glob("*/bdi"):
            if devices and (found.parent / "devices" / devices[0]).exists():
                return (f"{BACKING}{found.resolve().name}",)
        return ()
    every = sys / "class" / "bdi"
    for name in (number, f"{number}-fuseblk"):
        if mount.type.startswith(("nfs", "fuse")) and (every / name).exists():
            return (f"{BACKING}{name}",)
    counted = [
        one.name for one in every.glob("*-*") if one.name.rpartition("-")[0] in _KINDS.get(mount.type, ())
    ]
    return (f"{BACKING}{counted[0]}",) if len(counted) == 1 else ()


#: the kernel's names of file systems in the names of their backing devices
_KINDS = {
    "cifs": ("cifs", "smb3"),
    "smb3": ("cifs", "smb3"),
    "ceph": ("ceph",),
    "9p": ("9p",),
    "afs": ("afs",),
}


def _below(mount: MountInfo) -> list[str]:
    """Return the folders of an overlay's layers, the writable one first; those of a relative path are left out."""
    found: list[str] = []
    for key in ("upperdir", "lowerdir", "lowerdir+", "datadir+"):
        values = [word.partition("=")[2] for word in mount.super_options if word.partition("=")[0] == key]
        for value in values:
            layers = re.split(r"(?<!\\):+", value) if key == "lowerdir" else [value]
            found += [re.sub(r"\\(.)", r"\1", layer) for layer in layers]
    return [folder for folder in found if folder.startswith("/") and Path(folder).is_dir()]


def _of_layers(mount: MountInfo, number: str, sys: Path, mountinfo: Path) -> Holding:
    """Return what holds an overlay: the disks and backing devices of all its layers, the writable one's first."""
    layers = [holding_of(folder, sys=sys, mountinfo=mountinfo) for folder in _below(mount)]
    first = next((one for one in layers if one.device is not None), None)
    return Holding(
        mount,
        None if first is None else first.device,
        None if first is None else first.whole,
        tuple(dict.fromkeys(queue for one in layers for queue in one.queues)),
        number,
        tuple(dict.fromkeys(folder for one in layers for folder in one.backing)),
    )


def mount_of(path: str, mountinfo: Path = MOUNTINFO) -> MountInfo | None:
    """Return the mount that a path is on: the deepest, and of those at one point the last."""
    real = os.path.realpath(path)
    best: MountInfo | None = None
    for line in filter(None, mountinfo.read_text(errors="replace").split("\n")):
        try:
            info = parse_mountinfo(line)
        except TargetError:
            continue
        root = info.target.rstrip("/")
        inside = real == root or real.startswith(root + "/")
        if inside and (best is None or len(info.target) >= len(best.target)):
            best = info
    return best


def source_number(mount: MountInfo) -> int | None:
    """Return the number of the block device that a mount names as its source; None if that is no device."""
    if not mount.source.startswith("/"):
        return None
    try:
        number = Path(mount.source).stat().st_rdev
    except OSError:
        return None
    return number if os.major(number) else None


def whole_disk(device: Path) -> Path:
    """Return the folder in sysfs of the disk of a partition; of any other device its own."""
    found = device.resolve()
    return found.parent if (found / "partition").exists() else found


def _devices_of(number: int, mount: MountInfo, sys: Path) -> list[str]:
    """Return the block devices of a file system by kernel name; several for btrfs on several disks."""
    if os.major(number) == 0:  # btrfs and others number their files by themselves
        source = source_number(mount)
        if source is None:
            return []
        number = source
    node = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not node.exists():
        return []
    name = node.resolve().name
    if mount.type == "btrfs":
        for found in sorted((sys / "fs" / "btrfs").glob("*/devices")):
            members = sorted(one.name for one in found.iterdir())
            if name in members:
                return [name, *(one for one in members if one != name)]
    return [name]


def _queues(device: str, sys: Path, depth: int) -> tuple[str, ...]:
    whole = whole_disk(sys / "class" / "block" / device)
    members = whole / "slaves"
    below = sorted(one.name for one in members.iterdir()) if members.is_dir() else []
    if not below or depth > _DEEPEST:
        return (whole.name,)
    return tuple(queue for one in below for queue in _queues(one, sys, depth + 1))


def remount_atime(target: Target, mount: MountInfo, atime: tuple[str, ...]) -> None:
    """Give a mount these access time flags, and keep its other flags. Raises LabError."""
    kept = tuple(word for word in KEPT if word in mount.mount_options)
    words = atime if ATIME & set(atime) else (*atime, "strictatime")  # which mountinfo does not show
    try:
        target.mount(mount.source, mount.target, mount.type, ("remount", "bind", *kept, *words))
    except TargetError as error:
        raise LabError(f"remounting {mount.target} with {','.join(words)}: {error.message}") from error


class InPlace(Place):
    """The folder of the user's that is used in place.

    ``makes_files``: whether runs need a folder there, for output or for the files of a replay. ``shared``: whether all
    programs are to see a changed access time mode of the mount.
    """

    kind = "in-place"
    own_device = False

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        folder: str,
        makes_files: bool,
        trial: str = "",
        shared: bool = False,
    ) -> None:
        super().__init__(name, target)
        self.shared = shared
        self.root = self.data = folder
        self.holding = holding_of(folder)
        self.device = self.holding.device
        self._journal = journal
        self._trial = trial
        self._made = f"{folder.rstrip('/')}/iotrial-lab-{trial[:8]}" if makes_files else None
        self._entry: Entry | None = None
        #: options of the file system before the trial changed them, by family, as the kernel showed them
        self.options_before: dict[str, str] = {}
        self._wishes: dict[str, tuple[str, ...]] = {}
        self._applied: dict[str, tuple[str, ...]] = {}

    @property
    def label(self) -> str:
        return f"folder {self.root}"

    @property
    def whole(self) -> str | None:
        return self.holding.whole

    @property
    def number(self) -> str:
        return self.holding.number

    @property
    def queues(self) -> tuple[str, ...]:
        return self.holding.queues

    @property
    def mount_point(self) -> str:
        return self.holding.mount.target

    @property
    def filesystem(self) -> str:
        """Type of the file system that holds the folder."""
        return self.holding.mount.type

    @property
    def lab_folder(self) -> str:
        return self._made or self.root

    def open(self) -> None:
        if self._made is not None:
            self._entry = LabPath().make_folder(self.target, self._journal, self._made, trial=self._trial)

    def close(self) -> None:
        if self._entry is not None:
            LabPath().undo(self.target, self._entry, self._journal)
            self._journal.drop(self._entry)
            self._entry = None

    def make_files(self, files: FileSet, seed: int, *, owner: Mapping[str, int] | None = None) -> None:
        """Do nothing: the work uses the user's own files."""

    def want_options(self, knob: str, words: tuple[str, ...], *, remountable: bool) -> None:
        """Set the access time mode that a knob requests until the next ``to_neutral``."""
        self._wishes[knob] = words

    def options_of(self, knob: str) -> tuple[str, ...]:
        """Return the options requested by a knob if they are in effect, else none."""
        return self._applied.get(knob, ())

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Give the probe's own view of the mount its original flags."""
        if self._applied or always:
            mode = ATIME | {"nodiratime"}
            self._remount(tuple(word for word in self.holding.mount.mount_options if word in mode))
        self._wishes.clear()
        self._applied.clear()

    def settle(self, *, always: bool, fresh: bool) -> None:
        if fresh:
            raise LabError(
                "a file system in use cannot be unmounted: use cache state cold-data or cold-system"
            )
        if self._wishes:
            self._remount(tuple(word for words in self._wishes.values() for word in words))
            self._applied = dict(self._wishes)

    def _remount(self, atime: tuple[str, ...]) -> None:
        """Change the flags of the mount in the probe's mount namespace; the file system is not touched."""
        remount_atime(self.target, self.holding.mount, atime)

    def facts(self) -> Mapping[str, object]:
        mount = self.holding.mount
        return {
            "place": self.name,
            "kind": self.kind,
            "filesystem": mount.type,
            "mount_options": ",".join(sorted(mount.options)),
            "mounted_at": mount.target,
            "device": self.device,
            "queues": list(self.queues),
        }
