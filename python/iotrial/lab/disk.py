"""The lab's own file system on a block device: mkfs, mount, remount, unmount.

Mounts live in the probe's private mount namespace, on a tmpfs visible only there, so they vanish when the probe
dies. Subclasses decide which device it is and how it is set up and torn down.
"""

from __future__ import annotations

import errno
import os
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Required, TypedDict

from iotrial.errors import LARGER_LAB, LabError, MissingTool, NoSpace, RequestError, TargetError
from iotrial.guest.share import Share
from iotrial.knobs.encryption import table
from iotrial.knobs.knob import a_lab
from iotrial.lab.filesystem import FILESYSTEMS, Filesystem
from iotrial.lab.journal import Journal
from iotrial.lab.log_device import INTERNAL, LogPlace
from iotrial.lab.machine.others import users_of
from iotrial.lab.objects.mapping import LabMapping
from iotrial.lab.place import FULL, Place
from iotrial.lab.simulated_disk import at_once
from iotrial.lab.target import Target
from iotrial.study.places import GUEST

#: for ageing a file system: folder of the files it leaves, number of rounds, seed; always the same
AGED, AGEING_ROUNDS, AGEING_SEED = ".aged", 10, 1


class DiskOptions(TypedDict, total=False):
    """Arguments common to every place that has its own file system."""

    mount_point: Required[str]
    filesystem: Required[str]
    size_bytes: Required[int]
    #: by file system type
    mkfs_options: Mapping[str, tuple[str, ...]]
    mount_options: Mapping[str, tuple[str, ...]]
    boot_id: str
    trial: str
    #: the device available for the file system's log
    log: LogPlace | None
    #: how another machine reaches this place, if the works run on another machine
    share: Share | None


class DiskPlace(Place):
    """A file system on a block device. Subclasses attach and detach the device."""

    more_space = LARGER_LAB

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        mount_point: str,
        filesystem: str,
        size_bytes: int,
        mkfs_options: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        mount_options: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        boot_id: str = "",
        trial: str = "",
        log: LogPlace | None = None,
        share: Share | None = None,
    ) -> None:
        super().__init__(name, target)
        self.share = share
        self.log = log
        self._wanted_log = self._made_log = INTERNAL
        self._journal = journal
        self._boot_id = boot_id
        self._trial = trial
        self.root = mount_point
        self.device = None
        self.filesystem = filesystem
        #: mkfs options by topic: those that knobs request for the next ``format``, and those used for the last one
        self._mkfs_wishes: dict[str, str] = {}
        self.made_with: Mapping[str, str] = {}
        self._superblock: str | None = None
        #: percent to which the next ``format`` fills the file system by creating and deleting files; 0: no ageing
        self._wanted_age = 0
        self.age = 0
        self._size = max(size_bytes, FILESYSTEMS[filesystem].smallest_bytes)
        self._mkfs_options = mkfs_options
        self._mount_options = mount_options
        self._wishes: dict[str, tuple[tuple[str, ...], bool]] = {}
        self._mounted: tuple[str, ...] | None = None
        #: options that the kernel was first seen to show since the last mount or remount; None: not looked at yet
        self.shown: list[str] | None = None
        self._wanted_filesystem = filesystem
        self._wanted_encryption: str | None = None
        #: the device mapper's name of the encrypted device, and the device below it; None if there is none
        self.mapping: str | None = None
        self._below: str | None = None

    def open(self) -> None:
        self._attach()
        self.target.call("mkdir", path=self.root, mode="0755")
        if self.log is not None:
            self.log.open()
        self.format()

    def close(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._decrypt()
        if self.log is not None:
            self.log.close()
        self._detach()

    @abstractmethod
    def _attach(self) -> None:
        """Take the disk, and set ``device``. Raises LabError, RequestError, TargetError."""

    @abstractmethod
    def _detach(self) -> None:
        """Release the disk. Safe to call twice, and after a failed ``_attach``."""

    @property
    def worker(self) -> Target:
        return self.target if self.share is None else self.share.link.client

    @property
    def size_bytes(self) -> int:
        """Size of the lab: as requested, or the minimum of its file system if that is larger."""
        return self._size

    @property
    def read_only(self) -> bool:
        """True if a knob has it mounted read-only, or if it is not mounted."""
        return self._mounted is None or "ro" in self._mounted

    @property
    def devices(self) -> Mapping[str, str]:
        log = None if self.log is None else self.log.device
        return {**super().devices, **({} if log is None else {"log": log})}

    @property
    def source(self) -> str:
        """The device path to mount."""
        return f"/dev/{self.device}"

    @property
    def queues(self) -> tuple[str, ...]:
        return super().queues if self._below is None else (self._below,)

    def want_filesystem(self, kind: str) -> None:
        """Set the file system type for the next ``format``."""
        self._wanted_filesystem = kind

    def want_encryption(self, level: str | None) -> None:
        """Set how the device is encrypted from the next ``format`` on: a level of ``block.encryption``, or None."""
        self._wanted_encryption = level
        self.forgets_settings = True  # every file system gets a new device

    def want_log(self, where: str) -> None:
        """Set where the file system's log goes from the next ``format`` on. Raises RequestError if there is no log device."""
        if self.log is None:
            raise RequestError(f"{self.label}: it has no device for a log")
        self._wanted_log = where

    def want_mkfs_option(self, about: str, option: str) -> None:
        """Add an mkfs option for the next ``format`` only. ``about``: the topic; two knobs must not set the same one."""
        self._mkfs_wishes[about] = option

    def want_age(self, percent: int) -> None:
        """Set how full (in percent) the next ``format``, and only that one, leaves the file system after ageing."""
        self._wanted_age = percent

    def superblock(self) -> str:
        """Return the output of ``dumpe2fs -h`` (e2fsprogs) for the file system as made; read once per ``format``.

        Raises LabError, MissingTool.
        """
        if self._superblock is None:
            self._superblock = self._tool(["dumpe2fs", "-h", self.source], FILESYSTEMS["ext4"])
        return self._superblock

    @property
    def modelled(self) -> tuple[str, ...]:
        """The lab's simulated disks, the log device included: devices timed by a disk model."""
        return () if self.log is None else self.log.modelled

    def format(self) -> None:
        """Make a new file system, aged if requested, and mount it with the base options.

        Simulated disks answer without delay in the meantime, and are idle when it returns.
        """
        with at_once(self.target, self.modelled):
            self._format()
        self._mount(self._base())

    def _format(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._decrypt()
        self._encrypt()
        kind, options = self._take_wishes()
        self._make(kind.mkfs_argv(options), kind)
        self.filesystem, self._made_log = kind.name, self._wanted_log
        self.sets.clear()
        self.age, self._wanted_age = self._wanted_age, 0
        if self.age:
            # always on this machine, even if the file system is served to another; the unmount flushes everything
            self._mount_here(self._base())
            self._use_for_years()
            self._unmount()

    def clear_for_mkfs(self, volume_bytes: int) -> tuple[str, ...]:
        """Unmount and return the mkfs command that fulfils the knobs' requests at the start of the device.

        The caller runs it; the next ``to_neutral`` mounts the result. ``volume_bytes`` 0: the whole device.
        """
        with at_once(self.target, self.modelled):
            if self._mounted is not None:
                self._unmount()
            self._decrypt()
            kind, options = self._take_wishes()
            self._renew()
            self._encrypt()
        self.filesystem, self._made_log = kind.name, self._wanted_log
        self.sets.clear()
        return tuple(kind.mkfs_on(self.source, volume_bytes or self._size, options))

    def _encrypt(self) -> None:
        """Map the device as wanted, and have the probe hold the mapped one; done again for every file system."""
        level, below = self._wanted_encryption, self.device
        if level is None:
            return
        assert below is not None
        size = int(self.target.read(f"/sys/block/{below}/size")) * 512
        name = f"iotrial-{self._trial[:8]}-{self.name}"
        self.device = LabMapping().make(
            self.target,
            self._journal,
            name,
            table(level, below, size),
            boot_id=self._boot_id,
            trial=self._trial,
        )
        self._below, self.mapping = below, name
        hold(self.target, self.device)

    def _decrypt(self) -> None:
        """Undo ``_encrypt``: afterwards the device is the one below again."""
        if self.mapping is None:
            return
        self.target.call("device_close", device=self.device)
        LabMapping().remove(self.target, self._journal, self.mapping)
        self.device, self._below, self.mapping = self._below, None, None

    def _renew(self) -> None:
        """Reset what lies below the device to a fixed state, whatever it held. Nothing to do for a plain disk."""

    def _take_wishes(self) -> tuple[Filesystem, tuple[str, ...]]:
        """Return the file system type and mkfs options to use now, and clear the requests."""
        kind = FILESYSTEMS[self._wanted_filesystem]
        self.made_with, self._mkfs_wishes, self._superblock = self._mkfs_wishes, {}, None
        options: tuple[str, ...] = (*self._mkfs_options.get(kind.name, ()), *self.made_with.values())
        if self.log is not None:
            making = self.log.making(kind, options, self._wanted_log)
            if making is not None:
                self._tool(making, kind)
            options = self.log.mkfs_options(kind, options, self._wanted_log)
        return kind, options

    def _use_for_years(self) -> None:
        try:
            self.target.call(
                "age", path=f"{self.root}/{AGED}", percent=self.age, rounds=AGEING_ROUNDS, seed=AGEING_SEED
            )
        except TargetError as error:
            if error.errno not in FULL:
                raise
            raise NoSpace(
                f"filling {self.label} to {self.age} %: {error.message}",
                hint="choose a smaller share",
            ) from error

    def want_options(self, knob: str, words: tuple[str, ...], *, remountable: bool) -> None:
        """Set the mount options that one knob requests until the next ``to_neutral``."""
        self._wishes[knob] = (words, remountable)

    def options_of(self, knob: str) -> tuple[str, ...]:
        """Return the mount options requested by a knob if they are in effect now, else none."""
        words = self._wishes.get(knob, ((), True))[0]
        return words if self._mounted is not None and set(words) <= set(self._mounted) else ()

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Mount writable with the base options and drop all requests of knobs."""
        if self._mounted is None:
            self._mount(self._base())
        elif self._mounted != self._base() or (always and self.share is None):
            # A shared place is remounted by ``settle`` in every arm. Any other gets strictatime first,
            # whatever comes next: a level must not depend on the level that was set before it.
            self._change(self._base() if fresh else (*self._base(), "strictatime"), fresh=fresh)
        self._wishes.clear()

    def settle(self, *, always: bool, fresh: bool) -> None:
        options = self._base() + tuple(w for words, _ in self._wishes.values() for w in words)
        if fresh:
            self._unmount()
            self._mount(options)
        elif always or self._mounted != options or self._share_due:
            self._change(options, fresh=False)

    def _change(self, options: tuple[str, ...], *, fresh: bool) -> None:
        """Switch from one set of mount options to another.

        A remount keeps the cache. But an unmount after a remount waits 20 ms for the kernel instead of 1 ms,
        so remount only where the cache has to survive.
        """
        fresh_mount = fresh or self.share is not None
        if fresh_mount or not all(remountable for _, remountable in self._wishes.values()):
            self._unmount()
            self._mount(options)
        else:
            self._remount(options)

    def facts(self) -> Mapping[str, object]:
        info = self.target.mount_at(self.root)
        return {
            "place": self.name,
            "kind": self.kind,
            "filesystem": self.filesystem,
            "size_bytes": self._size,
            "device": self.device,
            "mkfs": " ".join(
                (*FILESYSTEMS[self.filesystem].mkfs, *self._mkfs_options.get(self.filesystem, ()))
            ),
            "mount_options": ",".join(sorted(info.options)) if info else "",
            **({} if self.log is None else {"log": dict(self.log.facts())}),
            **({} if self.share is None else {"share": dict(self.share.facts())}),
        }

    def _base(self) -> tuple[str, ...]:
        kind = FILESYSTEMS[self.filesystem]
        return (*kind.mount_options, *self._mount_options.get(kind.name, ()))

    def _log_words(self) -> tuple[str, ...]:
        return () if self.log is None else self.log.mount_words(self.filesystem, self._made_log)

    @property
    def _share_due(self) -> bool:
        return self.share is not None and self.share.due

    def _mount(self, options: tuple[str, ...]) -> None:
        self.shown = None
        if self.share is None or not self.share.whole_disk:
            self._mount_here(options)
        self._mounted = options
        if self.share is not None:
            words = (*options, *self._log_words())
            self.share.open(self.root, str(self.device), self.filesystem, words)

    def _mount_here(self, options: tuple[str, ...]) -> None:
        self.target.mount(self.source, self.root, self.filesystem, (*options, *self._log_words()))
        self._mounted = options

    def _remount(self, options: tuple[str, ...]) -> None:
        self.shown = None
        words = options if "ro" in options else ("rw", *options)
        # a remount keeps the current atime mode unless one is given
        if not {"relatime", "noatime", "strictatime"} & set(words):
            words = (*words, "relatime")
        try:
            self.target.mount(
                self.source, self.root, self.filesystem, ("remount", *words, *self._log_words())
            )
        except TargetError as error:
            raise LabError(f"remounting {self.label} with {','.join(words)}: {error.message}") from error
        self._mounted = options

    def _unmount(self) -> None:
        if self.share is not None:
            self.share.close()
        try:
            if self.share is None:
                self.target.unmount(self.root)
            elif self.target.mount_at(self.root) is not None:
                self.share.let_go(lambda: self.target.unmount(self.root))
        except TargetError as error:
            if error.errno != errno.EBUSY:
                raise
            raise LabError(
                f"cannot unmount {self.label}: still in use by {self._holders()}",
                hint="a command of the study left a process or file open in the lab, or a user's shell is in it",
            ) from error
        self._mounted = None
        # the probe holds the devices open, so their own page cache survives an unmount
        for device in self.devices.values():
            self.target.call("evict_device", device=f"/dev/{device}")

    def _holders(self) -> str:
        if self.kind != GUEST:  # read here, where processes outside of the probe's namespace are seen as well
            major, _, minor = self.target.read(f"/sys/class/block/{self.device}/dev").partition(":")
            return users_of(os.makedev(int(major), int(minor)))

        def is_inside(pid: str) -> bool:
            cwd = str(self.target.call("readlink", path=f"/proc/{pid}/cwd")["target"])
            return cwd == self.root or cwd.startswith(self.root + "/")

        return ", ".join(self.target.processes(is_inside)) or "nobody that can be seen"

    def _make(self, argv: list[str], kind: Filesystem) -> None:
        """Run mkfs. ``argv`` lacks only the last argument, the device."""
        self._tool([*argv, f"/dev/{self.device}"], kind)

    def _tool(self, argv: list[str], kind: Filesystem) -> str:
        """Run a tool of the file system on the device, and return what it printed."""
        try:
            done = self.target.run(argv, timeout_s=300)
        except TargetError as error:
            if error.errno == errno.ENOENT:
                raise MissingTool.program(f"making {kind.name}", argv[0], kind.package) from error
            raise
        return done.output(f"making {kind.name} on {self.device}")


def disk_place(knob: str, place: Place) -> DiskPlace:
    """Return the place as one with its own file system, for a knob that needs it. Raises RequestError in other labs."""
    if isinstance(place, DiskPlace):
        return place
    raise RequestError(
        f"knob {knob}: {a_lab(place.kind)} has no file system",
        hint="use the image lab (needs root)",
    )


def hold(target: Target, device: str) -> None:
    """Have the probe keep a device open, so that it can drop the device's own page cache.

    It claims the device to open it, then releases the claim, because mount(2) needs it.
    """
    target.call("device_claim", path=f"/dev/{device}")
    target.call("device_release", device=device)
