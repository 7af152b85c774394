"""What a watcher of a running trial is told: frozen snapshots, only between blocks, never of an
incomplete one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from iotrial.analysis.model import Effect


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a trial stands. ``effects`` are those of the last look at each condition. ``upcoming`` is the block that follows,
    as the key of its condition and its index (None: none does); ``block_s``, how long the last block of each took."""

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


class Watcher(Protocol):
    """Shows a trial to its user. Called between blocks only."""

    def update(self, snapshot: Snapshot) -> None:
        """The trial has moved on."""
        ...

    def say(self, text: str) -> None:
        """Something that happens once: the lab is being made, a note of the resolver."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Nothing to show."""

    def say(self, text: str) -> None:
        """Nothing to say."""
