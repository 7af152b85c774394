"""Reads the records of a packed trial one at a time; each is checked against the ones before it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from iotrial.errors import RequestError, StoreError, StudyError
from iotrial.store.model import BlockEnd, Event, TrialHeader
from iotrial.store.packed.consistency import Consistency
from iotrial.store.packed.privacy import Privacy
from iotrial.store.packed.records import PackedRecord, PackedRun, PackedState, from_value, to_value
from iotrial.store.packed.stream import MAX_PACKED, Line, PackedError, read_lines, too_large, write_lines
from iotrial.store.schema import IMPORTED
from iotrial.study.schema import shown

COUNTS = {"state": "states", "run": "runs", "block_end": "block_ends", "event": "events"}
LIMITS = {"states": 10_000, "runs": 2_000_000, "block_ends": 1_000_000, "events": 100_000}
_ORDER = ("trial", "state", "run", "block_end", "event", "end")


@dataclass(frozen=True, slots=True)
class PackedEnd:
    """The end of a valid file: its digest."""

    sha256: str


def verify_packed(file: BinaryIO, number: int) -> None:
    """Read back the whole file of a trial that was packed, and return to its beginning.

    Raises StoreError for one that could not be imported: it is never handed out.
    """
    file.seek(0)
    try:
        for _ in read_packed(file, f"trial {number}, packed"):
            pass
    except RequestError as error:
        raise StoreError(f"trial {number} cannot be packed: {error.message}", hint=error.hint) from error
    file.seek(0)


def read_packed(file: BinaryIO, where: str) -> Iterator[PackedRecord | PackedEnd]:
    """Yield the header, states, runs, ends of blocks and events, then the end. Raises PackedError or StudyError.

    ``where`` names the file in errors. Store nothing permanently before the PackedEnd has come and the
    iterator has ended.
    """
    counts = dict.fromkeys(COUNTS.values(), 0)
    consistency: Consistency | None = None
    place = -1
    for line in read_lines(file, where):
        try:
            place = _next_place(place, line)
            if line.kind == "end":
                yield _end(line.value, counts)
                continue
            record = from_value(line.kind, line.value, where, version=line.version)
            if isinstance(record, TrialHeader):
                consistency = Consistency(record)
            else:
                _count(counts, COUNTS[line.kind])
                assert consistency is not None
                _follow(consistency, record)
        except StudyError:
            raise
        except RecursionError:
            raise PackedError(where, "is nested too deeply", line=line.number) from None
        except (ValueError, OverflowError) as error:
            raise PackedError(where, str(error), line=line.number) from error
        yield record


def _next_place(place: int, line: Line) -> int:
    found = _ORDER.index(line.kind) if line.kind in _ORDER else -1
    if found < place or (place == -1 and found != 0) or (found == place and line.kind == "trial"):
        raise ValueError(f"a record of kind {shown(line.kind)} is in the wrong place")
    return found


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] += 1
    if counts[name] > LIMITS[name]:
        raise ValueError(f"holds more than {LIMITS[name]:,} {name.replace('_', ' ')}")


def _follow(consistency: Consistency, record: PackedRecord) -> None:
    match record:
        case PackedState():
            consistency.add_state(record)
        case PackedRun():
            consistency.add_run(record)
        case BlockEnd():
            consistency.add_end(record)
        case Event() | TrialHeader():
            pass


def _end(value: Any, counts: dict[str, int]) -> PackedEnd:
    expected = {**counts, "sha256": value["sha256"]}
    if value != expected or any(type(value[name]) is not int for name in counts) or counts["states"] == 0:
        raise ValueError("its counts do not match what it holds")
    return PackedEnd(value["sha256"])


# Writes the records of a trial as a packed trial.


def write_packed(file: BinaryIO, records: Iterable[PackedRecord], *, imported: bool = False) -> str:
    """Write header, states, runs, ends of blocks and events, in this order; return the digest.

    Folders of the user's machine are removed, unless the trial was ``imported``: then they already were. The
    note of the import belongs to the store and is left out. StoreError for a record that cannot be packed.
    The caller has to check that the file can be read again.
    """
    counts = dict.fromkeys(COUNTS.values(), 0)
    try:
        return write_lines(file, _values(records, counts, imported=imported), counts)
    except ValueError as error:
        raise StoreError(f"cannot be packed: {error}") from error


def _values(
    records: Iterable[PackedRecord], counts: dict[str, int], *, imported: bool
) -> Iterator[tuple[str, Any]]:
    privacy: Privacy | None = None
    for record in records:
        if isinstance(record, TrialHeader) and not imported:
            privacy = Privacy(record)
        kind, value = to_value(record if privacy is None else privacy.reduced(record))
        if kind == "event" and value["kind"] == IMPORTED:
            continue
        if kind in COUNTS:
            counts[COUNTS[kind]] += 1
        yield kind, value


# Open packed trials without blocking.


@contextmanager
def open_packed(path: Path) -> Iterator[BinaryIO]:
    """Open the file for reading; PackedError if it is not a regular file, too large, or unreadable."""
    where = shown(str(path))[1:-1]
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  closed below, whatever happens
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "check the name; `iotrial trials` lists stored trials, `iotrial export` packs one"
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        raise PackedError(where, f"cannot be read: {reason}", hint=hint if absent else None) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PackedError(where, "is not a regular file")
        if status.st_size > MAX_PACKED:
            raise too_large(where, MAX_PACKED)
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
