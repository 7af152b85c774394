"""Published cases of crash consistency: what do this kernel's file systems leave of them after a power cut?

    python benchmarks/powercut/cases.py [--drawn N] [--filesystem NAME] [WORDS]

Sources: the patterns of applications are those of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI
2014); the others are bugs that CrashMonkey reproduced or found (Mohan et al., "Finding Crash-Consistency Bugs with Bounded
Black-Box Crash Testing", OSDI 2018, and the repository utsaslab/crashmonkey), named by their test in xfstests where they
have one. Prints a Markdown table. Nothing here is tuned to be found or not.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from laboratory import SIZES, Tally, lab, tried

from iotrial.powercut.mounts import sync_filesystem
from iotrial.powercut.record import Marker
from iotrial.powercut.recover import Findings
from iotrial.powercut.states import Cache

_LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE = 1, 2
PREPARED, SYNCED = "prepared", "synced"
OLD, NEW = b"old " * 2000, b"new " * 3000
Complaints = list[str]


@dataclass(frozen=True, slots=True)
class Case:
    """``prepare`` is on the disk before ``act`` begins; ``check`` returns what is wrong once ``act`` has ended.

    ``promised``: whether POSIX, or the documentation of Linux file systems, lets a program rely on it. ``always``: the check
    holds at every moment, not only after the end.
    """

    name: str
    source: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    check: Callable[[Path], Complaints]
    promised: bool = True
    always: bool = False

    def work(self, root: Path, marker: Marker) -> None:
        self.prepare(root)
        sync_filesystem(root)
        marker.mark(PREPARED)
        self.act(root)
        marker.mark(SYNCED)

    def checked(self, root: Path, acknowledged: Sequence[str]) -> Findings:
        if SYNCED not in acknowledged and not self.always:
            return Findings()
        return Findings(lost=tuple(self.check(root)))


def write(path: Path, data: bytes, *, append: bool = False, durable: bool = False) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    descriptor = os.open(path, flags, 0o644)
    os.write(descriptor, data)
    if durable:
        os.fsync(descriptor)
    os.close(descriptor)


def fsync(path: Path, *, data_only: bool = False) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    (os.fdatasync if data_only else os.fsync)(descriptor)
    os.close(descriptor)


def fallocate(path: Path, mode: int, offset: int, length: int) -> None:
    descriptor = os.open(path, os.O_RDWR)
    if _LIBC.fallocate(descriptor, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length)):
        raise OSError(ctypes.get_errno(), "fallocate")
    os.close(descriptor)


def folders(*names: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for name in names:
            (root / name).mkdir()

    return make


def there(*names: str) -> Callable[[Path], Complaints]:
    return lambda root: [f"{name} is missing" for name in names if not os.path.lexists(root / name)]


def content_is(root: Path, name: str, *allowed: bytes) -> Complaints:
    path = root / name
    if not path.exists():
        return [f"{name} is missing"]
    found = path.read_bytes()
    if found in allowed:
        return []
    if not found:
        return [f"{name} is empty"]
    return [f"{name}: {len(found)} {'zeros' if not found.strip(bytes(1)) else 'other bytes'}"]


def removable(root: Path, name: str) -> Complaints:
    try:
        shutil.rmtree(root / name)
    except OSError as error:
        return [f"{name} cannot be removed: {error.strerror}"]
    return []


def nothing(root: Path) -> None:
    pass


# -- patterns of applications (ALICE)


def old_file(root: Path) -> None:
    write(root / "f", OLD)
    write(root / "other", b"x")


def folder_and_file(root: Path) -> None:
    folders("A")(root)
    old_file(root)


def replace_without_fsync(root: Path) -> None:
    write(root / "draft", NEW)
    (root / "draft").rename(root / "f")
    write(root / "other", b"y", durable=True)


def create_by_rename_without_fsync(root: Path) -> None:
    write(root / "draft", NEW)
    (root / "draft").rename(root / "g")
    fsync(root)


def truncate_and_write(root: Path) -> None:
    write(root / "f", NEW)
    write(root / "other", b"y", durable=True)


def append_without_fsync(root: Path) -> None:
    write(root / "f", NEW, append=True)
    write(root / "other", b"y", durable=True)


def appended(root: Path) -> Complaints:
    found = (root / "f").read_bytes()
    prefix = (OLD + NEW)[: len(found)]
    if found == prefix:
        return []
    zeros = all(mine in (0, byte) for mine, byte in zip(found, prefix, strict=False))
    return [f"f: {'zeros' if zeros else 'other bytes'} in what was appended"]


def two_files(root: Path) -> None:
    write(root / "first", NEW)
    write(root / "second", NEW, durable=True)


# -- bugs (CrashMonkey, xfstests)


def data_then_link(root: Path) -> None:
    write(root / "f", NEW, durable=True)
    (root / "g").hardlink_to(root / "f")
    write(root / "other", b"y", durable=True)


def link_then_fsync(root: Path) -> None:
    (root / "A" / "g").hardlink_to(root / "f")
    fsync(root / "f")


def punch_and_fsync(root: Path) -> None:
    fallocate(root / "f", KEEP_SIZE | PUNCH_HOLE, 100, 1000)
    fsync(root / "f")


def with_attributes(root: Path) -> None:
    write(root / "f", OLD)
    for name in ("user.a", "user.b"):
        os.setxattr(root / "f", name, b"value")


def remove_attribute(root: Path) -> None:
    os.removexattr(root / "f", "user.b")
    fsync(root / "f")


def two_links(root: Path) -> None:
    (root / "A").mkdir()
    write(root / "A" / "f", OLD)
    (root / "A" / "g").hardlink_to(root / "A" / "f")


def unlink_one(root: Path) -> None:
    (root / "A" / "g").unlink()
    fsync(root / "A" / "f")


def links_in_two_folders(root: Path) -> None:
    folders("A", "B")(root)
    write(root / "A" / "f", OLD)
    (root / "B" / "g").hardlink_to(root / "A" / "f")


def unlink_elsewhere(root: Path) -> None:
    (root / "B" / "g").unlink()
    fsync(root / "A" / "f")


def tree_of_two(root: Path) -> None:
    folders("A", "B")(root)
    write(root / "A" / "f", OLD)


def move_and_fsync_old_parent(root: Path) -> None:
    (root / "A" / "f").rename(root / "B" / "f")
    fsync(root / "A")


def moved(root: Path) -> Complaints:
    found = [name for name in ("A/f", "B/f") if (root / name).exists()]
    return [] if len(found) == 1 else [f"f is at {found or 'no place'}"]


def log_folder_move_fsync(root: Path) -> None:
    write(root / "A" / "g", NEW)
    fsync(root / "A")
    (root / "A" / "f").rename(root / "B" / "f")
    fsync(root / "B" / "f")


def folder_with_files(root: Path) -> None:
    folders("A", "A/x")(root)
    write(root / "A/x/f", OLD)


def rename_folder_reuse_name(root: Path) -> None:
    (root / "A/x").rename(root / "A/y")
    (root / "A/x").mkdir()
    fsync(root / "A/x")


def rename_reuse_name(root: Path) -> None:
    (root / "f").rename(root / "g")
    write(root / "f", NEW, durable=True)


def renamed_and_new(root: Path) -> Complaints:
    return content_is(root, "g", OLD) + content_is(root, "f", NEW)


def rename_reuse_name_fsync_renamed(root: Path) -> None:
    (root / "f").rename(root / "g")
    write(root / "f", NEW)
    fsync(root / "g")


def folder_to_move(root: Path) -> None:
    folders("A", "A/x", "B")(root)
    write(root / "A/x/f", OLD)


def move_folder_fsync_new_parent(root: Path) -> None:
    (root / "A/x").rename(root / "B/x")
    write(root / "B/g", NEW)
    fsync(root / "B")


def folder_moved(root: Path) -> Complaints:
    found = [name for name in ("A/x/f", "B/x/f") if (root / name).exists()]
    return [] if found == ["B/x/f"] else [f"x/f is at {found or 'no place'}"]


def symlink_fsync_parent(root: Path) -> None:
    (root / "A/s").symlink_to("to/somewhere")
    fsync(root / "A")


def symlink_kept(root: Path) -> Complaints:
    place = root / "A/s"
    if not place.is_symlink():
        return ["A/s is missing"]
    return [] if os.readlink(place) == "to/somewhere" else [f"A/s points to {os.readlink(place)!r}"]  # noqa: PTH115


def allocate_beyond_end(root: Path) -> None:
    fallocate(root / "f", KEEP_SIZE, 8192, 1 << 20)
    fsync(root / "f", data_only=True)


def allocated(root: Path) -> Complaints:
    found = (root / "f").stat().st_blocks * 512
    return [] if found >= 1 << 20 else [f"f has {found} bytes allocated"]


def direct_write_in_extension(root: Path) -> None:
    """A buffered write extends the file; a direct write inside the new size completes."""
    write(root / "f", bytes(32768))
    descriptor = os.open(root / "f", os.O_RDWR | os.O_DIRECT)
    block = mmap.mmap(-1, 4096)
    block.write(b"d" * 4096)
    os.pwritev(descriptor, [block], 8192)
    os.close(descriptor)
    write(root / "other", b"y", durable=True)


def size_holds_blocks(root: Path) -> Complaints:
    seen = (root / "f").stat()
    return [f"f has size 0 and {seen.st_blocks} blocks"] if seen.st_size == 0 and seen.st_blocks else []


def unlink_and_reuse_name(root: Path) -> None:
    (root / "A/g").unlink()
    write(root / "A/g", NEW, durable=True)


def fifo_in_folder(root: Path) -> None:
    (root / "A").mkdir()
    os.mkfifo(root / "A/p")
    write(root / "A/f", OLD)


def rename_fifo_link_its_name(root: Path) -> None:
    (root / "A/p").rename(root / "A/q")
    (root / "A/p").hardlink_to(root / "A/f")
    fsync(root / "A/f")


def create_and_fsync(root: Path) -> None:
    write(root / "A/f", NEW, durable=True)


def can_create(root: Path) -> Complaints:
    try:
        for number in range(20):
            write(root / f"A/new{number}", b"x")
    except OSError as error:
        return [f"a new file cannot be made: {error.strerror}"]
    return content_is(root, "A/f", NEW)


def two_folders_with_bar(root: Path) -> None:
    folders("A", "B")(root)
    write(root / "A/bar", OLD)
    write(root / "B/bar", NEW)


def rename_over_then_fsync_folder(root: Path) -> None:
    (root / "B/bar").rename(root / "A/bar")
    write(root / "A/foo", NEW, durable=True)
    fsync(root / "A")


def bar_in_place(root: Path) -> Complaints:
    return content_is(root, "A/bar", OLD, NEW)


def nested(root: Path) -> None:
    folders("A", "A/C", "B")(root)
    write(root / "B/foo", OLD)


def link_into_new_folder(root: Path) -> None:
    (root / "A/D").mkdir()
    (root / "A/D/foo").hardlink_to(root / "B/foo")
    fsync(root / "A")


def entries_and_fsync_folder(root: Path) -> None:
    for number in range(50):
        write(root / f"A/f{number}", b"")
    fsync(root / "A")


CASES = (
    Case("replace a file by rename, no fsync", "ALICE", old_file, replace_without_fsync,
         lambda root: content_is(root, "f", OLD, NEW), promised=False, always=True),
    Case("create a file by rename, fsync of the folder only", "ALICE", old_file, create_by_rename_without_fsync,
         lambda root: content_is(root, "g", NEW), promised=False),
    Case("truncate and write again, no fsync", "ALICE", old_file, truncate_and_write,
         lambda root: content_is(root, "f", OLD, NEW), promised=False, always=True),
    Case("append, no fsync: other bytes than appended", "ALICE", old_file, append_without_fsync, appended,
         promised=False, always=True),
    Case("write two files, fsync the second: the first", "ALICE", nothing, two_files,
         lambda root: content_is(root, "first", NEW), promised=False),
    Case("create a file and fsync it, no fsync of the folder", "ALICE", folders("A"), create_and_fsync,
         lambda root: content_is(root, "A/f", NEW)),
    Case("fsync data, add a link, fsync another file", "generic/056", old_file, data_then_link,
         lambda root: content_is(root, "f", NEW)),
    Case("add a link in another folder, fsync the file", "CrashMonkey 2018", folder_and_file, link_then_fsync,
         there("f", "A/g")),
    Case("punch a hole of part of a page, fsync", "generic/059", old_file, punch_and_fsync,
         lambda root: content_is(root, "f", OLD[:100] + bytes(1000) + OLD[1100:])),
    Case("remove an attribute, fsync", "generic/066", with_attributes, remove_attribute,
         lambda root: [name for name in os.listxattr(root / "f") if name == "user.b"]),
    Case("remove one of two links, fsync: folder removable", "generic/106", two_links, unlink_one,
         lambda root: removable(root, "A")),
    Case("remove a link in another folder, fsync: folder removable", "generic/107", links_in_two_folders, unlink_elsewhere,
         lambda root: removable(root, "B")),
    Case("move a file, fsync the old folder: at one place", "generic/335", tree_of_two, move_and_fsync_old_parent, moved),
    Case("fsync a folder, move a file out, fsync the file", "generic/336", tree_of_two, log_folder_move_fsync,
         there("B/f", "A/g")),
    Case("rename a folder, make a new one of its name, fsync that", "generic/341", folder_with_files,
         rename_folder_reuse_name, there("A/x", "A/y/f")),
    Case("rename a file, make a new one of its name, fsync that", "generic/342", old_file, rename_reuse_name,
         renamed_and_new),
    Case("move a folder, fsync the new parent: at one place", "generic/343", folder_to_move, move_folder_fsync_new_parent,
         folder_moved),
    Case("make a symbolic link, fsync the folder", "generic/348", folders("A"), symlink_fsync_parent, symlink_kept),
    Case("rename a file, make a new one of its name, fsync the renamed", "generic/376", old_file,
         rename_reuse_name_fsync_renamed, there("f", "g")),
    Case("allocate beyond the end, fdatasync", "generic/468", old_file, allocate_beyond_end, allocated),
    Case("direct write inside a buffered extension", "CrashMonkey, ext4", old_file, direct_write_in_extension,
         size_holds_blocks, promised=False),
    Case("remove a link, make a file of its name, fsync that", "CrashMonkey, btrfs", two_links, unlink_and_reuse_name,
         lambda root: content_is(root, "A/g", NEW)),
    Case("rename a FIFO, link a file to its name, fsync", "CrashMonkey, btrfs", fifo_in_folder, rename_fifo_link_its_name,
         there("A/f", "A/p")),
    Case("create and fsync a file; new files after recovery", "CrashMonkey, btrfs", folders("A"), create_and_fsync,
         can_create),
    Case("rename over a file, fsync its folder: one of both", "CrashMonkey 2018", two_folders_with_bar,
         rename_over_then_fsync_folder, bar_in_place, always=True),
    Case("link into a new folder, fsync its parent", "CrashMonkey 2018", nested, link_into_new_folder, there("A/C", "A/D")),
    Case("make 50 files, fsync the folder", "CrashMonkey 2018", folders("A"), entries_and_fsync_folder,
         there(*(f"A/f{number}" for number in range(50)))),
)  # fmt: skip


def tried_case(case: Case, filesystem: str, drawn: int, sector_bytes: int) -> Tally:
    """Record a case on a file system, and check it at every flush and at ``drawn`` states after its preparation."""
    with lab() as target:
        return tried(
            target, filesystem, case.work, case.checked, drawn=drawn, after=PREPARED, fsck_every=10,
            cache=Cache(sector_bytes=sector_bytes),
        )  # fmt: skip


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", type=int, default=200, help="drawn states of each case")
    parser.add_argument(
        "--sector-bytes", type=int, default=4096, help="what the disk writes as a whole or not at all"
    )
    parser.add_argument("--filesystem", choices=sorted(SIZES), action="append")
    parser.add_argument("words", nargs="?", default="", help="only cases with these words")
    given = parser.parse_args()
    filesystems = given.filesystem or sorted(SIZES)
    print(
        f"| case | source | promised | {' | '.join(filesystems)} |\n| --- | --- | --- |{' --- |' * len(filesystems)}"
    )
    for case in CASES:
        if given.words in case.name or given.words in case.source:
            found = [
                tried_case(case, filesystem, given.drawn, given.sector_bytes).brief()
                for filesystem in filesystems
            ]
            print(
                f"| {case.name} | {case.source} | {'yes' if case.promised else 'no'} | {' | '.join(found)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
