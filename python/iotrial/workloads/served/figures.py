"""Clients that work at once: where each works, and what comes of them, from when each began and ended on one clock. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MOST_CLIENTS = 256


def client_folder(below: str, number: int) -> str:
    """The folder of client ``number`` from 1, of those that share a machine and a lab."""
    return f"{below}/client-{number}"


@dataclass(frozen=True, slots=True)
class Timed:
    """One client's run on the common clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def took_ns(self) -> int:
        """From its first process to the end of its last."""
        return self.end_ns - self.start_ns


def whole_ns(timed: Sequence[Timed]) -> int:
    """From when the first client began to when the last one was done."""
    return max(one.end_ns for one in timed) - min(one.start_ns for one in timed)


def together_ns(timed: Sequence[Timed]) -> int:
    """How long all were at work; 0 where one was done before another began."""
    return max(0, min(one.end_ns for one in timed) - max(one.start_ns for one in timed))


def spread_ns(timed: Sequence[Timed]) -> int:
    """How far apart they began."""
    return max(one.start_ns for one in timed) - min(one.start_ns for one in timed)


def fairness(rates: Sequence[float]) -> float:
    """Jain's index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984): (sum x)^2 / (n sum x^2); 1 where all are equal, 1 / n where
    one has all. ValueError where there is no rate, or none is above 0."""
    squares = sum(rate * rate for rate in rates)
    if not squares > 0:
        raise ValueError("fairness: wanted rates of which one at least is above 0")
    return sum(rates) ** 2 / (len(rates) * squares)


def numbers(timed: Sequence[Timed], volume_bytes: int) -> dict[str, float]:
    """The responses that times alone give, in seconds, bytes or works a second, and shares. ``volume_bytes`` 0: each
    client did one work."""
    each = float(volume_bytes or 1)
    took_s = [max(1, one.took_ns) / 1e9 for one in timed]
    rates = [each / seconds for seconds in took_s]
    found = {
        "rate": each * len(timed) / (max(1, whole_ns(timed)) / 1e9),
        "client_slowest": max(took_s),
        "client_median": statistics.median(took_s),
        "client_fastest": min(took_s),
        "fairness": fairness(rates),
        "slowest_to_fastest": max(took_s) / min(took_s),
        "start_spread_time": spread_ns(timed) / 1e9,
        "together_time": together_ns(timed) / 1e9,
    }
    if together_ns(timed) > 0:
        found["rate_together"] = sum(rates)
    return found
