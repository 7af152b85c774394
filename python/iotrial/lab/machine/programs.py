"""The installed programs, and the labs, knobs or studies that need those that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from iotrial.errors import IotrialError
from iotrial.guest import qemu
from iotrial.knobs.knob import RunContext
from iotrial.lab import registry
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.target import Target
from iotrial.study.model import Setting

FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")
_UTIL_LINUX = ("blkid", "wipefs")
#: programs that start a guest, and those that fetch its kernel and tools, each with its package
GUEST_PROGRAMS = {qemu.PROGRAM: qemu.PACKAGE, "setpriv": "util-linux", "apt-get": "apt", "dpkg-deb": "dpkg"}
#: useful for tuning storage, but never called by iotrial
_BESIDE = (
    ("fio", "fio", "studies that run fio as their command"),
    ("udevadm", "udev", "keeping block settings over a restart (iotrial apply)"),
    ("systemctl", "systemd", "units that set file system options at boot (iotrial apply)"),
    ("sqlite3", "sqlite3", "looking at the store, and commands that use SQLite"),
    ("strace", "strace", "counting system calls (in runs that are not timed)"),
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program. ``path`` is null if it is not installed; ``wanted_by``: what needs it, in words."""

    name: str
    package: str
    path: str | None
    wanted_by: tuple[str, ...]
    beside: Annotated[bool, Meta(description="No lab or knob needs it.")] = False


def programs(
    target: Target, context: RunContext, more: Iterable[tuple[str, str, str]] = ()
) -> tuple[Program, ...]:
    """Return the programs that labs and knobs need, by name, then the other useful ones.

    ``context``: a lab to query the knobs' levels in; ``more``: further (program, package, who needs it).
    """
    wanted: dict[str, tuple[str, list[str]]] = {}
    for kind in FILESYSTEMS.values():
        _want(wanted, kind.mkfs[0], kind.package, f"image and device labs with {kind.name}")
    for tool in _UTIL_LINUX:
        _want(wanted, tool, "util-linux", "device lab")
    for tool, package in GUEST_PROGRAMS.items():
        _want(wanted, tool, package, "guest lab")
    for tool, package, knob in _of_knobs(context):
        _want(wanted, tool, package, f"knob {knob}")
    for tool, package, who in more:
        _want(wanted, tool, package, who)
    found = [
        Program(name, package, find(target, name), tuple(who))
        for name, (package, who) in sorted(wanted.items())
    ]
    found += [
        Program(name, package, find(target, name), (what,), beside=True)
        for name, package, what in _BESIDE
        if name not in wanted
    ]
    return tuple(found)


def find(target: Target, name: str) -> str | None:
    """Return the path of a program in the folders that labs search; None if it is in none of them."""
    return next((f"{folder}/{name}" for folder in FOLDERS if target.exists(f"{folder}/{name}")), None)


def _want(wanted: dict[str, tuple[str, list[str]]], tool: str, package: str, who: str) -> None:
    known = wanted.setdefault(tool, (package, []))[1]
    if who not in known:
        known.append(who)


def _of_knobs(context: RunContext) -> Iterable[tuple[str, str, str]]:
    """Yield (program, package, knob) for every level of every knob that can be listed."""
    for name, knob in registry.knobs().items():
        try:
            levels = knob.levels(context, Setting(name, ""))
        except IotrialError:  # no such device here, or the knob needs an option
            levels = ()
        for level in levels or ("",):
            try:
                tools = knob.requires(Setting(name, level)).tools
            except (IotrialError, KeyError):  # not a valid level
                continue
            for tool, package in tools.items():
                yield tool, package, name
