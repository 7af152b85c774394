"""Energy of time intervals, from power readings.

Power is interpolated linearly between two readings, so energy is a sum of trapezoids. An interval that the readings do not
cover, or that contains a gap, has no result, because any number would be a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Two readings further apart than this multiple of the usual distance have a gap between them.
GAP = 5.0


@dataclass(frozen=True, slots=True)
class Readings:
    """Power in watts at increasing Unix times; at least two readings."""

    at_s: Floats
    watts: Floats

    @property
    def period_s(self) -> float:
        """The median distance between two readings, in seconds."""
        return float(np.median(np.diff(self.at_s)))


def energies_j(readings: Readings, stretches: Sequence[tuple[float, float]]) -> tuple[float | None, ...]:
    """Return the joules of each interval (start and end in Unix time); None if the readings do not cover it."""
    at_s, watts = readings.at_s, readings.watts
    steps = np.diff(at_s)
    # Times relative to the first reading: in seconds since 1970 a double is not precise enough for small areas.
    total = np.concatenate([[0.0], np.cumsum(steps * (watts[:-1] + watts[1:]) / 2.0)])
    gaps = steps > GAP * readings.period_s
    found: list[float | None] = []
    for start, end in stretches:
        if not at_s[0] <= start <= end <= at_s[-1]:
            found.append(None)
            continue
        first = max(0, int(np.searchsorted(at_s, start, side="right")) - 1)
        last = min(steps.size - 1, int(np.searchsorted(at_s, end, side="left")))
        if gaps[first : max(first + 1, last)].any():
            found.append(None)
            continue
        found.append(_area(readings, total, end) - _area(readings, total, start))
    return tuple(found)


def _area(readings: Readings, total: Floats, moment: float) -> float:
    """Return the joules from the first reading to a moment within the readings."""
    at_s, watts = readings.at_s, readings.watts
    i = min(max(0, int(np.searchsorted(at_s, moment, side="right")) - 1), at_s.size - 2)
    width, into = float(at_s[i + 1] - at_s[i]), float(moment - at_s[i])
    here = float(watts[i]) + (float(watts[i + 1]) - float(watts[i])) * into / width
    return float(total[i]) + into * (float(watts[i]) + here) / 2.0
