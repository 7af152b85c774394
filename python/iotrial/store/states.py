"""The states of a trial: their meaning, whether its conductor is still alive, and how long the trial took.

A process is identified by its ID and its start time, since IDs are reused. The start time is the boot ID with
field 22 of ``/proc/PID/stat`` (clock ticks since boot; proc_pid_stat(5)), so that a record from before a
reboot, or from another machine, never matches a current process.

A state stores the time of day only, and the clock may be set back or forward while a trial runs. Each run
also stores the seconds since its trial began, from a clock that cannot be set: between the first and the last
run of an attempt, that clock is used.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from iotrial.polling import attempts


class TrialState(StrEnum):
    """State of a trial. ``running`` with a dead conductor means interrupted."""

    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    INVALID = "invalid"


PROC = Path("/proc")
#: how long to wait until a process that was killed is gone
_KILLED_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process: ``pid_started`` is ``BOOT-ID/TICKS``, empty if /proc does not provide it."""

    pid: int
    pid_started: str


def identity(pid: int | None = None, *, proc: Path = PROC) -> ProcessIdentity:
    """Return the identity of a living process (None: this one), for a trial's ``options`` or its state."""
    pid = os.getpid() if pid is None else pid
    started = _started(pid, proc)
    return ProcessIdentity(pid, "" if started is None else f"{_boot(proc)}/{started}")


def is_alive(process: ProcessIdentity, *, proc: Path = PROC) -> bool:
    """Return whether this very process is running; a zombie is not. A ``pid_started`` of ticks alone means this boot."""
    started = _started(process.pid, proc)
    return started is not None and process.pid_started in (f"{_boot(proc)}/{started}", str(started))


def end_hung(process: ProcessIdentity) -> None:
    """Kill a hung process, which may be stopped, and wait a moment until it is gone.

    One that waits in the kernel is not gone, but none of its code runs again.
    """
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            if is_alive(process):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    for _ in attempts(_KILLED_S, every_s=0.05):
        if not is_alive(process):
            return


def _started(pid: int, proc: Path) -> int | None:
    """Return the ticks from boot to the start of the process; None if it is gone or a zombie."""
    try:
        text = (proc / str(pid) / "stat").read_text("utf-8", errors="replace")
        # The name in parentheses may itself contain blanks and parentheses: the last one closes it.
        fields = text[text.rindex(")") + 1 :].split()
        return None if fields[0] in "ZXx" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""


ORPHANED = "its process ended without recording a reason"


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of state. ``at_s`` is Unix time; ``process`` is the conductor from here on (``running`` only)."""

    at_s: float
    state: TrialState
    reason: str | None = None
    process: ProcessIdentity | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The first and the last run of one attempt.

    Holds when each was stored (Unix time), and the seconds between their starts by the monotonic clock.
    """

    first_at_s: float
    last_at_s: float
    between_s: float


def present(
    changes: Sequence[StateChange], alive: Callable[[ProcessIdentity], bool]
) -> tuple[TrialState, str | None]:
    """Return the current state and its reason: ``running`` under a dead process is ``interrupted``."""
    newest = changes[-1]
    if newest.state is TrialState.RUNNING and not (newest.process is not None and alive(newest.process)):
        return TrialState.INTERRUPTED, newest.reason or ORPHANED
    return newest.state, newest.reason


def duration_s(
    changes: Sequence[StateChange], measured: Callable[[int], Measured | None], *, now_s: float | None
) -> float:
    """Return the seconds in state ``running``, over all attempts; never negative.

    ``measured`` returns the runs of an attempt by its number. An attempt without an end lasted until its last
    run; the newest one until ``now_s`` if it is still running (None: it is not). For the time before the
    first stored run and after the last, only the time of day is available.
    """
    total, attempt = 0.0, 0
    for index, change in enumerate(changes):
        if change.state is not TrialState.RUNNING:
            continue
        attempt += 1
        following = changes[index + 1] if index + 1 < len(changes) else None
        if following is not None and following.state is not TrialState.RUNNING:
            ended: float | None = following.at_s
        else:
            ended = now_s if following is None else None
        runs = measured(attempt)
        if runs is None:
            total += max(0.0, (change.at_s if ended is None else ended) - change.at_s)
            continue
        before = max(0.0, runs.first_at_s - change.at_s)
        after = 0.0 if ended is None else max(0.0, ended - runs.last_at_s)
        total += before + max(0.0, runs.between_s) + after
    return total
