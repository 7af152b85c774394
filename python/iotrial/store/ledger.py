"""The ledger of questions: which trials asked what on this machine, in order, also of trials that are gone.

A file next to the store (``trials.asked`` for ``trials.db``), one line of JSON for each trial, only ever added to. A
trial is entered when it begins; trials of earlier versions are entered in the order of their numbers, before the next
one. So a store that is deleted takes its evidence away, but not the questions. Trials that were imported, or gathered
from the hosts of a fleet, asked nothing here. A line that cannot be read counts as one question.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iotrial.design.plan import Plan
from iotrial.durable import sync_folder
from iotrial.errors import IotrialError, StoreError
from iotrial.stats.questions import questions
from iotrial.stats.spec import Spec
from iotrial.store.database import Store
from iotrial.store.model import TrialHeader
from iotrial.terminal import escape


@dataclass(frozen=True, slots=True)
class Asked:
    """What one trial asked: pairs of factor and level, in order. ``trial`` is empty where the line cannot be read."""

    trial: str
    study: str
    started: str
    levels: tuple[tuple[str, str], ...]


#: what a trial counts as of which nothing is known
_UNKNOWN = (("", ""),)


def ledger_path(store: Path) -> Path:
    """Return the file of the ledger of a store."""
    return store.with_suffix(".asked")


def asked(store: Store) -> tuple[Asked, ...]:
    """Return what was asked, in order, with the trials of the store that are not in the ledger yet; changes nothing.

    Raises StoreError if the ledger cannot be read.
    """
    path = ledger_path(store.path)
    try:
        with _opened(path, os.O_RDONLY) as descriptor:
            content = _content(descriptor)
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise _failed(path, error) from error
    return _with_missing(store, _entries(content))


def enter(store: Store) -> None:
    """Enter the trials of the store that the ledger lacks, durably. Raises StoreError.

    A store in memory, of a pilot or a rehearsal, has none: nobody is told what it measured.
    """
    if not store.path.is_file():
        return
    path = ledger_path(store.path)
    try:
        if store.path.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the store belongs to another user")
        with _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            content = _content(descriptor)
            known = _entries(content)
            new = _with_missing(store, known)[len(known) :]
            if not new:
                return
            lines = b"".join(map(_line, new))
            # a line that a power cut has left unfinished stays, as one that cannot be read
            lines = b"\n" + lines if content and not content.endswith(b"\n") else lines
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            os.fsync(descriptor)
            if not content:
                sync_folder(path.parent)
    except OSError as error:
        raise _failed(path, error) from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open the ledger; no link is followed, and a FIFO is not waited for. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))


def _failed(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"ledger of questions {escape(path)}: {error.strerror or error}",
        hint="it must be a file that you can read and write, next to the store",
    )


def _with_missing(store: Store, known: tuple[Asked, ...]) -> tuple[Asked, ...]:
    seen = {one.trial for one in known}
    here = store.measured_here().items()
    return (*known, *(_of(store, number, name) for number, name in here if name not in seen))


def _of(store: Store, number: int, name: str) -> Asked:
    """Return what a stored trial asked."""
    try:
        header = store.find(number).header
        levels = tuple((one.factor, one.level) for one in questions(_spec(header)))
    except (IotrialError, ValueError, LookupError):  # damaged, or of a version with other designs
        return Asked(name, "", "", _UNKNOWN)
    return Asked(name, header.study.name, header.started, levels)


def _spec(header: TrialHeader) -> Spec:
    return Spec.from_plan(Plan.stored(header.study, header.seed, header.options), header.options)


def _line(one: Asked) -> bytes:
    entry = {"trial": one.trial, "study": one.study, "started": one.started, "asked": one.levels}
    return json.dumps(entry, ensure_ascii=True).encode() + b"\n"


def _entries(content: bytes) -> tuple[Asked, ...]:
    return tuple(_entry(line) for line in content.splitlines() if line.strip())


def _entry(line: bytes) -> Asked:
    try:
        found = json.loads(line)
        trial, study, started = (str(found[name]) for name in ("trial", "study", "started"))
        return Asked(trial, study, started, tuple((str(a), str(b)) for a, b in found["asked"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return Asked("", "", "", _UNKNOWN)
