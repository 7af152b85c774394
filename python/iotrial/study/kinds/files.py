"""Workload kind ``files``: operations by file, done and timed inside the probe, each operation by itself.

A sequence is walked through once here as the kernel would, so that a study that reads before it opens is
refused when it is read and not in the middle of a trial.
"""

from __future__ import annotations

import difflib
from typing import Literal

from pydantic import Field

from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSetKeys,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    file_set,
    time_response,
)
from iotrial.study.model import FilesWork, Work
from iotrial.study.wire import Line, Size

OPERATIONS = {
    "open": "open(2) for reading",
    "open-write": "open(2) for writing, content kept",
    "open-truncate": "open(2) for writing, content dropped",
    "create": "open(2) of a file that is not there yet, for writing",
    "read": "one read(2) of at most `buffer` bytes",
    "read-to-end": "read(2) of `buffer` bytes each until the file's end",
    "sendfile": "sendfile(2) of `buffer` bytes each to /dev/null until the file's end",
    "write-byte": "write(2) of one byte",
    "write-all": "write(2) of the file's whole content, `buffer` bytes each, from its start",
    "fsync": "fsync(2)",
    "close": "close(2)",
    "stat": "stat(2) by name, links followed",
    "fstat": "fstat(2) of the open file",
    "lstat": "lstat(2) by name, links not followed",
    "readlink": "readlink(2) by name; the names must be symbolic links",
    "unlink": "unlink(2)",
    "getdents": "the folders listed, once each, before the files; by-phase and by-operation: when its turn comes",
}
_OPENING = {"open": "reading", "open-write": "writing", "open-truncate": "writing", "create": "writing"}
_NEEDS_FILE = frozenset(OPERATIONS) - {
    "create",
    "read",
    "read-to-end",
    "sendfile",
    "write-byte",
    "write-all",
    "fstat",
    "fsync",
    "close",
    "getdents",
}
_ON_OPEN = {
    "read": "reading",
    "read-to-end": "reading",
    "sendfile": "reading",
    "write-byte": "writing",
    "write-all": "writing",
    "fsync": None,
    "fstat": None,
}


class FilesKeys(FileSetKeys):
    """Keys of ``kind = "files"``."""

    operations: list[Line] = Field(
        min_length=1, max_length=64, description="what is done to each file, in this order"
    )
    files: int = Field(100, ge=1, le=1_000_000, description="how many files one run works on")
    buffer: Size = Field(131072, ge=1, le=1 << 30, description="bytes of one read")
    order: Literal["by-file", "by-operation", "by-phase"] = Field(
        "by-file",
        description="all operations on one file, then the next; or one operation on all files, then the next; or what lies "
        "between the opening of a file and its close on one file, then the next, and then what follows",
    )


def build(keys: FilesKeys) -> FilesWork:
    """The work of these keys; KeyProblem where the sequence of operations cannot work."""
    files = file_set(keys)
    operations = tuple(keys.operations)
    check_sequence(operations, repeated=keys.replicates > 1)
    if begins_without(operations) and "unlink" not in operations[operations.index("create") :]:
        raise KeyProblem(
            '"create" comes first, so that there are no files at the start, and the next run would find them there',
            "operations",
            hint='"unlink" them at the end, or before',
        )
    return FilesWork(
        operations=operations,
        buffer_bytes=keys.buffer,
        order=keys.order,
        **files,
    )


def begins_without(operations: tuple[str, ...]) -> bool:
    """Whether the files are not there when a run begins, because it makes them."""
    about_names = (o for o in operations if o == "create" or o in _NEEDS_FILE)
    return next(about_names, None) == "create"


def check_sequence(operations: tuple[str, ...], *, repeated: bool = False) -> None:
    """KeyProblem at the first operation that must fail on every file (``repeated``: also the second time)."""
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            near = difflib.get_close_matches(operation, OPERATIONS, n=1, cutoff=0.4)
            hint = (f'did you mean "{near[0]}"? ' if near else "") + f"known: {', '.join(OPERATIONS)}"
            raise KeyProblem(f'no operation is called "{operation}"', "operations", index, hint=hint)
    mode: str | None = None  # how the file is open
    exists: bool | None = None  # not known before the first operation that tells
    written = False  # since it was opened
    for index, operation in enumerate(operations * (2 if repeated else 1)):
        place = ("operations", index % len(operations))
        again = " when the replicates repeat it" if index >= len(operations) else ""
        if operation in _NEEDS_FILE:
            if exists is False:
                raise KeyProblem(f'"{operation}" finds no file: it was unlinked before{again}', *place)
            exists = operation != "unlink"
        if operation == "create":
            if exists:
                raise KeyProblem(
                    f'"create" finds the file there already{again}', *place, hint='"unlink" it before'
                )
            exists = True
        if operation in _OPENING:
            if mode is not None:
                raise KeyProblem(
                    f'"{operation}" while the file is still open{again}', *place, hint='"close" it before'
                )
            mode, written = _OPENING[operation], False
        elif operation == "close":
            if mode is None:
                raise KeyProblem('"close" without an open file', *place, hint='"open" it before')
            mode = None
        elif operation in _ON_OPEN:
            wanted = _ON_OPEN[operation]
            if mode is None:
                hint = (
                    '"open-write" it before'
                    if operation in ("write-byte", "write-all", "fsync")
                    else '"open" it before'
                )
                raise KeyProblem(f'"{operation}" before the file is open', *place, hint=hint)
            if operation == "write-all" and written:
                raise KeyProblem(
                    '"write-all" behind something that was written', *place, hint='"close" it before'
                )
            written = written or operation.startswith("write-")
            if wanted is not None and mode != wanted:
                opener = "open" if wanted == "reading" else "open-write"
                message = f'"{operation}" of a file that is open for {mode} only'
                raise KeyProblem(message, *place, hint=f'"{opener}" opens for {wanted}')
        if index + 1 == len(operations) and mode is not None:
            raise KeyProblem("the files are never closed", "operations", hint='add "close" at the end')


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, FilesWork)
    used = dict.fromkeys(work.operations)
    return (_WALL, *(_operation_time(name) for name in used), *CPU_RESPONSES, *_DEVICE)


def _operation_time(operation: str) -> ResponseSpec:
    name = f"{operation.replace('-', '_')}_time"
    return time_response(name, f"time in {operation}, summed over files and replicates")


_WALL = time_response("wall", "time of all operations on all files")
_DEVICE = (*DEVICE_RESPONSES, SYNCED_RESPONSE)

KIND = WorkloadKind(
    name="files",
    work=FilesWork,
    summary="Operations by file, done and timed inside the probe, without a process of its own.",
    keys=FilesKeys,
    build=build,
    responses=responses,
    documented=(
        _WALL,
        time_response("OPERATION_time", 'time in one operation, "-" written as "_" (read_to_end_time)'),
        *CPU_RESPONSES,
        *_DEVICE,
    ),
    vocabulary={"operations": OPERATIONS},
    notes="Where the first thing that is done to a file is its creation, there are none when a run begins, only their "
    "folders, and none when it has ended. What write-all writes is made before, in memory: at most 1 GiB.",
)
