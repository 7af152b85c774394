"""How each host of a fleet stands, as values: for the table that is shown, and for the document at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from iotrial.fleet.interim import SoFar


class Phase(StrEnum):
    """Where a host stands as its coordinator sees it."""

    JOINING = "joining"  # it is there, and has not begun
    MEASURING = "measuring"
    LOST = "lost"  # it does not answer, and is waited for
    LEFT_OUT = (
        "left out"  # it has not answered for too long; taken up again if it comes back while others measure
    )
    STOPPED = "stopped"  # its trial was interrupted
    DONE = "done"
    INVALID = "invalid"  # its controls failed: it is reported, not averaged
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether nothing more is waited for."""
        return self not in (Phase.JOINING, Phase.MEASURING, Phase.LOST)


@dataclass(frozen=True, slots=True)
class HostStanding:
    """One host: ``trial`` is its number in the coordinator's store, ``trial_id`` what names it everywhere."""

    name: str
    phase: Phase
    blocks: int = 0
    trial: int | None = None
    trial_id: str | None = None
    said: str = ""
    left: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """The whole fleet at one moment. ``so_far``: means over hosts, of comparisons with ``further`` beside them."""

    fleet: str
    study: str
    elapsed_s: float
    hosts: Sequence[HostStanding]
    so_far: Sequence[SoFar] = ()
    further: int = 0

    @property
    def blocks(self) -> int:
        return sum(host.blocks for host in self.hosts)

    def counted(self, phase: Phase) -> int:
        """How many hosts stand so."""
        return sum(host.phase is phase for host in self.hosts)


class FleetWatcher(Protocol):
    """Who is told how a fleet stands. Every method is cheap, and is called by one thread."""

    def update(self, standing: Standing) -> None:
        """The fleet stands so."""

    def say(self, text: str) -> None:
        """Something that happens once."""
