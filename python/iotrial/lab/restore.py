"""Undoes what an interrupted trial has left: every journal entry, newest first, verified by reading back. An entry that
cannot be undone, or not even read, does not block the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from iotrial.errors import IotrialError, LabError
from iotrial.knobs.knob import TakenError, Undone
from iotrial.lab import host, registry
from iotrial.lab.journal import LEFT_ALONE, Entry, Journal
from iotrial.lab.objects.device import LabDevice, LabProcess
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.objects.path import LabPath
from iotrial.lab.target import Target

PROCESSES = "processes of the trial that cannot be stopped"
#: kinds with entries that block others of the same trial until they are undone. Processes block all, because they could still
#: write; a device in use blocks the lab's folder, because removing that would detach what is mounted on it elsewhere.
HOLDING = {LabProcess.name: PROCESSES, LabLoop.name: "the loop device", LabDevice.name: "the lab's disk"}


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome for one entry; ``problem`` is set if it could not be undone and is kept."""

    entry: Entry
    outcome: Undone | None
    problem: str | None = None

    @property
    def kept(self) -> bool:
        """True if the entry is still in the journal."""
        return self.problem is not None or self.outcome is Undone.FOREIGN


def restore(journal: Journal, target: Target, *, spare: Collection[str] = ()) -> tuple[Restored, ...]:
    """Undo all pending entries, processes first, the rest in reverse order.

    Never raises for a single entry: failures are reported, and the entry is kept. ``spare``: kinds of entries to skip.
    """
    entries = [entry for entry in journal.pending() if entry.knob not in spare]
    if not entries:
        return ()
    boot = host.boot_id(target)
    done = []
    waiting: dict[str, str] = {}
    for entry in sorted(entries, key=_order):
        held = waiting.get(entry.trial)
        if held == PROCESSES or (held is not None and entry.knob == LabPath.name):
            done.append(Restored(entry, None, f"waits for {held}"))
            continue
        result = _undone(entry, target, journal, boot)
        if result.outcome is None and entry.knob in HOLDING:
            waiting[entry.trial] = HOLDING[entry.knob]
        done.append(result)
    return tuple(done)


def _undone(entry: Entry, target: Target, journal: Journal, boot: str) -> Restored:
    """Undo one entry, and drop it from the journal if the result is verified."""
    outcome: Undone | None = None
    try:
        try:
            outcome = undo(entry, target, journal, boot)
            problem = None
        except TakenError as error:
            outcome, problem = Undone.FOREIGN, error.message
        if outcome is not Undone.FOREIGN:
            journal.drop(entry)
        elif not entry.left_alone:
            why = problem or "neither the trial's value nor the original"
            entry = journal.amend(entry, identity={**entry.identity, LEFT_ALONE: why}, undoing=True)
        return Restored(entry, outcome, problem)
    except IotrialError as error:
        return Restored(entry, outcome, error.message)
    except (LookupError, ValueError, NotImplementedError) as error:
        return Restored(entry, None, f"invalid entry: {type(error).__name__}: {error}")


def undo(entry: Entry, target: Target, journal: Journal, boot: str) -> Undone:
    """Undo one entry. Raises IotrialError if it fails."""
    if entry.boot_id is not None and entry.boot_id != boot:
        return Undone.GONE
    kind = registry.objects().get(entry.knob)
    if kind is not None:
        return kind.undo(target, entry, journal)
    return registry.knob(entry.knob, where="undo journal").undo(target, entry)


def _order(entry: Entry) -> tuple[bool, int]:
    kind = registry.objects().get(entry.knob)
    return not (kind is not None and kind.first), -entry.number


def refuse_leftovers(journal: Journal) -> None:
    """Raise LabError if an interrupted trial has left something to undo, or if an entry cannot be read, because nobody knows
    what it names.

    Entries that a restore has left alone, because somebody else changed the subject, are no obstacle: a trial that would
    change the same thing is refused at that point.
    """
    entries, damaged = journal.read()
    first = [f"{one.knob} on {one.target}" for one in entries if not one.left_alone] + list(map(str, damaged))
    if first:
        count = len(first)
        broken = f", {len(damaged)} of them unreadable" if damaged else ""
        raise LabError(
            f"an earlier trial was cut off and left {count} change{'s' * (count > 1)} to undo{broken} (first: {first[0]})",
            hint="run `iotrial restore` first",
        )
