"""Further knobs of the lab's own block device: sizes and merging of requests, who completes them, what it says of itself.

`queue/iostats` is no knob: without it the device counts nothing, and a cold run could not be told from a warm one. Some
of these are looked at when a file system is mounted (rotational, stable_writes), which in every run comes after them.

What changes a limit of the queue lets the kernel work out read-ahead anew (blk_apply_bdi_limits in block/blk-settings.c; seen
on Linux 6.18: twice max_sectors_kb), so that is journaled with it, put back after it, and pinned or turned last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from iotrial.lab.knob import Consequence, Subject, at_risk, harmless, one_of, trade_off
from iotrial.lab.knobs.block_queue import BlockKnob, BlockNumber, BlockReadAhead
from iotrial.study.model import Setting

READ_AHEAD = Setting("block.read_ahead_kb", "128")
LEAST_READ_AHEAD_KB = 128


class Limit(BlockKnob):
    """A limit of the queue: whatever read-ahead comes of it is ours to put back, and put back last."""

    def prepare(self, subject: Subject, setting: Setting, values: tuple[str, ...]) -> None:
        queue = f"/sys/block/{subject.place.device}/queue"
        sizes = {value for value in values if value.isdigit()}
        sizes |= {subject.target.read(f"{queue}/{file}") for file in ("max_sectors_kb", "max_hw_sectors_kb")}
        dragged = {LEAST_READ_AHEAD_KB, *(2 * int(size) for size in sizes if size.isdigit())}
        BlockReadAhead().prepare(subject, READ_AHEAD, tuple(str(kb) for kb in sorted(dragged)))
        super().prepare(subject, setting, values)


class BlockChoice(BlockKnob):
    """A file of the device that holds one of a few words."""

    LEVELS: tuple[str, ...] = ("0", "1")

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        subject.target.read(self.paths(subject, setting)[0])  # a kernel or device that lacks it has no levels
        return self.LEVELS

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return self.LEVELS[0]


class BlockMaxSectors(Limit, BlockNumber):
    """How large a request may become."""

    name = "block.max_sectors_kb"
    title = "largest request to the lab's device in KiB"
    consequence = trade_off("others wait longer behind large requests")
    file = "max_sectors_kb"
    least, most = 4, 65536
    open_levels = "4 to what the device can (queue/max_hw_sectors_kb)"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "64"


class BlockNomerges(BlockChoice):
    """Whether requests next to each other become one (Documentation/ABI/stable/sysfs-block)."""

    name = "block.nomerges"
    title = "merging of requests: 0 all, 1 simple ones only, 2 none"
    consequence = harmless("requests are only put together otherwise")
    file = "nomerges"
    LEVELS = ("0", "1", "2")


class BlockRqAffinity(BlockChoice):
    """Which processor completes a request."""

    name = "block.rq_affinity"
    title = (
        "who completes a request: 0 anyone, 1 the group of the processor that asked, 2 that processor itself"
    )
    consequence = harmless("another processor completes requests")
    file = "rq_affinity"
    LEVELS = ("1", "0", "2")


class BlockAddRandom(Limit, BlockChoice):
    """Whether the device feeds the pool of entropy."""

    name = "block.add_random"
    title = "whether requests feed the kernel's pool of entropy"
    consequence = harmless("the kernel gathers entropy elsewhere too")
    file = "add_random"


class BlockRotational(Limit, BlockChoice):
    """Whether the device says that it turns: file systems and schedulers place and wait otherwise."""

    name = "block.rotational"
    title = "whether the lab's device says that it is a turning disk"
    consequence = harmless("a hint for placing and scheduling, no promise about data")
    file = "rotational"


class BlockStableWrites(Limit, BlockChoice):
    """Whether a page may be changed while it is written back; a file system takes it over when it is mounted."""

    name = "block.stable_writes"
    title = "whether pages stand still while they are written back"
    consequence = trade_off(
        "at 0 a page may change while it is written, which a device that checks data by a checksum must not see"
    )
    file = "stable_writes"


class BlockWriteCache(Limit, BlockChoice):
    """Whether the kernel flushes the device's cache; without, a power cut may cost what the lab holds, and only that."""

    name = "block.write_cache"
    title = "whether the lab's device is taken to have a cache that must be flushed"
    consequence = harmless("the kernel flushes the cache of the device where data must be on the disk")
    consequences: ClassVar[Mapping[str, Consequence]] = {
        "write through": at_risk(
            "the kernel no longer flushes the cache of the device, so that a power cut may cost synced data and the file "
            "system itself, unless that cache survives it"
        ),
    }
    file = "write_cache"
    LEVELS = ("write back", "write through")
