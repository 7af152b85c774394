"""Files that a study names and that are too large to be stored with it (traces): their folder and checksum are."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a study names. ``folder`` is the absolute path of the study's folder; ``checksum`` is a SHA-256."""

    folder: str
    checksum: str


def input_file(folder: Path, name: str) -> InputFile:
    """Find a file below ``folder``. Raises ValueError, with a message for the user, if it is not there."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError("expected the path of a file below the study's folder")
    try:
        return InputFile(str(folder.resolve()), checksum_of(folder / name))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a regular file. Raises OSError, or ValueError for another kind of file."""
    with open(path, "rb", buffering=0, opener=plainly) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("is not a regular file")
        digest = hashlib.sha256()
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def plainly(path: str, flags: int) -> int:
    """Open without following links and without blocking on a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what tells a version of a file from another: device, inode, size and time of change. Raises OSError."""
    found = path.stat(follow_symlinks=False)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
