"""Sysctls: of the host those that are harmless to change (memory and write-back), of a guest others too.

Harmless means: it costs at most speed, for a while, and one write restores it. So vm.min_free_kbytes is not on the list (too
large a value makes the kernel kill processes; once written, it no longer follows the memory size), nor are overcommit and
panic settings. The dirty page limits come in pairs, a ratio and a number of bytes. The kernel keeps one of each pair and
shows the other as 0; it refuses 0 for most of them. So the level 0 of one means that the other is in force: setting it
writes the other, with its value before the trial, or one of the trial's. Undo writes back the one that was in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import KnobError, UnknownName, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Need, Stage, trade_off
from iotrial.knobs.kernel_file import KernelFileKnob, foreign
from iotrial.knobs.knob import Requirement, RunContext, TakenError, Undone, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE, GUESTS

if TYPE_CHECKING:
    from iotrial.lab.journal import Entry
    from iotrial.lab.target import Target


class SysctlKnob(KernelFileKnob):
    """One sysctl of a list, named by the knob's option."""

    stage = Stage.HOST
    option = "key"
    #: what the list holds, in words
    listed: ClassVar[str]
    #: the list
    ALLOWED: ClassVar[Mapping[str, tuple[int, ...]]]

    def consequence_of(self, setting: Setting) -> Consequence:
        return self.consequences.get(dict(setting.options).get("key", ""), self.consequence)

    def key(self, setting: Setting) -> str:
        """Return the name of the sysctl. Raises UnknownName if it is not on the list."""
        key = self.value_option(setting)
        if key not in self.ALLOWED:
            raise UnknownName(self.listed, key, self.ALLOWED)
        return key

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return (sysctl_file(self.key(setting)),)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path in map(sysctl_file, self.ALLOWED)


class Sysctl(SysctlKnob):
    """One key of the allow-list, named by the option ``key``."""

    name = "sysctl"
    title = "a sysctl of the host, from a short list of harmless ones"
    open_levels = "whole numbers in the range of the key"
    consequence = trade_off("affects memory and latency of everything on the machine")

    #: key: minimum and maximum
    ALLOWED: ClassVar[Mapping[str, tuple[int, int]]] = {
        "vm.compaction_proactiveness": (0, 100),
        "vm.dirty_background_bytes": (1 << 20, 1 << 40),
        "vm.dirty_background_ratio": (0, 100),
        "vm.dirty_bytes": (1 << 20, 1 << 40),
        "vm.dirty_expire_centisecs": (100, 360_000),
        "vm.dirty_ratio": (1, 100),
        "vm.dirty_writeback_centisecs": (1, 360_000),  # 0 would stop periodic write-back for everybody
        "vm.dirtytime_expire_seconds": (1, 864_000),
        "vm.extfrag_threshold": (0, 1000),
        "vm.laptop_mode": (0, 300),
        "vm.nr_hugepages": (0, 1024),  # of 2 MiB: at most 2 GiB are taken from everybody else
        "vm.page-cluster": (0, 8),
        "vm.page_lock_unfairness": (0, 100),
        "vm.stat_interval": (1, 3600),
        "vm.swappiness": (0, 200),
        "vm.vfs_cache_pressure": (1, 1000),
        "vm.watermark_boost_factor": (0, 30_000),
        "vm.watermark_scale_factor": (1, 1000),
        "fs.xfs.xfssyncd_centisecs": (100, 720_000),
    }

    #: of Linux itself (kernel/sysctl.c, mm/ and the manuals below), which a distribution may change. A limit of dirty pages
    #: in bytes is 0: the ratio is in force
    DEFAULTS: ClassVar[Mapping[str, str]] = {
        "vm.compaction_proactiveness": "20",
        "vm.dirty_background_bytes": "0",
        "vm.dirty_background_ratio": "10",
        "vm.dirty_bytes": "0",
        "vm.dirty_expire_centisecs": "3000",
        "vm.dirty_ratio": "20",
        "vm.dirty_writeback_centisecs": "500",
        "vm.dirtytime_expire_seconds": "43200",
        "vm.extfrag_threshold": "500",
        "vm.laptop_mode": "0",
        "vm.nr_hugepages": "0",
        "vm.page-cluster": "3",
        "vm.page_lock_unfairness": "5",
        "vm.stat_interval": "1",
        "vm.swappiness": "60",
        "vm.vfs_cache_pressure": "100",
        "vm.watermark_boost_factor": "15000",
        "vm.watermark_scale_factor": "10",
        "fs.xfs.xfssyncd_centisecs": "3000",
    }

    #: limits that come in two units: the kernel shows one of each pair as 0, and clears it when the other is written
    PAIRS: ClassVar[Mapping[str, str]] = {
        "vm.dirty_background_bytes": "vm.dirty_background_ratio",
        "vm.dirty_background_ratio": "vm.dirty_background_bytes",
        "vm.dirty_bytes": "vm.dirty_ratio",
        "vm.dirty_ratio": "vm.dirty_bytes",
    }

    #: values that are worth a try, by key
    CANDIDATES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "vm.dirty_background_ratio": ("1", "10"),
        "vm.dirty_ratio": ("5", "20", "40"),
        "vm.dirty_writeback_centisecs": ("100", "500"),
        "vm.swappiness": ("10", "60"),
        "vm.vfs_cache_pressure": ("50", "100"),
    }

    #: without swap, anonymous memory is not reclaimed; limits of dirty pages act through write-back
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "vm.dirty_background_bytes": Need.WRITE_BACK,
        "vm.dirty_background_ratio": Need.WRITE_BACK,
        "vm.dirty_bytes": Need.WRITE_BACK,
        "vm.dirty_expire_centisecs": Need.WRITES,
        "vm.dirty_ratio": Need.WRITE_BACK,
        "vm.dirty_writeback_centisecs": Need.WRITES,
        "vm.swappiness": Need.SWAP,
    }

    #: keys that hold a time after which the kernel acts, in hundredths of a second
    PERIODS: ClassVar[frozenset[str]] = frozenset(
        {"vm.dirty_expire_centisecs", "vm.dirty_writeback_centisecs", "fs.xfs.xfssyncd_centisecs"}
    )

    #: sources: Documentation/admin-guide/sysctl/vm.rst and admin-guide/xfs.rst
    consequences: Mapping[str, Consequence] = {
        **dict.fromkeys(
            (
                "vm.dirty_background_bytes",
                "vm.dirty_background_ratio",
                "vm.dirty_bytes",
                "vm.dirty_expire_centisecs",
                "vm.dirty_ratio",
                "vm.dirty_writeback_centisecs",
                "vm.laptop_mode",
            ),
            trade_off(
                "the larger the value, the more unsynced data is only in memory and lost in a power cut"
            ),
        ),
        "vm.dirtytime_expire_seconds": trade_off(
            "timestamps of a lazytime mount stay only in memory for that long, and are lost in a power cut"
        ),
        "vm.nr_hugepages": trade_off("memory that is reserved for huge pages is not available to others"),
        "vm.stat_interval": HARMLESS,
        "fs.xfs.xfssyncd_centisecs": trade_off(
            "the larger the value, the more unsynced metadata changes are lost in a power cut"
        ),
    }

    def default_of(self, setting: Setting) -> str | None:
        return self.DEFAULTS.get(dict(setting.options).get("key", ""))

    def period_s(self, setting: Setting) -> float | None:
        value = setting.value.strip()
        if dict(setting.options).get("key") not in self.PERIODS or not value.isdecimal() or len(value) > 9:
            return None
        return int(value) / 100.0

    def need_of(self, setting: Setting) -> Need | None:
        return self.NEEDS.get(dict(setting.options).get("key", ""))

    requirement = Requirement(root=True, labs=EVERYWHERE)
    listed = "sysctl that iotrial may set on a host"

    def parse(self, setting: Setting) -> str:
        key = self.key(setting)
        if key in self.PAIRS and setting.value == "0":
            return "0"
        return whole_number(f"sysctl {key}", setting.value, *self.ALLOWED[key])

    def yields(self, value: str) -> bool:
        return value == "0"

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        key = self.key(setting)
        other = self.PAIRS.get(key)
        if other is None or value != "0":
            super().write(context, setting, value)
        elif self._read(context, sysctl_file(key)) != "0":
            held = context.journal.held(self.name, {"path": sysctl_file(other)})
            known = () if held is None else (held.original, *held.ours)
            instead = next((one for one in known if one != "0"), None)
            if instead is not None:
                super().write(context, Setting(self.name, instead, (("key", other),)), instead)
            elif self.ALLOWED[key][0] == 0:
                super().write(context, setting, value)
            else:
                raise UnsupportedLevel(
                    f"sysctl {key}: 0 means that {other} is in force, which is 0 on this machine",
                    hint=f"give {other} a value in the same level: --level 'NAME: {key}=0 {other}=...'",
                )

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        key = self.key(setting)
        other = self.PAIRS.get(key)
        if other is None:
            super().prepare(context, setting, values)
            return
        found = {one: self.original(context, sysctl_file(one)) for one in (key, other)}
        # entries are undone in reverse order: the limit that is in force comes back before it is looked at itself
        for one in sorted(found, key=lambda name: found[name] == "0"):
            context.journal.record(
                self.name,
                {"path": sysctl_file(one)},
                found[one],
                (*values, "0") if one == key else ("0",),
                identity={"share": found[other if one == key else key]},
                boot_id=context.boot_id,
                trial=context.trial,
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


class GuestSysctl(SysctlKnob):
    """One key of the allow-list, in the guest that has the disks: it affects neither the host nor other guests."""

    name = "guest.sysctl"
    title = "a sysctl of the guest with the disks: free memory reserve, network buffers"
    open_levels = "whole numbers in the range of the key; three of them for net.ipv4.tcp_rmem and tcp_wmem"
    consequence = HARMLESS

    #: key: how many numbers, and the minimum and maximum of each
    ALLOWED: ClassVar[Mapping[str, tuple[int, int, int]]] = {
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
        "vm.min_free_kbytes": trade_off("memory that is kept free is not used as cache"),
    }

    requirement = Requirement(root=True, labs=GUESTS)
    listed = "sysctl of a guest"

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
