"""Files that must survive: written durably, and read back with care.

After a power cut a file has its old or its new content, never a part of it. A file that cannot be used is reported as
``Damage``, so that a reader takes what it can and names the rest.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from iotrial.errors import LabError

T = TypeVar("T")

#: flags of open(2) for a file that must be new: no link is followed, nobody else's file is written to
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: flags to read a file: no link is followed, and a FIFO is not waited for
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: bytes; no file that we keep is nearly that long
LONGEST = 64 << 20
_SEAL = re.compile(rb"\n([0-9a-f]{64})\n\Z")
_KINDS = {
    stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device",
}  # fmt: skip


def kind_of(mode: int) -> str:
    """Return in words what a mode says is there."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


@contextmanager
def replacing(path: Path, draft: Path) -> Iterator[BinaryIO]:
    """Yield a file with mode 0600, named ``draft`` and then renamed to ``path``. Raises OSError.

    A draft of the same name that an interrupted write has left is removed first.
    """
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, NEW_FILE, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Damage:
    """An unusable file, or its folder, with the reason. ``number``: of the journal's entry that the file should hold."""

    path: Path
    reason: str
    number: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class DamageError(LabError):
    """A file that cannot be used."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage), hint=damage.hint)
        self.damage = damage


def refuse_foreign(path: Path) -> os.stat_result:
    """Raise DamageError unless only we can write this file or folder, OSError if that cannot be seen.

    A user who can write such a file could make root change settings.
    """
    seen = path.lstat()
    link = stat.S_ISLNK(seen.st_mode)
    if link or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        found = "a link" if link else f"owner {seen.st_uid}, mode {stat.S_IMODE(seen.st_mode):04o}"
        raise DamageError(
            Damage(
                path,
                f"expected it to be writable by user {os.geteuid()} only, found {found}",
                hint="others could have written it: check it, restore its owner and mode (chown, chmod "
                "go-w), then run the command again",
            )
        )
    return seen


def sealed(content: bytes) -> bytes:
    """Return content with its checksum as the last line, which ``read_own`` checks: a bit may have changed on the disk."""
    return content + b"\n" + hashlib.sha256(content).hexdigest().encode() + b"\n"


def read_own(path: Path) -> bytes:
    """Return the content of a regular file that only we can write, without its checksum; older ones have none.

    Raises FileNotFoundError, and DamageError for anything else that is in its place, cannot be read, or has changed.
    """
    try:
        seen = refuse_foreign(path)
        if not stat.S_ISREG(seen.st_mode):
            raise DamageError(Damage(path, f"expected a file, found {kind_of(seen.st_mode)}"))
        with os.fdopen(os.open(path, _OLD_FILE), "rb") as file:
            if not os.path.samestat(seen, os.fstat(file.fileno())):
                raise DamageError(Damage(path, "replaced while it was read"))
            content = file.read(LONGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamageError(Damage(path, error.strerror or str(error))) from error
    if len(content) > LONGEST:
        raise DamageError(Damage(path, f"longer than {LONGEST:,} bytes"))
    seal = _SEAL.search(content)
    if seal is None:
        return content
    content = content[: seal.start()]
    if hashlib.sha256(content).hexdigest().encode() != seal[1]:
        hint = "the file names what was changed and the original value; if you have edited it, remove its last line"
        raise DamageError(
            Damage(path, "its content has another checksum than it was written with", hint=hint)
        )
    return content


def read_each(folder: Path, suffix: str, read: Callable[[Path], T]) -> tuple[list[T], list[Damage]]:
    """Read every file with this suffix in a folder, in the order of the names. Returns what can be read, and what cannot.

    ``read``: raises DamageError for a file that it cannot use, and FileNotFoundError for one that has just been removed.
    """
    found: list[T] = []
    damaged: list[Damage] = []
    try:
        # a link may have replaced a folder with files; another user's empty folder is harmless
        if folder.is_symlink():
            refuse_foreign(folder)
        paths = sorted(path for path in folder.iterdir() if path.suffix == suffix)
        if paths:
            refuse_foreign(folder)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [Damage(folder, error.strerror or str(error))]
    except DamageError as error:
        return [], [error.damage]
    for path in paths:
        with suppress(FileNotFoundError):
            try:
                found.append(read(path))
            except DamageError as error:
                damaged.append(error.damage)
    return found, damaged
