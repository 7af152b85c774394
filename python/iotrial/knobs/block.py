"""Knobs of the lab's own block device: scheduler, requests, read-ahead, write-back throttling, limits, share of dirty pages.

A plain file of the device is one row of ``KNOBS`` below. The kernel documents them in Documentation/ABI/stable/sysfs-block
and Documentation/ABI/testing/sysfs-class-bdi.

`queue/iostats` is not a knob: without it the device counts no I/O, and cold and warm runs could not be distinguished. Some
files take effect only when a file system is mounted (rotational, stable_writes); every run mounts after setting them.
Read-ahead is one number in the kernel, shown both in the queue and in the backing device information. The ranges of the two
dirty page ratios do not overlap, because the kernel refuses a minimum above the maximum.

A loop device keeps its queue settings after detach, for the next user, and a change of scheduler changes other settings
with it (`none` sets nr_requests to 128, any scheduler to 256; bfq disables write-back throttling). So all of them are
journaled, and those that a study does not vary are pinned and verified. On a user's disk they are pinned to their current
values, because a disk has its own queue length, which a loop device has not.

A change of a queue limit makes the kernel recompute read-ahead (blk_apply_bdi_limits in block/blk-settings.c; seen on
Linux 6.18: twice max_sectors_kb). So read-ahead is journaled with the limit, restored after it, and pinned or set last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import KnobError, RequestError, UnknownName, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Scope, Stage, at_risk, trade_off
from iotrial.knobs.kernel_file import KernelFileKnob, chosen_word
from iotrial.knobs.knob import Requirement, RunContext, Undone, a_lab, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS, IN_PLACE

if TYPE_CHECKING:
    from iotrial.lab.journal import Entry
    from iotrial.lab.place import Place
    from iotrial.lab.target import Target

NR_REQUESTS, WRITE_THROTTLE = "block.nr_requests", "block.wbt_lat_usec"
READ_AHEAD = Setting("block.read_ahead_kb", "128")
LEAST_READ_AHEAD_KB = 128
#: folder in sysfs of the read-ahead and limits of a mount or disk
BACKING = "/sys/class/bdi/"

SCHEDULER = re.compile(r"[a-z][a-z0-9_-]{0,14}")  # ELV_NAME_MAX is 16, with the NUL
LOOP_FILE = re.compile(r"/sys/block/loop[0-9]{1,7}/((?:queue|bdi)/[a-z_]+)", re.ASCII)
MOUNT_FILE = re.compile(r"/sys/class/bdi/[A-Za-z0-9:_-]{1,63}/([a-z_]+)", re.ASCII)
DISK_FILE = re.compile(r"/sys/block/[A-Za-z0-9!_-]{1,31}/((?:queue|bdi)/[a-z_]+)")


TUNABLE_FILE = re.compile(r"/sys/block/[A-Za-z0-9!_-]{1,31}/queue/iosched/([a-z_]+)", re.ASCII)
#: a scheduler's setting as the kernel makes it
DEFAULT = "default"


#: labs with a queue that can be set
_QUEUED = DISK_LABS | {IN_PLACE}


class BlockKnob(KernelFileKnob):
    """A file of the lab's device: of its queue, or of its backing device information (``bdi``)."""

    stage = Stage.DEVICE
    scope = Scope.DEVICE
    requirement = Requirement(root=True, labs=_QUEUED)
    folder: str = "queue"
    file: str
    #: for an array: True if the file is the array's own, False if each of its disks has one
    of_the_whole: bool = False

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        from iotrial.lab.in_place import InPlace

        place = context.place
        if isinstance(place, InPlace) and self.of_the_whole and place.holding.backing:
            return tuple(
                f"{folder}/{self.file}"
                if folder.startswith(BACKING)
                else f"{folder}/{self.folder}/{self.file}"
                for folder in place.holding.backing
            )
        devices = (place.whole,) if self.of_the_whole else place.queues
        if place.device is None or not devices:
            why, hint = f"{a_lab(place.kind)} has no device", "use the image lab (needs root)"
            if isinstance(place, InPlace):
                why = f"{place.label} is on {place.filesystem}, which has no block device"
                hint = (
                    "name a folder on a disk with --in, or use a copy of this one on an image: --copy-from ."
                )
                if place.holding.backing:
                    hint = f"{READ_AHEAD.knob} and bdi.* act on this mount itself; {hint}"
            raise RequestError(f"knob {self.name}: {why}", hint=hint)
        return tuple(f"/sys/block/{device}/{self.folder}/{self.file}" for device in devices)

    def original(self, context: RunContext, path: str) -> str:
        # Attaching an image changes read-ahead, and detaching may. Both are our doing, so use the value from before.
        place = context.place
        before = None
        if self.folder == "queue":
            before = place.queue_before.get(self.file)
        return super().original(context, path) if before is None else self.shown(before)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        super().prepare(context, setting, (*values, self.read(context, setting)))

    def is_own(self, path: str, entry: Entry) -> bool:
        # The user has named a disk by its serial number or WWN; ``taken_by`` checks that it is still the same one.
        # In place it is whatever device holds the user's folder, and ``taken_by`` checks the same.
        of_a_mount = MOUNT_FILE.fullmatch(path)
        if of_a_mount is not None:
            return IN_USE in entry.identity and self.of_the_whole and of_a_mount[1] == self.file
        of_a_disk = "disk" in entry.identity or IN_USE in entry.identity
        found = (DISK_FILE if of_a_disk else LOOP_FILE).fullmatch(path)
        return found is not None and found[1] == f"{self.folder}/{self.file}"

    def identity(self, context: RunContext, setting: Setting, path: str) -> dict[str, str]:
        from iotrial.lab.device import DevicePlace
        from iotrial.lab.objects.loop import backing_file

        if context.place.kind == IN_PLACE:
            return {IN_USE: in_use(context.target, path)}
        if isinstance(context.place, DevicePlace):
            return {"disk": context.place.disk_name}
        return {"backing": context.target.read_or_none(backing_file(str(context.place.device))) or ""}

    def taken_by(self, target: Target, entry: Entry) -> str | None:
        from iotrial.lab.disk_identity import disks_named
        from iotrial.lab.objects.loop import backing_file

        # If it is detached (as after the probe's death), the setting is still ours to restore; if it is attached to
        # another file, it is not.
        path = entry.address["path"]
        device = path.split("/")[3]
        if IN_USE in entry.identity:
            same = in_use(target, path) == entry.identity[IN_USE]
            what = "it belongs to another mount" if path.startswith(BACKING) else f"{device} is another disk"
            return None if same else f"{what} now"
        if "disk" in entry.identity:
            name = entry.identity["disk"]
            return None if device in disks_named(target, name) else f"{device} is not the disk {name}"
        backing = target.read_or_none(backing_file(device))
        # While a killed probe's mount namespace is taken down, the kernel shows the path below the mount only. The images
        # have no names, so that the path ends with the inode number: `#17 (deleted)`.
        if backing is None or entry.identity.get("backing", "").endswith(backing):
            return None
        return f"{device} is in use by another program now, with {backing} attached"

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.folder}/{self.file} of the lab's device: {', '.join(values)}",)

    def changes_in_place(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        if self.of_the_whole:
            return (f"{self.file} of the device or mount in use: {', '.join(values)}",)
        return (f"{self.folder}/{self.file} of the device in use: {', '.join(values)}",)


#: key in an entry's ``identity``: which disk or mount had the name
IN_USE = "diskseq"


def in_use(target: Target, path: str) -> str:
    """Return what identifies, since boot, the disk or mount of a kernel file.

    Of a disk its sequence number (Linux 5.15), or device number and size in sectors; of a mount the inode of its folder in
    sysfs, which the kernel never gives twice.
    """
    folder = "/".join(path.split("/")[:4])
    if path.startswith(BACKING):
        return str(target.stat("/".join(path.split("/")[:5]))["inode"])
    sequence = target.read_or_none(f"{folder}/diskseq")
    return sequence or f"{target.read(f'{folder}/dev')} {target.read(f'{folder}/size')}"


#: kernel modules of the schedulers, for kernels that do not have them built in
SCHEDULER_MODULES = {"mq-deadline": "mq_deadline", "kyber": "kyber_iosched", "bfq": "bfq"}


class BlockScheduler(BlockKnob):
    """The I/O scheduler."""

    name = "block.scheduler"
    listed_by_kernel = True
    title = "I/O scheduler of the lab's device"
    candidates = ("none", "mq-deadline", "kyber", "bfq")
    consequence = trade_off("the latency of some requests is traded for the throughput of others")
    file = "scheduler"

    def shown(self, text: str) -> str:
        return chosen_word(text)

    def requires(self, setting: Setting) -> Requirement:
        module = SCHEDULER_MODULES.get(setting.value)
        return Requirement(root=True, labs=_QUEUED, modules=frozenset({module} if module else ()))

    def parse(self, setting: Setting) -> str:
        value = setting.value
        if value == "deadline":
            raise UnsupportedLevel(
                'knob block.scheduler: "deadline" is another name for mq-deadline',
                hint='write "mq-deadline"',
            )
        modern = {"noop": "none", "cfq": "bfq", "anticipatory": "mq-deadline"}
        if value in modern:
            raise UnsupportedLevel(
                f'knob block.scheduler: "{value}" was removed from the kernel in 5.0',
                hint=f'the nearest now is "{modern[value]}" (not the same algorithm, except noop)',
            )
        if not SCHEDULER.fullmatch(value):
            raise UnsupportedLevel(f'knob block.scheduler: "{value}" is not the name of a scheduler')
        return value

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        text = context.target.read(self.paths(context, setting)[0])
        return tuple(word.strip("[]") for word in text.split())

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        # What a change of scheduler changes too is journaled before it, and so restored after it: with "none" a device
        # refuses a longer queue than with the scheduler it had.
        folder = self.paths(context, setting)[0].removesuffix("queue/scheduler")
        for row in KNOBS:
            if row.dragged and context.target.exists(f"{folder}{row.folder}/{row.file}"):
                row.prepare(context, Setting(row.name, ""), ())
        super().prepare(context, setting, values)

    def identity(self, context: RunContext, setting: Setting, path: str) -> dict[str, str]:
        # The scheduler's own settings vanish with it and come back at the kernel's defaults.
        files = _tunables(context.target, path)
        own = "".join(f"{key} {context.target.read(file).strip()}\n" for key, file in files.items())
        return {**super().identity(context, setting, path), **({TUNABLES: own} if own else {})}

    def undo(self, target: Target, entry: Entry) -> Undone:
        outcome = super().undo(target, entry)
        if outcome not in (Undone.RESTORED, Undone.ALREADY):
            return outcome
        there = _tunables(target, entry.address["path"])
        for line in entry.identity.get(TUNABLES, "").splitlines():
            key, _, value = line.partition(" ")
            if key in there and target.read(there[key]).strip() != value:
                target.write(there[key], value)
                outcome = Undone.RESTORED
        return outcome

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        # Do not look it up first: the kernel lists a modular scheduler only after it has been requested.
        try:
            super().write(context, setting, value)
        except KnobError as error:
            raise UnsupportedLevel(
                f'knob {self.name}: this kernel has no "{value}"',
                hint="it has: " + ", ".join(self.levels(context, setting)),
            ) from error


#: key in an entry's ``identity``: the scheduler's own settings, one a line
TUNABLES = "tunables"


def _tunables(target: Target, path: str) -> Mapping[str, str]:
    """Return the files of a scheduler's own settings by key; ``path`` is the scheduler file of a queue."""
    folder = f"{path.rpartition('/')[0]}/iosched"
    found = target.call("list", path=folder)["names"] if target.exists(folder) else ()
    return {key: f"{folder}/{key}" for key in sorted(found) if key in BlockTunable.TUNABLES}


class BlockTunable(BlockKnob):
    """A setting of one I/O scheduler, named by the option ``key``; without that scheduler the device does not have it.

    The kernel resets a scheduler's settings to their defaults whenever a device gets the scheduler
    (Documentation/block/deadline-iosched.rst, kyber-iosched.rst and bfq-iosched.rst).
    With another scheduler every value reads as the one that was set.
    """

    name = "block.tunable"
    title = "a setting of the I/O scheduler of the lab's device"
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

    folder = "queue/iosched"

    def parse(self, setting: Setting) -> str:
        _, low, high, _ = self.TUNABLES[self._key(setting)]
        if setting.value == DEFAULT:
            return DEFAULT
        return whole_number(f"knob {self.name}", setting.value, low, high)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return DEFAULT

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        """Return the file of each queue, if it has the scheduler now."""
        queues = BlockScheduler().paths(context, setting)
        files = (f"{path.rpartition('/')[0]}/iosched/{self._key(setting)}" for path in queues)
        return tuple(path for path in files if context.target.exists(path))

    def where(self, context: RunContext, setting: Setting) -> str:
        return (
            super().where(context, setting)
            or f"{context.place.label}: its scheduler has no {self._key(setting)}"
        )

    def is_own(self, path: str, entry: Entry) -> bool:
        found = TUNABLE_FILE.fullmatch(path)
        return found is not None and found[1] in self.TUNABLES

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        # A device with another scheduler has nothing to restore: the file goes away with the scheduler.
        super().prepare(context, setting, (*values, self._number(setting, DEFAULT)))

    def read(self, context: RunContext, setting: Setting) -> str:
        wanted = setting.value or DEFAULT
        found = {self._read(context, path) for path in self.paths(context, setting)}
        return wanted if found <= {self._number(setting, wanted)} else " and ".join(sorted(found))

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        super().write(context, setting, self._number(setting, value))

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        super().verify(context, Setting(setting.knob, value, setting.options), value)

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"queue/iosched/{self._key(setting)} of the lab's device: {', '.join(values)}",)

    def changes_in_place(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"queue/iosched/{self._key(setting)} of the device in use: {', '.join(values)}",)

    def _key(self, setting: Setting) -> str:
        key = dict(setting.options).get("key", "")
        if key not in self.TUNABLES:
            raise UnknownName(f"key of {self.name}", key, list(self.TUNABLES))
        return key

    def is_today(self, setting: Setting, value: str) -> bool:
        return self._number(setting, setting.value) == self._number(setting, value)

    def _number(self, setting: Setting, value: str) -> str:
        return str(self.TUNABLES[self._key(setting)][3]) if value == DEFAULT else value


class DeviceFile(BlockKnob):
    """A plain file of the lab's device.

    ``path`` is below /sys/block/DEVICE. The values are the whole numbers in ``numbers``, minimum and maximum, or else
    ``words``. ``neutral`` is the value that every run sets before its own. ``dragged``: values that a change of scheduler
    writes to it. ``of_the_whole``: for an array, the array's own file, not one of each disk. ``is_limit``: a change of it
    makes the kernel recompute read-ahead. The other arguments are those of every knob.
    """

    def __init__(
        self,
        name: str,
        title: str,
        path: str,
        consequence: Consequence,
        *,
        neutral: str,
        numbers: tuple[int, int] | None = None,
        words: tuple[str, ...] = ("0", "1"),
        open_levels: str | None = None,
        dragged: tuple[str, ...] = (),
        of_the_whole: bool = False,
        is_limit: bool = False,
        rank: int = 0,
        candidates: tuple[str, ...] = (),
        consequences: Mapping[str, Consequence] = MappingProxyType({}),
    ) -> None:
        self.name, self.title, self.rank, self.candidates = name, title, rank, candidates
        self.consequence, self.consequences = consequence, consequences
        self.folder, self.file = path.split("/")
        self.dragged, self.of_the_whole = dragged, of_the_whole
        self._neutral, self._numbers, self._is_limit = neutral, numbers, is_limit
        if numbers is None:
            self.LEVELS = words
        else:
            self.open_levels = open_levels or "{} to {}".format(*numbers)

    def parse(self, setting: Setting) -> str:
        if self._numbers is None:
            return super().parse(setting)
        return whole_number(f"knob {self.name}", setting.value, *self._numbers)

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        if self._numbers is None:
            context.target.read(self.paths(context, setting)[0])  # raises if the kernel or device lacks it
        return super().levels(context, setting)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return self._neutral

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        if self._is_limit:
            _prepare_read_ahead(context, values)
        super().prepare(context, setting, (*values, *self.dragged))


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
        HARMLESS,
        neutral="0",
        words=("0", "1", "2"),
        candidates=("0", "2"),
    ),
    DeviceFile(
        "block.rq_affinity",
        "which CPU completes a request: 0 any, 1 one of the group of the submitting CPU, 2 the submitting CPU",
        "queue/rq_affinity",
        HARMLESS,
        neutral="1",
        words=("1", "0", "2"),
        candidates=("0", "1", "2"),
    ),
    DeviceFile(
        "block.add_random",
        "whether requests feed the kernel's entropy pool",
        "queue/add_random",
        HARMLESS,
        neutral="0",
        is_limit=True,
    ),
    DeviceFile(
        "block.rotational",
        "whether the lab's device reports itself as a rotating disk",
        "queue/rotational",
        HARMLESS,
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
        HARMLESS,
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


def _prepare_read_ahead(context: RunContext, values: tuple[str, ...]) -> None:
    """Journal read-ahead together with a limit that changes it, so that it is restored, and restored last."""
    queue = f"/sys/block/{context.place.whole}/queue"
    sizes = {value for value in values if value.isdigit()}
    sizes |= {context.target.read(f"{queue}/{file}") for file in ("max_sectors_kb", "max_hw_sectors_kb")}
    dragged = {LEAST_READ_AHEAD_KB, *(2 * int(size) for size in sizes if size.isdigit())}
    READ_AHEAD_FILE.prepare(context, READ_AHEAD, tuple(str(kb) for kb in sorted(dragged)))


#: pinned on every image lab unless the study varies them: knob and value, in the order of writing
PINNED: tuple[Setting, ...] = (
    Setting("block.scheduler", "none"),
    Setting(NR_REQUESTS, "128"),
    READ_AHEAD,
    Setting(WRITE_THROTTLE, "0"),
)


def pinned(place: Place, *, scheduler_varies: bool) -> tuple[Setting, ...]:
    """Return the settings to pin on a place unless the study varies them.

    A loop device of the lab, or a guest's virtio-blk disk, gets the same values everywhere. Any other disk, and every device
    in use, keeps its current values, because its queue has its own length; except where a study's schedulers differ
    from one another (bfq has no write-back throttling). In place nothing is pinned unless schedulers vary, which change the
    rest.
    """
    if place.kind == IN_PLACE and not (scheduler_varies and place.queues):
        return ()
    on_a_controller = any(name.startswith(("sd", "nvme")) for name in place.queues)
    if place.kind not in ("device", IN_PLACE) and not on_a_controller:
        return PINNED
    found = []
    for setting in PINNED:
        device = place.whole if setting == READ_AHEAD else place.queues[0]
        text = place.target.read_or_none(f"/sys/block/{device}/queue/{setting.knob.partition('.')[2]}")
        if text is not None and scheduler_varies and setting.knob == WRITE_THROTTLE:
            found.append(setting)
        elif text is not None:
            value = BlockScheduler().shown(text) if setting.knob == BlockScheduler.name else text.strip()
            found.append(Setting(setting.knob, value))
    return tuple(found)
