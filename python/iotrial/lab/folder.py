"""Check that a lab's folder cannot be swapped for another by anyone but root and the user.

A user who can rename a directory on the path can replace it by a symbolic link between the check and the use. So the
path is walked from the root, each step relative to the descriptor of the previous one. Every directory on the way must
belong to root or the user and be writable by nobody else. In a directory with the sticky bit (/tmp) only the owner of an
entry can rename it, so there the next entry must belong to root or the user. What held for every step then still holds
when the path is used.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import struct
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

from iotrial.errors import OTHER_FOLDER, LabError, RequestError
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import MARGIN_BYTES, Place, check_space
from iotrial.lab.target import Target, unescape
from iotrial.ownership import Way, walked, way_shown

_ACL = "system.posix_acl_access"
#: linux/posix_acl.h
_ACL_USER, _ACL_GROUP_OWNER, _ACL_GROUP, _ACL_WRITE = 0x02, 0x04, 0x08, 2


def settled(path: str, option: str, owners: AbstractSet[int] | None = None) -> str:
    """Resolve the symbolic links of a path. ``owners``: the users who may be able to change where it leads; None: no check.

    Raises OSError if it does not lead to a directory; RequestError, naming ``option``, if others could swap a part of it.
    """
    check = None if owners is None else partial(_check, option=option, owners=owners)
    with walked(path, check) as way:
        return way_shown(way)


def _check(way: Way, entry: os.stat_result | None, *, option: str, owners: AbstractSet[int]) -> None:
    """Raise RequestError if others could swap this entry of the last directory in ``way``. None: an entry not yet created."""
    folder = way[-1][1]
    facts = os.fstat(folder)
    if facts.st_uid not in owners:
        why = f"{way_shown(way)} belongs to user {facts.st_uid}"
    elif facts.st_mode & stat.S_ISVTX and (entry is None or entry.st_uid in owners):
        return
    elif facts.st_mode & stat.S_IWOTH:
        why = f"everybody may rename files in {way_shown(way)}"
    elif others := sorted(_writers(folder, facts) - owners):
        why = f"user {others[0]} may rename files in {way_shown(way)}"
    else:
        return
    raise RequestError(
        f"{option}: {why}, so root must not work there",
        hint="name a folder owned by you or root, with parent folders owned by you or root",
    )


def _writers(folder: int, facts: os.stat_result) -> set[int]:
    """Return the users other than the owner who may write there, through the group or the access control list."""
    if not facts.st_mode & stat.S_IWGRP:
        return set()  # if there is an ACL, these bits are its mask
    try:
        acl = os.getxattr(f"/proc/self/fd/{folder}", _ACL)
    except OSError:
        return _members(facts.st_gid)
    users: set[int] = set()
    for tag, permissions, number in struct.iter_unpack("<HHI", acl[4:]):
        if not permissions & _ACL_WRITE:
            continue
        if tag == _ACL_USER:
            users.add(number)
        elif tag in (_ACL_GROUP, _ACL_GROUP_OWNER):
            users |= _members(facts.st_gid if tag == _ACL_GROUP_OWNER else number)
    return users


def _members(group: int) -> set[int]:
    """Return the users of a group, by primary group or member list. Members of root's group count as root."""
    if group == 0:
        return set()
    users = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    try:
        names = grp.getgrgid(group).gr_mem
    except KeyError:
        return users
    return users | {user.pw_uid for user in pwd.getpwall() if user.pw_name in names}


# The directory lab: a folder on the user's own file system. Nothing is mounted, so only file data can be made cold.


class DirectoryPlace(Place):
    """A new folder inside one that the user has named."""

    kind = "directory"

    def __init__(
        self, name: str, target: Target, journal: Journal, *, folder: str, bytes_needed: int, trial: str = ""
    ) -> None:
        super().__init__(name, target)
        self.root = folder
        self.device = None
        self._journal = journal
        self._bytes = bytes_needed
        self._trial = trial
        self._entry: Entry | None = None

    @property
    def label(self) -> str:
        return f"folder {self.root}"

    def open(self) -> None:
        parent = self.root.rpartition("/")[0] or "/"
        check_space(self.target, parent, self._bytes, margin=MARGIN_BYTES // 4)
        self._entry = LabPath().make_folder(self.target, self._journal, self.root, trial=self._trial)

    def close(self) -> None:
        if self._entry is not None:
            LabPath().undo(self.target, self._entry, self._journal)
            self._journal.drop(self._entry)
            self._entry = None

    def to_neutral(self, *, always: bool, fresh: bool) -> None:
        """Do nothing: there is no mount."""

    def settle(self, *, always: bool, fresh: bool) -> None:
        if fresh:
            raise LabError("a directory lab cannot be unmounted: use cache state cold-data")

    def facts(self) -> Mapping[str, object]:
        info = self._containing_mount()
        return {"place": self.name, "kind": self.kind, "filesystem": info[0], "mount_options": info[1]}

    def _containing_mount(self) -> tuple[str, str]:
        best, kind, options = "", "unknown", ""
        for line in self.target.read("/proc/self/mounts").split("\n"):
            fields = line.split(" ")
            if len(fields) < 4:
                continue
            point = unescape(fields[1])
            inside = self.root == point or self.root.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind, options = point, fields[2], fields[3]
        return kind, options


def make_folder(folder: Path) -> None:
    """Create a folder for labs, with its parents. Raises LabError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"cannot create the lab's folder {folder}: {error.strerror}",
            hint=OTHER_FOLDER,
        ) from error
