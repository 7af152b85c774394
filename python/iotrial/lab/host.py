"""Facts about the machine for the report, read through a Target. None of them identifies a person or a network."""

from __future__ import annotations

from iotrial.lab.target import Target


def facts(target: Target) -> dict[str, object]:
    """Return kernel, processor, memory, swap, distribution, firmware, virtualisation and clock, as far as known."""
    found: dict[str, object] = {
        "kernel": target.read("/proc/sys/kernel/osrelease"),
        "machine": target.name,
    }
    cpuinfo = target.read_or_none("/proc/cpuinfo") or ""
    models = [
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")
    ]
    if models:
        found["processor"] = models[0]
    found["processors"] = sum(line.startswith("processor") for line in cpuinfo.splitlines())
    if any("hypervisor" in line.split() for line in cpuinfo.splitlines() if line.startswith("flags")):
        found["virtual"] = True
    for line in (target.read_or_none("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            found["memory_bytes"] = int(line.split()[1]) * 1024
        elif line.startswith("SwapTotal:"):
            found["swap_bytes"] = int(line.split()[1]) * 1024
    for line in (target.read_or_none("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            found["system"] = line.partition("=")[2].strip('"')
    firmware = [target.read_or_none(f"/sys/class/dmi/id/{name}") for name in ("bios_vendor", "bios_version")]
    if any(firmware):
        found["firmware"] = " ".join(filter(None, firmware))
    source = target.read_or_none("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source:
        found["clock_source"] = source
    governor = target.read_or_none("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor:
        found["governor"] = governor
    hello = target.call("hello")
    found["probe"] = {"version": hello["version"], "clock": hello["clock"]}
    return found


def boot_id(target: Target) -> str:
    """Return the kernel's boot ID. When it has changed, everything that a reboot resets is gone."""
    return target.read("/proc/sys/kernel/random/boot_id")
