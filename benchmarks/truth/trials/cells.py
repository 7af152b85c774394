"""The kinds of trial that the suite runs, the number of each, and the choice of the next one."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

WORKLOADS = ("command", "probe")
NEIGHBOURS = ("quiet", "bursty")
INJECTED = (0.01, 0.02, 0.05, 0.10)

IDENTICAL_BLOCKS = 100
IDENTICAL_SECONDS = 5.0
INJECTED_SECONDS = 20.0


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One kind of trial. ``injected``: relative slowdown of one arm, 0.0 if the arms are identical."""

    workload: str
    neighbour: str
    injected: float

    @property
    def identical(self) -> bool:
        """Return whether the two arms are the same."""
        return self.injected == 0.0

    @property
    def name(self) -> str:
        """Return a readable name."""
        what = "identical" if self.identical else f"+{self.injected:.0%}"
        return f"{self.workload}, {self.neighbour}, {what}"


def cells(*, injected_under: Iterable[str] = ("quiet",)) -> tuple[Cell, ...]:
    """Return identical arms under both neighbours, and injected slowdowns under those named."""
    identical = [Cell(w, n, 0.0) for w in WORKLOADS for n in NEIGHBOURS]
    injected = [Cell(w, n, i) for w in WORKLOADS for n in injected_under for i in INJECTED]
    return (*identical, *injected)


def targets(wanted: Iterable[Cell], *, identical: int, injected: int) -> dict[Cell, int]:
    """Return the number of trials per cell."""
    return {cell: identical if cell.identical else injected for cell in wanted}


def draw(target: dict[Cell, int], done: Counter[Cell]) -> Cell | None:
    """Draw the next cell, or None if all are complete.

    The suite goes in rounds. Each has the same share of every cell, in an order drawn from the system. So wherever the
    record ends, it has about the same share of all cells, spread over the same hours.
    """
    rounds = min((n for n in target.values() if n > 0), default=0)
    for number in range(1, rounds + 1):
        deck = [
            cell
            for cell, wanted in target.items()
            for _ in range(max(0, number * wanted // rounds - done[cell]))
        ]
        if deck:
            return secrets.choice(deck)
    return None
