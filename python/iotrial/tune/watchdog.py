"""Reverts settings that are not kept: after a time limit, after iotrial has died, and at the next boot.

With systemd a transient timer (systemd-run(1)) runs ``iotrial revert --unkept`` at the end of the time, again if it fails,
and a unit in /etc runs it early at each boot, as long as something waits to be kept. Without systemd a detached process
waits for the time, and a line for cron (crontab(5), ``@reboot``) covers a reboot, if cron runs; if not, a reboot is not
covered, and apply says so.

A watchdog depends on its own record only, tries again, and writes what happens to the system log and to ``LOG``. If it is
killed, systemd or a shell starts it again (``detach``).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import syslog
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from iotrial.errors import LabError
from iotrial.paths import state_folder
from iotrial.tune.applied import (
    FOLDER,
    AnyStep,
    FileStep,
    FolderStep,
    LinkStep,
    Record,
    Records,
    ReloadStep,
    revert,
)
from iotrial.tune.conflicts import MARK
from iotrial.tune.machine import Machine

UNIT = "iotrial-applied.service"
_UNITS = "/etc/systemd/system"
_WANTS = f"{_UNITS}/sysinit.target.wants"
_CRON = "/etc/cron.d/iotrial-applied"
_CRON_RUNS = ("/run/crond.pid", "/run/cron.pid", "/var/run/crond.pid")
_UNKEPT = ("revert", "--unkept")
#: what all watchdogs have to say, one line each, besides the system log
LOG = "/var/lib/iotrial/watchdog.log"
_LONGEST_LOG = 1 << 20
#: why a record was reverted
NOT_IN_TIME = "it was not kept in time"
_LOOKS_EVERY_S = 1.0
_LONGEST_PAUSE_S = 60.0
#: the longest time in which settings wait to be kept, and an hour to take them back
_LONGEST_WAIT_S = 90_000.0


@dataclass(frozen=True, slots=True)
class Guard:
    """How settings are reverted on this machine: steps that install what runs at boot, and what is covered, in words."""

    kind: str
    steps: tuple[AnyStep, ...]
    covers_reboot: bool
    says: str


def program() -> tuple[str, ...]:
    """Return the command that runs this iotrial again, without the user's environment."""
    path = os.environ.get("PYTHONPATH")
    return (*(("/usr/bin/env", f"PYTHONPATH={path}") if path else ()), sys.executable, "-m", "iotrial")


def guard_for(machine: Machine) -> Guard:
    """Choose what this machine has."""
    if machine.exists("/run/systemd/system"):
        unit = FileStep.writing(machine, f"{_UNITS}/{UNIT}", _unit_text().encode())
        link = f"{_WANTS}/{UNIT}"
        steps: list[AnyStep] = [unit]
        if not machine.exists(_WANTS):
            steps.append(FolderStep(_WANTS))
        steps += [LinkStep(link, f"../{UNIT}"), ReloadStep(("systemctl", "daemon-reload"))]
        return Guard(
            "systemd",
            tuple(steps),
            True,
            f"a systemd timer takes everything back, {UNIT} does at the next boot, also if iotrial or the machine dies",
        )
    if machine.exists("/etc/cron.d") and any(machine.exists(path) for path in _CRON_RUNS):
        line = f"@reboot root {shlex.join((*program(), *_UNKEPT))}"
        text = f"# {MARK}: takes back settings that nobody has kept\n{line}\n"
        return Guard(
            "cron",
            (FileStep.writing(machine, _CRON, text.encode()),),
            True,
            f"without systemd, a waiting process takes everything back, and cron does at the next boot ({_CRON})",
        )
    return Guard(
        "process",
        (),
        False,
        "without systemd and cron, a waiting process takes everything back; A REBOOT IS NOT COVERED: after one run "
        "`iotrial revert` yourself",
    )


def _unit_text() -> str:
    """Return the unit: as early as files can be written, before sysctl.d and tmpfiles.d are read.

    Without a limit a oneshot unit that hangs would keep the machine from starting (systemd.service(5)).
    """
    command = " ".join(_quoted(word) for word in (*program(), *_UNKEPT))
    return f"""# {MARK}: takes back settings that nobody has kept.
[Unit]
Description=Take back storage settings that nobody has kept
DefaultDependencies=no
RequiresMountsFor={FOLDER} /etc
After=local-fs.target
Before=sysinit.target systemd-sysctl.service systemd-tmpfiles-setup.service shutdown.target
Conflicts=shutdown.target
ConditionDirectoryNotEmpty={FOLDER}

[Service]
Type=oneshot
TimeoutStartSec=5min
ExecStart={command}
"""


def _quoted(word: str) -> str:
    """Quote a word for ExecStart=; systemd.service(5)."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'


def timer_name(record: Record) -> str:
    """Return the name of the transient timer."""
    return f"iotrial-takeback-{record.short}"


def arm(machine: Machine, kind: str, record: Record) -> None:
    """Start what takes the record back at its time. Raises LabError."""
    if not machine.is_this:
        return
    within_s = max(1.0, record.due_s - machine.uptime_s)
    if kind == "systemd":
        # The first begins again at each daemon-reload; the second is too late in containers, which count from their start.
        at_s = time.monotonic() + within_s + 1
        machine.run(
            "systemd-run", "--quiet", "--collect", f"--unit={timer_name(record)}", f"--on-active={within_s:.0f}s",
            f"--on-boot={at_s:.0f}s", "--timer-property=AccuracySec=1s", *restarted(pause_s=10), *program(), *_UNKEPT,
        )  # fmt: skip
        return
    script = f"from iotrial.tune.watchdog import stand_by; stand_by({record.short!r})"
    detach([*program()[:-2], "-c", script])


def restarted(*, pause_s: int) -> tuple[str, ...]:
    """Return options of systemd-run(1) for a service that is started again, 30 times a day, if it fails or is killed."""
    limits = (
        "Restart=on-failure",
        f"RestartSec={pause_s}s",
        "StartLimitIntervalSec=1d",
        "StartLimitBurst=30",
    )
    return tuple(f"--property={one}" for one in limits)


#: runs $WATCHDOG until it ends by itself; the pauses bound how often one that fails at once is started
_SUPERVISOR = """echo -1000 2>/dev/null >/proc/self/oom_score_adj
n=0
until eval "$WATCHDOG"; do n=$((n + 1)); [ $n -lt 1000 ] || exit 1; sleep 1; done"""


def detach(argv: Sequence[str]) -> None:
    """Start a watchdog that outlives this process, its terminal and its session. Raises LabError.

    Its parent is a shell that starts it again if it is killed, as systemd does with ``restarted``. The shell's command line
    names neither Python nor iotrial, so that a kill by name does not end both. Out of memory, the kernel kills them last.
    """
    path = os.environ.get("PATH") or "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISOR],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": path, "WATCHDOG": shlex.join(argv)},
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        raise LabError(f"starting the process that takes the settings back: {error.strerror}") from error


def disarm(machine: Machine, kind: str, record: Record) -> None:
    """Stop the timer; a waiting process ends by itself, as it looks at the record every second."""
    if kind == "systemd" and machine.is_this:
        try:
            machine.run("systemctl", "stop", f"{timer_name(record)}.timer")
        except LabError:
            return  # it has gone off, or the machine was started again since


def log(text: str, machine: Machine | None = None) -> None:
    """Write a line to the system log, to standard error and to ``LOG``, or in the user's state folder. Never fails."""
    line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {' '.join(text.split())}\n"
    if machine is None or machine.is_this:
        syslog.openlog("iotrial", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_WARNING, text.replace("\0", ""))
        with suppress(OSError, ValueError):
            sys.stderr.write(f"iotrial: {text}\n")
    place = state_folder() / Path(LOG).name if machine is None else machine.at(LOG)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(place, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size < _LONGEST_LOG:
                os.write(descriptor, line.encode(errors="replace"))
        finally:
            os.close(descriptor)


def stand_by(short: str, machine: Machine | None = None) -> None:
    """Wait until a record is due, and revert it; end if it was kept or reverted before. Runs as a separate process.

    Other records do not matter. If its own becomes unreadable or is removed, what it held before counts.
    """
    records = Records(machine or Machine())
    waiting = Waiting(records, short)
    while not waiting.is_over():
        time.sleep(waiting.pause_s)


class Waiting:
    """The waiting process: looks at its record, and takes it back when it is due, until that succeeds.

    ``pause_s``: seconds until the next look; it doubles while taking back fails.
    """

    def __init__(self, records: Records, short: str) -> None:
        self.pause_s = _LOOKS_EVERY_S
        self._records = records
        self._short = short
        self._last: Record | None = None
        self._logged: set[str] = set()
        self._give_up_s = records.machine.uptime_s + _LONGEST_WAIT_S

    def is_over(self) -> bool:
        """Look once. Returns whether nothing is left to do."""
        if self._records.machine.uptime_s > self._give_up_s:
            self._log("not taken back; gave up. `iotrial revert` tries again")
            return True
        try:
            found = self._current()
            if found is None or not found.is_due(self._records.machine):
                return found is not None and not found.unkept
            with self._records.lock(insist=True):
                found = self._current() or found
                if not found.unkept:
                    return True
                done = revert(self._records, found, why=NOT_IN_TIME)
        except Exception as error:  # it must not die, whatever fails
            self._log(f"{type(error).__name__}: {error}; trying again")
            done = None
        if done is not None and not done.problems:
            self._log("not kept in time; taken back")
            return True
        for problem in () if done is None else done.problems:
            self._log(f"not kept in time; {problem}; trying again")
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)
        return False

    def _current(self) -> Record | None:
        """Return the record, or what it was when it could last be read; None if it never could."""
        try:
            self._last = self._records.one(self._short)
        except (LabError, FileNotFoundError) as error:
            self._log(f"its record cannot be read: {error}")
        return self._last

    def _log(self, text: str) -> None:
        """Write a line to the log, each only once."""
        if text not in self._logged:
            self._logged.add(text)
            log(f"settings of trial {self._short}: {text}", self._records.machine)
