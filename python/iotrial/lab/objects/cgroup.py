"""A control group of the lab: empty except while a run is timed, and removed at the end."""

from __future__ import annotations

import errno
import re

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab.journal import NOT_OURS, Entry, Journal, still_there
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target
from iotrial.polling import attempts

#: paths of a lab's groups; no component may be `..`
OWN = re.compile(r"(?:/(?!\.\.?/)[^/\0\n]+)+/iotrial-lab-[0-9a-f]{1,8}-(?:none|[0-9]+|work|neighbour)")


class LabCgroup(LabObject):
    """One control group, identified by its path until the next boot."""

    name = "lab.cgroup"
    #: time in seconds for processes that were killed to end, and for the kernel to release the group after the last
    emptied_within_s = 5.0

    def make(self, target: Target, journal: Journal, path: str, *, boot_id: str, trial: str = "") -> None:
        """Create the group after recording it; keep one that this trial has already made. Raises LabError, TargetError."""
        mine = any(e.knob == self.name and e.address.get("path") == path for e in journal.pending())
        if target.exists(path):
            if not mine:
                raise LabError(
                    f"making {path}: exists already", hint="run `iotrial restore`, or remove it (rmdir)"
                )
            return
        journal.record(self.name, {"path": path}, "absent", ("present",), boot_id=boot_id, trial=trial)
        target.call("mkdir", path=path, mode="0755", exclusive=True)

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        path = entry.address.get("path", "")
        if not OWN.fullmatch(path):
            raise LabError(
                f"removing {path}: not a control group of a lab",
                hint=NOT_OURS,
            )
        if not target.exists(path):
            return Undone.ALREADY
        inside: str | None = ""
        for _ in attempts(self.emptied_within_s, every_s=0.01):
            inside = target.read_or_none(f"{path}/cgroup.procs")
            if inside is None:
                return Undone.FOREIGN  # a directory, but not a control group
            if not inside.strip():
                break
        if inside and inside.strip():
            raise LabError(f"removing {path}: it still has processes: {', '.join(inside.split())}")
        self._remove(target, path)
        if target.exists(path):
            raise still_there(path)
        return Undone.RESTORED

    def _remove(self, target: Target, path: str) -> None:
        for _ in attempts(self.emptied_within_s, every_s=0.01):
            try:
                target.call("remove", path=path)
                return
            except TargetError as error:
                if error.errno != errno.EBUSY:
                    raise
                busy = error
        raise busy
