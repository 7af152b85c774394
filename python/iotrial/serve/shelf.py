"""The store as pages take it: looked at anew whenever its file has changed, opened for reading for each request.

What is in the list is kept until the file changes; while a trial is running the file changes all the time, and is then looked
at once a second at most and without a check of every page, which would read all of it beside the measurement.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from iotrial.errors import StoreError, UnknownName
from iotrial.store import Store
from iotrial.store.outline import Outline, outlines
from iotrial.store.states import TrialState

_FRESH_S = 1.0  # how long a list counts while something is running
_Stamp = tuple[object, ...]


@dataclass(frozen=True)
class View:
    """What the store holds. ``trials``: newest first; ``warnings``: of the file as a whole."""

    trials: tuple[Outline, ...] = ()
    damaged: tuple[Outline, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: bool = False

    @cached_property
    def running(self) -> tuple[Outline, ...]:
        """The trials that are being measured now."""
        return tuple(trial for trial in self.trials if trial.state is TrialState.RUNNING)

    @cached_property
    def by_number(self) -> dict[int, Outline]:
        """The trials that can be read."""
        return {trial.number: trial for trial in self.trials}


class Shelf:
    """One store's file. Its methods may be called from several threads; a ``Store`` stays in the thread that opened it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._view: View | None = None
        self._stamp: _Stamp = ()
        self._warnings: tuple[str, ...] = ()
        self._seen_s = 0.0

    def opened(self) -> Store:
        """The store for reading, to be closed by the caller. StoreError where it cannot be read."""
        return Store.open(self.path, read_only=True, checked=False)

    def view(self) -> View:
        """What the store holds now. StoreError where it cannot be read."""
        with self._lock:
            stamp = self._stamp_now()
            view = self._view
            if view is not None and self._counts(view, stamp):
                return view
            self._view = None  # whatever comes of it, what was known is over
            self._view = view = self._look(view, stamp)
            self._stamp, self._seen_s = stamp, time.monotonic()
            return view

    def _counts(self, view: View, stamp: _Stamp) -> bool:
        if view.running:  # its conductor may be gone without a change to the file
            return time.monotonic() - self._seen_s < _FRESH_S and stamp[:2] == self._stamp[:2]
        return stamp == self._stamp

    def _look(self, before: View | None, stamp: _Stamp) -> View:
        if not self.path.exists():
            return View(missing=True)
        measured = before is not None and before.running and stamp[:2] == self._stamp[:2]
        if measured and before is not None and (view := self._followed(before)) is not None:
            return view
        found, warnings = outlines(self.path, checked=not measured)
        if not measured:
            self._warnings = warnings
        newest = tuple(reversed(found))
        return View(
            tuple(one for one in newest if one.problem is None),
            tuple(one for one in newest if one.problem is not None),
            self._warnings,
        )

    def _followed(self, before: View) -> View | None:
        """What was seen before with its running trials as they are now; None where there are others by now."""
        now: dict[int, Outline] = {}
        try:
            with self.opened() as store:
                if store.find("last").number != max(one.number for one in (*before.trials, *before.damaged)):
                    return None
                for one in before.running:
                    found = store.find(one.number)
                    now[one.number] = replace(one, state=found.state, duration_s=found.duration_s)
        except (StoreError, UnknownName):
            return None
        return replace(before, trials=tuple(now.get(one.number, one) for one in before.trials))

    def _stamp_now(self) -> _Stamp:
        """Which file it is, then when it and its log were written to last."""
        return (*_stamp(self.path), *_stamp(self.path.with_name(self.path.name + "-wal"))[2:])


def _stamp(path: Path) -> _Stamp:
    try:
        facts = path.stat()
    except OSError:
        return (0, 0, None)
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
