"""Whether the conductor that a trial is running under is still there.

A process is known by its id and by when it started: ids are used again. The start is the boot's id with
field 22 of ``/proc/PID/stat`` (clock ticks since boot; proc_pid_stat(5)), so that a record from before a
reboot, or from another machine, is never taken for a process of now.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process: ``pid_started`` is ``BOOT-ID/TICKS``, empty where /proc tells nothing."""

    pid: int
    pid_started: str


def identity(pid: int | None = None, *, proc: Path = PROC) -> ProcessIdentity:
    """The identity of a living process (None: this one), for a trial's ``options`` or its state."""
    pid = os.getpid() if pid is None else pid
    started = _started(pid, proc)
    return ProcessIdentity(pid, "" if started is None else f"{_boot(proc)}/{started}")


def is_alive(process: ProcessIdentity, *, proc: Path = PROC) -> bool:
    """Whether this very process runs; a zombie does not. A ``pid_started`` of ticks alone is of this boot."""
    started = _started(process.pid, proc)
    return started is not None and process.pid_started in (f"{_boot(proc)}/{started}", str(started))


def _started(pid: int, proc: Path) -> int | None:
    """Ticks from boot to the start of the process; None where it is gone or a zombie."""
    try:
        text = (proc / str(pid) / "stat").read_text("utf-8", errors="replace")
        # The name in brackets may itself hold blanks and brackets: the last one closes it.
        fields = text[text.rindex(")") + 1 :].split()
        return None if fields[0] in "ZXx" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""
