"""Reverts settings that are not kept: after a time limit, after iotrial has died, and at the next boot.

With systemd a transient timer (systemd-run(1)) runs ``iotrial revert --unkept`` at the end of the time, and a unit in /etc
runs it early at each boot, as long as something waits to be kept. Without systemd a detached process waits for the time, and
a line for cron (crontab(5), ``@reboot``) covers a reboot, if cron runs; if not, a reboot is not covered, and apply says so.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import LabError
from iotrial.tune.applied import FOLDER, AnyStep, FileStep, FolderStep, LinkStep, Record, Records, ReloadStep
from iotrial.tune.conflicts import MARK
from iotrial.tune.machine import Machine

UNIT = "iotrial-applied.service"
_UNITS = "/etc/systemd/system"
_WANTS = f"{_UNITS}/sysinit.target.wants"
_CRON = "/etc/cron.d/iotrial-applied"
_CRON_RUNS = ("/run/crond.pid", "/run/cron.pid", "/var/run/crond.pid")
_UNKEPT = ("revert", "--unkept")


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
    """Return the unit: as early as files can be written, before sysctl.d and tmpfiles.d are read."""
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
        machine.run(
            "systemd-run", "--quiet", "--collect", f"--unit={timer_name(record)}", f"--on-active={within_s:.0f}s",
            "--timer-property=AccuracySec=1s", *program(), *_UNKEPT,
        )  # fmt: skip
        return
    script = f"from iotrial.tune.watchdog import stand_by; stand_by({record.short!r})"
    detach([*program()[:-2], "-c", script])


def detach(argv: list[str]) -> None:
    """Start a process that outlives this one, its terminal and its session. Raises LabError."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        raise LabError(f"starting the process that takes the settings back: {error.strerror}") from error
    try:
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("-1000")
    except OSError:
        return


def disarm(machine: Machine, kind: str, record: Record) -> None:
    """Stop the timer; a waiting process ends by itself, as it looks at the record every second."""
    if kind == "systemd" and machine.is_this:
        try:
            machine.run("systemctl", "stop", f"{timer_name(record)}.timer")
        except LabError:
            return  # it has gone off, or the machine was started again since


def stand_by(short: str) -> None:
    """Wait until a record is due, and revert it; end if it was kept or reverted before. Runs as a separate process."""
    records = Records(Machine())
    while True:
        found = next((one for one in records.all() if one.short == short), None)
        if found is None or not found.unkept:
            return
        if found.is_due(records.machine):
            subprocess.run([*program(), *_UNKEPT], check=False)
            return
        time.sleep(1)
