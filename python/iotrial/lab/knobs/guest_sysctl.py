"""Sysctls of a guest, where nobody else is harmed: memory that is kept free, and the buffers of its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import UnknownName, UnsupportedLevel
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Consequence, Requirement, Stage, Subject, harmless, trade_off, whole_number
from iotrial.lab.knobs.setting import KernelFileKnob
from iotrial.lab.knobs.vm import sysctl_file
from iotrial.study.model import Setting

_GUEST = frozenset({"guest"})


class GuestSysctl(KernelFileKnob):
    """One key of the allow-list, in the guest that has the disks. The option ``key`` names it."""

    name = "guest.sysctl"
    title = "a kernel setting of the guest that has the disks: memory kept free, network buffers"
    consequence = harmless("buffers and options of the network, no promise about data")
    stage = Stage.HOST
    option = "key"
    open_levels = "whole numbers in the range of the key; three of them for net.ipv4.tcp_rmem and tcp_wmem"

    #: key: how many numbers, the least and the most that each may be
    ALLOWED: ClassVar[dict[str, tuple[int, int, int]]] = {
        "net.core.netdev_budget": (1, 16, 4096),
        "net.core.netdev_max_backlog": (1, 16, 1 << 20),
        "net.core.rmem_default": (1, 2304, 1 << 28),
        "net.core.rmem_max": (1, 2304, 1 << 28),
        "net.core.wmem_default": (1, 4608, 1 << 28),
        "net.core.wmem_max": (1, 4608, 1 << 28),
        "net.ipv4.tcp_rmem": (3, 4096, 1 << 28),
        "net.ipv4.tcp_sack": (1, 0, 1),
        "net.ipv4.tcp_timestamps": (1, 0, 2),
        "net.ipv4.tcp_window_scaling": (1, 0, 1),
        "net.ipv4.tcp_wmem": (3, 4096, 1 << 28),
        "vm.min_free_kbytes": (1, 128, 1 << 20),
    }

    consequences: Mapping[str, Consequence] = {
        "vm.min_free_kbytes": trade_off("memory that is kept free serves no cache"),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        return self.consequences.get(dict(setting.options).get("key", ""), self.consequence)

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=_GUEST)

    def _key(self, setting: Setting) -> str:
        key = self.value_option(setting)
        if key not in self.ALLOWED:
            raise UnknownName("sysctl of a guest", key, self.ALLOWED)
        return key

    def parse(self, setting: Setting) -> str:
        key = self._key(setting)
        count, least, most = self.ALLOWED[key]
        words = setting.value.split()
        if len(words) != count:
            raise UnsupportedLevel(
                f'guest.sysctl {key}: "{setting.value}" is not {count} number{"s" * (count > 1)}'
            )
        return " ".join(whole_number(f"guest.sysctl {key}", word, least, most) for word in words)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def paths(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return (sysctl_file(self._key(setting)),)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path in {sysctl_file(key) for key in self.ALLOWED}

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return levels[0] if levels else self.parse(setting)
