"""Convert to declared types, in as many threads as there are.

msgspec describes a class to itself on the first conversion to it, and shares the description before it is complete.
A second thread that needs the same class at that moment reads the unfinished description, and the process ends with a
segmentation fault (msgspec 0.22: in each of 12 processes with 8 threads that began together). So a class is described
here once, under a lock, before anything is converted to it.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_described: set[object] = set()


def decode(content: bytes | str, kind: type[T]) -> T:
    """Decode JSON. Raises as ``msgspec.json.decode``."""
    _describe(kind)
    return msgspec.json.decode(content, type=kind)


def convert(value: object, kind: type[T]) -> T:
    """Convert lists, dicts and plain values. Raises as ``msgspec.convert``."""
    _describe(kind)
    return msgspec.convert(value, kind)


def _describe(kind: object) -> None:
    if kind in _described:
        return
    with _lock:
        msgspec.json.Decoder(kind)  # describes all classes within it
        _described.add(kind)
