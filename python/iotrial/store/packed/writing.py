"""Writes the records of a trial as a packed trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from iotrial.errors import StoreError
from iotrial.store.model import TrialHeader
from iotrial.store.packed.privacy import Privacy
from iotrial.store.packed.reading import COUNTS
from iotrial.store.packed.records import PackedRecord, to_value
from iotrial.store.packed.stream import write_lines
from iotrial.store.schema import IMPORTED


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
