"""Clocks of other machines held against ours, and how far off what is said of them can be.

One exchange asks the other machine for its clock and reads ours before (a) and after (b). Whatever the way there and
back took, the other clock was read between a and b of ours; so if it said t, its offset lies within t - (a + b) / 2 ±
(b - a) / 2. This holds for ways of any asymmetry, which is all that can be known of them from here (D. L. Mills, RFC
5905, has it as half the round-trip delay). Of several exchanges all intervals hold at once, and the shortest is
taken. Between two readings, one before and one after a run, a clock that runs evenly has an offset on the line
between them, and the error there is at most the larger one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

EXCHANGES = 8
#: another clock runs evenly to this at the least, or there is no telling: no quartz is off by a thousandth
MOST_DRIFT = 1e-3


@dataclass(frozen=True, slots=True)
class Reading:
    """By how much another clock is ahead of ours, at one moment of ours; true to within ``bound_ns`` either way."""

    at_ns: int
    offset_ns: int
    bound_ns: int
    round_trip_ns: int


@dataclass(frozen=True, slots=True)
class Common:
    """The clock of one client over a run, from a reading before and one after it."""

    before: Reading
    after: Reading

    @property
    def bound_ns(self) -> int:
        """How far a moment of the run may be off when it is put on our clock."""
        return max(self.before.bound_ns, self.after.bound_ns)

    @property
    def drift(self) -> float:
        """Seconds a second that the other clock gained on ours, as far as the readings tell."""
        lasted = self.after.at_ns - self.before.at_ns
        return (self.after.offset_ns - self.before.offset_ns) / lasted if lasted > 0 else 0.0

    @property
    def drift_bound(self) -> float:
        """How far ``drift`` may be off."""
        lasted = self.after.at_ns - self.before.at_ns
        return (self.before.bound_ns + self.after.bound_ns) / lasted if lasted > 0 else 0.0

    @property
    def stepped(self) -> bool:
        """Whether the two readings cannot both be of a clock that runs evenly: it was set, or its machine stood still."""
        return abs(self.drift) > self.drift_bound + MOST_DRIFT

    def ours(self, theirs_ns: int) -> int:
        """A moment of the other clock on ours: on the line between the two readings."""
        first, last = self.before, self.after
        begin = first.at_ns + first.offset_ns
        lasted = last.at_ns + last.offset_ns - begin
        share = (theirs_ns - begin) / lasted if lasted > 0 else 0.0
        return theirs_ns - round(first.offset_ns + share * (last.offset_ns - first.offset_ns))


def read_clock(
    ask: Callable[[], int], *, exchanges: int = EXCHANGES, now: Callable[[], int] = time.monotonic_ns
) -> Reading:
    """The other clock against ours, by the exchange with the smallest round trip. ``ask`` gives its nanoseconds."""
    best: Reading | None = None
    for _ in range(exchanges):
        sent = now()
        theirs = ask()
        back = now()
        took = back - sent
        if best is None or took < best.round_trip_ns:
            middle = sent + took // 2
            best = Reading(middle, theirs - middle, -(-took // 2), took)
    assert best is not None
    return best
