"""Open packed trials without blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from iotrial.store.packed.stream import MAX_PACKED, PackedError
from iotrial.study.schema import shown


@contextmanager
def open_packed(path: Path) -> Iterator[BinaryIO]:
    """Open the file for reading; PackedError if it is not a regular file, too large, or unreadable."""
    where = shown(str(path))[1:-1]
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  closed below, whatever happens
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "check the name; `iotrial trials` lists stored trials, `iotrial export` packs one"
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        raise PackedError(where, f"cannot be read: {reason}", hint=hint if absent else None) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PackedError(where, "is not a regular file")
        if status.st_size > MAX_PACKED:
            raise PackedError(where, f"is larger than {MAX_PACKED >> 20} MiB, the maximum of a packed trial")
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
