"""Knobs of a mount: what happens to access times, read-only, and options from an allow-list.

A value is declared to the place, which mounts once for all mount knobs of a run; what the kernel
made of it is read back from /proc/self/mountinfo. mount(2) is called directly: mount(8) passes
`noatime` on beside `relatime` in a remount (libmount 2.38), and the mount silently stays noatime.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.lab.disk import disk_place
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
from iotrial.lab.target import MountInfo
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS

#: no comma (another option), no slash or dot (a path), no blank, nothing beyond ASCII
ARGUMENT = re.compile(r"[A-Za-z0-9_:-]{1,32}")
_NO_BARRIER = (
    "the cache of the disk is not flushed at commits, so that a power cut may cost synced data and the file system itself, "
    "unless that cache survives it"
)
OWN_MOUNT = Requirement(root=True, labs=DISK_LABS)


def _mounted(knob: str, subject: Subject) -> MountInfo:
    place = disk_place(knob, subject.place)
    info = subject.target.mount_at(place.root)
    if info is None:
        raise KnobError(knob, place.label, wrote="a mount", found="nothing mounted there")
    return info


class MountKnob(Knob):
    """Common to all knobs of the mount: declared to the place, carried out by it, read from mountinfo."""

    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    remountable = True

    def requires(self, setting: Setting) -> Requirement:
        return OWN_MOUNT

    def words(self, value: str) -> tuple[str, ...]:
        """The mount options that stand for a value."""
        return (value,)

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        place = disk_place(self.name, subject.place)
        place.want_options(self.name, self.words(value), remountable=self.remountable)


class MountAtime(MountKnob):
    """When reading updates access times."""

    name = "mount.atime"
    title = "when reading updates a file's access time"
    consequence = harmless("how far access times can be trusted by programs that look at them")
    consequences: Mapping[str, Consequence] = {
        "lazytime": trade_off("after a power cut timestamps may be up to a day old"),
    }

    LEVELS = ("strictatime", "relatime", "noatime", "nodiratime", "lazytime")

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def words(self, value: str) -> tuple[str, ...]:
        # nodiratime and lazytime say nothing about files: here they stand on top of strictatime,
        # so that each level differs from strictatime by its own option alone.
        return (value,) if value not in ("nodiratime", "lazytime") else ("strictatime", value)

    def read(self, subject: Subject, setting: Setting) -> str:
        options = _mounted(self.name, subject).options
        # another knob may have asked for lazytime on top of whatever stands here
        lazy = disk_place(self.name, subject.place).options_of(f"{MountOption.name} lazytime")
        if "noatime" in options:
            return "noatime"
        if "relatime" in options:
            return "relatime"
        if "lazytime" in options and not lazy:
            return "lazytime"
        return "nodiratime" if "nodiratime" in options else "strictatime"


class MountReadonly(MountKnob):
    """A mount that can be written, or not."""

    name = "mount.readonly"
    title = "whether the file system is mounted read-only"
    consequence = harmless("nothing is written to a read-only file system")

    def parse(self, setting: Setting) -> str:
        return one_of(
            self.name, {"true": "ro", "false": "rw"}.get(setting.value, setting.value), ("rw", "ro")
        )

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ("rw", "ro")

    def words(self, value: str) -> tuple[str, ...]:
        return ("ro",) if value == "ro" else ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return "ro" if "ro" in _mounted(self.name, subject).mount_options else "rw"


class MountOption(MountKnob):
    """One mount option from an allow-list; the level ``default`` leaves it out. Several factors with different options are
    mounted together."""

    name = "mount.option"
    title = "one mount option of the file system, from an allow-list (several factors may each have one)"
    consequence = not_judged("iotrial does not know what this option does to data after a power cut")
    remountable = False
    option = "option"
    option_needed = False

    #: option without its value: file systems that know it. None names a path or a device.
    ALLOWED: ClassVar[dict[str, tuple[str, ...]]] = {
        "auto_da_alloc": ("ext4",),
        "noauto_da_alloc": ("ext4",),
        "barrier": ("ext4",),
        "nobarrier": ("ext4",),
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

    #: by option, or option and argument. Documentation/admin-guide/ext4.rst, admin-guide/xfs.rst, btrfs(5), mount(8)
    consequences: Mapping[str, Consequence] = {
        "default": harmless("as the file system is mounted by default"),
        "auto_da_alloc": harmless(
            "a file that was replaced without a sync is whole after a crash: the old or the new one"
        ),
        "noauto_da_alloc": at_risk(
            "a file that was replaced by rename or truncation without fsync may be empty after a power cut"
        ),
        "barrier": harmless("the cache of the disk is flushed at every commit of the journal"),
        "barrier=0": at_risk(_NO_BARRIER),
        "nobarrier": at_risk(_NO_BARRIER),
        "block_validity": harmless("damaged bitmaps are noticed before metadata are overwritten"),
        "noblock_validity": trade_off("less is computed, but damaged bitmaps are noticed later"),
        "commit": trade_off(
            "a power cut may cost the changes of that many seconds that nobody has synced; the file system stays sound"
        ),
        "data=journal": trade_off("all data are written twice, to the journal and then to their place"),
        "data=ordered": harmless("data are on the disk before the metadata that refer to them"),
        "data=writeback": at_risk(
            "after a power cut files that were written shortly before may hold old data, those of deleted files among them"
        ),
        "delalloc": harmless("blocks are chosen when data are written back"),
        "nodelalloc": harmless("blocks are chosen when data are written to the cache"),
        "discard": trade_off(
            "every deletion is followed by discards, and what was deleted cannot be recovered"
        ),
        "nodiscard": harmless("the disk is not told which blocks are free"),
        "dioread_nolock": harmless("extents are converted when their data are on the disk"),
        "dioread_lock": harmless("reads past the cache wait for writers"),
        "init_itable": trade_off("tables of inodes are written in the background after the mount"),
        "noinit_itable": harmless(
            "tables of inodes are initialised when they are needed, or at a later mount"
        ),
        "inode_readahead_blks": trade_off("what is read ahead takes memory and may never be used"),
        "journal_async_commit": at_risk(
            "a commit does not wait for the data that belong to it: after a power cut files may hold old data"
        ),
        "journal_checksum": harmless("a damaged journal is recognised when it is replayed"),
        "nojournal_checksum": at_risk(
            "a journal that a power cut or the disk has damaged is not recognised, and is replayed into the file system"
        ),
        "journal_ioprio": trade_off("commits of the journal wait for others, or others for them"),
        "lazytime": trade_off("after a power cut timestamps may be up to a day old"),
        "max_batch_time": trade_off("a sync may wait for others to join it"),
        "mb_optimize_scan": harmless("another search for free blocks"),
        "min_batch_time": trade_off("a sync waits for others to join it"),
        "stripe": harmless("a hint for placing"),
        "allocsize": trade_off("files that grow hold more space than they need until they are closed"),
        "inode64": harmless("where inodes lie"),
        "inode32": harmless("where inodes lie"),
        "largeio": harmless("what size of request programs are advised to make"),
        "logbsize": trade_off("buffers of the log take more memory"),
        "logbufs": trade_off("buffers of the log take more memory"),
        "noalign": harmless("where data are placed"),
        "swalloc": harmless("where data are placed"),
        "autodefrag": trade_off("small writes are followed by larger ones, and shared extents are copied"),
        "compress": trade_off("the processor compresses what is written"),
        "compress-force": trade_off("the processor compresses what is written"),
        "datacow": harmless("new data never overwrite old ones in place"),
        "nodatacow": at_risk(
            "data are overwritten in place and without checksums: a power cut may leave a block half written, unnoticed"
        ),
        "nodatasum": at_risk("data have no checksums: damage is not noticed, nor repaired from another copy"),
        "ssd": harmless("where data are placed"),
        "nossd": harmless("where data are placed"),
        "sync": trade_off("every write waits for the disk"),
        "async": harmless("writes wait for the disk only where they are synced, as by default"),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        value = setting.value.strip()
        exact = self.consequences.get(value)
        return exact or self.consequences.get(value.partition("=")[0], self.consequence)

    def parse(self, setting: Setting) -> str:
        value = setting.value
        about = dict(setting.options).get("option")
        if about is not None and about not in self.ALLOWED:
            raise RequestError(
                f'knob mount.option: option "{about}" is not on its list',
                hint="it has: " + ", ".join(sorted(self.ALLOWED)),
            )
        if value == "default":
            return value
        if about is not None and family(value) != family(about):
            raise RequestError(f'knob mount.option: level "{value}" is not about option "{about}"')
        key, equals, argument = value.partition("=")
        if key not in self.ALLOWED:
            raise UnsupportedLevel(
                f'knob mount.option: "{key}" is not on its list',
                hint="it has: " + ", ".join(sorted(self.ALLOWED)),
            )
        if equals and not ARGUMENT.fullmatch(argument):
            raise UnsupportedLevel(f'knob mount.option: "{argument}" is no value of {key}')
        return value

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        filesystem = disk_place(self.name, subject.place).filesystem
        return ("default", *(o for o, where in sorted(self.ALLOWED.items()) if filesystem in where))

    def words(self, value: str) -> tuple[str, ...]:
        return () if value == "default" else (value,)

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        # A wish for each option, so that several factors are mounted together. One for the default too: mounts with and
        # without an option are come to in the same way.
        place = disk_place(self.name, subject.place)
        place.want_options(self._wish(setting, value), self.words(value), remountable=False)

    def read(self, subject: Subject, setting: Setting) -> str:
        _mounted(self.name, subject)
        words = disk_place(self.name, subject.place).options_of(self._wish(setting, setting.value))
        return words[0] if words else "default"

    def _wish(self, setting: Setting, value: str) -> str:
        return f"{self.name} {family(dict(setting.options).get('option', value))}"

    def verify(self, subject: Subject, setting: Setting, value: str) -> None:
        # A kernel leaves options that are its default out of mountinfo, and rewrites others; what it cannot do, it refuses
        # at mount(2). ext4 tells all of them in a file of its own. What is shown must be as wanted.
        super().verify(subject, setting, value)
        if value == "default":
            return
        key, equals, wanted = value.partition("=")
        every = self._shown(subject)
        if equals:
            shown = [o for o in every if o.partition("=")[0] == key]
            same = [
                o for o in shown if o.startswith(value) or _amount(o.partition("=")[2]) == _amount(wanted)
            ]
        else:
            shown = [o for o in every if family(o) == family(key)]
            same = [o for o in shown if _switch(o) == _switch(key)]
        if shown and not same:
            raise KnobError(self.name, self.where(subject, setting), wrote=value, found=shown[0])

    def _shown(self, subject: Subject) -> list[str]:
        told = ""
        if disk_place(self.name, subject.place).filesystem == "ext4":
            told = subject.target.read_or_none(f"/proc/fs/ext4/{subject.place.device}/options") or ""
        return sorted(_mounted(self.name, subject).options) + told.split()


#: options that are named in more than one way: the name and whether it is on
SAME = {
    "async": ("sync", "off"),
    "dioread_lock": ("dioread_nolock", "off"),
    "inode32": ("inode64", "off"),
}


def family(option: str) -> str:
    """What an option is about, whatever it says of it: ``nodelalloc`` and ``delalloc`` are one family."""
    return _named(option)[0]


def _switch(option: str) -> str:
    return _named(option)[1]


def _named(option: str) -> tuple[str, str]:
    key, _, argument = option.partition("=")
    if key in SAME:
        return SAME[key]
    if key.startswith("no") and key[2:] in MountOption.ALLOWED:
        return key[2:], "off"
    if key == "barrier" and argument == "0":
        return key, "off"
    return key, "on"


def _amount(text: str) -> int | str:
    """A size as a number of bytes, because the kernel shows 1m as 1024k; any other text as it is."""
    found = re.fullmatch(r"([0-9]+)([kmg]?)", text, re.ASCII | re.IGNORECASE)
    return text if found is None else int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
