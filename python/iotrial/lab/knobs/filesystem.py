"""Knobs of the file system itself: its type and options of its making. Only on the lab's own disks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.lab import superblock
from iotrial.lab.disk import disk_place
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.knob import (
    Consequence,
    Knob,
    Requirement,
    Scope,
    Stage,
    Subject,
    at_risk,
    harmless,
    not_judged,
    one_of,
    trade_off,
)
from iotrial.lab.log import EXTERNAL, INTERNAL
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS, LOG_KNOB

ABOUT = re.compile(r"-[A-Za-z](?: [a-z0-9_]+)?(?: -O [a-z0-9_]+)*")


class FilesystemType(Knob):
    """ext4, xfs or btrfs."""

    name = "filesystem.type"
    title = "file system of the lab"
    consequence = trade_off(
        "all of them keep what was synced; of what was not, each loses another part in a power cut"
    )
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, tuple(FILESYSTEMS))

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        known = {line.split()[-1] for line in subject.target.read("/proc/filesystems").splitlines()}
        return tuple(name for name in FILESYSTEMS if name in known)

    def requires(self, setting: Setting) -> Requirement:
        kind = FILESYSTEMS[setting.value]
        return Requirement(root=True, labs=DISK_LABS, tools={kind.mkfs[0]: kind.package})

    def read(self, subject: Subject, setting: Setting) -> str:
        place = disk_place(self.name, subject.place)
        info = subject.target.mount_at(place.root)
        return info.type if info else "none"

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        disk_place(self.name, subject.place).want_filesystem(value)


class MkfsOption(Knob):
    """One option of mkfs from an allow-list; ``default`` leaves it out. Several factors with different options are made
    together, and ext4 is asked what came of it."""

    name = "mkfs.option"
    title = "one option with which the file system is made, from an allow-list (several factors may each have one)"
    consequence = not_judged("iotrial does not know what this option does to data after a power cut")
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    option = "option"
    option_needed = False

    #: by option, feature, or option and argument. mke2fs(8), ext4(5), mkfs.xfs(8), mkfs.btrfs(8)
    consequences: Mapping[str, Consequence] = {
        "default": harmless("as the file system is made by default"),
        "-O ^has_journal": at_risk("without a journal a power cut may damage the file system as a whole"),
        "-O ^metadata_csum": at_risk(
            "metadata and journal have no checksums: what a power cut or the disk has damaged is not recognised"
        ),
        "-O": harmless("how metadata are kept; the journal and its checksums are as by default"),
        "-E num_backup_sb=0": at_risk("there is no second copy of the superblock to recover from"),
        "-E num_backup_sb=1": trade_off("there is but one copy of the superblock to recover from"),
        "-E lazy_itable_init=1": trade_off(
            "tables of inodes are written in the background after the first mount"
        ),
        "-E": harmless("where metadata lie"),
        "-J": trade_off("a small journal makes writers wait for it, a large one takes longer to replay"),
        "-m crc=0": at_risk(
            "metadata have no checksums: what a power cut or the disk has damaged is not recognised"
        ),
        "-m single": at_risk("metadata are kept once: a damaged block cannot be repaired from a copy"),
        "-m": trade_off(
            "how much of the disk is kept for root: without any, a full disk stops services of the system"
        ),
        "-m dup": harmless("metadata are kept twice"),
        "-m crc=1": harmless("metadata have checksums"),
        **dict.fromkeys(
            [f"-m {name}={value}" for name in ("finobt", "rmapbt", "reflink") for value in (0, 1)],
            harmless("which trees of metadata there are"),
        ),
        **dict.fromkeys(
            ("-b", "-I", "-i", "-G", "-l", "-d", "-n", "-M"),
            harmless("sizes and places, no promise about data"),
        ),
        "--csum": harmless("all of these checksums find damaged data"),
    }
    #: features of ext4 that change nothing about what is kept after a power cut
    _FEATURES: ClassVar[frozenset[str]] = frozenset(
        {
            "64bit", "bigalloc", "casefold", "dir_index", "dir_nlink", "ea_inode", "ext_attr", "extent", "extents",
            "extra_isize", "fast_commit", "filetype", "flex_bg", "huge_file", "inline_data", "large_dir", "large_file",
            "meta_bg", "orphan_file", "project", "quota", "resize_inode", "sparse_super", "sparse_super2", "stable_inodes",
            "uninit_bg",
        }
    )  # fmt: skip

    def consequence_of(self, setting: Setting) -> Consequence:
        flag, _, argument = " ".join(setting.value.split()).partition(" ")
        if flag == "-O":
            return self._of_features(argument.split(","))
        exact = self.consequences.get(f"{flag} {argument}".strip())
        return exact or self.consequences.get(flag, self.consequence)

    def _of_features(self, words: Sequence[str]) -> Consequence:
        """The worst of a list such as ``^extent,^64bit``."""
        for word in ("^has_journal", "^metadata_csum"):
            if word in words:
                return self.consequences[f"-O {word}"]
        kept = self._FEATURES | {"has_journal", "metadata_csum"}
        known = all(word.removeprefix("^") in kept for word in words)
        return self.consequences["-O"] if known else self.consequence

    def parse(self, setting: Setting) -> str:
        value = " ".join(setting.value.split())
        about = dict(setting.options).get("option")
        if about is not None and not ABOUT.fullmatch(about):
            raise RequestError(
                f'knob mkfs.option: "{about}" is no option of mkfs', hint='for example "-I" or "-O dir_index"'
            )
        if about is not None and value != "default" and about != _about(value):
            raise RequestError(
                f'knob mkfs.option: level "{value}" is not about option "{about}"',
                hint=f'it is about "{_about(value)}"',
            )
        if value == "default" or any(kind.allows_mkfs(value) for kind in FILESYSTEMS.values()):
            return value
        known = sorted({pattern for kind in FILESYSTEMS.values() for pattern in kind.mkfs_allowed})
        raise UnsupportedLevel(
            f'knob mkfs.option: "{value}" is not on its list', hint="it has patterns: " + "; ".join(known)
        )

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ("default", *FILESYSTEMS[disk_place(self.name, subject.place).filesystem].mkfs_allowed)

    def requires(self, setting: Setting) -> Requirement:
        value = " ".join(setting.value.split())
        tools = {"dumpe2fs": "e2fsprogs"} if FILESYSTEMS["ext4"].allows_mkfs(value) else {}
        return Requirement(root=True, labs=DISK_LABS, tools=tools)

    def read(self, subject: Subject, setting: Setting) -> str:
        made = disk_place(self.name, subject.place).made_with
        return made.get(dict(setting.options).get("option", _about(self.parse(setting))), "default")

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        if value != "default":
            disk_place(self.name, subject.place).want_mkfs_option(_about(value), value)

    def verify(self, subject: Subject, setting: Setting, value: str) -> None:
        super().verify(subject, setting, value)
        place = disk_place(self.name, subject.place)
        if place.filesystem != "ext4":
            return
        told = place.superblock()  # for the default too: all arms do the same
        found = None if value == "default" else superblock.contradicts(value, told)
        if found is not None:
            raise KnobError(self.name, self.where(subject, setting), wrote=value, found=found)


class FilesystemLog(Knob):
    """The log of XFS or the journal of ext4: in the file system, or on a second device, which all arms hold."""

    name = LOG_KNOB
    title = "where the file system keeps its log: in itself, or on a second device of the lab's own"
    consequence = harmless("the log lies where the files lie")
    consequences: Mapping[str, Consequence] = {
        "external": trade_off(
            "the file system cannot be mounted without its log: the failure of either device takes it down"
        ),
    }
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    LEVELS = (INTERNAL, EXTERNAL)

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=DISK_LABS)

    def read(self, subject: Subject, setting: Setting) -> str:
        place = disk_place(self.name, subject.place)
        device = None if place.log is None else place.log.device
        info = subject.target.mount_at(place.root)
        if info is None:
            return "none"
        if place.filesystem == "xfs":
            named = [o.removeprefix("logdev=/dev/") for o in info.options if o.startswith("logdev=")]
            return _log(named[0] if named else None, device)
        told = re.search(r"^Journal device:\s+0x([0-9a-f]+)$", place.superblock(), re.MULTILINE)
        if told is None:
            return INTERNAL
        number = subject.target.read(f"/sys/block/{device}/dev").strip()
        found = int(told[1], 16)  # as the kernel's old_encode_dev and new_encode_dev have it
        minor = (found & 0xFF) | ((found >> 12) & 0xFFF00)
        return _log(device if number == f"{(found >> 8) & 0xFFF}:{minor}" else told[1], device)

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        disk_place(self.name, subject.place).want_log(value)


def _log(found: str | None, own: str | None) -> str:
    if found is None:
        return INTERNAL
    return EXTERNAL if found == own else f"on {found}"


def _about(option: str) -> str:
    return " ".join(superblock.about(option))
