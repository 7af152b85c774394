"""Knobs of the lab's own block device: scheduler, requests, read-ahead, write-back throttling, limits, share of dirty pages.

A plain file of the device is one row of ``FILES`` below. The kernel's words for them: Documentation/ABI/stable/sysfs-block
and Documentation/ABI/testing/sysfs-class-bdi.

A loop device keeps its queue settings after it was detached, for whoever attaches it next, and a
change of scheduler drags others along (`none` sets nr_requests 128, any scheduler 256; bfq switches
write-back throttling off). So all are journaled, and those that a study does not vary are pinned
and verified. On a disk of the user's they are pinned to what they are, for a disk has a queue of its
own length, which a loop device has not.

`queue/iostats` is no knob: without it the device counts nothing, and a cold run could not be told from a warm one. Some
files are looked at when a file system is mounted (rotational, stable_writes), which in every run comes after them.

What changes a limit of the queue lets the kernel work out read-ahead anew (blk_apply_bdi_limits in block/blk-settings.c; seen
on Linux 6.18: twice max_sectors_kb), so that is journaled with it, put back after it, and pinned or turned last. Read-ahead
is one number in the kernel, which the queue and the backing device information both show. The ranges of the two shares of
dirty pages do not overlap, because the kernel refuses a least share above the largest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.lab import identity
from iotrial.lab.device import DevicePlace
from iotrial.lab.journal import Entry
from iotrial.lab.knob import (
    Consequence,
    Requirement,
    Scope,
    Subject,
    a_lab,
    at_risk,
    harmless,
    one_of,
    trade_off,
    whole_number,
)
from iotrial.lab.knobs.setting import KernelFileKnob
from iotrial.lab.objects.loop import backing_file
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS

SCHEDULER = re.compile(r"[a-z][a-z0-9_-]{0,14}")  # ELV_NAME_MAX is 16, with the NUL
LOOP_FILE = re.compile(r"/sys/block/loop[0-9]{1,7}/((?:queue|bdi)/[a-z_]+)", re.ASCII)
DISK_FILE = re.compile(r"/sys/block/[A-Za-z0-9!_-]{1,31}/((?:queue|bdi)/[a-z_]+)")


class BlockKnob(KernelFileKnob):
    """A file of the lab's device: of its queue, or of its backing device information (``bdi``)."""

    scope = Scope.DEVICE
    folder: str = "queue"
    file: str
    #: whether of an array it is the array's own, and not that of each of its disks
    of_the_whole: bool = False

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=DISK_LABS)

    def paths(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        place = subject.place
        devices = (place.device,) if self.of_the_whole else place.queues
        if place.device is None or not devices:
            raise RequestError(
                f"knob {self.name}: {a_lab(place.kind)} has no device of its own",
                hint="use the image lab (needs root)",
            )
        return tuple(f"/sys/block/{device}/{self.folder}/{self.file}" for device in devices)

    def original(self, subject: Subject, path: str) -> str:
        # Attaching an image changes read-ahead, and detaching it may: both are ours, what stood before is not.
        place = subject.place
        before = None
        if self.folder == "queue":
            before = place.queue_before.get(self.file)
        return super().original(subject, path) if before is None else self.shown(before)

    def prepare(self, subject: Subject, setting: Setting, values: tuple[str, ...]) -> None:
        super().prepare(subject, setting, (*values, self.read(subject, setting)))

    def is_own(self, path: str, entry: Entry) -> bool:
        # A disk is one that the user has named by its serial number or WWN; ``taken_by`` looks whether it is that one.
        found = (DISK_FILE if "disk" in entry.identity else LOOP_FILE).fullmatch(path)
        return found is not None and found[1] == f"{self.folder}/{self.file}"

    def identity(self, subject: Subject, setting: Setting) -> dict[str, str]:
        if isinstance(subject.place, DevicePlace):
            return {"disk": subject.place.disk_name}
        return {"backing": subject.target.read_or_none(backing_file(str(subject.place.device))) or ""}

    def taken_by(self, target: Target, entry: Entry) -> str | None:
        # Detached (as after the probe's death) is still ours to put back; attached to another file is not.
        device = entry.address["path"].split("/")[3]
        if "disk" in entry.identity:
            name = entry.identity["disk"]
            return (
                None if device in identity.disks_named(target, name) else f"{device} is not the disk {name}"
            )
        backing = target.read_or_none(backing_file(device))
        if backing is None or backing == entry.identity.get("backing"):
            return None
        return f"{device} is somebody else's now, with {backing} attached"

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.folder}/{self.file} of the lab's device: {', '.join(values)}",)


#: modules of schedulers that are not in every kernel itself
SCHEDULER_MODULES = {"mq-deadline": "mq_deadline", "kyber": "kyber_iosched", "bfq": "bfq"}


class BlockScheduler(BlockKnob):
    """The I/O scheduler."""

    name = "block.scheduler"
    title = "I/O scheduler of the lab's device"
    consequence = trade_off("the latency of some requests is traded for the throughput of others")
    file = "scheduler"

    def shown(self, text: str) -> str:
        for word in text.split():
            if word.startswith("["):
                return word.strip("[]")
        return text.strip()

    def requires(self, setting: Setting) -> Requirement:
        module = SCHEDULER_MODULES.get(setting.value)
        return Requirement(root=True, labs=DISK_LABS, modules=frozenset({module} if module else ()))

    def parse(self, setting: Setting) -> str:
        value = setting.value
        if value == "deadline":
            raise UnsupportedLevel(
                'knob block.scheduler: "deadline" is only another name for mq-deadline',
                hint='write "mq-deadline"',
            )
        modern = {"noop": "none", "cfq": "bfq", "anticipatory": "mq-deadline"}
        if value in modern:
            raise UnsupportedLevel(
                f'knob block.scheduler: "{value}" left the kernel in 5.0',
                hint=f'the nearest now is "{modern[value]}" (not the same algorithm, except noop)',
            )
        if not SCHEDULER.fullmatch(value):
            raise UnsupportedLevel(f'knob block.scheduler: "{value}" is no name of a scheduler')
        return value

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        text = subject.target.read(self.paths(subject, setting)[0])
        return tuple(word.strip("[]") for word in text.split())

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        # Not looked up first: the kernel lists a scheduler that is a module only once it was asked for it.
        try:
            super().write(subject, setting, value)
        except KnobError as error:
            raise UnsupportedLevel(
                f'knob {self.name}: this kernel has no "{value}"',
                hint="it has: " + ", ".join(self.levels(subject, setting)),
            ) from error


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A plain file of the lab's device, and the knob that turns it.

    ``file`` is below /sys/block/DEVICE. Its values are the whole numbers of ``numbers``, least and most, or else ``words``;
    ``neutral`` is what every run goes through before its own. ``consequence``: what its values do to the safety of data,
    ``consequences`` of single ones. ``dragged``: values that a change of scheduler writes here by itself. ``of_the_whole``:
    of an array it is the array's own, and not that of each of its disks. ``is_limit``: a change of it lets the kernel work
    out read-ahead anew. ``rank``: order within the stage.
    """

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
    consequences: Mapping[str, Consequence] = field(default_factory=dict)


class DeviceFileKnob(BlockKnob):
    """The knob of one row of ``FILES``."""

    def __init__(self, row: DeviceFile) -> None:
        self._row = row
        self.name, self.title, self.consequence, self.rank = row.name, row.title, row.consequence, row.rank
        self.consequences = row.consequences
        self.folder, self.file = row.file.split("/")
        self.of_the_whole = row.of_the_whole
        if row.numbers is None:
            self.LEVELS = row.words
        else:
            self.open_levels = row.open_levels or "{} to {}".format(*row.numbers)

    def parse(self, setting: Setting) -> str:
        if self._row.numbers is None:
            return one_of(self.name, setting.value, self._row.words)
        return whole_number(f"knob {self.name}", setting.value, *self._row.numbers)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        if self._row.numbers is not None:
            return ()
        subject.target.read(self.paths(subject, setting)[0])  # a kernel or device that lacks it has no levels
        return self._row.words

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return self._row.neutral

    def prepare(self, subject: Subject, setting: Setting, values: tuple[str, ...]) -> None:
        if self._row.is_limit:
            _prepare_read_ahead(subject, values)
        super().prepare(subject, setting, (*values, *self._row.dragged))


def _prepare_read_ahead(subject: Subject, values: tuple[str, ...]) -> None:
    """Whatever read-ahead comes of a limit is ours to put back, and put back last."""
    queue = f"/sys/block/{subject.place.device}/queue"
    sizes = {value for value in values if value.isdigit()}
    sizes |= {subject.target.read(f"{queue}/{file}") for file in ("max_sectors_kb", "max_hw_sectors_kb")}
    dragged = {LEAST_READ_AHEAD_KB, *(2 * int(size) for size in sizes if size.isdigit())}
    knob = next(knob for knob in KNOBS if knob.name == READ_AHEAD.knob)
    knob.prepare(subject, READ_AHEAD, tuple(str(kb) for kb in sorted(dragged)))


NR_REQUESTS, WRITE_THROTTLE = "block.nr_requests", "block.wbt_lat_usec"
READ_AHEAD = Setting("block.read_ahead_kb", "128")
LEAST_READ_AHEAD_KB = 128

FILES = (
    DeviceFile(
        NR_REQUESTS,
        "requests that the device's queue holds",
        "queue/nr_requests",
        trade_off("a longer queue makes every request in it wait longer"),
        neutral="128",
        numbers=(4, 4096),
        open_levels="4 to 4096 (a device may hold fewer)",
        dragged=("64", "128", "256"),
    ),
    DeviceFile(
        READ_AHEAD.knob,
        "read-ahead of the lab's device in KiB",
        "queue/read_ahead_kb",
        trade_off("what is read ahead takes memory and may never be used"),
        neutral="128",
        numbers=(0, 65536),
        of_the_whole=True,
        rank=1,  # after the limits of the queue, which drag it along
    ),
    DeviceFile(
        WRITE_THROTTLE,
        "target latency of write-back throttling in microseconds (0: off)",
        "queue/wbt_lat_usec",
        trade_off("reads wait longer behind writes, or writes behind reads"),
        neutral="2000",
        numbers=(0, 10_000_000),
        dragged=("0", "2000", "75000"),
    ),
    DeviceFile(
        "block.max_sectors_kb",
        "largest request to the lab's device in KiB",
        "queue/max_sectors_kb",
        trade_off("others wait longer behind large requests"),
        neutral="64",
        numbers=(4, 65536),
        open_levels="4 to what the device can (queue/max_hw_sectors_kb)",
        is_limit=True,
    ),
    DeviceFile(
        "block.nomerges",
        "merging of requests: 0 all, 1 simple ones only, 2 none",
        "queue/nomerges",
        harmless("requests are only put together otherwise"),
        neutral="0",
        words=("0", "1", "2"),
    ),
    DeviceFile(
        "block.rq_affinity",
        "who completes a request: 0 anyone, 1 the group of the processor that asked, 2 that processor itself",
        "queue/rq_affinity",
        harmless("another processor completes requests"),
        neutral="1",
        words=("1", "0", "2"),
    ),
    DeviceFile(
        "block.add_random",
        "whether requests feed the kernel's pool of entropy",
        "queue/add_random",
        harmless("the kernel gathers entropy elsewhere too"),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.rotational",
        "whether the lab's device says that it is a turning disk",
        "queue/rotational",
        harmless("a hint for placing and scheduling, no promise about data"),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.stable_writes",
        "whether pages stand still while they are written back",
        "queue/stable_writes",
        trade_off(
            "at 0 a page may change while it is written, which a device that checks data by a checksum must not see"
        ),
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.write_cache",
        "whether the lab's device is taken to have a cache that must be flushed",
        "queue/write_cache",
        harmless("the kernel flushes the cache of the device where data must be on the disk"),
        neutral="write back",
        words=("write back", "write through"),
        is_limit=True,
        consequences={
            "write through": at_risk(
                "the kernel no longer flushes the cache of the device, so that a power cut may cost synced data and the "
                "file system itself, unless that cache survives it"
            )
        },
    ),
    DeviceFile(
        "bdi.max_ratio",
        "largest share of the dirty pages that the lab's device may have, in per cent",
        "bdi/max_ratio",
        trade_off("the larger the share, the more data that nobody has synced a power cut takes"),
        neutral="50",
        numbers=(10, 100),
        of_the_whole=True,
    ),
    DeviceFile(
        "bdi.min_ratio",
        "least share of the dirty pages that is kept for the lab's device, in per cent",
        "bdi/min_ratio",
        trade_off("what is kept for this device is taken from the memory of others"),
        neutral="1",
        numbers=(0, 10),
        of_the_whole=True,
    ),
    DeviceFile(  # since Linux 6.2
        "bdi.strict_limit",
        "whether the device's share of dirty pages holds also while few pages are dirty in all",
        "bdi/strict_limit",
        trade_off("writers wait earlier for this device"),
        neutral="0",
        of_the_whole=True,
    ),
)
KNOBS: tuple[DeviceFileKnob, ...] = tuple(map(DeviceFileKnob, FILES))


#: what is pinned on every image lab unless the study varies it: knob and value, in the order of writing
PINNED: tuple[Setting, ...] = (
    Setting("block.scheduler", "none"),
    Setting(NR_REQUESTS, "128"),
    READ_AHEAD,
    Setting(WRITE_THROTTLE, "0"),
)


def pinned(place: Place, *, scheduler_varies: bool) -> tuple[Setting, ...]:
    """What is pinned on a place unless the study varies it: a loop device to the same everywhere, a disk to what it has,
    but for what the schedulers of a study do not have in common (bfq has no write-back throttling)."""
    if not isinstance(place, DevicePlace):
        return PINNED
    found = []
    for setting in PINNED:
        text = place.target.read_or_none(f"/sys/block/{place.device}/queue/{setting.knob.partition('.')[2]}")
        if text is not None and scheduler_varies and setting.knob == WRITE_THROTTLE:
            found.append(setting)
        elif text is not None:
            value = BlockScheduler().shown(text) if setting.knob == BlockScheduler.name else text.strip()
            found.append(Setting(setting.knob, value))
    return tuple(found)
