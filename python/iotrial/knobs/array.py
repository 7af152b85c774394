"""Knobs of an array of a guest's disks."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.knobs.declaration import (
    HARMLESS,
    Consequence,
    Declaration,
    Scope,
    Stage,
    at_risk,
    trade_off,
)


class RaidMaker(Declaration):
    """The tool that builds the array: md, btrfs (for its own file system), or the device mapper with stripes like LVM's."""

    name = "raid.maker"
    title = "what combines the guest's disks: md, btrfs, or LVM stripes"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    consequence = HARMLESS


class RaidLevel(Declaration):
    """raid0, raid1, raid4, raid5, raid6 or raid10."""

    name = "raid.level"
    title = "RAID level of the guest's disks"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    consequence = trade_off(
        "one disk may fail; a power cut while a disk is missing may corrupt data that was not being written "
        "(write hole)"
    )
    consequences: Mapping[str, Consequence] = {
        "raid0": at_risk("no redundancy: the failure of any disk loses all data"),
        "raid1": HARMLESS,
        "raid10": HARMLESS,
    }


class RaidChunk(Declaration):
    """Number of consecutive bytes on one disk."""

    name = "raid.chunk"
    title = "chunk size of the array: how much lies together on one disk"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    open_levels = "4 KiB to 64 MiB, powers of two (raid1 has none)"
    consequence = HARMLESS


class RaidBitmap(Declaration):
    """A record of regions being written, so that a crash does not require a full resync."""

    name = "raid.bitmap"
    title = "write-intent bitmap of the array"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "none": trade_off(
            "after a crash the whole array is resynchronised; until then its copies or parity may be inconsistent"
        ),
    }


class RaidState(Declaration):
    """All disks present, or without the last one."""

    name = "raid.state"
    title = "whether the array has all its disks, or one is missing"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "degraded": at_risk("a disk is missing: the next failure may lose all data"),
    }


class RaidStripeCache(Declaration):
    """Pages per disk in which raid4, 5 and 6 collect the parts of a stripe."""

    name = "raid.stripe_cache"
    title = "entries of the stripe cache of raid4, raid5 and raid6"
    stage = Stage.DEVICE
    scope = Scope.DEVICE
    open_levels = "17 to 32768"
    consequence = trade_off("takes a page of memory for each entry and disk")
