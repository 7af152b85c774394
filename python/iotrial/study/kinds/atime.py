"""Workload kind ``atime``: system calls, each done once, and whether it changes the access time of what it is done to.

A table of facts and no timing: every call has an object of its own, and the kernel is asked at once. What reports show of
it is in ``report/facts.py``.
"""

from __future__ import annotations

import difflib

from pydantic import Field

from iotrial.study.kinds.contract import KeyProblem, ResponseSpec, WorkloadKind
from iotrial.study.model import AtimeWork, Better, Scale, Work
from iotrial.study.wire import Line, Table

CALLS = {
    "read": "read(2) of a page",
    "read-nothing": "read(2) of 0 bytes",
    "read-at-end": "read(2) at the end of the file",
    "read-noatime": "read(2) of a file opened with O_NOATIME",
    "read-direct": "read(2) of a file opened with O_DIRECT",
    "pread": "pread(2)",
    "readv": "readv(2)",
    "preadv2": "preadv2(2)",
    "aio-read": "a read by io_submit(2)",
    "io-uring-read": "a read by io_uring",
    "mmap": "mmap(2), and nothing of it touched",
    "mmap-populate": "mmap(2) with MAP_POPULATE",
    "mapped-read": "a byte read in a mapping that was made before",
    "mapped-write": "a byte written in a shared mapping that was made before",
    "sendfile": "sendfile(2) from the file",
    "splice": "splice(2) from the file into a pipe",
    "copy-file-range": "copy_file_range(2) from the file",
    "copy-file-range-to": "copy_file_range(2) into the file",
    "clone": "ioctl FICLONE of the file (a reflink)",
    "clone-to": "ioctl FICLONE into the file",
    "execve": "execve(2) of the file, a script",
    "open": "open(2) for reading",
    "open-path": "open(2) with O_PATH",
    "open-write": "open(2) for writing",
    "open-truncate": "open(2) with O_TRUNC",
    "open-by-handle": "open_by_handle_at(2)",
    "name-to-handle": "name_to_handle_at(2)",
    "stat": "stat(2)",
    "access": "access(2)",
    "getxattr": "getxattr(2)",
    "listxattr": "listxattr(2)",
    "setxattr": "setxattr(2)",
    "fadvise-willneed": "posix_fadvise(2), POSIX_FADV_WILLNEED",
    "fadvise-dontneed": "posix_fadvise(2), POSIX_FADV_DONTNEED",
    "readahead": "readahead(2)",
    "madvise-willneed": "madvise(2), MADV_WILLNEED, of a mapping that was made before",
    "mincore": "mincore(2) of a mapping that was made before",
    "lseek-data": "lseek(2), SEEK_DATA",
    "fiemap": "ioctl FS_IOC_FIEMAP",
    "flock": "flock(2)",
    "fsync": "fsync(2)",
    "write": "write(2) of a page",
    "write-nothing": "write(2) of 0 bytes",
    "truncate-same": "truncate(2) to the size that it has",
    "ftruncate-same": "ftruncate(2) to the size that it has",
    "truncate-shorter": "truncate(2) by a page",
    "fallocate": "fallocate(2)",
    "link": "link(2) of a further name",
    "unlink": "unlink(2) of a further name",
    "rename": "rename(2)",
    "chmod": "chmod(2)",
    "chown": "chown(2) to the owner that it has",
    "utimensat-mtime": "utimensat(2) of the modification time alone",
    "getdents": "of a folder: getdents64(2), as readdir does",
    "open-folder": "of a folder: open(2) and nothing more",
    "stat-inside": "of a folder: stat(2) of a name in it",
    "open-inside": "of a folder: open(2) of a file in it",
    "create-inside": "of a folder: a file made in it",
    "rename-inside": "of a folder: a file in it renamed",
    "readlink": "of a symbolic link: readlink(2)",
    "lstat": "of a symbolic link: lstat(2)",
    "stat-through": "of a symbolic link: stat(2) of what it leads to",
    "open-through": "of a symbolic link: open(2) of what it leads to",
}


class AtimeKeys(Table):
    """Keys of ``kind = "atime"``."""

    calls: list[Line] = Field([], max_length=len(CALLS), description="which ones; all where left out")
    each: list[Line] = Field(
        [], max_length=len(CALLS), description="those of them that are responses of their own, changes.CALL"
    )
    burst: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="reads of one file, one right after the other: changes are counted beside the clock's ticks",
    )


def build(keys: AtimeKeys) -> AtimeWork:
    """The work of these keys; KeyProblem for a call that is not known, or stands there twice."""
    _check("calls", keys.calls, tuple(CALLS))
    calls = tuple(call for call in CALLS if call in keys.calls or not keys.calls)
    _check("each", keys.each, calls)
    return AtimeWork(calls=calls, each=tuple(call for call in calls if call in keys.each), burst=keys.burst)


def _check(key: str, named: list[str], known: tuple[str, ...]) -> None:
    for index, call in enumerate(named):
        if call not in known:
            near = difflib.get_close_matches(call, known, n=1, cutoff=0.4)
            hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(known)}"
            raise KeyProblem(f'no call is named "{call}"', key, index, hint=hint)
        if call in named[:index]:
            raise KeyProblem(f'"{call}" stands there twice', key, index)


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work finds."""
    assert isinstance(work, AtimeWork)
    return (*_ALL, *(_count(f"changes.{call}", f"1 where {call} changes it, else 0") for call in work.each))


def _count(name: str, text: str) -> ResponseSpec:
    return ResponseSpec(name, "1", Scale.DIFFERENCE, Better.NONE, text)


_ALL = (
    _count("changed", "calls that change the access time of what they are done to"),
    _count("changed_again", "those that change it once more when done again, some ticks of the clock later"),
    _count("changed_lazily", "those whose change waits in memory alone, on the kernel's list of such inodes"),
)

KIND = WorkloadKind(
    name="atime",
    work=AtimeWork,
    summary="System calls, each done once to an object of its own, and whether its access time changes. Nothing is timed.",
    keys=AtimeKeys,
    build=build,
    responses=responses,
    documented=(*_ALL, _count("changes.CALL", "1 where CALL changes it, else 0")),
    vocabulary={"calls": CALLS},
    notes="The objects are the job's own, in the state of the lab's file (file.atime_state), written back and not cached. It "
    "needs a file system of the lab's own (image or device lab). The report shows all of it as a table.",
)
