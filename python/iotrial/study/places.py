"""Places of a trial, declared as objects by name. Where each lies is said on the command line, never by a study.

A place may be a level of a factor on the knob ``lab.device``; or the bare device of a file system's external log; or a
second file system beside that of the runs, for what a work keeps elsewhere (a database's log).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from iotrial.study.disks import DiskSpec

LAB_DEVICE = "lab.device"
LOG_KNOB = "filesystem.log"


class Holds(StrEnum):
    """What a place is for."""

    RUNS = "runs"
    LOG = "log"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """One place. ``text`` says what is meant by it ("the solid-state disk"); kind, size, file system and
    modelled disk are the lab's where they are None."""

    name: str
    text: str = ""
    holds: Holds = Holds.RUNS
    kind: str | None = None
    size_bytes: int | None = None
    filesystem: str | None = None
    disk: DiskSpec | None = None
