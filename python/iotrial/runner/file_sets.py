"""The file sets of a trial: which set each condition works on, who owns it, and verification of its content.

Conditions with the same number of files, size, content and directories share a set on their place. A workload
that leaves other files behind than it found gets its own set. A run works on a selection from a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from iotrial.design.model import Condition
from iotrial.design.plan import Plan
from iotrial.knobs.files import VIEW
from iotrial.knobs.knob import FileSelection
from iotrial.lab.place import FileSet, Place
from iotrial.runner.command_user import command_user
from iotrial.runner.own_files import largest_own_file
from iotrial.runner.resolve import Resolved
from iotrial.study.model import Role


class FileSets:
    """The file sets of one trial, named in the order of the conditions."""

    def __init__(self, resolved: Resolved, plan: Plan) -> None:
        self._resolved = resolved
        self._plan = plan
        self._sets: dict[str, FileSet] = {}

    def selection(
        self, place: Place, condition: Condition, indices: tuple[int, ...] | None, size: int | None
    ) -> FileSelection:
        """Return the selection of a run; ``size`` is given if a treatment sets it."""
        files = self.of(condition)
        return FileSelection(
            set=_on(place, files.name),
            indices=indices,
            bytes_each=files.bytes_each if size is None else size,
            count=files.count if indices is None else len(indices),
        )

    def make(self, place: Place, conditions: list[Condition]) -> None:
        """Create every set that these conditions of a place need."""
        for files in {files.name: files for files in map(self.of, conditions)}.values():
            placed = FileSet(
                name=_on(place, files.name),
                folder=f"{place.root}/{files.name}",
                count=files.count,
                bytes_each=files.bytes_each,
                content=files.content,
                directories=files.directories,
                empty=files.empty,
            )
            # the same seed on all places that a factor compares
            known_as = files.name if place.site else placed.name
            digest = hashlib.sha256(f"{self._plan.seed}/{known_as}".encode()).digest()
            place.make_files(placed, int.from_bytes(digest[:7], "big"), owner=self.owner())
        place.syncfs()

    def make_folder(self, place: Place) -> None:
        """Make an empty folder, owned by the user of the work, on a place that holds what works keep outside
        their files.
        """
        placed = FileSet(_on(place, "own"), f"{place.root}/own", 0, 0, "zeros", 1)
        place.make_files(placed, 0, owner=self.owner())

    def verify(self, place: Place) -> None:
        """Verify every file that no workload writes to, byte by byte, against what was written when the lab was made.

        Raises ProbeError if one differs: then the runs did not work on the intended data.
        """
        written = {self.of(c).name for c in self._plan.conditions if self._writes(c)}
        place.to_neutral(always=False, fresh=False)
        for name in place.sets:
            if name.removeprefix(f"{place.name}-") not in written:
                place.worker.call("unlink", set=name, view=VIEW)
                place.worker.call("set_mode", set=name, files=None, mode="0644")
                place.worker.call("fileset_verify", set=name)

    def bytes_needed(self) -> int:
        """Return the disk space that all sets need, at the largest size that a treatment gives them."""
        sizes_bytes = [
            int(setting.value)
            for settings in self._resolved.settings.values()
            for setting in settings
            if setting.knob.name == "file.size" and setting.role is Role.TREATMENT
        ]
        largest = max(sizes_bytes, default=0)
        sets = {files.name: files for files in map(self.of, self._plan.conditions)}
        files_bytes = sum(files.count * max(files.bytes_each, largest, 4096) for files in sets.values())
        return files_bytes + largest_own_file(self._plan.study)

    def owner(self) -> dict[str, int] | None:
        """Return the owner of files that commands work on: the user who runs the commands. None if the files
        need no chown.
        """
        uid, gid = command_user(self._plan.study)
        commands = any(w.work.starts_programs for w in self._plan.study.workloads)
        return {"uid": uid, "gid": gid} if self._resolved.root and commands and uid != 0 else None

    def names(self) -> Mapping[str, str]:
        """Return the name of each set by its description, for the stored trial."""
        return {key: files.name for key, files in self._sets.items()}

    def of(self, condition: Condition) -> FileSet:
        """Return the set of a condition, not yet on a place."""
        workload = self._plan.study.workload(condition.workload)
        size = self._size_of(condition, workload.work.size_bytes)
        count = self._plan.pool_size(workload)
        empty = workload.work.starts_empty()
        key = f"{count}-{size}-{workload.work.content}-{workload.work.directories}" + "-empty" * empty
        if workload.work.leaves_other_files():
            key += f"-{workload.name}"
        known = self._sets.get(key)
        if known is None:
            known = FileSet(
                name=f"s{len(self._sets)}",
                folder="",
                count=count,
                bytes_each=size,
                content=workload.work.content,
                directories=workload.work.directories,
                empty=empty,
            )
            self._sets[key] = known
        return known

    def _size_of(self, condition: Condition, default: int) -> int:
        for factor, label in condition.levels.items():
            for setting in self._resolved.settings[factor, label]:
                if setting.knob.name == "file.size":
                    return int(setting.value)
        return next(
            (int(setting.value) for setting in self._resolved.pinned if setting.knob.name == "file.size"),
            default,
        )

    def _writes(self, condition: Condition) -> bool:
        work = self._plan.study.workload(condition.workload).work
        return work.writes()


def _on(place: Place, name: str) -> str:
    """Return the probe's name of a set on a place."""
    return f"{place.name}-{name}"
