"""Applies the knobs of the lab's own block device, declared in ``iotrial.knobs.block``.

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

from iotrial.errors import KnobError, RequestError, UnknownName, UnsupportedLevel
from iotrial.knobs import block as declared
from iotrial.knobs.block import (
    LEAST_READ_AHEAD_KB,
    NR_REQUESTS,
    READ_AHEAD,
    READ_AHEAD_FILE,
    WRITE_THROTTLE,
    DeviceFile,
)
from iotrial.knobs.declaration import Scope, Stage
from iotrial.lab import disk_identity
from iotrial.lab.device import DevicePlace
from iotrial.lab.in_place import BACKING, InPlace
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Requirement, RunContext, Undone, a_lab, one_of, whole_number
from iotrial.lab.knobs.setting import KernelFileKnob, chosen_word
from iotrial.lab.objects.loop import backing_file
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS, IN_PLACE

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

    requirement = Requirement(root=True, labs=_QUEUED)
    folder: str = "queue"
    file: str
    #: for an array: True if the file is the array's own, False if each of its disks has one
    of_the_whole: bool = False

    def paths(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        place = subject.place
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

    def original(self, subject: RunContext, path: str) -> str:
        # Attaching an image changes read-ahead, and detaching may. Both are our doing, so use the value from before.
        place = subject.place
        before = None
        if self.folder == "queue":
            before = place.queue_before.get(self.file)
        return super().original(subject, path) if before is None else self.shown(before)

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        super().prepare(subject, setting, (*values, self.read(subject, setting)))

    def is_own(self, path: str, entry: Entry) -> bool:
        # The user has named a disk by its serial number or WWN; ``taken_by`` checks that it is still the same one.
        # In place it is whatever device holds the user's folder, and ``taken_by`` checks the same.
        of_a_mount = MOUNT_FILE.fullmatch(path)
        if of_a_mount is not None:
            return IN_USE in entry.identity and self.of_the_whole and of_a_mount[1] == self.file
        of_a_disk = "disk" in entry.identity or IN_USE in entry.identity
        found = (DISK_FILE if of_a_disk else LOOP_FILE).fullmatch(path)
        return found is not None and found[1] == f"{self.folder}/{self.file}"

    def identity(self, subject: RunContext, setting: Setting, path: str) -> dict[str, str]:
        if isinstance(subject.place, InPlace):
            return {IN_USE: _in_use(subject.target, path)}
        if isinstance(subject.place, DevicePlace):
            return {"disk": subject.place.disk_name}
        return {"backing": subject.target.read_or_none(backing_file(str(subject.place.device))) or ""}

    def taken_by(self, target: Target, entry: Entry) -> str | None:
        # If it is detached (as after the probe's death), the setting is still ours to restore; if it is attached to
        # another file, it is not.
        path = entry.address["path"]
        device = path.split("/")[3]
        if IN_USE in entry.identity:
            same = _in_use(target, path) == entry.identity[IN_USE]
            what = "it belongs to another mount" if path.startswith(BACKING) else f"{device} is another disk"
            return None if same else f"{what} now"
        if "disk" in entry.identity:
            name = entry.identity["disk"]
            return (
                None
                if device in disk_identity.disks_named(target, name)
                else f"{device} is not the disk {name}"
            )
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


def _in_use(target: Target, path: str) -> str:
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


class BlockScheduler(BlockKnob, declared.BlockScheduler):
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

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        text = subject.target.read(self.paths(subject, setting)[0])
        return tuple(word.strip("[]") for word in text.split())

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        # What a change of scheduler changes too is journaled before it, and so restored after it: with "none" a device
        # refuses a longer queue than with the scheduler it had.
        folder = self.paths(subject, setting)[0].removesuffix("queue/scheduler")
        for row in declared.KNOBS:
            if row.dragged and subject.target.exists(folder + row.file):
                DeviceFileKnob(row).prepare(subject, Setting(row.name, ""), ())
        super().prepare(subject, setting, values)

    def identity(self, subject: RunContext, setting: Setting, path: str) -> dict[str, str]:
        # The scheduler's own settings vanish with it and come back at the kernel's defaults.
        files = _tunables(subject.target, path)
        own = "".join(f"{key} {subject.target.read(file).strip()}\n" for key, file in files.items())
        return {**super().identity(subject, setting, path), **({TUNABLES: own} if own else {})}

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

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        # Do not look it up first: the kernel lists a modular scheduler only after it has been requested.
        try:
            super().write(subject, setting, value)
        except KnobError as error:
            raise UnsupportedLevel(
                f'knob {self.name}: this kernel has no "{value}"',
                hint="it has: " + ", ".join(self.levels(subject, setting)),
            ) from error


#: key in an entry's ``identity``: the scheduler's own settings, one a line
TUNABLES = "tunables"


def _tunables(target: Target, path: str) -> Mapping[str, str]:
    """Return the files of a scheduler's own settings by key; ``path`` is the scheduler file of a queue."""
    folder = f"{path.rpartition('/')[0]}/iosched"
    found = target.call("list", path=folder)["names"] if target.exists(folder) else ()
    return {key: f"{folder}/{key}" for key in sorted(found) if key in declared.BlockTunable.TUNABLES}


class BlockTunable(BlockKnob, declared.BlockTunable):
    """Written only where the device has the scheduler; with another one every value reads as the one that was set."""

    folder = "queue/iosched"

    def parse(self, setting: Setting) -> str:
        _, low, high, _ = self.TUNABLES[self._key(setting)]
        if setting.value == DEFAULT:
            return DEFAULT
        return whole_number(f"knob {self.name}", setting.value, low, high)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return DEFAULT

    def paths(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        """Return the file of each queue, if it has the scheduler now."""
        queues = BlockScheduler().paths(subject, setting)
        files = (f"{path.rpartition('/')[0]}/iosched/{self._key(setting)}" for path in queues)
        return tuple(path for path in files if subject.target.exists(path))

    def where(self, subject: RunContext, setting: Setting) -> str:
        return (
            super().where(subject, setting)
            or f"{subject.place.label}: its scheduler has no {self._key(setting)}"
        )

    def is_own(self, path: str, entry: Entry) -> bool:
        found = TUNABLE_FILE.fullmatch(path)
        return found is not None and found[1] in self.TUNABLES

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        # A device with another scheduler has nothing to restore: the file goes away with the scheduler.
        super().prepare(subject, setting, (*values, self._number(setting, DEFAULT)))

    def read(self, subject: RunContext, setting: Setting) -> str:
        wanted = setting.value or DEFAULT
        found = {self._read(subject, path) for path in self.paths(subject, setting)}
        return wanted if found <= {self._number(setting, wanted)} else " and ".join(sorted(found))

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        super().write(subject, setting, self._number(setting, value))

    def verify(self, subject: RunContext, setting: Setting, value: str) -> None:
        super().verify(subject, Setting(setting.knob, value, setting.options), value)

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


class DeviceFileKnob(BlockKnob):
    """The knob for one row of ``iotrial.knobs.block.KNOBS``, or of another module there."""

    stage = Stage.DEVICE
    scope = Scope.DEVICE

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

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        if self._row.numbers is not None:
            return ()
        subject.target.read(self.paths(subject, setting)[0])  # raises if the kernel or device lacks it
        return self._row.words

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return self._row.neutral

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        if self._row.is_limit:
            _prepare_read_ahead(subject, values)
        super().prepare(subject, setting, (*values, *self._row.dragged))


def _prepare_read_ahead(subject: RunContext, values: tuple[str, ...]) -> None:
    """Journal read-ahead together with a limit that changes it, so that it is restored, and restored last."""
    queue = f"/sys/block/{subject.place.whole}/queue"
    sizes = {value for value in values if value.isdigit()}
    sizes |= {subject.target.read(f"{queue}/{file}") for file in ("max_sectors_kb", "max_hw_sectors_kb")}
    dragged = {LEAST_READ_AHEAD_KB, *(2 * int(size) for size in sizes if size.isdigit())}
    DeviceFileKnob(READ_AHEAD_FILE).prepare(subject, READ_AHEAD, tuple(str(kb) for kb in sorted(dragged)))


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
    if isinstance(place, InPlace) and not (scheduler_varies and place.queues):
        return ()
    on_a_controller = any(name.startswith(("sd", "nvme")) for name in place.queues)
    if not isinstance(place, DevicePlace | InPlace) and not on_a_controller:
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
