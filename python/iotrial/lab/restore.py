"""Puts back what a trial that was cut off has left: every journal entry, newest first, proven by
reading back."""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import IotrialError, TargetError
from iotrial.lab import host, registry
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.knob import Undone
from iotrial.lab.place import FOLDER_KNOB
from iotrial.lab.target import Target


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of one entry; ``problem`` where it could not be put back and is kept."""

    entry: Entry
    outcome: Undone | None
    problem: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the entry still stands in the journal."""
        return self.problem is not None or self.outcome is Undone.FOREIGN


def restore(journal: Journal, target: Target) -> tuple[Restored, ...]:
    """Undo all pending entries in reverse order. Never raises for a single entry: what fails is
    reported and kept."""
    entries = journal.pending()
    if not entries:
        return ()
    boot = host.boot_id(target)
    done = []
    for entry in reversed(entries):
        try:
            outcome = _undo(entry, target, boot)
        except IotrialError as error:
            done.append(Restored(entry, None, error.message))
            continue
        if outcome is not Undone.FOREIGN:
            journal.drop(entry)
        done.append(Restored(entry, outcome))
    return tuple(done)


def _undo(entry: Entry, target: Target, boot: str) -> Undone:
    if entry.boot_id is not None and entry.boot_id != boot:
        return Undone.GONE
    if entry.knob == FOLDER_KNOB:
        return _undo_folder(entry, target)
    return registry.knob(entry.knob, where="undo journal").undo(target, entry)


def _undo_folder(entry: Entry, target: Target) -> Undone:
    path = entry.address["path"]
    if not target.exists(path):
        return Undone.ALREADY
    target.call("remove", path=path, recursive=True)
    if target.exists(path):
        raise TargetError(f"removing {path}: it is still there")
    return Undone.RESTORED
