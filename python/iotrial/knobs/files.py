"""Knobs of files: permission bits, size, kind of link, access times, attributes, layout on the disk."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.knobs.declaration import (
    Consequence,
    Declaration,
    Scope,
    Stage,
    harmless,
    trade_off,
)
from iotrial.study.model import Setting


class FileMode(Declaration):
    """Permission bits, set by chmod(2)."""

    name = "file.mode"
    title = "permission bits of the files, as octal text"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 2
    open_levels = "0000 to 1777"
    consequence = harmless("only the owner may change the files")
    consequences: Mapping[str, Consequence] = {
        "writable by others": trade_off("every user of the machine may change the files"),
        "writable by the group": trade_off("the group may change the files"),
        "writable by nobody": harmless("nobody may change the files, not even the owner; root still may"),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        owner, group, others = (digit in "2367" for digit in setting.value.strip().zfill(3)[-3:])
        if others or group:
            return self.consequences["writable by others" if others else "writable by the group"]
        return self.consequence if owner else self.consequences["writable by nobody"]


class FileSize(Declaration):
    """Size of each file. As a condition, every size has its own file set; as a treatment, the files are rewritten."""

    name = "file.size"
    title = "size of each file"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -3
    open_levels = "1 B to 4 GiB"
    consequence = harmless("a property of the files, not a setting")


class FileLink(Declaration):
    """The kind of name through which the work reaches the files; re-created from the plain files in every run."""

    name = "file.link"
    title = "kind of name through which the work opens the files"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 1
    consequence = harmless("another name for the same files")


class FileAtimeState(Declaration):
    """The state of the access time before a run, which decides whether relatime updates it."""

    name = "file.atime_state"
    title = "access time before the run: stale (relatime will update), fresh (it will not), day-old"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 3  # last: links and modes change ctime, which relatime compares with
    consequence = harmless("only timestamps differ")


class FileRewritten(Declaration):
    """The share of the files that were rewritten since they were last read: their mtime is newer than their atime. The others
    look as after an earlier read. Relatime checks nothing else, so only the timestamps are set."""

    name = "file.rewritten"
    title = "share of files rewritten since the last read: with relatime, only their next read updates the access time"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 3
    open_levels = "0 % to 100 %"
    consequence = harmless("only timestamps differ")


class FileAttribute(Declaration):
    """An attribute set on each file: no access time updates, synchronous writes, or data journaling."""

    name = "file.attribute"
    title = "an attribute of the files: none, no-atime (A), sync (S), journal-data (j, ext4)"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 2
    LEVELS = ("none", "no-atime", "sync", "journal-data")
    consequence = harmless("no special attribute")
    consequences: Mapping[str, Consequence] = {
        "sync": trade_off("every write waits for the disk"),
        "journal-data": trade_off("data are written twice: to the journal, then in place"),
        "no-atime": harmless("access times are not updated"),
    }


class FileFragmentation(Declaration):
    """Files rewritten into a given number of extents, with the same content; counted with FIEMAP."""

    name = "file.fragmentation"
    title = "fragmentation, (extents - files) / extents: 0 % unfragmented, 99 % a hundred pieces per file"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -2  # after the size, before links: another name does not change the layout
    open_levels = "0 % to 99.99 %"
    consequence = harmless("changes where the pieces of a file lie, not their contents")


class FileDefragment(Declaration):
    """The remedy applied to the layout of the files before the run: none, the file system's own defragmenter, or a copy of
    each that replaces it. In every arm the files are then copied once more, and these copies are discarded."""

    name = "file.defragment"
    title = "what is done about fragmentation: nothing, the file system's defragmentation tool, or a rewritten copy"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -1
    LEVELS = ("untouched", "defragmented", "rewritten")
    consequence = harmless(
        "the tools move or copy whole files, and keep the old one until the new one is complete"
    )
