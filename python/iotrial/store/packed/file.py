"""Opens packed trials without blocking, and writes them atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from iotrial.durable import sync_folder
from iotrial.errors import RequestError, StoreError
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


@contextmanager
def written_whole(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a file to write (and read back) that is renamed to ``path`` on success and removed on failure.

    RequestError if the name is taken (``force``: if it is not a regular file), StoreError if the folder
    cannot be written to or the disk is full.
    """
    refuse_present(path, force=force)
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        descriptor = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
        )
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if force:
                temporary.replace(path)
            else:
                _named_once(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"writing {path}: {error.strerror}", hint="free some space, or name a file in another folder"
        ) from error


def refuse_present(path: Path, *, force: bool) -> None:
    """Raise RequestError if a file of this name must not be replaced."""
    try:
        status = path.lstat()
    except OSError:
        return
    if not force:
        raise RequestError(f"{path} already exists", hint="--force overwrites it")
    if not stat.S_ISREG(status.st_mode):
        raise RequestError(f"{path} is not a regular file, and is not overwritten", hint="name another file")


def _named_once(temporary: Path, path: Path) -> None:
    """Rename the file unless the name was taken meanwhile: link(2) never replaces."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise RequestError(f"{path} already exists", hint="--force overwrites it") from None
    except OSError:  # a file system without hard links
        refuse_present(path, force=False)
        temporary.replace(path)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
