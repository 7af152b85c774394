"""Named places of a trial. Their location is given on the command line, never by a study.

A place is a level of a factor on the knob ``lab.device``, the bare device for a file system's external log,
or a second file system for what a workload keeps elsewhere (a database's log).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from iotrial.study.schema import Disk, Line, Name, PlaceName, Size
from iotrial.units import format_percent

GUEST = "guest"
IN_PLACE = "in-place"
LABS = ("directory", "image", "device", GUEST, IN_PLACE)
#: labs with a block device
DISK_LABS = frozenset({"image", "device", GUEST})
#: labs that make their files; in place the work uses the user's own
OWN_LABS = frozenset(LABS) - {IN_PLACE}
GUESTS = frozenset({GUEST})
EVERYWHERE = frozenset(LABS)
_WITHOUT_MOUNT = ("cold-data", "cold-system", "warm", "as-is")
#: cache states by kind of lab; the first is what ``cold`` means there
CACHE_STATES_OF = {
    kind: ("cold-files", *_WITHOUT_MOUNT) if kind in DISK_LABS else _WITHOUT_MOUNT for kind in LABS
}
#: cache states that unmount, or drop what other programs use too
CACHE_NEEDS_ROOT = frozenset({"cold-files", "cold-system"})
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


# What a trial stored of its places and machine, in words.


def today_in_words(values: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return sentences on today's values (facts of a lab), without the full stop: what they are, and which no level has."""
    every = list(values)
    if not every:
        return ()
    listed = ", ".join(f"{one.get('setting')} {one.get('value')}" for one in every)
    sentences = [f"today's value{'s' if len(every) > 1 else ''}: {listed}"]
    if missing := [f"{one.get('setting')} {one.get('value')}" for one in every if not one.get("levels")]:
        sentences.append(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not among the levels, so the trial does not say "
            f"whether a level is better than today's; --today adds it as the reference"
        )
    return tuple(sentences)


def shared_disks_in_words(stored: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the caveats on places that share disks, one sentence each, from what ``Together.facts`` stored."""
    found = []
    for one in stored:
        places, disks = _joined(one.get("places")), _joined(one.get("disks"))
        if one.get("compared"):
            found.append(
                f"places {places} lie on one disk ({disks}): this compares that disk with itself (an A/A test), "
                f"not two devices; name a folder on another disk with --place NAME=FOLDER"
            )
        elif one.get("log"):
            found.append(
                f"the log ({one['log']}) lies on the same disk as the file system ({disks}): the result is the "
                f"cost of a second device on the same disk; name a folder on another disk with --place {one['log']}=FOLDER"
            )
        else:
            found.append(f"places {places} lie on one disk ({disks})")
    return tuple(found)


_BUSY = {
    "processors": "other work kept {} of the processors busy",
    "stolen": "the host took {} of the processors' time",
    "cpu": "tasks waited for a processor {} of the time",
    "io": "tasks waited for a disk {} of the time",
    "memory": "tasks waited for memory {} of the time",
}


def busy_in_words(stored: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return a sentence on what kept the machine busy before the trial (facts of a lab), without the full stop."""
    parts = [
        words.format(format_percent(share))
        for one in stored
        if (words := _BUSY.get(str(one.get("resource")))) and isinstance(share := one.get("share"), float)
    ]
    if not parts:
        return ()
    what = f"the machine was busy before the trial: {_joined(parts)}"
    return (f"{what}; intervals are wider for it: stop what is not needed and measure again",)


def _joined(names: object) -> str:
    words = [str(name) for name in names] if isinstance(names, list | tuple) else []
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
