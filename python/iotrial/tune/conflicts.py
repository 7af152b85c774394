"""Who else sets the same thing on this machine, and who would win: other configuration files, tuned, scripts at boot.

Each finder states the rule of precedence of its mechanism, from the manual page of the program that reads the files.
"""

from __future__ import annotations

import configparser
import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iotrial.knobs.sysctl import Sysctl
from iotrial.lab.machine.others import SYSCTL_FOLDERS, UDEV_FOLDERS
from iotrial.terminal import escape
from iotrial.tune.devices import DeviceName, properties
from iotrial.tune.machine import Machine

TMPFILES_FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d")
TUNED_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
#: scripts and units that run when everything else has been set
_LATE = ("/etc/rc.local", "/etc/rc.d/rc.local")
_UNITS = "/etc/systemd/system"
_DEEPEST = 8
_ASSIGNMENT = re.compile(r'ATTR\{([^}"]+)\}\s*(?:=|:=)\s*"([^"]*)"')
_MATCH = re.compile(r'(KERNEL|SUBSYSTEM|(?:ENV|ATTR)\{[^}"]+\})\s*(==|!=)\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Rival:
    """Another place that sets the same: file and line, its value (None: unknown), and whether it stays in force."""

    owner: str
    value: str | None
    wins: bool

    def __str__(self) -> str:
        value = "it" if self.value is None else f"it to {escape(self.value)}"
        who = "wins over iotrial's" if self.wins else "iotrial's wins"
        return f"{escape(self.owner)} also sets {value}, and {who}"


def layered(machine: Machine, folders: tuple[str, ...], ending: str) -> list[str]:
    """Return configuration files in the order in which they are read: by name, and of equal names the first folder's."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in machine.names(folder):
            if name.endswith(ending):
                found.setdefault(name, f"{folder}/{name}")
    return [found[name] for name in sorted(found)]


def sysctl_rivals(machine: Machine, key: str, own: str) -> Iterator[Rival]:
    """Find other settings of a sysctl. sysctl.d(5): the file with the last name wins."""
    wanted = {key, Sysctl.PAIRS.get(key, key)}
    own_name = own.rpartition("/")[2]
    linked = False
    for path in layered(machine, SYSCTL_FOLDERS, ".conf"):
        name = path.rpartition("/")[2]
        place = machine.at(path)
        linked = linked or (place.is_symlink() and place.readlink().name == "sysctl.conf")
        if is_ours(machine, path) or name == own_name:
            continue
        for number, value in _sysctl_lines(machine, path, wanted):
            yield Rival(f"{path}:{number}", value, name > own_name)
    for number, value in _sysctl_lines(machine, "/etc/sysctl.conf", wanted):
        booted = machine.exists("/run/systemd/system")
        only = " (not read at boot)" if booted and not linked else ""
        yield Rival(f"/etc/sysctl.conf:{number}{only}", value, not booted)
    words = (machine.text("/proc/cmdline") or "").split()
    for word in words:
        name, _, value = word.partition("=")
        if name.removeprefix("sysctl.").replace("/", ".") in wanted and name.startswith("sysctl."):
            yield Rival("the kernel command line", value, False)
    profile = Tuned(machine)
    if (value := profile.section("sysctl").get(key, "").lstrip("<>")) != "":
        yield Rival(f"profile {profile.name} of tuned", value, not profile.reapplies_sysctl)
    yield from _late(machine, key.replace(".", "/"), key)


def _sysctl_lines(machine: Machine, path: str, wanted: set[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate((machine.text(path) or "").split("\n"), 1):
        name, equals, value = line.strip().lstrip("-").partition("=")
        if not equals or line.lstrip().startswith(("#", ";")):
            continue
        name = _dotted(name.strip())
        if any(fnmatch.fnmatchcase(one, name) for one in wanted):
            yield number, value.strip()


def _dotted(name: str) -> str:
    """Return a key with dots; sysctl.d(5): the separator that comes first decides which of the two it is."""
    first = next((c for c in name if c in "./"), ".")
    return name.translate(str.maketrans("./", "/.")) if first == "/" else name


def block_rivals(machine: Machine, file: str, device: DeviceName, own: str) -> Iterator[Rival]:
    """Find other settings of a queue's file. udev(7): rules run in the order of their files' names, the last value stays."""
    own_name = own.rpartition("/")[2]
    names = {file, "bdi/read_ahead_kb"} if file == "queue/read_ahead_kb" else {file}
    for path in layered(machine, UDEV_FOLDERS, ".rules"):
        if is_ours(machine, path):
            continue
        name = path.rpartition("/")[2]
        for number, line in _joined_lines(machine.text(path) or ""):
            for attribute, value in _ASSIGNMENT.findall(line):
                if attribute in names and _may_match(machine, line, device):
                    yield Rival(f"{path}:{number}", value, name > own_name)
    profile = Tuned(machine)
    option = {"queue/scheduler": "elevator", "queue/read_ahead_kb": "readahead"}.get(file, "")
    in_profile = profile.disk(device.kernel).get(option)
    if in_profile is not None:
        yield Rival(f"profile {profile.name} of tuned", in_profile.lstrip("<>"), True)
    yield from profile.sysfs(f"/sys/block/{device.kernel}/{file}")
    yield from _late(machine, file, "blockdev --setra" if "read_ahead" in file else file)


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a rules file with their numbers, continued ones joined, without comments."""
    held, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first or number
        if line.endswith("\\"):
            held += line[:-1]
            continue
        whole, begun = held + line, first
        held, first = "", 0
        if whole.strip() and not whole.lstrip().startswith("#"):
            yield begun, whole


def _may_match(machine: Machine, line: str, device: DeviceName) -> bool:
    """Return whether a rule may apply to a disk: False only if one of its keys is known not to match."""
    known: dict[str, str] = {"KERNEL": device.kernel, "SUBSYSTEM": "block", "ENV{DEVTYPE}": "disk"}
    known |= {f"ENV{{{key}}}": value for key, value in properties(machine, device.kernel).items()}
    for attribute in ("queue/rotational", "removable", "ro"):
        found = machine.text(f"/sys/block/{device.kernel}/{attribute}")
        known |= {} if found is None else {f"ATTR{{{attribute}}}": found}
    for key, operator, pattern in _MATCH.findall(line):
        if key in known:
            fits = any(fnmatch.fnmatchcase(known[key], one) for one in pattern.split("|"))
            if fits is (operator == "!="):
                return False
    return True


def tmpfiles_rivals(machine: Machine, path: str, own: str) -> Iterator[Rival]:
    """Find other writers of a kernel file. tmpfiles.d(5): of lines for one path the file with the first name wins."""
    own_name = own.rpartition("/")[2]
    for file in layered(machine, TMPFILES_FOLDERS, ".conf"):
        if is_ours(machine, file):
            continue
        name = file.rpartition("/")[2]
        for number, line in enumerate((machine.text(file) or "").split("\n"), 1):
            words = line.split(None, 6)
            if len(words) == 7 and words[0].startswith("w") and fnmatch.fnmatchcase(path, words[1]):
                yield Rival(f"{file}:{number}", words[6].strip(), name < own_name)
    if path.endswith("transparent_hugepage/enabled"):
        for word in (machine.text("/proc/cmdline") or "").split():
            if word.startswith("transparent_hugepage="):
                value = word.partition("=")[2]
                yield Rival("the kernel command line", value, False)
        profile = Tuned(machine)
        section = profile.section("vm")
        pages = section.get("transparent_hugepages", section.get("transparent_hugepage"))
        if pages is not None:
            yield Rival(f"profile {profile.name} of tuned", pages, True)
    if path.endswith("scaling_governor"):
        profile = Tuned(machine)
        if (governor := profile.section("cpu").get("governor")) is not None:
            yield Rival(f"profile {profile.name} of tuned", governor, True)
        for other in ("/etc/default/cpufrequtils", "/etc/default/cpupower", "/etc/tlp.conf"):
            for number, line in enumerate((machine.text(other) or "").split("\n"), 1):
                if "governor" in line.lower() and "=" in line and not line.lstrip().startswith("#"):
                    value = line.partition("=")[2].strip(" \"'")
                    yield Rival(f"{other}:{number}", value, True)
    yield from Tuned(machine).sysfs(path)
    yield from _late(machine, path, path)


def _late(machine: Machine, *texts: str) -> Iterator[Rival]:
    """Find scripts and units of the administrator that name a setting: they run late, so theirs stays."""
    units = [f"{_UNITS}/{name}" for name in machine.names(_UNITS) if name.endswith(".service")]
    for path in (*_LATE, *units):
        for number, line in enumerate((machine.text(path) or "").split("\n"), 1):
            if any(text in line for text in texts) and not line.lstrip().startswith("#"):
                yield Rival(f"{path}:{number}", None, True)
                break


class Tuned:
    """The active profile of tuned with what it includes; empty if tuned does not run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        running = machine.exists("/run/tuned/tuned.pid")
        self.name = (machine.text("/etc/tuned/active_profile") or "").strip() if running else ""
        self._sections: dict[str, dict[str, str]] = {}
        for profile in self.name.split():
            self._load(profile, 0)

    @property
    def is_active(self) -> bool:
        """Whether tuned runs with a profile."""
        return bool(self.name)

    @property
    def reapplies_sysctl(self) -> bool:
        """Whether tuned reads sysctl.d again after applying a profile (tuned-main.conf; the default)."""
        for line in (self._machine.text("/etc/tuned/tuned-main.conf") or "").split("\n"):
            key, equals, value = line.partition("=")
            if equals and key.strip() == "reapply_sysctl":
                return value.strip().lower() in ("1", "true", "y", "yes", "on")
        return True

    def section(self, name: str) -> Mapping[str, str]:
        """Return the options of a section."""
        return self._sections.get(name, {})

    def disk(self, kernel: str) -> dict[str, str]:
        """Return the options that sections of the disk plugin have for a device."""
        found: dict[str, str] = {}
        for name, section in self._sections.items():
            if section.get("type", name) != "disk" or section.get("enabled", "true").lower() in (
                "0",
                "false",
            ):
                continue
            wanted = [one for one in re.split(r"[,;\s]+", section.get("devices", "*")) if one]
            if "devices_udev_regex" in section or any(fnmatch.fnmatchcase(kernel, one) for one in wanted):
                found |= section
        return found

    def sysfs(self, path: str) -> Iterator[Rival]:
        """Find a line of the sysfs plugin for a kernel file."""
        for pattern, value in self.section("sysfs").items():
            if fnmatch.fnmatchcase(path, pattern):
                yield Rival(f"profile {self.name} of tuned", value, True)

    def _load(self, profile: str, depth: int) -> None:
        """Read a profile after those that it includes, which its own options override."""
        if depth > _DEEPEST or not re.fullmatch(r"[A-Za-z0-9_.-]+", profile):
            return
        paths = (f"{folder}/{profile}/tuned.conf" for folder in TUNED_FOLDERS)
        text = next((text for path in paths if (text := self._machine.text(path)) is not None), None)
        if text is None:
            return
        parser = configparser.ConfigParser(
            delimiters=("=",),
            comment_prefixes=("#", ";"),
            interpolation=None,
            strict=False,
            allow_no_value=True,
        )
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        try:
            parser.read_string(text)
        except configparser.Error:
            return
        for included in re.split(r"[,;\s]+", parser.get("main", "include", fallback="") or ""):
            if included:
                self._load(included, depth + 1)
        for name in parser.sections():
            if name != "main":
                options = {key: value or "" for key, value in parser.items(name)}
                self._sections.setdefault(name, {}).update(options)


MARK = "Written by iotrial"


def is_ours(machine: Machine, path: str) -> bool:
    """Return whether a file is one that iotrial wrote."""
    return MARK in (machine.text(path) or "").partition("\n")[0]
