"""Intervals of long series, found once: whoever keeps them hands them back when the same contrasts come again.

An interval is a function of its contrasts, its level and the margin and of nothing else. So what is kept is kept under a
digest of just these: a trial that has gone on, or a store that was changed, asks for other contrasts and is reckoned anew.
"""

from __future__ import annotations

import hashlib
import math
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


def recall_in_use() -> Recall | None:
    """Where intervals are looked up and kept just now, if anywhere."""
    return _recall.get()


def key_of(values: npt.NDArray[np.float64], alpha: float, margin: float) -> bytes:
    """What the interval of these contrasts at this level is kept under."""
    return hashlib.sha256(struct.pack("<dd", alpha, margin) + values.astype("<f8").tobytes()).digest()


def recalled(
    values: npt.NDArray[np.float64], alpha: float, margin: float, made: Callable[[], Interval]
) -> Interval:
    """What is kept of these contrasts at this level and margin, or else ``made``."""
    recall = _recall.get()
    if recall is None or values.size < WORTH_KEEPING:
        return made()
    key = key_of(values, alpha, margin)
    found = recall.get(key)
    if found is None or found.blocks != values.size:
        found = made()
        recall.put(key, found)
    return found


def as_list(found: Interval) -> list[float | int | bool | None]:
    """What JSON takes, and gives back digit by digit."""
    return [
        found.estimate,
        found.low,
        found.high,
        found.p_anytime,
        found.e_value,
        found.blocks,
        found.empty,
        found.leaning,
        *(found.bounds or (None, None)),
    ]


def of_list(found: object) -> Interval | None:
    """An interval as it can come out of a search, or None."""
    if not isinstance(found, list) or len(found) != 10:
        return None
    estimate, low, high, p_anytime, e_value, blocks, empty, leaning, lower, upper = found
    if type(blocks) is not int or {type(empty), type(leaning)} != {bool} or type(estimate) is not float:
        return None
    if (lower is None) is not (upper is None):
        return None
    ends = [end for end in (low, high, lower, upper) if end is not None]
    if not all(type(one) is float and math.isfinite(one) for one in (estimate, p_anytime, e_value, *ends)):
        return None
    if (
        not 0.0 <= p_anytime <= 1.0
        or e_value < 0.0
        or (low is not None and high is not None and low > high)
        or (empty and ends)
    ):
        return None
    bounds = None if lower is None else (lower, upper)
    return Interval(estimate, low, high, p_anytime, e_value, blocks, empty, leaning, bounds)
