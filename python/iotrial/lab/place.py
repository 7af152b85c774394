"""The place where runs happen: a folder of the user's, or a file system on a loop device over an image.

What the kernel can undo by itself is left to it: an image is an anonymous file, its loop device is
autoclear and held by the probe, its mount lives in the probe's private mount namespace, on a tmpfs
that only that namespace sees. When the probe dies, all of it is gone, and the disk space with it.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from iotrial.errors import LabError, MissingTool, NoSpace, RequestError, TargetError
from iotrial.lab.filesystem import FILESYSTEMS, Filesystem
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.target import Target

FOLDER_KNOB = "lab.folder"
MEMORY_FILE_SYSTEMS = {"0x1021994": "tmpfs", "0x858458f6": "ramfs"}
MARGIN_BYTES = 1 << 30
QUEUE_FILES = ("scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec")


@dataclass(frozen=True, slots=True)
class FileSet:
    """N files of one size that belong together; made on the target from a seed."""

    name: str
    folder: str
    count: int
    bytes_each: int
    content: str
    directories: int


class Place(ABC):
    """Where runs happen. ``root`` is the folder of the files, ``device`` the block device counted
    (None: unknown)."""

    kind: str
    root: str
    device: str | None

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.sets: dict[str, FileSet] = {}

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

    def make_files(self, files: FileSet, seed: int, *, owner: str | None = None) -> None:
        """Create a file set and remember it."""
        self.target.call(
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
        )
        self.sets[files.name] = files
        if owner:
            done = self.target.run(["chown", "-R", owner, files.folder])
            if done.exit_status != 0:
                raise LabError(f"giving {files.folder} to {owner}: {done.stderr.strip()}")

    def syncfs(self) -> None:
        """Write everything back that this file system holds dirty."""
        self.target.call("syncfs", path=self.root)


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


class DirectoryPlace(Place):
    """A folder on the user's own file system. Nothing is mounted; only data can be made cold."""

    kind = "directory"

    def __init__(self, name: str, target: Target, journal: Journal, folder: str, bytes_needed: int) -> None:
        super().__init__(name, target)
        self.root = folder
        self.device = None
        self._journal = journal
        self._bytes = bytes_needed
        self._entry: Entry | None = None

    @property
    def label(self) -> str:
        return f"folder {self.root}"

    def open(self) -> None:
        parent = self.root.rpartition("/")[0] or "/"
        check_space(self.target, parent, self._bytes, margin=MARGIN_BYTES // 4)
        if self.target.exists(self.root):
            raise LabError(f"lab folder {self.root}: exists already")
        self._entry = self._journal.record(FOLDER_KNOB, {"path": self.root}, "absent", ("present",))
        self.target.call("mkdir", path=self.root, mode="0755")

    def close(self) -> None:
        if self._entry is not None:
            self.target.call("remove", path=self.root, recursive=True)
            if not self.target.exists(self.root):
                self._journal.drop(self._entry)
                self._entry = None

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Nothing to do: there is no mount."""

    def settle(self, *, always: bool, fresh: bool) -> None:  # noqa: ARG002
        if fresh:
            raise LabError("a directory lab cannot be unmounted: use the cache state cold-data")

    def facts(self) -> Mapping[str, object]:
        info = self._containing_mount()
        return {"place": self.name, "kind": self.kind, "filesystem": info[0], "mount_options": info[1]}

    def _containing_mount(self) -> tuple[str, str]:
        best, kind, options = "", "unknown", ""
        for line in self.target.read("/proc/self/mounts").splitlines():
            fields = line.split()
            point = fields[1]
            inside = self.root == point or self.root.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind, options = point, fields[2], fields[3]
        return kind, options


class ImagePlace(Place):
    """A file system of its own on a loop device over an anonymous, fully written image."""

    kind = "image"

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        folder: str,
        mount_point: str,
        filesystem: str,
        size_bytes: int,
        mkfs_options: tuple[str, ...] = (),
        mount_options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, target)
        self.root = mount_point
        self.device = None
        self.filesystem = filesystem
        self.made_with = ""
        self._folder = folder
        self._size = max(size_bytes, FILESYSTEMS[filesystem].smallest_bytes)
        self._mkfs_options = mkfs_options
        self._mount_options = mount_options
        self._wishes: dict[str, tuple[tuple[str, ...], bool]] = {}
        self._mounted: tuple[str, ...] | None = None
        self._wanted_filesystem = filesystem
        self._direct_io = False
        #: queue settings of the device as they were before the image was attached, which changes some
        self.queue_before: dict[str, str] = {}

    @property
    def label(self) -> str:
        return f"{self.filesystem} on {self.device or 'an image'}"

    @property
    def size_bytes(self) -> int:
        """Size of the image: as asked for, or the least that its file system needs."""
        return self._size

    def open(self) -> None:
        check_space(self.target, self._folder, self._size)
        image = self.target.call("image", folder=self._folder, size=self._size, fill="write")["image"]
        before = self._queues()
        loop = self.target.call("loop_attach", image=image, direct_io=True)
        self.device = str(loop["name"])
        self.queue_before = before.get(self.device, {})
        self._direct_io = bool(loop["direct_io"])
        self.target.call("mkdir", path=self.root, mode="0755")
        self.format()

    def close(self) -> None:
        if self._mounted is not None:
            self._unmount()
        if self.device is not None:
            self.target.call("loop_detach", device=f"/dev/{self.device}")
            self.device = None

    def _queues(self) -> dict[str, dict[str, str]]:
        """Queue settings of every loop device; which one will be ours is not known before."""
        found: dict[str, dict[str, str]] = {}
        for name in self.target.call("list", path="/sys/block")["names"]:
            if name.startswith("loop"):
                texts = {f: self.target.read_or_none(f"/sys/block/{name}/queue/{f}") for f in QUEUE_FILES}
                found[name] = {f: text for f, text in texts.items() if text is not None}
        return found

    def want_filesystem(self, kind: str) -> None:
        """The type to make at the next ``format``."""
        self._wanted_filesystem = kind

    def want_mkfs_option(self, option: str) -> None:
        """A further option for the next ``format``; empty for none."""
        self.made_with = option

    def format(self) -> None:
        """Make the file system anew and mount it with the base options."""
        if self._mounted is not None:
            self._unmount()
        kind = FILESYSTEMS[self._wanted_filesystem]
        argv = [*kind.mkfs, *(w for o in self._mkfs_options for w in o.split()), *self.made_with.split()]
        self._run_tool([*argv, f"/dev/{self.device}"], kind)
        self.filesystem = kind.name
        self.sets.clear()
        self._mount(self._base())

    def want_options(self, knob: str, words: tuple[str, ...], *, remountable: bool) -> None:
        """What one mount knob wants until the next ``to_neutral``."""
        self._wishes[knob] = (words, remountable)

    def options_of(self, knob: str) -> tuple[str, ...]:
        """The words that a knob has asked for and that are mounted now."""
        words = self._wishes.get(knob, ((), True))[0]
        return words if self._mounted is not None and set(words) <= set(self._mounted) else ()

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Writable with the base options, and no wish of a knob left."""
        if self._mounted is None:
            self._mount(self._base())
        elif always or self._mounted != self._base():
            # strictatime, whatever comes after: a level must not depend on the one that stood before it
            self._change(self._base() if fresh else (*self._base(), "strictatime"), fresh=fresh)
        self._wishes.clear()

    def settle(self, *, always: bool, fresh: bool) -> None:
        options = self._base() + tuple(w for words, _ in self._wishes.values() for w in words)
        if fresh:
            self._unmount()
            self._mount(options)
        elif always or self._mounted != options:
            self._change(options, fresh=False)

    def _change(self, options: tuple[str, ...], *, fresh: bool) -> None:
        """From one set of options to another. A remount keeps what is cached; but an unmount that follows one waits for the
        kernel 20 ms instead of 1, so it is used only where the cache has to stay."""
        if fresh or not all(remountable for _, remountable in self._wishes.values()):
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
            "direct_io": self._direct_io,
            "mkfs": " ".join((*FILESYSTEMS[self.filesystem].mkfs, *self._mkfs_options)),
            "mount_options": ",".join(sorted(info.options)) if info else "",
        }

    def _base(self) -> tuple[str, ...]:
        return (*FILESYSTEMS[self._wanted_filesystem].mount_options, *self._mount_options)

    def _mount(self, options: tuple[str, ...]) -> None:
        self.target.mount(f"/dev/{self.device}", self.root, self.filesystem, options)
        self._mounted = options

    def _remount(self, options: tuple[str, ...]) -> None:
        words = options if "ro" in options else ("rw", *options)
        # an atime behaviour that is not named would be kept from the present mount
        if not {"relatime", "noatime", "strictatime"} & set(words):
            words = (*words, "relatime")
        try:
            self.target.mount(f"/dev/{self.device}", self.root, self.filesystem, ("remount", *words))
        except TargetError as error:
            raise LabError(f"remounting {self.label} with {','.join(words)}: {error.message}") from error
        self._mounted = options

    def _unmount(self) -> None:
        try:
            self.target.unmount(self.root)
        except TargetError as error:
            if error.errno != errno.EBUSY:
                raise
            raise LabError(
                f"unmounting {self.label}: still in use by {self._holders() or 'something that cannot be found'}",
                hint="a command of the study leaves something running or open in the lab",
            ) from error
        self._mounted = None
        # the probe holds the device open, so its own cached pages survive an unmount
        self.target.call("evict_device", device=f"/dev/{self.device}")

    def _holders(self) -> str:
        holders = []
        for name in self.target.call("list", path="/proc")["names"]:
            if not name.isdigit():
                continue
            try:
                cwd = self.target.call("readlink", path=f"/proc/{name}/cwd")["target"]
                if cwd == self.root or cwd.startswith(self.root + "/"):
                    holders.append(f"{name} ({self.target.read(f'/proc/{name}/comm')})")
            except TargetError:
                continue  # it ended meanwhile
        return ", ".join(holders)

    def _run_tool(self, argv: list[str], kind: Filesystem) -> None:
        try:
            done = self.target.run(argv, timeout_s=300)
        except TargetError as error:
            if error.errno == errno.ENOENT:
                raise MissingTool(
                    f"making {kind.name}: {argv[0]} is not installed", hint=f"apt-get install {kind.package}"
                ) from error
            raise
        if done.exit_status != 0:
            raise LabError(
                f"making {kind.name} on {self.device}: {' '.join(argv)}: {done.stderr.strip()[-400:]}"
            )


def image_place(knob: str, place: Place) -> ImagePlace:
    """The place, for a knob that acts on a file system of the lab's own. Raises RequestError in another lab."""
    if isinstance(place, ImagePlace):
        return place
    raise RequestError(
        f"knob {knob}: a {place.kind} lab has no file system of its own",
        hint="use the image lab (needs root)",
    )
