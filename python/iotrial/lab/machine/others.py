"""Other programs of this machine: who may have written a setting, and who uses or has mounted a file system.

A setting's writers are programs seen writing it or holding it open, rules and files that name it, and running tools that are
known to set such things.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

SYSCTL_FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
UDEV_FOLDERS = tuple(
    f"{above}/udev/rules.d" for above in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
#: programs that set queues, sysctls, governors or mounts while a machine runs, as named in /proc/PID/comm
TOOLS = frozenset(
    {
        "ananicy", "ananicy-cpp", "auto-cpufreq", "bpftune", "cpufreqd", "irqbalance", "ktuned", "laptop_mode",
        "power-profiles-", "thermald", "tlp", "tuned",
    }
)  # fmt: skip
#: how long to look for a program that sets the value back
WATCH_S = 1.0
_SYSCTLS = "/proc/sys/"
PROC = Path("/proc")
NOBODY = "nobody that can be seen"
_LARGEST = 1 << 20
# of linux/fanotify.h; the group only notifies, and does not block
_FAN_CLOEXEC_NONBLOCK, _FAN_MARK_ADD, _FAN_MODIFY, _AT_FDCWD = 0x3, 0x1, 0x2, -100
_EVENT = struct.Struct("=IBBHQii")


def suspects(paths: Sequence[str], write_again: Callable[[], None]) -> tuple[str, ...]:
    """Return who may have changed one of these files, the most certain first, in words.

    ``write_again``: writes the trial's values, so that a program that sets them back is seen doing it (as root).
    """
    found = [f"{name} wrote it" for name in _seen_writing(paths, write_again)]
    if not found:
        found += [f"{name} has it open" for name in _having_open(paths)]
    found += [f"{path} names it" for path in _naming(paths)]
    found += [f"{name} is running" for name in _running(TOOLS)]
    return tuple(dict.fromkeys(found))


def users_of(device: int, proc: Path = PROC) -> str:
    """Return the processes that use a file system, as "PID (name)": in a folder of it, with a file of it open or mapped.

    ``device``: the number of the file system as stat(2) shows it; ``proc``: a /proc that shows the processes.
    """
    mapped = f" {os.major(device):02x}:{os.minor(device):02x} "

    def uses(process: Path) -> bool:
        links = (process / "cwd", process / "root", *(process / "fd").iterdir())
        return any(_device_of(link) == device for link in links) or mapped in (process / "maps").read_text()

    return ", ".join(_found(proc, uses)) or NOBODY


def mounters_of(device: str, proc: Path = PROC) -> str:
    """Return a process of each mount namespace in which a device is mounted, as "PID (name)"."""
    number = Path(device).stat().st_rdev
    mounted = f" {os.major(number)}:{os.minor(number)} "
    seen: set[str] = set()

    def mounts(process: Path) -> bool:
        namespace = str((process / "ns" / "mnt").readlink())
        new = namespace not in seen and mounted in (process / "mountinfo").read_text()
        seen.add(namespace)
        return new

    return ", ".join(_found(proc, mounts)) or NOBODY


def _found(proc: Path, wanted: Callable[[Path], bool]) -> Iterator[str]:
    for process in sorted(proc.iterdir()):
        with suppress(OSError):  # it ended in the meantime
            if process.name.isdecimal() and wanted(process):
                yield f"{process.name} ({(process / 'comm').read_text().strip()})"


def _device_of(path: Path) -> int | None:
    try:
        return path.stat().st_dev
    except OSError:
        return None


def _seen_writing(paths: Sequence[str], write_again: Callable[[], None]) -> Iterator[str]:
    """Yield other programs that write one of the files within ``WATCH_S``, by fanotify(7); needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    group = libc.fanotify_init(_FAN_CLOEXEC_NONBLOCK, os.O_RDONLY)
    if group < 0:
        return
    try:
        for path in paths:
            libc.fanotify_mark(group, _FAN_MARK_ADD, ctypes.c_uint64(_FAN_MODIFY), _AT_FDCWD, path.encode())
        write_again()
        deadline = time.monotonic() + WATCH_S
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([group], [], [], left)[0]:
                continue
            for pid in _writers(os.read(group, 4096)):
                if pid not in (0, os.getpid()) and not _is_own(pid):
                    yield _named(pid)
                    return
    finally:
        os.close(group)


def _writers(events: bytes) -> Iterator[int]:
    """Yield the process of each event, and close the descriptor that comes with it."""
    at = 0
    while at + _EVENT.size <= len(events):
        length, _, _, _, _, descriptor, pid = _EVENT.unpack_from(events, at)
        if descriptor >= 0:
            os.close(descriptor)
        yield pid
        at += max(length, _EVENT.size)


def _is_own(pid: int) -> bool:
    """Return whether a process is a descendant of this one, as the probe is."""
    own = os.getpid()
    for _ in range(64):
        if pid in (0, 1, own):
            break
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == own


def _named(pid: int) -> str:
    """Return e.g. "tuned (411)"; of an interpreter the script that it runs."""
    with suppress(OSError, UnicodeDecodeError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        script = next((word for word in words[1:] if word and not word.startswith("-")), "")
        if name.startswith(("python", "perl", "ruby")) or name in ("sh", "bash", "dash"):
            name = Path(script).name or name
        return f"{name} ({pid})"
    return f"process {pid}, which has ended,"


def _having_open(paths: Sequence[str]) -> Iterator[str]:
    """Yield other programs that have one of the files open. Without root only those of the same user are seen."""
    real = {os.path.realpath(path) for path in paths}
    for folder in _processes():
        with suppress(OSError):
            is_open = any(os.path.realpath(file) in real for file in (folder / "fd").iterdir())
            if is_open and not _is_own(int(folder.name)):
                yield _named(int(folder.name))


def _processes() -> Iterator[Path]:
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())


def _naming(paths: Sequence[str]) -> Iterator[str]:
    """Yield udev rules and sysctl files that name one of the settings; comments do not count."""
    sysctls = [p.removeprefix(_SYSCTLS).replace("/", ".") for p in paths if p.startswith(_SYSCTLS)]
    attributes = ["/".join(p.split("/")[4:]) for p in paths if p.startswith("/sys/block/")]
    wanted: list[tuple[tuple[str, ...], str, tuple[str, str]]]
    wanted = [(SYSCTL_FOLDERS, ".conf", (key, key.replace(".", "/"))) for key in sysctls]
    wanted += [
        (UDEV_FOLDERS, ".rules", (f"ATTR{{{one}}}", f"ATTR{{bdi/{one.rpartition('/')[2]}}}"))
        for one in attributes
    ]
    for folders, ending, words in wanted:
        for folder in folders:
            for path in sorted(Path(folder).glob(f"*{ending}")):
                with suppress(OSError):
                    lines = path.read_bytes()[:_LARGEST].decode(errors="replace").splitlines()
                    if any(
                        word in line
                        for line in lines
                        if not line.lstrip().startswith(("#", ";"))
                        for word in words
                    ):
                        yield str(path)


def _running(tools: frozenset[str]) -> Iterator[str]:
    for folder in _processes():
        with suppress(OSError):
            name = (folder / "comm").read_text().strip()
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if name in tools or (name.startswith("python") and {Path(w).name for w in words[1:3]} & tools):
                yield _named(int(folder.name))
