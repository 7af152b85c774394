"""Workload kind ``files``: operations on files, done and timed one by one inside the probe.

A sequence is checked here by tracking the state of a file, so that a study that reads before it opens is
rejected when it is read and not in the middle of a trial.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from iotrial.errors import unknown
from iotrial.study.schema import Line, Problem, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    Damage,
    FileSet,
    HasCheck,
    JobContext,
    Measured,
    Recovered,
    ResponseSpec,
    time_response,
)

OPERATIONS = {
    "open": "open(2) for reading",
    "open-write": "open(2) for writing, content kept",
    "open-truncate": "open(2) for writing, content truncated",
    "create": "open(2) of a new file for writing",
    "read": "one read(2) of at most `buffer` bytes",
    "read-to-end": "read(2) of `buffer` bytes each until the file's end",
    "sendfile": "sendfile(2) of `buffer` bytes each to /dev/null until the file's end",
    "write-byte": "write(2) of one byte",
    "write-all": "write(2) of the whole file from its start, `buffer` bytes each",
    "fsync": "fsync(2)",
    "close": "close(2)",
    "stat": "stat(2) by name, links followed",
    "fstat": "fstat(2) of the open file",
    "lstat": "lstat(2) by name, links not followed",
    "readlink": "readlink(2) by name; the names must be symbolic links",
    "unlink": "unlink(2)",
    "getdents": "list each folder once, before the files; with by-phase and by-operation: in turn",
}
_OPENING = {"open": "reading", "open-write": "writing", "open-truncate": "writing", "create": "writing"}
#: operations on an open file, and the mode it must be open in
_ON_OPEN = {
    "read": "reading",
    "read-to-end": "reading",
    "sendfile": "reading",
    "write-byte": "writing",
    "write-all": "writing",
    "fsync": None,
    "fstat": None,
}
_NEEDS_FILE = frozenset(OPERATIONS) - {"create", "close", "getdents", *_ON_OPEN}
_WRITING = frozenset({"open-write", "open-truncate", "create", "write-byte", "write-all", "fsync", "unlink"})

_WALL = time_response("wall", "time of all operations on all files")
_DEVICE = (*DEVICE_RESPONSES, SYNCED_RESPONSE)


class FilesWork(HasCheck, FileSet, frozen=True, kw_only=True):
    """Operations on files.

    ``order`` is ``by-file`` (all operations on one file, then the next), ``by-operation`` (one operation on
    all files, then the next; files stay open in between) or ``by-phase`` (everything between opening and
    closing a file, then the next file).
    """

    kind = "files"
    about = "Operations on files, done and timed inside the probe, without extra processes."
    vocabulary = {"operations": OPERATIONS}
    documented = (
        _WALL,
        time_response("OPERATION_time", 'time in one operation, "-" written as "_" (read_to_end_time)'),
        *CPU_RESPONSES,
        *_DEVICE,
    )
    verb = "files"

    operations: Annotated[
        tuple[Line, ...],
        Meta(min_length=1, max_length=64, description="what to do with each file, in this order"),
    ]
    files: Annotated[int, Meta(ge=1, le=1_000_000, description="how many files one run works on")] = 100
    buffer_bytes: Annotated[Size, Meta(ge=1, le=1 << 30, description="bytes of one read")] = 131072
    order: Annotated[
        Literal["by-file", "by-operation", "by-phase"],
        Meta(
            description=(
                "`by-file`: all operations on one file, then the next file; `by-operation`: one operation"
                " on all files, then the next; `by-phase`: open to close file by file, then the rest"
            )
        ),
    ] = "by-file"

    def check(self) -> None:
        super().check()
        check_sequence(self.operations, repeated=self.replicates > 1)
        if self.starts_empty() and "unlink" not in self.operations[self.operations.index("create") :]:
            raise Problem(
                '"create" comes first, so the files must not exist at the start, but the next run would find them',
                "operations",
            )

    def responses(self) -> tuple[ResponseSpec, ...]:
        used = dict.fromkeys(self.operations)
        times = (
            time_response(_time_of(name), f"time in {name}, summed over files and replicates")
            for name in used
        )
        return (_WALL, *times, *CPU_RESPONSES, *_DEVICE)

    def described(self) -> str:
        return f"{', '.join(self.operations)} {self.order.replace('-', ' ')}"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "operations": list(self.operations),
            "buffer": self.buffer_bytes,
            "order": self.order,
            "histograms": True,
            "stretch_of": next((o for o in self.operations if _time_of(o) == context.stretched), None),
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        operations = answer["operations"]
        return Measured(
            numbers={_time_of(name): found["total_ns"] / 1e9 for name, found in operations.items()},
            histograms={name: found["histogram"] for name, found in operations.items()},
        )

    def reads_bytes(self, size: int, files: int) -> int:
        if self.starts_empty():
            return 0
        if {"read-to-end", "sendfile"} & set(self.operations):
            return size * files
        reads = self.operations.count("read")
        return min(size, reads * self.buffer_bytes) * files if reads else 1

    def starts_empty(self) -> bool:
        about_names = (o for o in self.operations if o == "create" or o in _NEEDS_FILE)
        return next(about_names, None) == "create"

    def writes(self) -> bool:
        return bool(_WRITING & set(self.operations))

    def checks(self) -> bool:
        return "fsync" in self.operations

    def collects(self) -> bool:
        return True

    def withdraws(self, acknowledgement: str) -> bool:
        return acknowledgement.startswith("-")

    def items(self, acknowledged: Sequence[str]) -> int:
        return sum(line.startswith("+") for line in acknowledged)

    def damage(self, recovered: Recovered) -> Damage:
        lost, corrupt = [], []
        for path, (size, checksum) in _kept(recovered.acknowledged).items():
            try:
                data = recovered.path(path).read_bytes()
            except FileNotFoundError:
                lost.append(f"{path}: no such file")
                continue
            if len(data) < size:
                lost.append(f"{path}: {len(data)} bytes of {size}")
            elif f"{zlib.crc32(data):08x}" != checksum or len(data) != size:
                corrupt.append(f"{path}: {len(data)} bytes, not those that were synced")
        return Damage(tuple(lost), tuple(corrupt))


def _kept(acknowledged: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return size and checksum of the files that must be there, by path, from the probe's acknowledgements.

    Those are ``+ SIZE CHECKSUM PATH``, and ``- PATH`` before the file is changed again.
    """
    kept: dict[str, tuple[int, str]] = {}
    for line in acknowledged:
        sign, _, rest = line.partition(" ")
        if sign == "+":
            size, checksum, path = rest.split(" ", 2)
            kept[path] = (int(size), checksum)
        else:
            kept.pop(rest, None)
    return kept


def check_sequence(operations: tuple[str, ...], *, repeated: bool = False) -> None:
    """Raise Problem at the first operation that must fail on every file (``repeated``: or in the second repetition)."""
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            message, hint = unknown("operation", operation, OPERATIONS)
            raise Problem(message, "operations", index, hint=hint)
    mode: str | None = None  # mode that the file is open in
    exists: bool | None = None  # unknown until an operation determines it
    written = False  # since it was opened
    for index, operation in enumerate(operations * (2 if repeated else 1)):
        place = ("operations", index % len(operations))
        again = " when the replicates repeat it" if index >= len(operations) else ""
        if operation in _NEEDS_FILE:
            if exists is False:
                raise Problem(f'"{operation}" has no file: it was unlinked before{again}', *place)
            exists = operation != "unlink"
        if operation == "create":
            if exists:
                raise Problem(f'"create" of a file that already exists{again}', *place)
            exists = True
        if operation in _OPENING:
            if mode is not None:
                raise Problem(f'"{operation}" while the file is still open{again}', *place)
            mode, written = _OPENING[operation], False
        elif operation == "close":
            if mode is None:
                raise Problem('"close" without an open file', *place)
            mode = None
        elif operation in _ON_OPEN:
            wanted = _ON_OPEN[operation]
            if mode is None:
                hint = (
                    '"open-write" it before'
                    if operation in ("write-byte", "write-all", "fsync")
                    else '"open" it before'
                )
                raise Problem(f'"{operation}" before the file is open', *place, hint=hint)
            if operation == "write-all" and written:
                raise Problem('"write-all" after another write', *place)
            written = written or operation.startswith("write-")
            if wanted is not None and mode != wanted:
                opener = "open" if wanted == "reading" else "open-write"
                message = f'"{operation}" of a file that is open for {mode} only'
                raise Problem(message, *place, hint=f'"{opener}" opens for {wanted}')
        if index + 1 == len(operations) and mode is not None:
            raise Problem("the files are never closed", "operations")


def _time_of(operation: str) -> str:
    return f"{operation.replace('-', '_')}_time"


WORK = FilesWork
