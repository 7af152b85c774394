"""The files that fio needs before it can replay a trace's log: it makes none itself."""

from __future__ import annotations

import os
from pathlib import Path

from iotrial.errors import NoSpace, RequestError
from iotrial.output_files import file_in, held_folder
from iotrial.terminal import escape
from iotrial.traces.reading import log_files
from iotrial.units import format_bytes

_CHUNK = 1 << 20


def make_log_files(trace: Path, folder: Path) -> int:
    """Make the files with random content, and return how many. Raises RequestError if one exists, NoSpace if they do not
    fit."""
    needed = log_files(trace)
    try:
        with held_folder(folder, make=0o777) as held:
            status = os.statvfs(f"/proc/self/fd/{held}")
            total, free = sum(one.size for one in needed), status.f_bavail * status.f_frsize
            if total > free:
                raise NoSpace(
                    f"the files of the trace have {format_bytes(total)}, and {escape(folder)} has room for "
                    f"{format_bytes(free)}",
                )
            for one in needed:
                _make(held, folder / one.name, one.size)
    except OSError as error:
        raise RequestError(f"{escape(folder)}: {error.strerror}") from error
    return len(needed)


def _make(held: int, path: Path, size: int) -> None:
    with file_in(held, path.name, path) as file:
        for start in range(0, size, _CHUNK):
            file.write(os.urandom(min(_CHUNK, size - start)))
