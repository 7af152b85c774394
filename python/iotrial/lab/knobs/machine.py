"""Knobs of the guest as a machine: kernel, memory, processors. They are fixed at boot, so each other value needs a reboot.
The value read back is the one that the guest's kernel reports."""

from __future__ import annotations

import re

from iotrial.errors import UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.lab.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.study.model import Setting
from iotrial.units import format_size, parse_size

_GUEST = frozenset({"guest"})
_LEAST_MEMORY, _MOST_MEMORY = 128 << 20, 64 << 30
#: the guest's kernel reserves part of the memory and does not include it in MemTotal
_COUNTED = 0.65


class MachineKnob(Knob):
    """A property that a guest has from boot on. The conductor boots it; the knob checks and reads back."""

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=_GUEST)

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        """Do nothing: the conductor has booted the guest with this value."""


class KernelVersion(MachineKnob, declared.KernelVersion):
    def parse(self, setting: Setting) -> str:
        if not re.fullmatch(r"[1-9]\d?\.\d{1,3}(\.\d{1,3})?", setting.value):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not a kernel version', hint=self.open_levels
            )
        return setting.value

    def read(self, subject: RunContext, setting: Setting) -> str:
        release = subject.target.read("/proc/sys/kernel/osrelease")
        numbers = re.split(r"[.+-]", release)
        return ".".join(numbers[: setting.value.count(".") + 1])


class GuestMemory(MachineKnob, declared.GuestMemory):
    def parse(self, setting: Setting) -> str:
        return format_size(
            size_within(
                self.name, setting.value, _LEAST_MEMORY, _MOST_MEMORY, self.open_levels, multiple_of=1 << 20
            )
        )

    def read(self, subject: RunContext, setting: Setting) -> str:
        (line,) = [
            line for line in subject.target.read("/proc/meminfo").splitlines() if line.startswith("MemTotal:")
        ]
        counted = int(line.split()[1]) << 10
        wanted = parse_size(self.parse(setting)) + subject.memory_besides
        return self.parse(setting) if _COUNTED * wanted <= counted <= wanted else format_size(counted)


class GuestProcessors(MachineKnob, declared.GuestProcessors):
    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 1, 64)

    def read(self, subject: RunContext, setting: Setting) -> str:
        lines = subject.target.read("/proc/stat").splitlines()
        return str(sum(re.match(r"cpu\d", line) is not None for line in lines))
