"""The files that fio needs before it can replay a trace's log: it makes none itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from iotrial.errors import NoSpace, RequestError
from iotrial.terminal import escape
from iotrial.traces.reading import log_files
from iotrial.units import format_bytes

_CHUNK = 1 << 20


def make_log_files(trace: Path, folder: Path) -> int:
    """Make the files with random content, and return how many. Raises RequestError if one exists, NoSpace if they do not
    fit."""
    needed = log_files(trace)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"{escape(folder)}: {error.strerror}", hint="name a folder that can be made, or exists"
        ) from error
    total, free = sum(one.size for one in needed), shutil.disk_usage(folder).free
    if total > free:
        raise NoSpace(
            f"the files of the trace have {format_bytes(total)}, and {escape(folder)} has room for {format_bytes(free)}",
            hint="name a folder on a larger disk",
        )
    for one in needed:
        try:
            with (folder / one.name).open("xb") as file:
                for start in range(0, one.size, _CHUNK):
                    file.write(os.urandom(min(_CHUNK, one.size - start)))
        except OSError as error:
            raise RequestError(
                f"{escape(folder / one.name)}: {error.strerror}",
                hint="--files wants a folder without these files",
            ) from error
    return len(needed)
