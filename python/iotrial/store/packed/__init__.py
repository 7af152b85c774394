"""Packed trials: one trial as one file, to be opened, analysed, reported or run again elsewhere.

A gzip stream of JSON lines; no archive members, paths or links, so that reading one cannot write anywhere.
The reader treats the file as hostile: every length is checked against a limit before it is used, and the runs
must be those that the study and its seed plan. docs/sharing.md describes the format.
"""

from iotrial.store.packed.reading import PackedEnd, open_packed, read_packed, verify_packed, write_packed
from iotrial.store.packed.records import PackedRecord, PackedRun, PackedState
from iotrial.store.packed.stream import PackedError

__all__ = [
    "PackedEnd",
    "PackedError",
    "PackedRecord",
    "PackedRun",
    "PackedState",
    "open_packed",
    "read_packed",
    "verify_packed",
    "write_packed",
]
