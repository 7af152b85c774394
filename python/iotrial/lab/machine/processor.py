"""Clock source, frequency control and power supply of a target, from sysfs and procfs.

A virtual machine sees little of it. What is missing is None, which never counts as "fine".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from iotrial.errors import TargetError
from iotrial.lab.target import Target

CPU = "/sys/devices/system/cpu"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
SUPPLY = "/sys/class/power_supply"
TSC_FLAGS = ("tsc", "rdtscp", "constant_tsc", "nonstop_tsc", "tsc_known_freq", "tsc_reliable")


@dataclass(frozen=True, slots=True)
class Clock:
    """``source`` is the kernel's clock source, ``probe`` the clock with which the probe times operations (tsc, monotonic)."""

    source: str | None
    available: tuple[str, ...]
    flags: tuple[str, ...]
    probe: str


@dataclass(frozen=True, slots=True)
class Frequency:
    """``governors`` of all processors (empty: no frequency control is visible); ``turbo`` None if unknown;
    ``hypervisor``: this is a virtual machine."""

    governors: tuple[str, ...]
    driver: str | None
    turbo: bool | None
    hypervisor: bool


@dataclass(frozen=True, slots=True)
class Power:
    """``mains``: on AC (None: unknown). ``batteries`` as (name, status)."""

    mains: bool | None
    batteries: tuple[tuple[str, str], ...]


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Return the first processor's flags from /proc/cpuinfo (``Features`` on Arm); empty if there are none."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def clock(target: Target) -> Clock:
    """Read the machine's clock source and the probe's clock."""
    flags = cpu_flags(read_if_readable(target, "/proc/cpuinfo") or "")
    return Clock(
        source=read_if_readable(target, f"{CLOCK}/current_clocksource"),
        available=tuple((read_if_readable(target, f"{CLOCK}/available_clocksource") or "").split()),
        flags=tuple(flag for flag in TSC_FLAGS if flag in flags),
        probe=str(target.call("hello")["clock"]["source"]),
    )


def frequency(target: Target) -> Frequency:
    """Read how the processors' frequency is controlled, and whether turbo is on."""
    processors = [name for name in names_in(target, CPU) if re.fullmatch(r"cpu[0-9]+", name)]
    governors = [read_if_readable(target, f"{CPU}/{name}/cpufreq/scaling_governor") for name in processors]
    return Frequency(
        governors=tuple(sorted({governor for governor in governors if governor})),
        driver=read_if_readable(target, f"{CPU}/cpu0/cpufreq/scaling_driver"),
        turbo=turbo_of(
            read_if_readable(target, f"{CPU}/intel_pstate/no_turbo"),
            read_if_readable(target, f"{CPU}/cpufreq/boost"),
        ),
        hypervisor="hypervisor" in cpu_flags(read_if_readable(target, "/proc/cpuinfo") or ""),
    )


def turbo_of(no_turbo: str | None, boost: str | None) -> bool | None:
    """Evaluate intel_pstate's ``no_turbo`` (1: off) or cpufreq's ``boost`` (1: on); None if neither is known."""
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    return boost == "1" if boost in ("0", "1") else None


def power(target: Target) -> Power:
    """Read mains and batteries (Documentation/ABI/testing/sysfs-class-power)."""
    mains: list[bool] = []
    batteries: list[tuple[str, str]] = []
    for name in names_in(target, SUPPLY):
        kind = read_if_readable(target, f"{SUPPLY}/{name}/type")
        if kind in ("Mains", "USB"):
            online = read_if_readable(target, f"{SUPPLY}/{name}/online")
            if online is not None:
                mains.append(online != "0")
        elif kind == "Battery" and read_if_readable(target, f"{SUPPLY}/{name}/scope") != "Device":
            batteries.append((name, read_if_readable(target, f"{SUPPLY}/{name}/status") or "Unknown"))
    # an idle USB port also reports offline: only a machine with a battery can be running on it
    knows_mains = any(mains) or bool(mains and batteries)
    return Power(any(mains) if knows_mains else None, tuple(batteries))


def read_if_readable(target: Target, path: str) -> str | None:
    """Read a small kernel file; None if it does not exist or cannot be read."""
    try:
        return target.read(path).strip()
    except TargetError:
        return None


def names_in(target: Target, path: str) -> list[str]:
    """List a folder; empty if it does not exist or cannot be read."""
    try:
        return [str(name) for name in target.call("list", path=path)["names"]]
    except TargetError:
        return []
