"""Sysctls: of the host those that are harmless to change (memory and write-back), of a guest others too.

Harmless means: it costs at most speed, for a while, and one write restores it. So vm.min_free_kbytes is not on the list (too
large a value makes the kernel kill processes; once written, it no longer follows the memory size), nor are overcommit and
panic settings. The dirty page limits come in pairs, a ratio and a number of bytes. The kernel keeps one of each pair and
clears the other; undo writes back the one that was in force.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from iotrial.errors import KnobError, UnknownName, UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Requirement, RunContext, TakenError, Undone, whole_number
from iotrial.lab.knobs.setting import KernelFileKnob, foreign
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE, GUESTS


class SysctlKnob(KernelFileKnob):
    """One sysctl of a list, named by the knob's option."""

    #: what the list holds, in words
    listed: ClassVar[str]

    def known(self) -> Collection[str]:
        """Return the list."""
        raise NotImplementedError

    def key(self, setting: Setting) -> str:
        """Return the name of the sysctl. Raises UnknownName if it is not on the list."""
        key = self.value_option(setting)
        if key not in self.known():
            raise UnknownName(self.listed, key, self.known())
        return key

    def paths(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return (sysctl_file(self.key(setting)),)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path in map(sysctl_file, self.known())


class Sysctl(SysctlKnob, declared.Sysctl):
    requirement = Requirement(root=True, labs=EVERYWHERE)
    listed = "sysctl that iotrial may set on a host"
    #: byte limits, each with the ratio that it clears while it is in force
    SHARES: ClassVar[dict[str, str]] = {
        "vm.dirty_background_bytes": "vm.dirty_background_ratio",
        "vm.dirty_bytes": "vm.dirty_ratio",
    }

    def known(self) -> Collection[str]:
        return self.ALLOWED

    def identity(self, subject: RunContext, setting: Setting, path: str) -> dict[str, str]:
        share = self.SHARES.get(self.key(setting))
        return {} if share is None else {"share": subject.target.read(sysctl_file(share))}

    def parse(self, setting: Setting) -> str:
        key = self.key(setting)
        least, most, _ = self.ALLOWED[key]
        return whole_number(f"sysctl {key}", setting.value, least, most)

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        for other in self.ALLOWED[self.key(setting)][2]:
            found = subject.target.read(sysctl_file(other))
            if found != "0":
                raise KnobError(
                    self.name,
                    other,
                    wrote="0",
                    found=found,
                    hint=f"{other} is in use; writing {self.key(setting)} would clear it",
                )
        super().prepare(subject, setting, values)

    def undo(self, target: Target, entry: Entry) -> Undone:
        path = entry.address.get("path", "")
        others = {sysctl_file(key): keys for key, (_, _, keys) in self.ALLOWED.items()}.get(path, ())
        for other in others:
            found = target.read_or_none(sysctl_file(other))
            if found not in ("0", None):
                raise TakenError(
                    f'{other} reads "{found}": it was set since, and writing {path} would clear it; it is left alone'
                )
        shares = {sysctl_file(key): share for key, share in self.SHARES.items()}
        if entry.original == "0" and path in shares:
            return self._undo_bytes(target, entry, path, shares[path])
        return super().undo(target, entry)

    def _undo_bytes(self, target: Target, entry: Entry, path: str, share: str) -> Undone:
        """Undo a byte limit where the ratio was in force: write back the ratio, which clears the bytes."""
        found = target.read_or_none(path)
        if found in ("0", None):
            return Undone.GONE if found is None else Undone.ALREADY
        if found not in entry.ours:
            raise foreign(path, found, entry)
        least, most, _ = self.ALLOWED[share]
        before = whole_number(f"sysctl {share}", entry.identity.get("share", ""), least, most)
        target.write(sysctl_file(share), before)
        back = (target.read(path), target.read(sysctl_file(share)))
        if back != ("0", before):
            raise KnobError(self.name, path, wrote=f"0, and {before} to {share}", found=" and ".join(back))
        return Undone.RESTORED

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"sysctl {self.key(setting)} of this machine: {', '.join(values)}",)


class GuestSysctl(SysctlKnob, declared.GuestSysctl):
    """Sysctls of a guest, which affect neither the host nor other guests: memory kept free, and network buffers."""

    requirement = Requirement(root=True, labs=GUESTS)
    listed = "sysctl of a guest"

    def known(self) -> Collection[str]:
        return self.ALLOWED

    def parse(self, setting: Setting) -> str:
        key = self.key(setting)
        count, least, most = self.ALLOWED[key]
        words = setting.value.split()
        if len(words) != count:
            raise UnsupportedLevel(
                f'guest.sysctl {key}: "{setting.value}" is not {count} number{"s" * (count > 1)}'
            )
        return " ".join(whole_number(f"guest.sysctl {key}", word, least, most) for word in words)


def sysctl_file(key: str) -> str:
    """Return the path of this key under /proc/sys."""
    return "/proc/sys/" + key.replace(".", "/")
