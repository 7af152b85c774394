"""Workload kind ``atime``: system calls, each done once, and whether it changes the access time of what it is done to.

A table of facts and no timing: every call has an object of its own, and the kernel is asked at once. What reports show of
it is in ``report/facts.py``.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from msgspec import Meta

from iotrial.study.places import DISK_LABS
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Line, Problem
from iotrial.study.work import JobContext, Measured, ResponseSpec, Work, nearest

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


def _count(name: str, text: str) -> ResponseSpec:
    return ResponseSpec(name, "1", Scale.DIFFERENCE, Better.NONE, text)


_ALL = (
    _count("changed", "calls that change the access time of what they are done to"),
    _count("changed_again", "those that change it once more when done again, some ticks of the clock later"),
    _count("changed_lazily", "those whose change waits in memory alone, on the kernel's list of such inodes"),
)


class AtimeWork(Work, frozen=True, kw_only=True):
    """System calls, each done once to an object of its own, and what became of its access time.

    The objects are the job's; the lab's one file tells in which state their times are to stand. ``burst`` reads of one file
    follow each other at the end.
    """

    kind = "atime"
    about = "System calls, each done once to an object of its own, and whether its access time changes. Nothing is timed."
    notes = (
        "The objects are the job's own, in the state of the lab's file (file.atime_state), written back and not cached. It "
        "needs a file system of the lab's own (image or device lab). The report shows all of it as a table."
    )
    vocabulary = {"calls": CALLS}
    documented = (*_ALL, _count("changes.CALL", "1 where CALL changes it, else 0"))
    verb = "atime"
    timed = False

    calls: Annotated[
        tuple[Line, ...],
        Meta(max_length=len(CALLS), description="which ones of some sixty; all where left out"),
    ] = ()
    each: Annotated[
        tuple[Line, ...],
        Meta(
            max_length=len(CALLS), description="those of them that are responses of their own, changes.CALL"
        ),
    ] = ()
    burst: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="reads of one file, one right after the other: changes are counted beside the clock's ticks",
        ),
    ] = 1000

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """The calls stand in the order of ``CALLS``."""
        named = values.get("calls") or tuple(CALLS)
        _check("calls", named, tuple(CALLS))
        calls = tuple(call for call in CALLS if call in named)
        each = values.get("each", ())
        _check("each", each, calls)
        return cls(**{**values, "calls": calls, "each": tuple(call for call in calls if call in each)})

    def check(self) -> None:
        _check("calls", self.calls, tuple(CALLS))
        _check("each", self.each, self.calls)

    def responses(self) -> tuple[ResponseSpec, ...]:
        each = (_count(f"changes.{call}", f"1 where {call} changes it, else 0") for call in self.each)
        return (*_ALL, *each)

    def described(self) -> str:
        return f"{len(self.calls)} system calls, each twice, and the access time looked at after each"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {"calls": list(self.calls), "burst": self.burst}

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        found = answer["calls"]
        done = [fact for fact in found.values() if "errno" not in fact]
        burst = answer["burst"]
        return Measured(
            numbers={
                "changed": float(sum(fact["changed"] for fact in done)),
                "changed_again": float(sum(fact["changed"] and fact["again"] for fact in done)),
                "changed_lazily": float(sum(fact["lazily"] is True for fact in done)),
                **{f"changes.{call}": float(found[call].get("changed", False)) for call in self.each},
                "burst_reads": float(burst["reads"]),
                "burst_changes": float(burst["changes"]),
                "burst_ticks": float(burst["ticks"]),
            },
            facts={call: fact_in_words(found[call]) for call in self.calls},
        )

    def reads_bytes(self, size: int, files: int) -> int:
        return 0  # what it reads it has made itself

    def writes(self) -> bool:
        return False  # not to the files of its set

    def labs(self) -> frozenset[str]:
        return DISK_LABS


def _check(key: str, named: Sequence[str], known: tuple[str, ...]) -> None:
    for index, call in enumerate(named):
        if call not in known:
            raise Problem(f'no call is named "{call}"', key, index, hint=nearest(call, known))
        if call in named[:index]:
            raise Problem(f'"{call}" stands there twice', key, index)


def fact_in_words(fact: Mapping[str, Any]) -> str:
    """What one call does to the access time: "no", "once", "each time", and whether it waits in memory alone."""
    if "errno" in fact:
        return f"refused ({_name_of(fact['errno'])})"
    if not fact["changed"]:
        return "only later" if fact["again"] else "no"
    often = "each time" if fact["again"] else "once"
    return f"{often}, lazily" if fact["lazily"] else often


def _name_of(number: int) -> str:
    """As the manual pages have it: Linux has two names for one number here."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


WORK = AtimeWork
