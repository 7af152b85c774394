"""Who may have written a file: its user and root alone, or somebody else too.

Whoever may write to a file, or to a folder above it, decides what is in it. A file is the user's own where it and every
folder above it belong to him or to root and nobody else can write to them.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_ACCESS_LIST = "system.posix_acl_access"
#: groups below this number are the system's (adduser.conf, login.defs)
_FIRST_OF_USERS = 1000
_FOLDER = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def invoking_user() -> tuple[int, int]:
    """User and group who typed the command: behind sudo, who called it; else who we are."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.geteuid(), os.getegid()


def own_users() -> frozenset[int]:
    """The users whose files are our own: who we are, who called sudo, and root."""
    return frozenset({0, os.geteuid(), invoking_user()[0]})


def other_writer(path: Path) -> str | None:
    """Who else could have written this file or folder, or put another in its place, as words that follow a colon.

    None where nobody else could. A link on the way counts with the folder that holds it.
    """
    try:
        return next(filter(None, (_at(one) for one in _on_the_way(path))), None)
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"


def other_writer_of_open(file: int, path: Path) -> str | None:
    """The same of a file that is open, by its descriptor: ``path`` is only the way on which it was found.

    Its folders are opened one from the other, so that none is exchanged meanwhile, and must lead to this very file.
    """
    words = _of(os.fstat(file), str(path), f"/proc/self/fd/{file}")
    return words or _along(file) or other_writer(path)


def _along(file: int) -> str | None:
    """Who else could change the folders in which an open file lies."""
    true = Path(f"/proc/self/fd/{file}").readlink()
    held: list[int] = []
    try:
        held.append(os.open("/", _FOLDER))
        for part in true.parts[1:]:
            words = _of(os.fstat(held[-1]), f"a folder above {true}", f"/proc/self/fd/{held[-1]}")
            if words is not None:
                return words
            held.append(os.open(part, _FOLDER, dir_fd=held[-1]))
        return None if os.path.samestat(os.fstat(held[-1]), os.fstat(file)) else f"{true} was exchanged"
    except OSError:
        return f"{true} was moved or removed"
    finally:
        for one in held:
            os.close(one)


def _on_the_way(path: Path) -> Iterator[Path]:
    """The path and all above it, as written and as they are once links are followed."""
    written = path.absolute()
    true = path.resolve(strict=True)
    yield from dict.fromkeys((true, *true.parents, written, *written.parents))


def _at(path: Path) -> str | None:
    return _of(path.lstat(), str(path), str(path))


def _of(status: os.stat_result, name: str, looked_at: str) -> str | None:
    if status.st_uid not in own_users():
        return f"{name} belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None  # in a sticky folder each name is its owner's, and that owner is looked at as well
    if status.st_mode & stat.S_IWOTH:
        return f"{name} can be written to by everybody"
    if status.st_mode & stat.S_IWGRP:  # of an access list this is the most that anybody named in it has
        if _has_access_list(looked_at):
            return f"{name} can be written to by users in its access list"
        if not _is_own_group(status.st_gid):
            return f"{name} can be written to by group {status.st_gid}"
    return None


def _is_own_group(gid: int) -> bool:
    """Whether nobody else is in a group.

    Where users come from a directory service their list may be incomplete, so it is believed of two kinds alone: the
    private group that many systems make for each user, by his name, and groups of the system.
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
