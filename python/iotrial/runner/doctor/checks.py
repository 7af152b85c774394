"""Turns facts about a machine into findings. Pure functions: facts in, text and grade out.

The limits are rules of thumb for when to look closer, not tests: whether a neighbour matters shows in the
measured noise floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, field

from iotrial.documents import JsonObject
from iotrial.errors import OTHER_FOLDER
from iotrial.lab.machine.neighbours import BUSY, PRESSURE, STOLEN, Neighbours
from iotrial.lab.machine.processor import Clock, Frequency, Power
from iotrial.lab.machine.programs import Program
from iotrial.lab.place import MARGIN_BYTES, MEMORY_FILE_SYSTEMS
from iotrial.units import format_bytes, format_percent

STEADY_CLOCKS = frozenset({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"})
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})
RUN_BYTES = 8 << 20
UNSEEN = "not visible here"


def clock_finding(clock: Clock) -> Finding:
    """Report the clock source and whether it runs at a constant rate."""
    facts = {
        "source": clock.source,
        "available": list(clock.available),
        "flags": list(clock.flags),
        "probe": clock.probe,
    }
    if clock.source is None:
        return Finding("clock", Grade.NOTE, UNSEEN, facts=facts)
    text = f"clock source {clock.source}; operations are timed by {clock.probe}"
    if clock.source in SLOW_CLOCKS:
        do = "reading this clock takes about a microsecond: check the kernel log for why it does not use the tsc"
        return Finding("clock", Grade.PROBLEM, text, do, facts)
    if clock.source not in STEADY_CLOCKS:
        return Finding("clock", Grade.NOTE, text, "unknown clock source: check the noise floor", facts)
    if clock.source == "tsc" and clock.flags and not {"constant_tsc", "nonstop_tsc"} <= set(clock.flags):
        missing = " and ".join(f for f in ("constant_tsc", "nonstop_tsc") if f not in clock.flags)
        do = "its rate may change with the CPU frequency: use a fixed frequency while you measure"
        return Finding("clock", Grade.NOTE, f"{text}, without {missing}", do, facts)
    return Finding("clock", Grade.OK, text, facts=facts)


def frequency_finding(frequency: Frequency) -> Finding:
    """Report the governor that sets the processors' frequency."""
    facts = {
        "governors": list(frequency.governors),
        "driver": frequency.driver,
        "turbo": frequency.turbo,
        "virtual": frequency.hypervisor,
    }
    if not frequency.governors:
        return Finding("frequency", Grade.NOTE if frequency.hypervisor else Grade.OK, UNSEEN, facts=facts)
    turbo = {True: "turbo on", False: "turbo off", None: "turbo unknown"}[frequency.turbo]
    text = f"governor {', '.join(frequency.governors)} ({frequency.driver or 'driver unknown'}), {turbo}"
    steady = {"performance", "userspace"} >= set(frequency.governors)
    if steady and not frequency.turbo:
        return Finding("frequency", Grade.OK, text, facts=facts)
    do = "blocks compare runs close in time, so this adds noise, not bias"
    if not steady:
        do += "; to reduce it while you measure: cpupower frequency-set -g performance"
    return Finding("frequency", Grade.NOTE, text, do, facts)


def power_finding(power: Power) -> Finding:
    """Report AC or battery power."""
    facts = {"mains": power.mains, "batteries": [{"name": n, "status": s} for n, s in power.batteries]}
    if power.mains is False or any(status == "Discharging" for _, status in power.batteries):
        do = "plug it in: on battery the CPU frequency varies"
        return Finding("power", Grade.PROBLEM, "runs on battery", do, facts)
    if power.mains or power.batteries:
        return Finding("power", Grade.OK, "on mains", facts=facts)
    return Finding("power", Grade.OK, UNSEEN, facts=facts)


def neighbour_findings(seen: Neighbours) -> list[Finding]:
    """Report stolen time, other processes and pressure."""
    over = f"over {seen.seconds:.2g} s"
    stolen = stolen_finding("stolen time", seen.stolen, seen.seconds)
    names = ", ".join(f"{name} {format_percent(share)} of one" for name, share in seen.busiest)
    busy = Finding(
        "other processes",
        _grade(seen.busy, BUSY),
        f"{format_percent(seen.busy)} of the processors busy, {over}" + (f": {names}" if names else ""),
        None if seen.busy < BUSY[0] else "stop unnecessary programs while you measure",
        {
            "share": seen.busy,
            "load": seen.load,
            "busiest": [{"process": name, "processors": share} for name, share in seen.busiest],
        },
    )
    return [stolen, busy, _pressure(seen, over)]


def stolen_finding(area: str, share: float, seconds: float) -> Finding:
    """Report time that the host gave to other guests, as a share of all processors' time over these seconds."""
    return Finding(
        area,
        _grade(share, STOLEN),
        f"{format_percent(share)} of the processors' time went to other guests of the host, over {seconds:.3g} s",
        None if share < STOLEN[0] else "measure at a quieter time, or on a host with fewer guests",
        {"share": share, "seconds": seconds},
    )


def _pressure(seen: Neighbours, over: str) -> Finding:
    if not seen.pressure:
        return Finding("pressure", Grade.OK, UNSEEN)
    worst = max(seen.pressure.values())
    text = ", ".join(f"{name} {format_percent(share)}" for name, share in seen.pressure.items())
    return Finding(
        "pressure",
        _grade(worst, PRESSURE),
        f"some task waited for: {text} of the time, {over}",
        None if worst < PRESSURE[0] else "another program competes for it: see /proc/pressure and `iotop`",
        dict(seen.pressure),
    )


def _grade(value: float, limits: tuple[float, float]) -> Grade:
    return Grade.OK if value < limits[0] else Grade.NOTE if value < limits[1] else Grade.PROBLEM


def space_finding(what: str, folder: str, facts: dict[str, object] | None, *, wanted: int) -> Finding:
    """Report the free space of one folder (``facts``: the probe's statfs; None if it failed)."""
    area = f"space of {what}"
    if facts is None:
        return Finding(area, Grade.NOTE, f"{folder}: {UNSEEN}")
    free, kind = int(str(facts["available_bytes"])), str(facts["type"]).lower()
    numbers: dict[str, object] = {"folder": folder, "available_bytes": free, "filesystem": kind}
    text = f"{folder}: {format_bytes(free)} free"
    if what == "the state folder" and kind in MEMORY_FILE_SYSTEMS:
        do = OTHER_FOLDER
        return Finding(area, Grade.PROBLEM, f"{text}, in memory ({MEMORY_FILE_SYSTEMS[kind]})", do, numbers)
    if free < wanted:
        do = f"a lab needs {format_bytes(wanted)}: {OTHER_FOLDER}"
        if what != "the state folder":
            do = f"mount points need {format_bytes(wanted)} of memory there: free some"
        return Finding(area, Grade.PROBLEM, text, do, numbers)
    return Finding(area, Grade.OK, text, facts=numbers)


def lab_bytes(size: int) -> int:
    """Return the free space in bytes that an image lab of this size needs."""
    return size + MARGIN_BYTES


def program_findings(programs: Sequence[Program]) -> list[Finding]:
    """Return one finding for all installed programs, and one for each missing one."""
    there = [p.name for p in programs if p.path is not None]
    found = [Finding("programs", Grade.OK, "found: " + (", ".join(there) or "none"))]
    for program in programs:
        if program.path is None:
            found.append(
                Finding(
                    "programs",
                    Grade.OK if program.beside else Grade.NOTE,
                    f"{program.name} is not installed; needed by: {'; '.join(program.wanted_by)}",
                    f"apt-get install {program.package}",
                    {"name": program.name, "package": program.package},
                )
            )
    return found


# A finding of the doctor: what was found, how serious it is, what to do.


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(JsonObject, frozen=True):
    """One finding. ``facts`` are its numbers."""

    area: str
    grade: Grade
    found: str
    do: Annotated[str | None, Meta(description="What to do about it.")] = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    fatal: Annotated[bool, Meta(description="No lab at all can be used: exit status 1.")] = False
