"""The directory lab: a folder on the user's own file system. Nothing is mounted, so only file data can be made cold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iotrial.errors import LabError
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import MARGIN_BYTES, Place, check_space
from iotrial.lab.target import Target, unescape


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
            hint="name another one with --on FOLDER",
        ) from error
