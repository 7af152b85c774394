"""Limits of I/O by control groups of version 2, named as their files: io.max, io.weight, io.latency, io.cost.qos.

The kernel documents them in Documentation/admin-guide/cgroup-v2.rst, *IO*. A limit is of a group and a device. The key of the
setting names the group: ``work`` or ``neighbour``, which the trial makes next to its own and removes at its end, or one that
exists, such as ``system.slice/backup.service``. io.cost.qos is of a device, for all groups.

A value of an existing group is journaled and restored. A trial's own groups are removed with their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import KnobError, RequestError, TargetError, UnsupportedLevel
from iotrial.knobs.block import SCHEDULER_MODULES, in_use
from iotrial.knobs.declaration import HARMLESS, Consequence, Scope, Stage, trade_off
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import Requirement, RunContext, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS, IN_PLACE
from iotrial.units import UnitError, parse_duration, parse_size

if TYPE_CHECKING:
    from iotrial.lab.cgroup import Groups
    from iotrial.lab.journal import Entry
    from iotrial.lab.target import Target

WORK, NEIGHBOUR = "work", "neighbour"
NONE = "none"
#: a group below the mount point; no component may begin with a dot
GROUP = re.compile(r"(?:[A-Za-z0-9_:@\\-][A-Za-z0-9_.:@\\-]*/)*[A-Za-z0-9_:@\\-][A-Za-z0-9_.:@\\-]*")
NUMBER = re.compile(r"[0-9]{1,7}:[0-9]{1,7}", re.ASCII)


class GroupKnob(KernelFileKnob):
    """A file of a control group."""

    stage = Stage.DEVICE
    scope = Scope.DEVICE
    option: ClassVar[str | None] = "key"
    option_needed = False
    rank = 3  # after the scheduler and its settings
    requirement = Requirement(root=True, labs=DISK_LABS | {IN_PLACE})
    consequence = trade_off("requests of one group wait for the sake of those of others")
    #: the value of a group that nobody has set
    unset: ClassVar[str] = NONE

    @property
    def files(self) -> tuple[str, ...]:
        """The names of its files in a group."""
        return (self.name,)

    def group(self, setting: Setting) -> str:
        """Return the group that the setting names. Raises UnsupportedLevel for a text that is none."""
        key = dict(setting.options).get("key", WORK)
        if not GROUP.fullmatch(key):
            raise UnsupportedLevel(
                f'knob {self.name}: "{key}" is not a control group',
                hint="work, neighbour, or its path below /sys/fs/cgroup, such as system.slice/backup.service",
            )
        return key

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return self.unset

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return (f"{self._folder(context, setting)}/{self.name}",)

    def is_own(self, path: str, entry: Entry) -> bool:
        group, _, file = path.removeprefix("/sys/fs/cgroup/").removeprefix("unified/").rpartition("/")
        return path.startswith("/sys/fs/cgroup/") and bool(GROUP.fullmatch(group)) and file in self.files

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        if self._is_ours(setting):
            _make(context, _groups(context, self.name))
        else:
            self._record(context, setting, values)

    def _record(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        super().prepare(context, setting, (*values, self.read(context, setting)))

    def today(self, context: RunContext, setting: Setting) -> str:
        return self.unset if self._is_ours(setting) else super().today(context, setting)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        if self._is_ours(setting):
            context.work.groups = _groups(context, self.name)
        super().write(context, setting, value)

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        if self._is_ours(setting):
            return (
                f"{self.name} of the {self.group(setting)}, in control groups next to the one of iotrial, removed at the "
                f"end: {', '.join(values)}",
            )
        return (f"{self.name} of the control group {self.group(setting)}: {', '.join(values)}",)

    def _is_ours(self, setting: Setting) -> bool:
        return self.group(setting) in (WORK, NEIGHBOUR)

    def _folder(self, context: RunContext, setting: Setting) -> str:
        group = self.group(setting)
        if self._is_ours(setting):
            if getattr(context.place, "shared", False):
                raise RequestError(
                    f"knob {self.name}: the work of a service is not in a group of iotrial's",
                    hint=f"name its group: {self.name}@system.slice/NAME.service=...",
                )
            groups = _groups(context, self.name)
            return groups.work if group == WORK else groups.neighbour
        folder = f"{_mounted(context, self.name)}/{group}"
        if not context.worker.exists(folder):
            raise UnsupportedLevel(f"knob {self.name}: there is no control group {folder}")
        return folder


class DeviceLimit(GroupKnob):
    """A file with one line for each device: its number, then words."""

    #: for an array: True for the array itself, False for each of its disks
    of_the_whole: ClassVar[bool] = False

    def line(self, value: str) -> str:
        """Return the words that set a value."""
        raise NotImplementedError

    def found(self, words: Mapping[str, str]) -> str:
        """Return the value that these words show; they are empty for a device without a line."""
        raise NotImplementedError

    def devices(self, context: RunContext) -> dict[str, str]:
        """Return the numbers of the place's devices, with their names."""
        place = context.place
        names = (place.whole,) if self.of_the_whole else place.queues
        if place.device is None or not all(names) or not names:
            raise RequestError(
                f"knob {self.name}: {place.label} has no block device", hint="use the image lab (needs root)"
            )
        if context.worker is not context.target:
            raise RequestError(f"knob {self.name}: the disk is in another machine than the work")
        return {context.target.read(f"/sys/block/{name}/dev").strip(): str(name) for name in names}

    def read(self, context: RunContext, setting: Setting) -> str:
        (path,) = self.paths(context, setting)
        text = self._text(context, path)
        values = [self.found(_words(text, number)) for number in self.devices(context)]
        return values[0] if len(set(values)) == 1 else " and ".join(values)

    def _text(self, context: RunContext, path: str) -> str:
        try:
            return context.worker.read(path)
        except TargetError as error:
            raise UnsupportedLevel(
                f"knob {self.name}: this kernel has no {path}", hint="`iotrial knobs` lists what it has"
            ) from error

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        if self._is_ours(setting):
            context.work.groups = _groups(context, self.name)
        (path,) = self.paths(context, setting)
        self._text(context, path)
        for number in self.devices(context):
            try:
                context.worker.write(path, f"{number} {self.line(value)}")
            except TargetError as error:
                found = self.found(_words(self._text(context, path), number))
                raise KnobError(self.name, path, wrote=value, found=found, hint=error.message) from error

    def _record(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        (path,) = self.paths(context, setting)
        text = self._text(context, path)
        for number, device in self.devices(context).items():
            context.journal.record(
                self.name,
                {"path": path, "device": number},
                self.found(_words(text, number)),
                values,
                identity={"name": device, "diskseq": in_use(context.target, f"/sys/block/{device}/")},
                boot_id=context.boot_id,
                trial=context.trial,
            )

    def is_own(self, path: str, entry: Entry) -> bool:
        return super().is_own(path, entry) and self._names_device(entry)

    def _names_device(self, entry: Entry) -> bool:
        return bool(NUMBER.fullmatch(entry.address.get("device", "")))

    def taken_by(self, target: Target, entry: Entry) -> str | None:
        number, folder = entry.address["device"], f"/sys/block/{entry.identity.get('name', '')}/"
        same = target.read_or_none(f"{folder}dev") == number
        same = same and in_use(target, folder) == entry.identity.get("diskseq")
        return None if same else f"{number} is another disk now"

    def shown_of(self, text: str, entry: Entry) -> str:
        return self.found(_words(text, entry.address["device"]))

    def restoring(self, entry: Entry) -> str:
        return f"{entry.address['device']} {self.line(entry.original)}"


class IoMax(DeviceLimit):
    """Bytes and requests per second that a group may read and write at most."""

    name = "io.max"
    title = "most bytes and requests per second that a control group reads and writes"
    open_levels = "none, or limits such as wbps=20MiB, rbps=50MiB, riops=200, wiops=200, one or several"
    consequence = trade_off("the processes of the group wait longer for the disk")
    of_the_whole = True

    KEYS: ClassVar[tuple[str, ...]] = ("rbps", "wbps", "riops", "wiops")
    MOST: ClassVar[int] = 1 << 50

    def parse(self, setting: Setting) -> str:
        self.group(setting)
        if setting.value == NONE:
            return NONE
        limits: dict[str, str] = {}
        for word in setting.value.split():
            key, _, text = word.partition("=")
            if key not in self.KEYS or key in limits:
                raise UnsupportedLevel(f'knob {self.name}: "{word}" is no limit', hint=self.open_levels)
            limits[key] = self._number(key, text)
        if not limits:
            raise UnsupportedLevel(f"knob {self.name}: a level is empty", hint=self.open_levels)
        return " ".join(f"{key}={limits[key]}" for key in self.KEYS if key in limits)

    def _number(self, key: str, text: str) -> str:
        if key.endswith("iops"):
            return whole_number(f"{self.name} {key}", text, 1, (1 << 31) - 1)
        try:
            size = parse_size(text)
        except UnitError as error:
            raise UnsupportedLevel(f"knob {self.name}: {error.message}", hint=self.open_levels) from error
        return whole_number(f"{self.name} {key}", str(size), 4096, self.MOST)

    def line(self, value: str) -> str:
        limits = dict(word.split("=") for word in value.split()) if value != NONE else {}
        return " ".join(f"{key}={limits.get(key, 'max')}" for key in self.KEYS)

    def found(self, words: Mapping[str, str]) -> str:
        limits = [f"{key}={words[key]}" for key in self.KEYS if words.get(key, "max") != "max"]
        return " ".join(limits) or NONE


class IoLatency(DeviceLimit):
    """The latency that a group is to have: others are slowed down while it is missed."""

    name = "io.latency"
    title = (
        "latency of the disk that a control group is to have; other groups are slowed down while it is missed"
    )
    open_levels = "none, or a duration from 100 us"

    def parse(self, setting: Setting) -> str:
        self.group(setting)
        if setting.value == NONE:
            return NONE
        try:
            microseconds = round(parse_duration(setting.value) * 1e6)
        except UnitError as error:
            raise UnsupportedLevel(f"knob {self.name}: {error.message}", hint=self.open_levels) from error
        return whole_number(f"{self.name} in microseconds", str(microseconds), 100, 60_000_000)

    def line(self, value: str) -> str:
        return f"target={0 if value == NONE else value}"

    def found(self, words: Mapping[str, str]) -> str:
        target = words.get("target", "0")
        return NONE if target == "0" else target


class IoCostQos(DeviceLimit):
    """Whether, and within which bounds, the disk's time is shared by io.weight according to a cost model."""

    name = "io.cost.qos"
    title = "sharing of the disk's time by io.weight and a cost model (iocost)"
    option = None
    open_levels = (
        "off, on (the kernel's own bounds), or bounds: rpct=95 rlat=5000 wpct=95 wlat=5000 min=50 max=150"
    )
    consequence = trade_off("the disk's throughput is held down to keep its latency in bounds")
    consequences: Mapping[str, Consequence] = {"off": HARMLESS}
    unset = "off"
    rank = 2  # before the weights that it makes effective

    #: by key, its range and how many decimals the kernel shows
    BOUNDS: ClassVar[Mapping[str, tuple[float, float, int]]] = {
        "rpct": (0, 100, 2),
        "rlat": (1, 60_000_000, 0),
        "wpct": (0, 100, 2),
        "wlat": (1, 60_000_000, 0),
        "min": (1, 10_000, 2),
        "max": (1, 10_000, 2),
    }

    def parse(self, setting: Setting) -> str:
        if setting.value in ("off", "on"):
            return setting.value
        words = dict(word.partition("=")[::2] for word in setting.value.split())
        if list(words) != list(self.BOUNDS):
            raise UnsupportedLevel(f'knob {self.name}: "{setting.value}" is no level', hint=self.open_levels)
        return " ".join(f"{key}={self._bound(key, text)}" for key, text in words.items())

    def _bound(self, key: str, text: str) -> str:
        least, most, decimals = self.BOUNDS[key]
        plain = re.fullmatch(r"[0-9]{1,8}(?:\.[0-9]{1,2})?", text, re.ASCII)
        if plain is None or not least <= float(text) <= most:
            raise UnsupportedLevel(f'knob {self.name}: {key} "{text}" is out of range', hint=self.open_levels)
        return f"{float(text):.{decimals}f}"

    def line(self, value: str) -> str:
        if value == "off":
            return "enable=0 ctrl=auto"
        return "enable=1 ctrl=auto" if value == "on" else f"enable=1 ctrl=user {value}"

    def found(self, words: Mapping[str, str]) -> str:
        if words.get("enable", "0") != "1":
            return "off"
        if words.get("ctrl") != "user":
            return "on"
        return " ".join(f"{key}={words.get(key)}" for key in self.BOUNDS)

    def is_own(self, path: str, entry: Entry) -> bool:
        paths = (f"/sys/fs/cgroup/{self.name}", f"/sys/fs/cgroup/unified/{self.name}")
        return path in paths and self._names_device(entry)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        self._folder(context, setting)
        self._record(context, setting, (*values, self.unset))

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.name} of the lab's device: {', '.join(values)}",)

    def changes_in_place(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.name} of the device in use: {', '.join(values)}",)

    def _is_ours(self, setting: Setting) -> bool:
        return False

    def _folder(self, context: RunContext, setting: Setting) -> str:
        return _mounted(context, self.name)


class IoWeight(GroupKnob):
    """A group's share of the disk's time against others with the same parent, by bfq or iocost."""

    name = "io.weight"
    title = "share of the disk's time that a control group gets; needs the scheduler bfq, or io.cost.qos"
    open_levels = "1 to 1000 (default 100)"
    unset = "100"
    #: of iocost, and of bfq; systemd writes both, too
    files = ("io.weight", "io.bfq.weight")

    def parse(self, setting: Setting) -> str:
        self.group(setting)
        return whole_number(f"knob {self.name}", setting.value, 1, 1000)

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(
            root=True, labs=self.requirement.labs, modules=frozenset({SCHEDULER_MODULES["bfq"]})
        )

    def shown(self, text: str) -> str:
        return text.split("\n", 1)[0].removeprefix("default").strip()

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        folder = self._folder(context, setting)
        there = tuple(f"{folder}/{file}" for file in self.files if context.worker.exists(f"{folder}/{file}"))
        if not there and (context.worker.exists(folder) or not self._is_ours(setting)):
            raise UnsupportedLevel(
                f"knob {self.name}: {folder} has none of {', '.join(self.files)}",
                hint="the kernel needs iocost or bfq: `modprobe bfq`",
            )
        return there


def join(context: RunContext, group: str) -> None:
    """Move the probe into a control group: what it starts from now on is in it too. Raises KnobError."""
    from iotrial.lab.cgroup import own_group

    try:
        context.worker.write(f"{group}/cgroup.procs", "0")  # 0: the writing process, which is the probe
    except TargetError as error:
        raise KnobError(
            "io", group, wrote="moving the probe into it", found="refused", hint=error.message
        ) from error
    found = own_group(context.worker, _mounted(context, "io"))
    if found != group:
        raise KnobError("io", group, wrote="moving the probe into it", found=f"it is in {found}")


def _mounted(context: RunContext, knob: str) -> str:
    from iotrial.lab.cgroup import unified

    return unified(context.worker, knob)


def _groups(context: RunContext, knob: str) -> Groups:
    from iotrial.lab.cgroup import groups_of

    return groups_of(context.worker, knob, context.trial)


def _make(context: RunContext, groups: Groups) -> None:
    from iotrial.lab.objects.cgroup import LabCgroup

    for group in (groups.work, groups.neighbour):
        LabCgroup().make(context.worker, context.journal, group, boot_id=context.boot_id, trial=context.trial)


def _words(text: str, number: str) -> dict[str, str]:
    """Return the words of a device's line; empty if it has none."""
    for line in text.split("\n"):
        first, _, rest = line.partition(" ")
        if first == number:
            return dict(word.partition("=")[::2] for word in rest.split())
    return {}
