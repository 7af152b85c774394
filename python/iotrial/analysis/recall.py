"""Intervals of long series, found once: whoever keeps them hands them back when the same contrasts come again.

An interval is a function of its contrasts and its level and of nothing else. So what is kept is kept under a digest of just
these: a trial that has gone on, or a store that was changed, asks for other contrasts and is reckoned anew.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iotrial.analysis.model import Interval

#: contrasts from which on an interval takes longer to find than to look up
WORTH_KEEPING = 256


class Recall(Protocol):
    """Keeps intervals under keys of 32 bytes. May forget any; must not return what was not put there under this key."""

    def get(self, key: bytes) -> Interval | None:
        """What was kept, or None."""

    def put(self, key: bytes, found: Interval) -> None:
        """Keep it."""


_recall: ContextVar[Recall | None] = ContextVar("recall", default=None)


@contextmanager
def recalling(recall: Recall | None) -> Iterator[None]:
    """Intervals that are asked for inside are looked up and kept there."""
    token = _recall.set(recall)
    try:
        yield
    finally:
        _recall.reset(token)


def recalled(values: npt.NDArray[np.float64], alpha: float, made: Callable[[], Interval]) -> Interval:
    """What is kept of these contrasts at this level, or else ``made``."""
    recall = _recall.get()
    if recall is None or values.size < WORTH_KEEPING:
        return made()
    key = hashlib.sha256(struct.pack("<d", alpha) + values.astype("<f8").tobytes()).digest()
    found = recall.get(key)
    if found is None or found.blocks != values.size:
        found = made()
        recall.put(key, found)
    return found
