"""Knobs of the file system: its type, and how it is made, mounted and aged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from iotrial.knobs.declaration import (
    HARMLESS,
    Consequence,
    Declaration,
    Need,
    Scope,
    Stage,
    at_risk,
    not_judged,
    trade_off,
)
from iotrial.study.model import Setting
from iotrial.study.places import LOG_KNOB

_NO_BARRIER = (
    "the disk's cache is not flushed at commits, so a power cut may lose synced data and corrupt the file system, "
    "unless the cache is protected against power loss"
)


class FilesystemType(Declaration):
    """ext4, xfs or btrfs."""

    name = "filesystem.type"
    title = "file system of the lab"
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    consequence = trade_off(
        "all of them keep synced data; they differ in which unsynced data a power cut loses"
    )


class MkfsOption(Declaration):
    """One mkfs option from an allow-list; ``default`` leaves it out. Several factors with different options are applied
    together, and on ext4 the result is checked in the superblock."""

    name = "mkfs.option"
    title = "one option with which the file system is made, from an allow-list (several factors may each have one)"
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    option = "option"
    option_needed = False
    consequence = not_judged("iotrial does not know how this option affects data in a power cut")

    #: by option, feature, or option with argument. Sources: mke2fs(8), ext4(5), mkfs.xfs(8), mkfs.btrfs(8)
    consequences: Mapping[str, Consequence] = {
        "default": HARMLESS,
        "-O ^has_journal": at_risk("without a journal a power cut may corrupt the whole file system"),
        "-O ^metadata_csum": at_risk(
            "metadata and journal have no checksums: corruption by a power cut or the disk goes undetected"
        ),
        "-O": HARMLESS,
        "-E num_backup_sb=0": at_risk("there is no second copy of the superblock to recover from"),
        "-E num_backup_sb=1": trade_off("there is only one copy of the superblock to recover from"),
        "-E lazy_itable_init=1": trade_off(
            "inode tables are written in the background after the first mount"
        ),
        "-E": HARMLESS,
        "-J": trade_off("a small journal makes writers wait for it, a large one takes longer to replay"),
        "-m crc=0": at_risk(
            "metadata have no checksums: corruption by a power cut or the disk goes undetected"
        ),
        "-m single": at_risk("metadata have one copy: a corrupted block cannot be repaired"),
        "-m": trade_off(
            "how much of the disk is reserved for root: without it, a full disk stops system services"
        ),
        "-m dup": HARMLESS,
        "-m crc=1": HARMLESS,
        **dict.fromkeys(
            [f"-m {name}={value}" for name in ("finobt", "rmapbt", "reflink") for value in (0, 1)],
            HARMLESS,
        ),
        **dict.fromkeys(
            ("-b", "-I", "-i", "-G", "-l", "-d", "-n", "-M"),
            HARMLESS,
        ),
        "--csum": HARMLESS,
    }

    #: ext4 features that do not affect what survives a power cut
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
        """Return the worst consequence of a list such as ``^extent,^64bit``."""
        for word in ("^has_journal", "^metadata_csum"):
            if word in words:
                return self.consequences[f"-O {word}"]
        kept = self._FEATURES | {"has_journal", "metadata_csum"}
        known = all(word.removeprefix("^") in kept for word in words)
        return self.consequences["-O"] if known else self.consequence


class FilesystemLog(Declaration):
    """The log of XFS or the journal of ext4: in the file system, or on a second device, which all arms have."""

    name = LOG_KNOB
    title = "where the file system keeps its log: in itself, or on a second device of the lab's own"
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "external": trade_off(
            "the file system cannot be mounted without its log: the failure of either device takes it down"
        ),
    }


class MountAtime(Declaration):
    """The condition under which reading updates access times."""

    name = "mount.atime"
    title = "when reading updates a file's access time"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    LEVELS = ("strictatime", "relatime", "noatime", "nodiratime", "lazytime")
    candidates = ("relatime", "noatime")
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "lazytime": trade_off("after a power cut timestamps may be up to a day old"),
    }


class MountReadonly(Declaration):
    """A read-only or a writable mount."""

    name = "mount.readonly"
    title = "whether the file system is mounted read-only"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    consequence = HARMLESS


class MountOption(Declaration):
    """One mount option from an allow-list; the level ``default`` leaves it out. Several factors with different options are
    combined in one mount."""

    name = "mount.option"
    title = "one mount option of the file system, from an allow-list (several factors may each have one)"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    option = "option"
    option_needed = False
    consequence = not_judged("iotrial does not know how this option affects data in a power cut")

    #: option without its value: file systems that support it. None takes a path or a device.
    ALLOWED: ClassVar[dict[str, tuple[str, ...]]] = {
        "auto_da_alloc": ("ext4",),
        "noauto_da_alloc": ("ext4",),
        "barrier": ("ext4", "btrfs"),
        "nobarrier": ("ext4", "btrfs"),
        "block_validity": ("ext4",),
        "noblock_validity": ("ext4",),
        "commit": ("ext4", "btrfs"),
        "data": ("ext4",),
        "delalloc": ("ext4",),
        "nodelalloc": ("ext4",),
        "discard": ("ext4", "xfs", "btrfs"),
        "nodiscard": ("ext4", "xfs", "btrfs"),
        "dioread_nolock": ("ext4",),
        "dioread_lock": ("ext4",),
        "init_itable": ("ext4",),
        "noinit_itable": ("ext4",),
        "inode_readahead_blks": ("ext4",),
        "journal_async_commit": ("ext4",),
        "journal_checksum": ("ext4",),
        "nojournal_checksum": ("ext4",),
        "journal_ioprio": ("ext4",),
        "lazytime": ("ext4", "xfs", "btrfs"),
        "max_batch_time": ("ext4",),
        "mb_optimize_scan": ("ext4",),
        "min_batch_time": ("ext4",),
        "stripe": ("ext4",),
        "allocsize": ("xfs",),
        "inode64": ("xfs",),
        "inode32": ("xfs",),
        "largeio": ("xfs",),
        "logbsize": ("xfs",),
        "logbufs": ("xfs",),
        "noalign": ("xfs",),
        "swalloc": ("xfs",),
        "autodefrag": ("btrfs",),
        "compress": ("btrfs",),
        "compress-force": ("btrfs",),
        "datacow": ("btrfs",),
        "nodatacow": ("btrfs",),
        "nodatasum": ("btrfs",),
        "ssd": ("btrfs",),
        "nossd": ("btrfs",),
        "sync": ("ext4", "xfs", "btrfs"),
        "async": ("ext4", "xfs", "btrfs"),
    }

    #: by option, or option with argument. Documentation/admin-guide/ext4.rst, admin-guide/xfs.rst, btrfs(5), mount(8)
    consequences: Mapping[str, Consequence] = {
        "default": HARMLESS,
        "auto_da_alloc": HARMLESS,
        "noauto_da_alloc": at_risk(
            "a file that was replaced by rename or truncation without fsync may be empty after a power cut"
        ),
        "barrier": HARMLESS,
        "barrier=0": at_risk(_NO_BARRIER),
        "nobarrier": at_risk(_NO_BARRIER),
        "block_validity": HARMLESS,
        "noblock_validity": trade_off("saves CPU time, but corrupted bitmaps are detected later"),
        "commit": trade_off(
            "a power cut may lose unsynced changes of that many seconds; the file system stays consistent"
        ),
        "data=journal": trade_off("all data are written twice: to the journal, then in place"),
        "data=ordered": HARMLESS,
        "data=writeback": at_risk(
            "after a power cut, files written shortly before may contain old data, even of deleted files"
        ),
        "delalloc": HARMLESS,
        "nodelalloc": HARMLESS,
        "discard": trade_off("every deletion is followed by discards; deleted data cannot be recovered"),
        "nodiscard": HARMLESS,
        "dioread_nolock": HARMLESS,
        "dioread_lock": HARMLESS,
        "init_itable": trade_off("inode tables are written in the background after the mount"),
        "noinit_itable": HARMLESS,
        "inode_readahead_blks": trade_off("read-ahead takes memory and may read data that is never used"),
        "journal_async_commit": at_risk(
            "a commit does not wait for its data: after a power cut, files may contain old data"
        ),
        "journal_checksum": HARMLESS,
        "nojournal_checksum": at_risk(
            "a journal corrupted by a power cut or the disk goes undetected, and is replayed into the file system"
        ),
        "journal_ioprio": trade_off("journal commits wait for other I/O, or delay it"),
        "lazytime": trade_off("after a power cut timestamps may be up to a day old"),
        "max_batch_time": trade_off("a sync may wait for others to be batched with it"),
        "mb_optimize_scan": HARMLESS,
        "min_batch_time": trade_off("a sync waits for others to be batched with it"),
        "stripe": HARMLESS,
        "allocsize": trade_off("files that grow hold more space than they need until they are closed"),
        "inode64": HARMLESS,
        "inode32": HARMLESS,
        "largeio": HARMLESS,
        "logbsize": trade_off("log buffers take more memory"),
        "logbufs": trade_off("log buffers take more memory"),
        "noalign": HARMLESS,
        "swalloc": HARMLESS,
        "autodefrag": trade_off("small writes cause larger ones, and shared extents are copied"),
        "compress": trade_off("written data are compressed by the CPU"),
        "compress-force": trade_off("written data are compressed by the CPU"),
        "datacow": HARMLESS,
        "nodatacow": at_risk(
            "data are overwritten in place and without checksums: a power cut may leave a half-written block "
            "undetected"
        ),
        "nodatasum": at_risk(
            "data have no checksums: corruption is neither detected nor repaired from another copy"
        ),
        "ssd": HARMLESS,
        "nossd": HARMLESS,
        "sync": trade_off("every write waits for the disk"),
        "async": HARMLESS,
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        value = setting.value.strip()
        exact = self.consequences.get(value)
        return exact or self.consequences.get(value.partition("=")[0], self.consequence)

    def period_s(self, setting: Setting) -> float | None:
        word, _, seconds = setting.value.strip().partition("=")
        if word == "default" and dict(setting.options).get("option") == "commit":
            return 5.0  # ext4's; btrfs waits 30 s
        if word != "commit" or not seconds.isdecimal() or len(seconds) > 9:
            return None
        return float(seconds) or None  # 0 means the default

    def need_of(self, setting: Setting) -> Need | None:
        return Need.WRITES if setting.value.strip().partition("=")[0] == "commit" else None


class FilesystemAge(Declaration):
    """Simulated age of the file system: files of many sizes are created and deleted in rounds, up to a fill level. The
    sequence is always the same, so that all arms have the same history."""

    name = "filesystem.age"
    title = "age of the file system before the run: fresh, or filled to a share by files created and deleted"
    stage = Stage.FORMAT
    scope = Scope.FILESYSTEM
    rank = 1
    open_levels = "fresh, 1 % to 95 %"
    consequence = HARMLESS


class FilesystemTrim(Declaration):
    """Trimming of free blocks before the run, or none. In every arm all free blocks are overwritten first, so that blocks
    discarded by an earlier run are in use again: on a disk, and in an image where a discard has punched holes."""

    name = "filesystem.trim"
    title = "free blocks before the run: none (all written once, as on a used disk), fstrim (then trimmed)"
    stage = Stage.FILES
    scope = Scope.FILESYSTEM
    rank = 9  # after everything that creates or deletes files
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "fstrim": trade_off("deleted data cannot be recovered from the disk"),
    }
