"""Where a trial's time goes: every moment from the start of its lab to its end belongs to one part.

This is an account for people who wait, read from this machine's clock. It measures no work: the probe times that, and
the timed part of a run is taken from its answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any


class Part(StrEnum):
    """What the time is spent on, in the words of the report."""

    TIMED = "timed work"
    SLOWED = "injected slowdown of the control"
    WASH_IN = "wash-in runs"
    START = "starting and ending the work"
    MOUNTS = "mounts and cache state"
    FILES = "files and file systems"
    SETTINGS = "settings written"
    READ_BACK = "settings read back"
    STORE = "store"
    ANALYSIS = "analysis between blocks"
    COUNTING = "counting calls and requests"
    REHEARSAL = "untimed first runs"
    POWER_CUTS = "power cuts"
    LAB = "making and removing the lab"
    OTHER = "other"


class TimeAccount:
    """Nanoseconds by part. Each moment counts for the innermost part that is open; without one, for OTHER."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._spent_ns: dict[Part, int] = {}
        self._open = [Part.OTHER]
        self._whole = False
        self.began_ns = self._since_ns = clock_ns()

    @contextmanager
    def part(self, part: Part, *, whole: bool = False) -> Iterator[None]:
        """Count the time inside for this part. ``whole``: whatever parts are opened inside."""
        if self._whole:
            yield
            return
        self._book()
        self._open.append(part)
        self._whole = whole
        try:
            yield
        finally:
            self._book()
            self._open.pop()
            self._whole = False

    def worked(self, answer: Mapping[str, Any]) -> None:
        """Count the timed part of a run, of which this is the probe's answer, for TIMED and SLOWED instead of the open part.

        Call it right after the answer has come. A guest's clock may be fast: no more than the time since then is moved.
        """
        if self._whole:
            return
        had_ns = self._book()
        lasted = (answer.get("around") or {}).get("lasted_ns") or answer.get("wall_ns") or 0
        lasted_ns = min(int(lasted), had_ns)
        slowed_ns = min(int(answer.get("spun", {}).get("wall_ns", 0)), lasted_ns)
        for part, moved_ns in ((Part.TIMED, lasted_ns - slowed_ns), (Part.SLOWED, slowed_ns)):
            self._spent_ns[part] = self._spent_ns.get(part, 0) + moved_ns
        self._spent_ns[self._open[-1]] -= lasted_ns

    def spent_s(self) -> dict[str, float]:
        """Return the seconds of each part until now, the longest first. They add up to the elapsed time."""
        self._book()
        return {
            part.value: ns / 1e9 for part, ns in sorted(self._spent_ns.items(), key=lambda one: -one[1]) if ns
        }

    def _book(self) -> int:
        """Count the time since the last call for the open part; return it."""
        now_ns = self._clock_ns()
        passed_ns, self._since_ns = now_ns - self._since_ns, now_ns
        self._spent_ns[self._open[-1]] = self._spent_ns.get(self._open[-1], 0) + passed_ns
        return passed_ns
