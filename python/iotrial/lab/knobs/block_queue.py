"""Knobs of the lab's own block device: scheduler, requests, read-ahead, write-back throttling.

A loop device keeps its queue settings after it was detached, for whoever attaches it next, and a
change of scheduler drags others along (`none` sets nr_requests 128, any scheduler 256; bfq switches
write-back throttling off). So all are journaled, and those that a study does not vary are pinned
and verified. On a disk of the user's they are pinned to what they are, for a disk has a queue of its
own length, which a loop device has not.
"""

from __future__ import annotations

import re

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.lab import identity
from iotrial.lab.device import DevicePlace
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Requirement, Scope, Subject, a_lab, trade_off, whole_number
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


class BlockNumber(BlockKnob):
    """A queue file that holds one number within a range."""

    least = 0
    most = 0
    #: values that a change of scheduler writes here by itself
    dragged: tuple[str, ...] = ()

    def prepare(self, subject: Subject, setting: Setting, values: tuple[str, ...]) -> None:
        super().prepare(subject, setting, (*values, *self.dragged))

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, self.least, self.most)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "128"


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


class BlockNrRequests(BlockNumber):
    """How many requests the queue holds."""

    name = "block.nr_requests"
    title = "requests that the device's queue holds"
    consequence = trade_off("a longer queue makes every request in it wait longer")
    file = "nr_requests"
    least, most = 4, 4096
    dragged = ("64", "128", "256")
    open_levels = "4 to 4096 (a device may hold fewer)"


class BlockReadAhead(BlockNumber):
    """How far the kernel reads ahead."""

    name = "block.read_ahead_kb"
    title = "read-ahead of the lab's device in KiB"
    consequence = trade_off("what is read ahead takes memory and may never be used")
    file = "read_ahead_kb"
    rank = 1  # after the limits of the queue, which drag it along
    of_the_whole = True
    least, most = 0, 65536
    open_levels = "0 to 65536"


class BlockWriteThrottle(BlockNumber):
    """Target latency of write-back throttling."""

    name = "block.wbt_lat_usec"
    title = "target latency of write-back throttling in microseconds (0: off)"
    consequence = trade_off("reads wait longer behind writes, or writes behind reads")
    file = "wbt_lat_usec"
    least, most = 0, 10_000_000
    dragged = ("0", "2000", "75000")
    open_levels = "0 to 10000000"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "2000"


#: what is pinned on every image lab unless the study varies it: knob and value, in the order of writing
PINNED: tuple[Setting, ...] = (
    Setting("block.scheduler", "none"),
    Setting("block.nr_requests", "128"),
    Setting("block.read_ahead_kb", "128"),
    Setting("block.wbt_lat_usec", "0"),
)


def pinned(place: Place, *, scheduler_varies: bool) -> tuple[Setting, ...]:
    """What is pinned on a place unless the study varies it: a loop device to the same everywhere, a disk to what it has,
    but for what the schedulers of a study do not have in common (bfq has no write-back throttling)."""
    if not isinstance(place, DevicePlace):
        return PINNED
    found = []
    for setting in PINNED:
        text = place.target.read_or_none(f"/sys/block/{place.device}/queue/{setting.knob.partition('.')[2]}")
        if text is not None and scheduler_varies and setting.knob == BlockWriteThrottle.name:
            found.append(setting)
        elif text is not None:
            value = BlockScheduler().shown(text) if setting.knob == BlockScheduler.name else text.strip()
            found.append(Setting(setting.knob, value))
    return tuple(found)
