"""Write every file that a user names: reports, studies, traces, figures, keys, settings for another machine.

Root writes into folders that other users may change. So a folder is opened once, step by step, and then held: names are
relative to its descriptor. A symbolic link above the file is followed if it belongs to root or the user, and never in the
place of the file. A file is written under a temporary name and then renamed, so that a full disk or a kill leaves the old
file, or none. An existing file is replaced only on request.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

from iotrial.errors import RequestError, StoreError
from iotrial.ownership import Way, own_users, walked, way_shown
from iotrial.terminal import escape

#: modes of a new file: for everybody that the umask allows, and for its owner only
SHARED, PRIVATE = 0o666, 0o600
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: this process's own descriptors, as users name them
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")
#: a name can have 255 bytes; the rest is for what makes it temporary
_LONGEST_NAME = 200
_HINT = "free some space, or name a file in another folder"


@contextmanager
def output_file(
    path: Path,
    *,
    force: bool = False,
    mode: int = SHARED,
    owner: tuple[int, int] | None = None,
    streamed: bool = False,
    make_folder: bool = False,
) -> Iterator[BinaryIO]:
    """Yield a file to write (and read back) that has its name once it is complete. On an error it is removed.

    ``force``: replace a regular file. Its mode and owner are kept if it was the user's or root's, and ``mode`` lets others
    read it. ``owner``: uid and gid of the new file. ``streamed``: a new file has its name from the start. A pipe, a
    terminal and one's own descriptors (/dev/stdout, /dev/fd/N) get the content at the end.

    Raises RequestError if the name is taken or a link on the way belongs to somebody else, StoreError on an I/O error.
    """
    with _said(path):
        if (number := _own_descriptor(path)) is not None:
            with os.fdopen(os.dup(number), "wb") as stream, _copied_to(stream) as file:
                yield file
            return
        with (
            held_folder(path.parent, make=0o777 if make_folder else None) as folder,
            file_in(folder, path.name, path, force=force, mode=mode, owner=owner, streamed=streamed) as file,
        ):
            yield file


def refuse_taken(path: Path, *, force: bool) -> None:
    """Raise RequestError if ``output_file`` would: to be called before the work that makes the result."""
    if _own_descriptor(path) is None:
        with _said(path), held_folder(path.parent) as folder:
            _found(folder, path.name, path, force=force)


def refuse_taken_in(folder: int, path: Path, *, force: bool) -> None:
    """Do the same for a name in a held folder."""
    _found(folder, path.name, path, force=force)


def read_in(folder: int, name: str, *, most: int | None = None) -> bytes | None:
    """Return the content of a regular file in a held folder; None for anything else, or if it has more than ``most`` bytes.

    Raises OSError.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or (most is not None and found.st_size > most):
                return None
            return file.read(most)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise


def append(path: Path, content: bytes) -> None:
    """Append to a file, all of it or nothing; it is made if it is missing. Raises as ``output_file``."""
    with _said(path), held_folder(path.parent) as folder:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        made = _found(folder, path.name, path, force=True) is None
        with os.fdopen(os.open(path.name, flags, SHARED, dir_fd=folder), "wb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise _not_regular(path)
            try:
                file.write(content)
                file.flush()
            except OSError:
                os.ftruncate(file.fileno(), before.st_size)
                if made:
                    os.unlink(path.name, dir_fd=folder)
                raise


@contextmanager
def held_folder(path: Path, *, make: int | None = None) -> Iterator[int]:
    """Yield an O_PATH descriptor of a folder. ``make``: create missing folders with this mode.

    Raises OSError if it is missing, RequestError if a link of another user is on the way.
    """
    with walked(path, _refuse_links_of_others, make=make) as way:
        yield way[-1][1]


@contextmanager
def folder_below(folder: int, names: tuple[str, ...], shown: Path) -> Iterator[int]:
    """Yield a descriptor of a folder below a held one; missing folders are created. Raises RequestError for a link."""
    held = os.dup(folder)
    try:
        for name in names:
            shown = shown / name
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=held)
            try:
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                further = os.open(name, flags, dir_fd=held)
            except NotADirectoryError:
                raise RequestError(f"{escape(shown)} is a link or a file, not a folder") from None
            os.close(held)
            held = further
        yield held
    finally:
        os.close(held)


@contextmanager
def file_in(
    folder: int,
    name: str,
    shown: Path,
    *,
    force: bool = False,
    mode: int = SHARED,
    owner: tuple[int, int] | None = None,
    streamed: bool = False,
) -> Iterator[BinaryIO]:
    """Do what ``output_file`` does, in a held folder. ``shown``: the path for messages. Raises OSError too."""
    found = _found(folder, name, shown, force=force)
    if found is not None and not stat.S_ISREG(found.st_mode):
        with _special(folder, name, shown) as stream, _copied_to(stream) as file:
            yield file
        return
    in_place = streamed and found is None
    short = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
    part = name if in_place else f".{short}.{secrets.token_hex(8)}.part"
    kept = found if found is not None and found.st_uid in own_users() and mode != PRIVATE else None
    descriptor = os.open(part, _NEW, mode if kept is None else PRIVATE, dir_fd=folder)
    try:
        with cast(BinaryIO, os.fdopen(descriptor, "w+b")) as file:
            if kept is not None:
                owner = (kept.st_uid, kept.st_gid)
            if owner is not None:
                with suppress(PermissionError):  # only root may give a file away
                    os.fchown(descriptor, *owner)
            if kept is not None:
                os.fchmod(descriptor, stat.S_IMODE(kept.st_mode) & SHARED)
            yield file
            file.flush()
            os.fsync(descriptor)
            if not in_place:
                _rename(folder, part, name, shown, force=force)
            if not os.path.samestat(os.fstat(descriptor), _lstat(folder, name)):
                raise RequestError(
                    f"{escape(shown)} was replaced while it was written",
                    hint="name a folder where only you can write",
                )
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
    _sync(folder)


def _refuse_links_of_others(way: Way, entry: os.stat_result | None) -> None:
    if entry is not None and stat.S_ISLNK(entry.st_mode) and entry.st_uid not in own_users():
        raise RequestError(
            f"a link in {escape(way_shown(way))} belongs to user {entry.st_uid}, and is not followed",
            hint="name the folder that it leads to, if you trust its owner",
        )


def _found(folder: int, name: str, shown: Path, *, force: bool) -> os.stat_result | None:
    """Return what has this name; None if nothing has. Raises RequestError if it must not be written to or replaced."""
    if name in ("", ".", ".."):
        raise RequestError(f"{escape(shown)} is a folder")
    try:
        found = _lstat(folder, name)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise RequestError(f"{escape(shown)} is a link, and is not followed")
    if stat.S_ISREG(found.st_mode):
        if not force:
            raise RequestError(f"{escape(shown)} already exists", hint="--force replaces it")
        return found
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)) or found.st_uid not in own_users():
        raise _not_regular(shown)
    return found


def _not_regular(shown: Path) -> RequestError:
    return RequestError(f"{escape(shown)} is not a regular file, and is not replaced")


def _lstat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _rename(folder: int, part: str, name: str, shown: Path, *, force: bool) -> None:
    """Give a complete file its name. Without ``force`` no name is replaced that was taken meanwhile: link(2) never does."""
    if not force:
        try:
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            _found(folder, name, shown, force=False)
            raise
        except OSError:  # a file system without hard links
            _found(folder, name, shown, force=False)
        else:
            os.unlink(part, dir_fd=folder)
            return
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)


def _sync(folder: int) -> None:
    """Make a new name durable, where the folder can be read."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _own_descriptor(path: Path) -> int | None:
    named = _DESCRIPTOR.fullmatch(str(path))
    return int(named[1]) if named else _STREAMS.get(str(path))


@contextmanager
def _special(folder: int, name: str, shown: Path) -> Iterator[IO[bytes]]:
    """Open a pipe or a terminal of the user's own; waits for a reader of the pipe."""
    at = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(at)
        usable = stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)
        if not usable or found.st_uid not in own_users():
            raise _not_regular(shown)
        descriptor = os.open(f"/proc/self/fd/{at}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(at)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream


@contextmanager
def _copied_to(stream: IO[bytes]) -> Iterator[BinaryIO]:
    """Yield a temporary file; its content goes into the stream if all went well."""
    with tempfile.TemporaryFile() as whole:
        yield cast(BinaryIO, whole)
        sys.stdout.flush()  # what was printed comes first
        whole.seek(0)
        shutil.copyfileobj(whole, stream)
        stream.flush()


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn errors of the system into a StoreError with the path. Raises RequestError for what cannot be a path."""
    try:
        named = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise RequestError(f"{escape(path)} cannot be the name of a file")
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {escape(path)}: {error.strerror}", hint=_HINT) from error
