"""Base of the knobs that are one kernel file: read, write, read back, journal, undo."""

from __future__ import annotations

import errno
from abc import abstractmethod
from typing import TYPE_CHECKING

from iotrial.errors import KnobError, LabError, TargetError, UnsupportedLevel
from iotrial.knobs.knob import Knob, RunContext, TakenError, Undone
from iotrial.study.model import Setting

if TYPE_CHECKING:
    from iotrial.lab.journal import Entry
    from iotrial.lab.target import Target


def chosen_word(text: str) -> str:
    """Return the value in force from a kernel file: the word in brackets, or the whole text."""
    words = text.split()
    return next((word.strip("[]") for word in words if word.startswith("[")), " ".join(words))


class KernelFileKnob(Knob):
    """A knob with the text of one file in /sys or /proc/sys as its value, or of several files with the same text.

    It outlives the conductor, so it is journaled.
    """

    open_to_others = True

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        """Return the first level: any value will do, as long as every arm passes through it."""
        return levels[0] if levels else self.parse(setting)

    @abstractmethod
    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        """Return the files, at least one."""

    @abstractmethod
    def is_own(self, path: str, entry: Entry) -> bool:
        """Return whether the knob can ever write this file.

        Entries of the undo journal for other files are refused: otherwise anybody who can write the journal could write any
        file as root.
        """

    def identity(self, context: RunContext, setting: Setting, path: str) -> dict[str, str]:
        """Return facts that must still hold when the entry for one file is undone."""
        return {}

    def shown(self, text: str) -> str:
        """Extract the value from the text that the kernel shows."""
        return " ".join(text.split())

    def shown_of(self, text: str, entry: Entry) -> str:
        """Extract the value of an entry from that text: a file may have a line for each device."""
        return self.shown(text)

    def restoring(self, entry: Entry) -> str:
        """Return what to write so that the entry's original value is back."""
        return entry.original

    def where(self, context: RunContext, setting: Setting) -> str:
        return ", ".join(self.paths(context, setting))

    def read(self, context: RunContext, setting: Setting) -> str:
        found = [self._read(context, path) for path in self.paths(context, setting)]
        return found[0] if len(set(found)) == 1 else " and ".join(found)

    def _read(self, context: RunContext, path: str) -> str:
        try:
            return self.shown(context.target.read(path))
        except TargetError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
                raise
            raise UnsupportedLevel(
                f"knob {self.name}: this kernel or device has no {path}",
                hint="`iotrial knobs` lists what it has; omit the factor",
            ) from error

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        for path in self.paths(context, setting):
            try:
                context.target.write(path, value)
            except TargetError as error:
                raise KnobError(
                    self.name, path, wrote=value, found=self._read(context, path), hint=error.message
                ) from error

    def original(self, context: RunContext, path: str) -> str:
        """Return the value to restore in one file: its value before the trial's first change."""
        return self._read(context, path)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        for path in self.paths(context, setting):
            context.journal.record(
                self.name,
                {"path": path},
                self.original(context, path),
                values,
                identity=self.identity(context, setting, path),
                boot_id=context.boot_id,
                trial=context.trial,
            )

    def taken_by(self, target: Target, entry: Entry) -> str | None:
        """Return in words what the entry's address means now, if it no longer means the same; else None."""
        return None

    def undo(self, target: Target, entry: Entry) -> Undone:
        path = entry.address.get("path", "")
        if not self.is_own(path, entry):
            raise LabError(
                f"undo journal: knob {self.name} never sets {path}, so iotrial did not write this entry",
                hint=ENTRY_CHANGED,
            )
        text = target.read_or_none(path)
        if text is None:
            return Undone.GONE
        found = self.shown_of(text, entry)
        if found == entry.original:
            return Undone.ALREADY
        taken = self.taken_by(target, entry)
        if taken is not None:
            raise TakenError(f'{path} reads "{found}", but {taken}: it is left alone')
        if found not in entry.ours:
            raise foreign(path, found, entry)
        target.write(path, self.restoring(entry))
        back = self.shown_of(target.read(path), entry)
        if back != entry.original:
            raise KnobError(self.name, path, wrote=entry.original, found=back)
        return Undone.RESTORED


#: hint for an entry with something that its knob never writes
ENTRY_CHANGED = "check the entry: another program wrote or changed it"


def foreign(path: str, found: str, entry: Entry) -> TakenError:
    """Build the error for a value that is neither the trial's nor the original: another program has set it."""
    return TakenError(
        f'{path} reads "{found}", neither the value of the trial ({", ".join(entry.ours)}) '
        f"nor the original ({entry.original}): it is left alone"
    )
