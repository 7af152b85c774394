"""The undo journal: changes that outlive the conductor are recorded before they are made.

Each entry is one small file in the state folder, fsynced together with its folder before the first change. Undo runs in
reverse order. An entry is dropped only after reading back has shown that its subject has its original value. Otherwise the
entry stays, and the next ``iotrial restore`` tries again.

While there are entries, a mark file exists next to the folder. It is created after the first entry and removed before the
last one, so a mark without entries means that another program removed them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from iotrial.durable import (
    NEW_FILE,
    Damage,
    DamageError,
    read_each,
    read_own,
    refuse_foreign,
    replacing,
    sealed,
    sync_folder,
)
from iotrial.errors import LabError, TargetError
from iotrial.paths import journal_mark

VERSION = 1
#: key in an entry's ``identity``: why a restore did not touch its subject
LEFT_ALONE = "left alone"


#: hint for an entry that no version of iotrial writes
NOT_OURS = "check the entry: iotrial did not write it"


def still_there(what: str) -> TargetError:
    return TargetError(f"removing {what}: it is still there")


@dataclass(frozen=True, slots=True)
class Entry:
    """One change to undo.

    ``address`` says where (for example ``{"path": "/sys/block/loop3/queue/scheduler"}``), ``ours`` lists all values that
    the trial may write there, ``identity`` holds facts that must still be true for the address to mean the same thing,
    ``boot_id`` is set for changes that a reboot undoes, None for those that stay on disk.
    """

    number: int
    knob: str
    address: Mapping[str, str]
    original: str
    ours: tuple[str, ...]
    identity: Mapping[str, str] = field(default_factory=dict)
    boot_id: str | None = None
    trial: str = ""

    @property
    def target(self) -> str:
        """The address as text."""
        return ", ".join(self.address.values())

    @property
    def left_alone(self) -> bool:
        """True if a restore found the subject changed by another program: the entry can wait and blocks no trial."""
        return LEFT_ALONE in self.identity


class Journal:
    """The entries in one folder. Safe against SIGKILL and power cuts at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: by number: entries recorded here and not dropped yet
        self._held: dict[int, Entry] = {}
        #: entries held in memory that were missing or different on disk; each only once
        self.lost: dict[int, tuple[Entry, str]] = {}

    def record(
        self,
        knob: str,
        address: Mapping[str, str],
        original: str,
        ours: Iterable[str],
        *,
        identity: Mapping[str, str] | None = None,
        boot_id: str | None = None,
        trial: str = "",
    ) -> Entry:
        """Write an entry durably, before the change.

        An existing entry for the same subject keeps its original value, which is the true one. Raises LabError if an earlier
        trial has left that subject changed.
        """
        pending, damaged = self.read()
        for entry in pending:
            if entry.knob == knob and dict(entry.address) == dict(address):
                if entry.number not in self._held:
                    raise LabError(
                        f"{knob} on {entry.target}: an earlier trial changed it, and this is not undone yet",
                        hint=f"run `iotrial restore`; entry {entry.number} can be dismissed "
                        f"with `iotrial restore --accept {entry.number}`",
                    )
                return self._widen(entry, ours)
        taken = [entry.number for entry in pending] + [one.number or 0 for one in damaged]
        entry = Entry(
            number=1 + max(taken, default=0),
            knob=knob,
            address=dict(address),
            original=original,
            ours=tuple(dict.fromkeys(ours)),
            identity=dict(identity or {}),
            boot_id=boot_id,
            trial=trial,
        )
        self._keep(entry)
        return entry

    def held(self, knob: str, address: Mapping[str, str]) -> Entry | None:
        """Return the entry that was recorded here for a subject, without a look at the disk."""
        found = (e for e in self._held.values() if e.knob == knob and dict(e.address) == dict(address))
        return next(found, None)

    def _widen(self, entry: Entry, ours: Iterable[str]) -> Entry:
        values = tuple(dict.fromkeys((*entry.ours, *ours)))
        if values == entry.ours:
            return entry
        wider = replace(entry, ours=values)
        self._keep(wider)
        return wider

    def _keep(self, entry: Entry) -> None:
        self._write(entry)
        self._held[entry.number] = entry

    def amend(self, entry: Entry, *, identity: Mapping[str, str], undoing: bool = False) -> Entry:
        """Durably replace the ``identity`` of an entry, for instance to record how far an undo has come.

        ``undoing``: if the disk refuses the write, the undo continues from memory.
        """
        amended = replace(entry, identity=dict(identity))
        try:
            self._write(amended)
        except LabError as error:
            if not undoing or entry.number not in self._held:
                raise
            self._lose(entry, error.message)
        if entry.number in self._held:
            self._held[entry.number] = amended
        return amended

    def read(self) -> tuple[tuple[Entry, ...], tuple[Damage, ...]]:
        """Return all entries, oldest first, and the damage found.

        An entry held in memory is written again if its file is missing or differs.
        """
        # checked before listing the entries and again afterwards: a trial may be ending at this moment
        marked = self._is_marked
        entries, damaged = read_each(self.folder, ".entry", self._read)
        found = {entry.number: entry for entry in entries}
        for number, entry in self._held.items():
            if found.get(number) == entry:
                continue
            reasons = [one.reason for one in damaged if one.number in (number, None)]
            self._lose(entry, "; ".join(reasons) or ("changed" if number in found else "removed"))
            with suppress(LabError):
                self._write(entry)
                damaged = [one for one in damaged if one.number != number]
            found[number] = entry
        if marked and not found and not damaged and self._is_marked:
            reason = "a trial has recorded its changes, and their entries were removed: it is not known which changes remain"
            hint = "compare the settings listed under changes in its report with this machine's"
            damaged.append(Damage(self.mark, reason, 0, hint))
        return tuple(found[number] for number in sorted(found)), tuple(damaged)

    def pending(self) -> tuple[Entry, ...]:
        """Return all readable entries, oldest first; ``read`` also returns the damaged ones."""
        return self.read()[0]

    def drop(self, entry: Entry) -> None:
        """Remove an entry after reading back has proven its restore."""
        held = self._held.pop(entry.number, None)
        try:
            there = self.dismiss(self.path(entry.number))
        except LabError as error:
            if held is None:
                raise
            self._lose(held, error.message)
        else:
            if held is not None and not there:
                self._lose(held, "removed")

    def dismiss(self, path: Path) -> bool:
        """Durably remove the file of one entry. Returns whether it existed. Raises LabError."""
        with self._explained("cannot remove an entry from"):
            if path != self.mark:
                refuse_foreign(self.folder)
                if not self._has_others(path):
                    self.mark.unlink(missing_ok=True)
                    sync_folder(self.mark.parent)
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            except IsADirectoryError:
                path.rename(path.with_suffix(".dismissed"))
            sync_folder(path.parent)
        return True

    def _has_others(self, path: Path) -> bool:
        """Return whether there is another entry, on disk or in memory."""
        if any(self.path(number) != path for number in self._held):
            return True
        return any(other != path for other in self.folder.iterdir() if other.suffix == ".entry")

    def _lose(self, entry: Entry, reason: str) -> None:
        self.lost.setdefault(entry.number, (entry, reason))

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.entry"

    @property
    def mark(self) -> Path:
        """The mark file, which shows that the folder has entries."""
        return journal_mark(self.folder)

    @property
    def _is_marked(self) -> bool:
        return os.path.lexists(self.mark)

    def _write(self, entry: Entry) -> None:
        with self._explained("cannot write an entry to"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_foreign(self.folder)
            path = self.path(entry.number)
            # mode 0600 whatever the umask: entries that others could write are rejected
            with replacing(path, path.with_suffix(".draft")) as file:
                file.write(sealed(json.dumps({"version": VERSION, **asdict(entry)}).encode()))
            if not self._is_marked:
                os.close(os.open(self.mark, NEW_FILE, 0o600))
                sync_folder(self.mark.parent)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn an OSError into a LabError. A change that cannot be recorded is not made."""
        try:
            yield
        except OSError as error:
            raise LabError(
                f"{doing} the undo journal {self.folder}: {error.strerror}",
                hint="the state folder must be writable and not full; nothing was changed without an entry",
            ) from error

    def _read(self, path: Path) -> Entry:
        """Read one entry. Raises FileNotFoundError, DamageError."""
        number = int(path.stem) if path.stem.isascii() and path.stem.isdigit() else None
        number = number if number is not None and path == self.path(number) else None
        try:
            data = json.loads(read_own(path))
            if data.pop("version") != VERSION:
                reason = "written by another version of iotrial"
                hint = "run `iotrial restore` with the version that wrote it"
                raise DamageError(Damage(path, reason, number, hint))
            entry = _entry(data)
            if entry.number != number:
                raise ValueError(f"claims to be entry {entry.number}")
        except DamageError as error:
            raise DamageError(replace(error.damage, number=number)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            hint = "look at the file: it names what was changed and the original value"
            raise DamageError(Damage(path, "not a valid entry", number, hint)) from error
        return entry


def _entry(data: dict[str, Any]) -> Entry:
    """Build the entry from a JSON object. Raises TypeError or KeyError if it has another form."""
    entry = Entry(**{**data, "ours": tuple(data["ours"])})
    texts = [entry.knob, entry.original, entry.trial, *entry.ours]
    for mapping in (entry.address, entry.identity):
        texts += [word for pair in mapping.items() for word in pair]
    if entry.boot_id is not None:
        texts.append(entry.boot_id)
    if type(entry.number) is not int or not all(isinstance(text, str) for text in texts):
        raise TypeError("fields of wrong types")
    return entry
