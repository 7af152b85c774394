"""Sysctls of a guest, where they harm nobody else: memory kept free, and network buffers."""

from __future__ import annotations

from iotrial.errors import UnknownName, UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Requirement, RunContext, whole_number
from iotrial.lab.knobs.setting import KernelFileKnob
from iotrial.lab.knobs.vm import sysctl_file
from iotrial.study.model import Setting

_GUEST = frozenset({"guest"})


class GuestSysctl(KernelFileKnob, declared.GuestSysctl):
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

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def paths(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return (sysctl_file(self._key(setting)),)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path in {sysctl_file(key) for key in self.ALLOWED}
