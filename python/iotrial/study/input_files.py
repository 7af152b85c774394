"""Files that a study names. Short text files (fio job files) are embedded in the study's text, so that the stored study is
self-contained; of files too large for that (traces) it keeps folder and checksum.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from iotrial.ownership import other_writer_of_open
from iotrial.study.work import kinds

MAX_TEXT_BYTES = 1 << 16
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """A large file that a study names. ``folder`` is the absolute path of the study's folder; ``checksum`` is a SHA-256."""

    folder: str
    checksum: str


def input_file(folder: Path, name: str) -> InputFile:
    """Find a file below ``folder``. Raises ValueError, with a message for the user, if it is not there."""
    path = _below(folder, name)
    try:
        return InputFile(str(folder.resolve()), checksum_of(path))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a regular file. Raises OSError, or ValueError for another kind of file."""
    with open(path, "rb", buffering=0, opener=_plainly) as file:
        _check_regular(file.fileno())
        digest = hashlib.sha256()
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what tells a version of a file from another: device, inode, size and time of change. Raises OSError."""
    found = path.stat(follow_symlinks=False)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def text_file(folder: Path, name: str) -> tuple[str, str | None]:
    """Read a text file below ``folder``; also return who else could have written it (None: only the user and root).

    Raises ValueError, with a message for the user, if the path leaves the folder or is not a short text file.
    """
    path = _below(folder, name)
    try:
        with open(path, "rb", opener=_plainly) as file:
            _check_regular(file.fileno())
            other = other_writer_of_open(file.fileno(), path)
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError("is larger than 64 KiB")
    try:
        return data.decode("utf-8"), other
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def _below(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError("expected the path of a file below the study's folder")
    return folder / name


def _plainly(path: str, flags: int) -> int:
    """Open without following links and without blocking on a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _check_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError("is not a regular file")


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
