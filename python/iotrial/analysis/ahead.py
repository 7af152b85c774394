"""Intervals of many long series, sought before they are asked for and in several processes at once.

An interval is a function of its contrasts and its level, so any process finds the same one. What is found goes to the
recall, from which ``eprocess.interval`` takes it; what is not found here, because a process could not be started or
died, is sought there as ever. Threads do not do: numpy's steps are too short for two of them not to wait for each other.

Who reports says how many processes there may be (``in_processes``). Between the blocks of a trial there is one.
"""

from __future__ import annotations

import json
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

import numpy as np

from iotrial.analysis.betting import Floats
from iotrial.analysis.eprocess import interval
from iotrial.analysis.model import Interval
from iotrial.analysis.recall import WORTH_KEEPING, key_of, of_list, recall_in_use
from iotrial.workers import end_worker, start_worker

#: contrasts in all from which on it is worth a process, which takes half a second to begin: some seconds of work
WORTH_HELP = 250_000
MOST = 8
#: contrasts, their level and the margin; then as many doubles as contrasts
HEAD = struct.Struct("<Qdd")

_processes: ContextVar[int] = ContextVar("processes", default=1)
_Asked = tuple[bytes, Floats, float, float]


@contextmanager
def in_processes(count: int) -> Iterator[None]:
    """Inside, intervals may be sought in up to so many processes, this one among them."""
    token = _processes.set(count)
    try:
        yield
    finally:
        _processes.reset(token)


def find_ahead(asked: Sequence[tuple[Sequence[float], float, float]]) -> None:
    """Seek the intervals of these contrasts, each with its level and margin, where that takes long and several processes may.

    Finds nothing without a recall to put it to (``recalling``), or where little is left to be found.
    """
    recall, processes = recall_in_use(), min(_processes.get(), MOST)
    if recall is None or processes < 2:
        return
    wanted: dict[bytes, tuple[Floats, float, float]] = {}
    for contrasts, alpha, margin in asked:
        if len(contrasts) >= WORTH_KEEPING:
            values: Floats = np.asarray(contrasts, dtype=np.float64)
            key = key_of(values, alpha, margin)
            if key not in wanted and recall.get(key) is None:
                wanted[key] = values, alpha, margin
    if sum(values.size for values, _, _ in wanted.values()) < WORTH_HELP:
        return
    left: deque[_Asked] = deque((key, *one) for key, one in wanted.items())
    found: dict[bytes, Interval] = {}
    with ExitStack() as running:
        for _ in range(min(processes - 1, len(left))):
            with suppress(OSError):  # no process to be had
                running.enter_context(_Helper(left, found))
        while left:
            with suppress(IndexError):  # a helper has just taken the last one
                _, values, alpha, margin = left.popleft()
                interval(values, alpha, margin=margin)  # which keeps it
    for key, one in found.items():
        recall.put(key, one)


class _Helper:
    """A process that takes what is ``left`` from its end, until nothing is; and the thread that hands it over.

    Left behind, it is waited for. What it was given and did not answer is not among what is ``found``.
    """

    def __init__(self, left: deque[_Asked], found: dict[bytes, Interval]) -> None:
        self._left, self._found = left, found
        self._process = start_worker("iotrial.analysis.helper", quiet=True)
        self._thread = threading.Thread(target=self._hand_over, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._thread.join()
        end_worker(self._process)

    def _hand_over(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError, ValueError, IndexError):  # it died, it said something else, or all is done
            while True:
                key, values, alpha, margin = self._left.pop()
                self._process.stdin.write(
                    HEAD.pack(values.size, alpha, margin) + values.astype("<f8").tobytes()
                )
                self._process.stdin.flush()
                one = of_list(json.loads(self._process.stdout.readline()))
                if one is None or one.blocks != values.size:
                    return
                self._found[key] = one
