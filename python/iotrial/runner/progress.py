"""Progress of a running trial for its watcher: frozen snapshots, taken between blocks, never of an incomplete block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from iotrial.stats.model import Effect, ObservedBlock


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Progress of a trial.

    ``effects`` are those of the last analysis of each condition. ``upcoming`` is the
    next block, as the key of its condition and its index (None: no block follows). ``block_s``: seconds that the last
    block of each condition took. ``activity``: what the present run does, where runs are long.
    ``recent``: the newest complete blocks, if single runs are to be shown.
    """

    trial: int
    elapsed_s: float
    budget_s: float
    blocks: Mapping[str, int]
    decided: frozenset[str]
    conditions: int
    void: int
    failures: int
    effects: tuple[Effect, ...]
    upcoming: tuple[str, int] | None = None
    block_s: Mapping[str, float] = field(default_factory=dict)
    activity: str = ""
    recent: tuple[ObservedBlock, ...] = ()


class Watcher(Protocol):
    """Shows a trial to its user. Called between blocks only, or where a run does nothing but wait."""

    def update(self, snapshot: Snapshot) -> None:
        """Show the new progress."""
        ...

    def say(self, text: str) -> None:
        """Show a one-off message: the lab is being made, a note of the resolver."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""
