"""Knobs of the lab's own block device: scheduler, requests, read-ahead, write-back throttling, limits, share of dirty pages.

A plain file of the device is one row of ``KNOBS`` below. The kernel documents them in Documentation/ABI/stable/sysfs-block
and Documentation/ABI/testing/sysfs-class-bdi.

`queue/iostats` is not a knob: without it the device counts no I/O, and cold and warm runs could not be distinguished. Some
files take effect only when a file system is mounted (rotational, stable_writes); every run mounts after setting them.
Read-ahead is one number in the kernel, shown both in the queue and in the backing device information. The ranges of the two
dirty page ratios do not overlap, because the kernel refuses a minimum above the maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from iotrial.knobs.declaration import Consequence, Declaration, Scope, Stage, at_risk, harmless, trade_off
from iotrial.study.model import Setting


class BlockScheduler(Declaration):
    """The I/O scheduler."""

    name = "block.scheduler"
    listed_by_kernel = True
    title = "I/O scheduler of the lab's device"
    stage = Stage.DEVICE
    scope = Scope.DEVICE
    candidates = ("none", "mq-deadline", "kyber", "bfq")
    consequence = trade_off("the latency of some requests is traded for the throughput of others")


class BlockTunable(Declaration):
    """A setting of one I/O scheduler, named by the option ``key``; without that scheduler the device does not have it.

    The kernel resets a scheduler's settings to their defaults whenever a device gets the scheduler
    (Documentation/block/deadline-iosched.rst, kyber-iosched.rst and bfq-iosched.rst).
    """

    name = "block.tunable"
    title = "a setting of the I/O scheduler of the lab's device"
    stage = Stage.DEVICE
    scope = Scope.DEVICE
    option = "key"
    open_levels = "whole numbers in the range of the key, or default"
    rank = 2  # after the scheduler
    consequence = trade_off("the latency of some requests is traded for the throughput of others")

    #: by key, its scheduler, its range and the kernel's default
    TUNABLES: ClassVar[Mapping[str, tuple[str, int, int, int]]] = {
        "fifo_batch": ("mq-deadline", 0, 10_000, 16),
        "front_merges": ("mq-deadline", 0, 1, 1),
        "read_expire": ("mq-deadline", 1, 600_000, 500),
        "write_expire": ("mq-deadline", 1, 600_000, 5000),
        "writes_starved": ("mq-deadline", 0, 10_000, 2),
        "read_lat_nsec": ("kyber", 1, 10_000_000_000, 2_000_000),
        "write_lat_nsec": ("kyber", 1, 10_000_000_000, 10_000_000),
        "low_latency": ("bfq", 0, 1, 1),
        "slice_idle": ("bfq", 0, 10_000, 8),
        "strict_guarantees": ("bfq", 0, 1, 0),
    }


@dataclass(frozen=True, slots=True)
class DeviceFile(Declaration):
    """A plain file of the lab's device, and the knob for it.

    ``file`` is below /sys/block/DEVICE. Its values are the whole numbers in ``numbers``, minimum and maximum, or else
    ``words``. ``neutral`` is the value that every run sets before its own. ``consequence``: what its values do to the safety
    of data, ``consequences``: the same for single values. ``dragged``: values that a change of scheduler writes to it.
    ``of_the_whole``: for an array, the array's own file, not one of each disk. ``is_limit``: a change of it makes the kernel
    recompute read-ahead. ``rank``: order within the stage. ``candidates``: as of every knob.
    """

    stage: ClassVar[Stage] = Stage.DEVICE
    scope: ClassVar[Scope] = Scope.DEVICE

    name: str
    title: str
    file: str
    consequence: Consequence
    neutral: str
    numbers: tuple[int, int] | None = None
    words: tuple[str, ...] = ("0", "1")
    open_levels: str | None = None
    dragged: tuple[str, ...] = ()
    of_the_whole: bool = False
    is_limit: bool = False
    rank: int = 0
    candidates: tuple[str, ...] = ()
    consequences: Mapping[str, Consequence] = field(default_factory=dict)


NR_REQUESTS, WRITE_THROTTLE = "block.nr_requests", "block.wbt_lat_usec"
READ_AHEAD = Setting("block.read_ahead_kb", "128")
LEAST_READ_AHEAD_KB = 128

READ_AHEAD_FILE = DeviceFile(
    READ_AHEAD.knob,
    "read-ahead of the lab's device in KiB",
    "queue/read_ahead_kb",
    trade_off("read-ahead takes memory and may read data that is never used"),
    neutral="128",
    numbers=(0, 65536),
    candidates=("0", "128", "512", "4096"),
    of_the_whole=True,
    rank=1,  # after the queue limits, which change it
)

KNOBS = (
    DeviceFile(
        NR_REQUESTS,
        "number of requests in the device's queue",
        "queue/nr_requests",
        trade_off("a longer queue makes every request in it wait longer"),
        neutral="128",
        numbers=(4, 4096),
        open_levels="4 to 4096 (a device may hold fewer)",
        candidates=("32", "128", "256"),
        dragged=("64", "128", "256"),
    ),
    READ_AHEAD_FILE,
    DeviceFile(
        WRITE_THROTTLE,
        "target latency of write-back throttling in microseconds (0: off)",
        "queue/wbt_lat_usec",
        trade_off("reads wait longer behind writes, or writes behind reads"),
        neutral="2000",
        numbers=(0, 10_000_000),
        candidates=("0", "2000", "75000"),
        dragged=("0", "2000", "75000"),
    ),
    DeviceFile(
        "block.max_sectors_kb",
        "largest request to the lab's device in KiB",
        "queue/max_sectors_kb",
        trade_off("other requests wait longer behind large ones"),
        neutral="64",
        numbers=(4, 65536),
        open_levels="4 to the device's limit (queue/max_hw_sectors_kb)",
        is_limit=True,
    ),
    DeviceFile(
        "block.nomerges",
        "merging of requests: 0 all, 1 simple ones only, 2 none",
        "queue/nomerges",
        harmless("requests are only merged differently"),
        neutral="0",
        words=("0", "1", "2"),
        candidates=("0", "2"),
    ),
    DeviceFile(
        "block.rq_affinity",
        "which CPU completes a request: 0 any, 1 one of the group of the submitting CPU, 2 the submitting CPU",
        "queue/rq_affinity",
        harmless("another CPU completes requests"),
        neutral="1",
        words=("1", "0", "2"),
        candidates=("0", "1", "2"),
    ),
    DeviceFile(
        "block.add_random",
        "whether requests feed the kernel's entropy pool",
        "queue/add_random",
        harmless("the kernel has other sources of entropy"),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.rotational",
        "whether the lab's device reports itself as a rotating disk",
        "queue/rotational",
        harmless("a hint for allocation and scheduling, without effect on the safety of data"),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.stable_writes",
        "whether pages must not change while they are written back (stable writes)",
        "queue/stable_writes",
        trade_off(
            "at 0 a page may change while it is being written, which breaks devices that checksum data"
        ),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.write_cache",
        "whether the kernel treats the lab's device as having a volatile write cache",
        "queue/write_cache",
        harmless("the kernel flushes the device's cache where data must be on the disk"),
        neutral="write back",
        words=("write back", "write through"),
        is_limit=True,
        consequences={
            "write through": at_risk(
                "the kernel no longer flushes the device's cache, so a power cut may lose synced data and corrupt "
                "the file system, unless the cache is protected against power loss"
            )
        },
    ),
    DeviceFile(
        "bdi.max_ratio",
        "maximum share of the dirty pages for the lab's device, in percent",
        "bdi/max_ratio",
        trade_off("the larger the share, the more unsynced data a power cut loses"),
        neutral="50",
        numbers=(10, 100),
        of_the_whole=True,
    ),
    DeviceFile(
        "bdi.min_ratio",
        "minimum share of the dirty pages reserved for the lab's device, in percent",
        "bdi/min_ratio",
        trade_off("what is reserved for this device is not available to others"),
        neutral="1",
        numbers=(0, 10),
        of_the_whole=True,
    ),
    DeviceFile(  # since Linux 6.2
        "bdi.strict_limit",
        "whether the device's share of dirty pages is enforced even if few pages are dirty in total",
        "bdi/strict_limit",
        trade_off("writers are throttled earlier for this device"),
        neutral="0",
        of_the_whole=True,
    ),
)
