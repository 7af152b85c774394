"""Check whether anyone other than the user and root could have written a file, and walk to a folder step by step.

A user who can write to a file, or to any folder above it, controls its content. A file counts as the user's own if it and
every folder above it belong to the user or to root, and other users cannot write to them.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_ACCESS_LIST = "system.posix_acl_access"
#: group IDs below this are system groups (adduser.conf, login.defs)
_FIRST_OF_USERS = 1000
_FOLDER = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = 40  # the kernel's own limit

#: folders from the root on, each with its name and an O_PATH descriptor
Way = list[tuple[str, int]]
#: called with the way so far and the facts of its next entry; None: at the end. Raises if the entry must not be used.
Check = Callable[[Way, os.stat_result | None], None]


@contextmanager
def walked(path: str | Path, check: Check | None = None, *, make: int | None = None) -> Iterator[Way]:
    """Walk to a folder, each step relative to the descriptor of the one before, and yield the way with its links resolved.

    What ``check`` found of a step holds for the rest of the walk: nobody can swap what is held. ``make``: create folders
    that are missing, with this mode. The descriptors are closed at the end. Raises OSError if the path does not lead to a
    folder, and what ``check`` raises.
    """
    with ExitStack() as held:

        def step(name: str, folder: int | None) -> int:
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
            held.callback(os.close, descriptor)
            return descriptor

        root = ("", step("/", None))
        way, left, links = [root], _names(str(Path.cwd() / path)), 0
        while left:
            name = left.pop()
            if name == "..":
                way = way[:-1] or [root]
                continue
            if make is not None:
                _make(name, way[-1][1], make)
            found = step(name, way[-1][1])
            facts = os.fstat(found)
            if check is not None:
                check(way, facts)
            if not stat.S_ISLNK(facts.st_mode):
                way.append((name, found))
                continue
            links += 1
            if links > LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = os.readlink("", dir_fd=found)
            left += _names(target)
            if target.startswith("/"):
                way = [root]
        if not stat.S_ISDIR(os.fstat(way[-1][1]).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if check is not None:
            check(way, None)
        yield way


def way_shown(way: Way) -> str:
    """Return a way as a path."""
    return "/".join(name for name, _ in way) or "/"


def _names(path: str) -> list[str]:
    """Split a path into its components, in reverse order."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _make(name: str, folder: int, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=folder)
    except FileExistsError:
        return
    except OSError:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)  # EROFS, EACCES: it may exist nevertheless
        except FileNotFoundError:
            pass
        else:
            return
        raise


def invoking_user() -> tuple[int, int]:
    """Return uid and gid of the invoking user: under sudo, the user who called it; else the effective user."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.geteuid(), os.getegid()


def own_users() -> frozenset[int]:
    """Return the uids that are trusted as owners: the effective user, the user who called sudo, and root."""
    return frozenset({0, os.geteuid(), invoking_user()[0]})


def other_writer(path: Path) -> str | None:
    """Describe who else could have written or replaced this file or folder, as text to follow a colon.

    None if nobody else could. A symbolic link on the path is checked together with the folder that contains it.
    """
    try:
        return next(filter(None, (_of(one.lstat(), str(one), str(one)) for one in _on_the_way(path))), None)
    except OSError as error:
        return f"cannot check {path} ({error.strerror})"


def other_writer_of_open(file: int, path: Path) -> str | None:
    """Do the same check for an open file descriptor; ``path`` is only the path by which the file was found.

    The folders are opened one relative to the other, so that none can be swapped meanwhile, and must lead to this same file.
    """
    words = _of(os.fstat(file), str(path), f"/proc/self/fd/{file}")
    return words or _along(file) or other_writer(path)


def _along(file: int) -> str | None:
    """Describe who else could change the folders that contain an open file."""
    true = Path(f"/proc/self/fd/{file}").readlink()
    held: list[int] = []
    try:
        held.append(os.open("/", _FOLDER))
        for part in true.parts[1:]:
            words = _of(os.fstat(held[-1]), f"a folder above {true}", f"/proc/self/fd/{held[-1]}")
            if words is not None:
                return words
            held.append(os.open(part, _FOLDER, dir_fd=held[-1]))
        return None if os.path.samestat(os.fstat(held[-1]), os.fstat(file)) else f"{true} was replaced"
    except OSError:
        return f"{true} was moved or removed"
    finally:
        for one in held:
            os.close(one)


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yield the path and its parents, both as written and with symbolic links resolved."""
    written = path.absolute()
    true = path.resolve(strict=True)
    yield from dict.fromkeys((true, *true.parents, written, *written.parents))


def _of(status: os.stat_result, name: str, looked_at: str) -> str | None:
    if status.st_uid not in own_users():
        return f"{name} belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None  # in a sticky folder only an entry's owner can replace it, and that owner is checked too
    if status.st_mode & stat.S_IWOTH:
        return f"{name} is writable by everybody"
    if status.st_mode & stat.S_IWGRP:  # with an ACL, these bits are its mask: the most that any entry grants
        if _has_access_list(looked_at):
            return f"{name} is writable by users in its access control list"
        if not _is_own_group(status.st_gid):
            return f"{name} is writable by group {status.st_gid}"
    return None


def _is_own_group(gid: int) -> bool:
    """Return whether a group has only this member.

    With a directory service the list of users may be incomplete. It is therefore trusted for two kinds of groups only: the
    private group that many systems create for each user, with the user's name, and system groups.
    """
    own = own_users()
    try:
        group = grp.getgrgid(gid)
        names = {pwd.getpwuid(uid).pw_name for uid in own}
        members = {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
    except KeyError:
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    return members <= own and (group.gr_name in names or gid < _FIRST_OF_USERS)


def _has_access_list(path: str) -> bool:
    try:
        return bool(os.getxattr(path, _ACCESS_LIST))
    except OSError:
        return False
