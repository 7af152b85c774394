"""Writes the records of a trial as a packed trial."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from iotrial.errors import StoreError
from iotrial.store.model import TrialHeader
from iotrial.store.packed.privacy import Privacy
from iotrial.store.packed.reading import COUNTS
from iotrial.store.packed.records import PackedRecord, to_value
from iotrial.store.packed.stream import MAX_PACKED, PackedError, write_lines
from iotrial.store.schema import IMPORTED
from iotrial.study.schema import shown


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
            raise PackedError(where, f"is larger than {MAX_PACKED >> 20} MiB, the maximum of a packed trial")
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
