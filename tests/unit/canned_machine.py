"""Fake target that answers from canned file contents."""

from __future__ import annotations

import errno
from typing import Any

from iotrial.errors import TargetError

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n"
LAPTOP = {
    "/proc/sys/kernel/osrelease": "6.12.0-1-amd64\n",
    "/proc/cpuinfo": (
        "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu tsc constant_tsc nonstop_tsc rdtscp\n\nprocessor\t: 1\n"
    ),
    "/proc/meminfo": "MemTotal:        1024 kB\n",
    "/proc/filesystems": "nodev\tsysfs\n\text4\n",
    "/lib/modules/6.12.0-1-amd64/modules.dep": "kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz\n",
    "/etc/os-release": 'PRETTY_NAME="A System"\n',
    "/proc/loadavg": "0.52 0.58 0.59 1/389 12345\n",
    "/proc/pressure/cpu": PRESSURE.format(1000000),
    "/proc/pressure/io": PRESSURE.format(5),
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm \n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    "/sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    "/sys/class/power_supply/AC/type": "Mains\n",
    "/sys/class/power_supply/AC/online": "0\n",
    "/sys/class/power_supply/BAT0/type": "Battery\n",
    "/sys/class/power_supply/BAT0/status": "Discharging\n",
    "/sys/class/power_supply/mouse/type": "Battery\n",
    "/sys/class/power_supply/mouse/scope": "Device\n",
    "/sys/class/power_supply/mouse/status": "Discharging\n",
}
READING = frozenset({"hello", "read", "stat", "statfs", "list", "readlink", "time"})


class CannedMachine:
    """Channel to a fake machine that has ``files``, and the folders in their paths. ``calls`` records every call."""

    name = "a canned machine"

    def __init__(
        self, files: dict[str, str], *, uid: int = 1000, privileged: bool = False, there: tuple[str, ...] = ()
    ) -> None:
        self.files = dict(files)
        self.uid = uid
        self.privileged = privileged
        self.there = there
        self.magic = "0xef53"
        self.available = 1 << 40
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.calls.append((verb, fields))
        found: dict[str, Any] = getattr(self, f"_{verb}")(**fields)
        return found

    def _hello(self) -> dict[str, Any]:
        clock = {"source": "tsc", "hz": 1}
        return {"version": "0", "pid": 7, "uid": self.uid, "privileged": self.privileged, "clock": clock}

    def _read(self, path: str) -> dict[str, Any]:
        if path not in self.files:
            raise TargetError(f"read {path}: no such file", errno=errno.ENOENT)
        return {"data": self.files[path]}

    def _list(self, path: str) -> dict[str, Any]:
        inside = {f[len(path) + 1 :].split("/")[0] for f in self.files if f.startswith(path + "/")}
        if not inside:
            raise TargetError(f"list {path}: no such folder", errno=errno.ENOENT)
        return {"names": sorted(inside)}

    def _stat(self, path: str) -> dict[str, Any]:
        if path in self.files or path in self.there or path == "/":
            return {"kind": "file"}
        raise TargetError(f"stat {path}: no such file", errno=errno.ENOENT)

    def _statfs(self, **_: Any) -> dict[str, Any]:
        return {"type": self.magic, "available_bytes": self.available}

    def _run(self, argv: list[str], **_: Any) -> dict[str, Any]:
        assert argv[:2] == ["test", "-w"], argv
        return {"exit": 0, "signal": None, "timed_out": False, "stdout": "", "stderr": "", "wall_ns": 0}
