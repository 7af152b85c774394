"""Text files that a study names (fio job files): read from the study's folder and embedded in its text.

The stored study is then self-contained, except for large files (traces), of which it keeps folder and checksum.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from iotrial.ownership import other_writer_of_open
from iotrial.study.input_files import InputFile, plainly
from iotrial.study.work import kinds

MAX_BYTES = 1 << 16


def text_file(folder: Path, name: str) -> tuple[str, str | None]:
    """Read a text file below ``folder``; also return who else could have written it (None: only the user and root).

    Raises ValueError, with a message for the user, if the path leaves the folder or is not a short text file.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError("expected the path of a file below the study's folder")
    try:
        with open(folder / name, "rb", opener=plainly) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("is not a regular file")
            other = other_writer_of_open(file.fileno(), folder / name)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ValueError("is larger than 64 KiB")
    try:
        return data.decode("utf-8"), other
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def with_texts(text: str, read: Mapping[str, str], found: Mapping[str, InputFile]) -> str:
    """Return the study's text with text files in place of their names, and with folder and checksum of other files."""
    import tomlkit

    document = tomlkit.parse(text)
    for table in document.get("workload", []):
        kind = kinds().get(str(table.get("kind")))
        for named, content in (kind.text_files if kind is not None else {}).items():
            if named in table:
                table[content] = tomlkit.string(read[str(table[named])], multiline=True)
                del table[named]
        for named, (checksum, folder) in (kind.input_files if kind is not None else {}).items():
            if (file := found.get(str(table.get(named)))) is not None:
                table[checksum], table[folder] = file.checksum, file.folder
    return tomlkit.dumps(document)
