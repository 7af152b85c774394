"""Knobs of the machine: kernel, memory, processors and disks of a guest, the frequency governor, and the place of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.guest import qemu
from iotrial.knobs import machine as declared
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.lab.disk import DiskPlace
from iotrial.lab.journal import Entry
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE, GUESTS
from iotrial.units import format_size, parse_size

CPUS = "/sys/devices/system/cpu"
_CPU = re.compile(r"cpu[0-9]{1,5}", re.ASCII)
_GOVERNOR_FILE = re.compile(rf"{CPUS}/cpu[0-9]{{1,5}}/cpufreq/scaling_governor", re.ASCII)
_GOVERNOR = re.compile(r"[a-z][a-z0-9_]{0,14}", re.ASCII)
_SCSI_HOST = re.compile(r"/(host[0-9]{1,5})/", re.ASCII)
_PLACE = re.compile(r"[a-z][a-z0-9-]{0,31}")
_LEAST_MEMORY, _MOST_MEMORY = 128 << 20, 64 << 30
#: the guest's kernel reserves part of the memory and does not include it in MemTotal
_COUNTED = 0.65


class MachineKnob(Knob):
    """A property that a guest has from boot on, so each other value needs a reboot.

    The conductor boots it; the knob checks the value, and reads back what the guest's kernel reports.
    """

    requirement = Requirement(root=True, labs=GUESTS)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        """Do nothing: the conductor has booted the guest with this value."""


class KernelVersion(MachineKnob, declared.KernelVersion):
    def parse(self, setting: Setting) -> str:
        if not re.fullmatch(r"[1-9]\d?\.\d{1,3}(\.\d{1,3})?", setting.value):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not a kernel version', hint=self.open_levels
            )
        return setting.value

    def read(self, context: RunContext, setting: Setting) -> str:
        release = context.target.read("/proc/sys/kernel/osrelease")
        numbers = re.split(r"[.+-]", release)
        return ".".join(numbers[: setting.value.count(".") + 1])


class GuestMemory(MachineKnob, declared.GuestMemory):
    def parse(self, setting: Setting) -> str:
        return format_size(
            size_within(
                self.name, setting.value, _LEAST_MEMORY, _MOST_MEMORY, self.open_levels, multiple_of=1 << 20
            )
        )

    def read(self, context: RunContext, setting: Setting) -> str:
        (line,) = [
            line for line in context.target.read("/proc/meminfo").splitlines() if line.startswith("MemTotal:")
        ]
        counted = int(line.split()[1]) << 10
        wanted = parse_size(self.parse(setting)) + context.memory_besides
        return self.parse(setting) if _COUNTED * wanted <= counted <= wanted else format_size(counted)


class GuestProcessors(MachineKnob, declared.GuestProcessors):
    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 1, 64)

    def read(self, context: RunContext, setting: Setting) -> str:
        lines = context.target.read("/proc/stat").splitlines()
        return str(sum(re.match(r"cpu\d", line) is not None for line in lines))


class GuestDiskInterface(MachineKnob, declared.GuestDiskInterface):
    #: by driver of a SCSI host
    _BY_DRIVER: ClassVar[Mapping[str, str]] = {
        "virtio_scsi": "virtio-scsi",
        "ahci": "sata",
        "ata_piix": "ide",
    }

    def requires(self, setting: Setting) -> Requirement:
        modules = qemu.INTERFACE_MODULES.get(setting.value, frozenset())
        return Requirement(root=True, labs=GUESTS, modules=modules)

    def read(self, context: RunContext, setting: Setting) -> str:
        disk = context.place.queues[0]
        for prefix, interface in (("vd", "virtio-blk"), ("nvme", "nvme")):
            if disk.startswith(prefix):
                return interface
        link = str(context.target.call("readlink", path=f"/sys/block/{disk}")["target"])
        host = _SCSI_HOST.search(link)
        if host is None:
            return disk
        driver = context.target.read(f"/sys/class/scsi_host/{host[1]}/proc_name")
        return self._BY_DRIVER.get(driver, driver)


class GuestDiskCache(MachineKnob, declared.GuestDiskCache):
    def read(self, context: RunContext, setting: Setting) -> str:
        return context.attachment("cache")


class GuestDiskAio(MachineKnob, declared.GuestDiskAio):
    def read(self, context: RunContext, setting: Setting) -> str:
        return context.attachment("aio")


class GuestDiskFormat(MachineKnob, declared.GuestDiskFormat):
    #: by format, the options of qemu-img and their values; the first need not be said. A raw image is written whole
    _OPTIONS: ClassVar[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
        "raw": {"preallocation": ("full", "falloc", "off")},
        "qcow2": {
            "cluster_size": ("64k", *(qemu.size_word(1 << power) for power in range(9, 22))),
            "extended_l2": ("off", "on"),
            "lazy_refcounts": ("off", "on"),
            "preallocation": ("off", "metadata", "falloc", "full"),
        },
    }

    def parse(self, setting: Setting) -> str:
        format, *words = setting.value.split() or [""]
        options = self._OPTIONS.get(format, {})
        said = dict(word.split("=", 1) for word in words if "=" in word)
        if (
            not options
            or len(said) < len(words)
            or any(said[key] not in options.get(key, ()) for key in said)
        ):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not one of its levels',
                hint=f"expected {self.open_levels}",
            )
        return " ".join(
            [format, *(f"{key}={said[key]}" for key in sorted(said) if said[key] != options[key][0])]
        )

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.attachment("format")


class CpuGovernor(KernelFileKnob, declared.CpuGovernor):
    """The frequency governor: one file for each processor, all with the same value."""

    requirement = Requirement(root=True, labs=EVERYWHERE)

    def parse(self, setting: Setting) -> str:
        if not _GOVERNOR.fullmatch(setting.value):
            raise UnsupportedLevel(f'knob {self.name}: "{setting.value}" is not the name of a governor')
        return setting.value

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        first = self.paths(context, setting)[0].rpartition("/")[0]
        return tuple(context.target.read(f"{first}/scaling_available_governors").split())

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        names = filter(_CPU.fullmatch, context.target.call("list", path=CPUS)["names"])
        found = [f"{CPUS}/{name}/cpufreq/scaling_governor" for name in sorted(names)]
        there = tuple(path for path in found if context.target.exists(path))
        if not there:
            raise UnsupportedLevel(
                f"knob {self.name}: the processors of this machine have no governor",
                hint="in a virtual machine the host controls it; omit the factor",
            )
        return there

    def is_own(self, path: str, entry: Entry) -> bool:
        return _GOVERNOR_FILE.fullmatch(path) is not None

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"frequency governor of all processors: {', '.join(values)}",)


class LabDevice(Knob, declared.LabDevice):
    """The place of a run. Levels are names of places that the study declares, never folders or devices."""

    def parse(self, setting: Setting) -> str:
        if not _PLACE.fullmatch(setting.value):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not the name of a place',
                hint="a level is the name of a [[place]] of the study; --place NAME=FOLDER sets its location",
            )
        return setting.value

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.place.site

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        """Do nothing: the run is given its place as a whole."""

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        super().verify(context, setting, value)
        place = context.place
        if not isinstance(place, DiskPlace):
            return
        info = context.target.mount_at(place.root)
        if info is None or info.source != place.source:
            raise KnobError(self.name, place.root, wrote=value, found=info.source if info else "no mount")
