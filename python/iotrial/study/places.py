"""Places of a trial, declared as objects by name. Where each lies is said on the command line, never by a study.

A place may be a level of a factor on the knob ``lab.device``; or the bare device of a file system's external log; or a
second file system beside that of the runs, for what a work keeps elsewhere (a database's log).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from iotrial.study.schema import Disk, Line, Name, PlaceName, Size

GUEST = "guest"
LABS = ("directory", "image", "device", GUEST)
#: labs with a block device of their own
DISK_LABS = frozenset(LABS) - {"directory"}
LAB_DEVICE = "lab.device"
LOG_KNOB = "filesystem.log"


class Holds(StrEnum):
    """What a place is for."""

    RUNS = "runs"
    LOG = "log"
    FILES = "files"


class PlaceSpec(Struct, frozen=True):
    """One place. ``text`` says what is meant by it ("the solid-state disk"); kind, size, file system and
    modelled disk are the lab's where they are None."""

    name: PlaceName
    text: Line = ""
    holds: Holds = Holds.RUNS
    kind: Literal["directory", "image", "device"] | None = None
    size_bytes: Annotated[Size, Meta(ge=1 << 20, le=16 << 40)] | None = None
    filesystem: Name | None = None
    disk: Disk = None
