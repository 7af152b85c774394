"""Named places of a trial. Their location is given on the command line, never by a study.

A place is a level of a factor on the knob ``lab.device``, the bare device for a file system's external log,
or a second file system for what a workload keeps elsewhere (a database's log).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from iotrial.study.schema import Disk, Line, Name, PlaceName, Size

GUEST = "guest"
IN_PLACE = "in-place"
LABS = ("directory", "image", "device", GUEST, IN_PLACE)
#: labs with a block device
DISK_LABS = frozenset({"image", "device", GUEST})
#: labs that make their files; in place the work uses the user's own
OWN_LABS = frozenset(LABS) - {IN_PLACE}
GUESTS = frozenset({GUEST})
EVERYWHERE = frozenset(LABS)
LAB_DEVICE = "lab.device"
LOG_KNOB = "filesystem.log"


class Holds(StrEnum):
    """Purpose of a place."""

    RUNS = "runs"
    LOG = "log"
    FILES = "files"


class PlaceSpec(Struct, frozen=True):
    """One place.

    ``text`` describes it ("the solid-state disk"). Kind, size, file system and simulated disk default to the
    lab's if None.
    """

    name: PlaceName
    text: Line = ""
    holds: Holds = Holds.RUNS
    kind: Literal["directory", "image", "device"] | None = None
    size_bytes: Annotated[Size, Meta(ge=1 << 20, le=16 << 40)] | None = None
    filesystem: Name | None = None
    disk: Disk = None
