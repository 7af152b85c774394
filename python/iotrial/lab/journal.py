"""The undo journal: what outlives the conductor is written down before it is changed.

One small file an entry, in the state folder, fsynced with its folder before the first change is
made. Undo goes in reverse order. An entry is dropped only when reading back has shown that its
subject is as it was; whatever cannot be proven keeps its entry, and the next ``iotrial restore``
tries again.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from iotrial.errors import LabError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to put back.

    ``address`` says where (for example ``{"path": "/sys/block/loop3/queue/scheduler"}``), ``ours``
    all values that the trial may write there, ``identity`` facts that must still hold for the
    address to mean the same thing, ``boot_id`` is set for what a reboot undoes by itself, None for
    what stays on disk.
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
        """Address in words."""
        return ", ".join(self.address.values())


class Journal:
    """The entries in one folder. Safe against SIGKILL and power cuts at any instant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        """Write an entry durably, before the change. The one that stands for the same subject is kept as it is:
        its original is the true one."""
        pending = self.pending()
        for entry in pending:
            if entry.knob == knob and dict(entry.address) == dict(address):
                return self._widen(entry, ours)
        number = 1 + max((e.number for e in pending), default=0)
        entry = Entry(
            number=number,
            knob=knob,
            address=dict(address),
            original=original,
            ours=tuple(dict.fromkeys(ours)),
            identity=dict(identity or {}),
            boot_id=boot_id,
            trial=trial,
        )
        self._write(entry)
        return entry

    def _widen(self, entry: Entry, ours: Iterable[str]) -> Entry:
        values = tuple(dict.fromkeys((*entry.ours, *ours)))
        if values == entry.ours:
            return entry
        wider = replace(entry, ours=values)
        self._write(wider)
        return wider

    def amend(self, entry: Entry, *, identity: Mapping[str, str]) -> Entry:
        """Durably add to what identifies the subject of an entry, such as how far an undo has come."""
        amended = replace(entry, identity=dict(identity))
        self._write(amended)
        return amended

    def pending(self) -> tuple[Entry, ...]:
        """All entries, oldest first. Raises LabError for one that cannot be read (it is never skipped)."""
        if not self.folder.is_dir():
            return ()
        return tuple(self._read(path) for path in sorted(self.folder.glob("*.entry")))

    def drop(self, entry: Entry) -> None:
        """Forget an entry whose restore was proven by reading back."""
        with self._explained("taking an entry off"):
            self._path(entry.number).unlink(missing_ok=True)
            self._sync_folder()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.entry"

    def _write(self, entry: Entry) -> None:
        with self._explained("writing an entry to"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._path(entry.number)
            draft = path.with_suffix(".draft")
            draft.unlink(missing_ok=True)  # of a write that was cut off; and a link there is not followed
            # whatever the umask: an entry that others could write is not obeyed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
                json.dump({"version": VERSION, **asdict(entry)}, file)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
            self._sync_folder()

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turns what the system says inside into a LabError. What cannot be written down is not changed."""
        try:
            yield
        except OSError as error:
            raise LabError(
                f"{doing} the undo journal {self.folder}: {error.strerror}",
                hint="the state folder must be writable and have some space; nothing was changed without an entry",
            ) from error

    def _read(self, path: Path) -> Entry:
        self._refuse_foreign(path)
        try:
            data = json.loads(path.read_text())
            if data.pop("version") != VERSION:
                raise LabError(
                    f"undo journal {path}: written by another version of iotrial",
                    hint="run `iotrial restore` with the version that wrote it",
                )
            return _entry(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LabError(
                f"undo journal {path}: not readable as an entry",
                hint="look at the file: it names what was changed and what stood there before",
            ) from error
        except OSError as error:
            raise LabError(f"undo journal {path}: {error.strerror}") from error

    def _refuse_foreign(self, path: Path) -> None:
        """Whoever can write an entry can have something changed by whoever undoes it: only our own are obeyed."""
        for checked in (self.folder, path):
            seen = checked.lstat()
            link = stat.S_ISLNK(seen.st_mode)
            if link or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
                found = "a link" if link else f"owner {seen.st_uid}, mode {stat.S_IMODE(seen.st_mode):04o}"
                raise LabError(
                    f"undo journal {checked}: wanted it to be user {os.geteuid()}'s alone to write, found {found}",
                    hint="others could have written it: look at it before you give it back to its user "
                    "(chown, chmod go-w), then run `iotrial restore`",
                )

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _entry(data: dict[str, Any]) -> Entry:
    """The entry in a JSON object. Raises TypeError or KeyError for one of another form."""
    entry = Entry(**{**data, "ours": tuple(data["ours"])})
    texts = [entry.knob, entry.original, entry.trial, *entry.ours]
    for mapping in (entry.address, entry.identity):
        texts += [word for pair in mapping.items() for word in pair]
    if entry.boot_id is not None:
        texts.append(entry.boot_id)
    if type(entry.number) is not int or not all(isinstance(text, str) for text in texts):
        raise TypeError("fields of other types")
    return entry
