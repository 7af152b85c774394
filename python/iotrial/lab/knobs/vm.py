"""Sysctls: of the host those that are harmless to change (memory and write-back), of a guest others too.

Harmless means: it costs at most speed, for a while, and one write restores it. So vm.min_free_kbytes is not on the list (too
large a value makes the kernel kill processes; once written, it no longer follows the memory size), nor are overcommit and
panic settings. The dirty page limits come in pairs, a ratio and a number of bytes. The kernel keeps one of each pair and
shows the other as 0; it refuses 0 for most of them. So the level 0 of one means that the other is in force: setting it
writes the other, with its value before the trial, or one of the trial's. Undo writes back the one that was in force.
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

    def known(self) -> Collection[str]:
        return self.ALLOWED

    def parse(self, setting: Setting) -> str:
        key = self.key(setting)
        if key in self.PAIRS and setting.value == "0":
            return "0"
        return whole_number(f"sysctl {key}", setting.value, *self.ALLOWED[key])

    def yields(self, value: str) -> bool:
        return value == "0"

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        key = self.key(setting)
        other = self.PAIRS.get(key)
        if other is None or value != "0":
            super().write(subject, setting, value)
        elif self._read(subject, sysctl_file(key)) != "0":
            held = subject.journal.held(self.name, {"path": sysctl_file(other)})
            known = () if held is None else (held.original, *held.ours)
            instead = next((one for one in known if one != "0"), None)
            if instead is not None:
                super().write(subject, Setting(self.name, instead, (("key", other),)), instead)
            elif self.ALLOWED[key][0] == 0:
                super().write(subject, setting, value)
            else:
                raise UnsupportedLevel(
                    f"sysctl {key}: 0 means that {other} is in force, which is 0 on this machine",
                    hint=f"give {other} a value in the same level: --level 'NAME: {key}=0 {other}=...'",
                )

    def prepare(self, subject: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        key = self.key(setting)
        other = self.PAIRS.get(key)
        if other is None:
            super().prepare(subject, setting, values)
            return
        found = {one: self.original(subject, sysctl_file(one)) for one in (key, other)}
        # entries are undone in reverse order: the limit that is in force comes back before it is looked at itself
        for one in sorted(found, key=lambda name: found[name] == "0"):
            subject.journal.record(
                self.name,
                {"path": sysctl_file(one)},
                found[one],
                (*values, "0") if one == key else ("0",),
                identity={"share": found[other if one == key else key]},
                boot_id=subject.boot_id,
                trial=subject.trial,
            )

    def undo(self, target: Target, entry: Entry) -> Undone:
        path = entry.address.get("path", "")
        pairs = {sysctl_file(key): other for key, other in self.PAIRS.items()}
        if path not in pairs:
            return super().undo(target, entry)
        other = pairs[path]
        if entry.original == "0" and entry.identity.get("share", "0") != "0":
            return self._hand_back(target, entry, path, other)
        found = target.read_or_none(sysctl_file(other))
        if found not in ("0", None) and target.read_or_none(path) != entry.original:
            raise TakenError(
                f'{other} reads "{found}": it was set since, and writing {path} would clear it; it is left alone'
            )
        return super().undo(target, entry)

    def _hand_back(self, target: Target, entry: Entry, path: str, other: str) -> Undone:
        """Undo a limit where the other one of the pair was in force: write that back, which clears this one."""
        found = target.read_or_none(path)
        if found in ("0", None):
            return Undone.GONE if found is None else Undone.ALREADY
        if found not in entry.ours:
            raise foreign(path, found, entry)
        before = whole_number(f"sysctl {other}", entry.identity["share"], *self.ALLOWED[other])
        target.write(sysctl_file(other), before)
        back = (target.read(path), target.read(sysctl_file(other)))
        if back != ("0", before):
            raise KnobError(self.name, path, wrote=f"0, and {before} to {other}", found=" and ".join(back))
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
