"""File attributes that a file system stores in addition to the mode (chattr(1)), from an allow-list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from iotrial.errors import KnobError
from iotrial.knobs import files as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext
from iotrial.lab.target import Finished
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS

#: paths per call of a tool
BATCH = 1000


class FileAttribute(Knob, declared.FileAttribute):
    requirement = Requirement(root=True, labs=DISK_LABS, tools={"chattr": "e2fsprogs", "lsattr": "e2fsprogs"})
    LETTERS: ClassVar[dict[str, str]] = {"none": "", "no-atime": "A", "sync": "S", "journal-data": "j"}

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def read(self, subject: RunContext, setting: Setting) -> str:
        found: dict[str, int] = {}
        for paths in _batches(subject):
            done = self._run(subject, ["lsattr", "-d", *paths])
            for line in done.stdout.splitlines():
                letters = "".join(c for c in line.split(" ", 1)[0] if c in "ASj")
                found[letters] = found.get(letters, 0) + 1
        if len(found) == 1:
            (letters,) = found
            return next((value for value, known in self.LETTERS.items() if known == letters), letters)
        return (
            ", ".join(f"{letters or 'none'} ({n} files)" for letters, n in sorted(found.items())) or "no file"
        )

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        letter = self.LETTERS[value]
        words = [f"-{''.join(c for c in 'ASj' if c != letter)}", *([f"+{letter}"] if letter else [])]
        for paths in _batches(subject):
            done = self._run(subject, ["chattr", *words, *paths])
            if done.exit_status != 0:
                raise KnobError(
                    self.name,
                    subject.place.label,
                    wrote=value,
                    found="refused",
                    hint=done.stderr.strip()[-200:],
                )

    def _run(self, subject: RunContext, argv: list[str]) -> Finished:
        return subject.worker.run(argv, timeout_s=300)


def _batches(subject: RunContext) -> Iterator[list[str]]:
    """Yield the paths of a run's files in batches. Uses the path in the view if the view holds regular files."""
    selection = subject.selection(FileAttribute.name)
    files = subject.place.sets[selection.set]
    folder = files.folder
    first = _name((selection.indices or (0,))[0], files.directories)
    seen = f"{folder}.{subject.work.view}/{first}"
    if subject.work.view is not None and subject.worker.stat(seen)["kind"] == "file":
        # a hard link works as well as the original name
        folder = f"{folder}.{subject.work.view}"
    indices = range(files.count) if selection.indices is None else selection.indices
    paths = [f"{folder}/{_name(index, files.directories)}" for index in indices]
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]


def _name(index: int, directories: int) -> str:
    """Return the file name, as the probe's protocol defines it."""
    return f"f{index:06d}" if directories <= 1 else f"d{index % directories:03d}/f{index:06d}"
