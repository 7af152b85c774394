"""A name that the lab has created in somebody else's folder: its own folder, or an image that could not be anonymous.

Creating and removing a name changes the folder's timestamps. The modification time is restored too, unless somebody else
has changed the folder in between; then theirs is kept.
"""

from __future__ import annotations

import errno
import re
from typing import Any

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab.journal import NOT_OURS, Entry, Journal, still_there
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target

#: the birth time of the name and the mtime of its folder are two readings of the kernel's coarse clock (4 ms at HZ=250)
SAME_INSTANT_NS = 20_000_000
#: maximum time from the note in the journal to the removal that it announces
REMOVAL_NS = 10_000_000_000

#: names that a lab creates, in any folder; undo removes nothing else
OWN = re.compile(
    r"/run/iotrial|/(?:.*/)?(?:iotrial-lab-[0-9a-f]+(?:-[a-z][a-z0-9-]*)?|\.iotrial-[0-9a-f]*-[a-z0-9][a-z0-9.-]*\.image)",
    re.DOTALL,
)


class LabPath(LabObject):
    """One path created by the lab, in a folder that is not its own."""

    name = "lab.path"

    def announce(
        self,
        target: Target,
        journal: Journal,
        path: str,
        *,
        fleeting: bool = False,
        boot_id: str | None = None,
        trial: str = "",
    ) -> Entry:
        """Record the path before it is created. ``fleeting``: the code that creates it removes the name again at once.

        Raises LabError if it exists already.
        """
        if target.exists(path):
            raise LabError(f"making {path}: exists already")
        identity = {"folder_mtime_ns": str(target.stat(_parent(path))["mtime_ns"])}
        if fleeting:
            now = str(target.call("time")["realtime_ns"])
            identity |= {"put_back_ns": identity["folder_mtime_ns"], "removed_ns": now}
        return journal.record(
            self.name,
            {"path": path},
            "absent",
            ("present",),
            identity=identity,
            boot_id=boot_id,
            trial=trial,
        )

    def make_folder(
        self, target: Target, journal: Journal, path: str, *, boot_id: str | None = None, trial: str = ""
    ) -> Entry:
        """Create a folder that does not exist yet. Raises LabError, TargetError."""
        entry = self.announce(target, journal, path, boot_id=boot_id, trial=trial)
        try:
            target.call("mkdir", path=path, mode="0755", exclusive=True)
        except TargetError as error:
            # The folder belongs to another process, or was not created: nothing to undo.
            journal.drop(entry)
            if error.errno == errno.EEXIST:
                raise LabError(f"making {path}: another program created it at the same moment") from error
            raise
        return entry

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        path = entry.address["path"]
        if not OWN.fullmatch(path):
            raise LabError(
                f"removing {path}: not a name that a lab uses",
                hint=NOT_OURS,
            )
        folder = _parent(path)
        outcome = self._undo(target, entry, journal, path, folder)
        # Before the entry is dropped: after a power cut, btrfs may have kept the path and lost the entry.
        _sync(target, folder)
        return outcome

    def _undo(self, target: Target, entry: Entry, journal: Journal, path: str, folder: str) -> Undone:
        found = _stat(target, path)
        if found is None:
            return self._folder_after(target, entry, folder)
        mtime = self._mtime_to_keep(target, entry, folder, found)
        if found["kind"] == "directory":
            target.call("remove", path=path, recursive=True, keep=True)
        now = int(target.call("time")["realtime_ns"])
        noted = {**entry.identity, "put_back_ns": str(mtime), "removed_ns": str(now)}
        journal.amend(entry, identity=noted, undoing=True)
        target.call("remove", path=path)
        if target.exists(path):
            raise still_there(path)
        _set_mtime(target, folder, mtime)
        return Undone.RESTORED

    def _mtime_to_keep(self, target: Target, entry: Entry, folder: str, found: dict[str, Any]) -> int:
        """Return the mtime that the folder should have: the one from before, or a later one set by another program."""
        present = int(target.stat(folder)["mtime_ns"])
        born = found.get("btime_ns")
        untouched = isinstance(born, int) and abs(present - born) <= SAME_INSTANT_NS
        return int(entry.identity["folder_mtime_ns"]) if untouched else present

    def _folder_after(self, target: Target, entry: Entry, folder: str) -> Undone:
        """Restore the folder's mtime if an undo was interrupted right after removing the path."""
        noted, since = entry.identity.get("put_back_ns"), entry.identity.get("removed_ns")
        if noted is None or since is None:
            return Undone.ALREADY
        state = _stat(target, folder)
        if state is not None and 0 <= int(state["mtime_ns"]) - int(since) + SAME_INSTANT_NS <= REMOVAL_NS:
            _set_mtime(target, folder, int(noted))
            return Undone.RESTORED
        return Undone.ALREADY


def _sync(target: Target, folder: str) -> None:
    """Make the names in a folder durable, if it is there and may be opened."""
    try:
        target.call("fsync", path=folder)
    except TargetError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            raise


def _set_mtime(target: Target, folder: str, mtime_ns: int) -> None:
    target.call("set_times", path=folder, mtime_ns=mtime_ns)
    found = int(target.stat(folder)["mtime_ns"])
    if found != mtime_ns:
        raise TargetError(f"putting back the time of {folder}: expected {mtime_ns} ns, found {found}")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _stat(target: Target, path: str) -> dict[str, Any] | None:
    try:
        return target.stat(path)
    except TargetError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
