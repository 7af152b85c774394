"""The watchdog of a live trial: a separate process that sets today's settings again if the trial cannot.

The trial writes a heartbeat, a moment of the monotonic clock until which it may be silent, into a small file in memory. The
watchdog looks at it every second. If the trial has died (SIGKILL, out of memory) or is silent for longer (hung, stopped), the
watchdog kills what is left of it, so that it cannot switch again, and undoes the journal as ``iotrial restore`` does. The
monotonic clock stands still while the machine sleeps and cannot be set, so neither makes a sound trial look hung. Where both
were held up (a container that was frozen, a virtual machine that was paused), the trial has the same time again.

With systemd the watchdog is a transient service (systemd-run(1)): stopping the service that runs iotrial kills all of that
service's processes, but not this one, and systemd starts it again if it is killed. Elsewhere it is a detached process that
the kernel kills last when memory runs out, and its parent, a shell, starts it again. So a kill of trial and watchdog at the
same instant is undone as well.
A reboot needs no watchdog: none of these settings outlives the kernel.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from iotrial.durable import Damage
from iotrial.errors import IotrialError, LabError
from iotrial.lab.journal import Journal
from iotrial.lab.lock import Busy, MachineLock
from iotrial.lab.restore import Restored, restore
from iotrial.lab.target import Target
from iotrial.paths import state_folder, store_path
from iotrial.polling import attempts
from iotrial.probe.client import Probe
from iotrial.store import Store
from iotrial.store.accounted import WATCHDOG
from iotrial.store.states import ProcessIdentity, end_hung, identity, is_alive
from iotrial.tune.machine import Machine
from iotrial.tune.watchdog import detach, log, restarted

#: how long a trial may be silent, beyond what it has announced
STALE_S = 10.0
LOOKS_EVERY_S = 1.0
#: a watchdog that looks this much later was held up
_HELD_UP_S = 3.0
#: how long the watchdog waits until the lock of a trial that it has killed is free
_FREE_S = 5.0
#: how long it tries to undo what fails at first
_UNDOING_S = 60.0
_FOLDER = Path("/run")
_SYSTEMD = "/run/systemd/system"
_MODULE = "iotrial.live.watchdog"
_KEPT = ("PYTHONPATH", "XDG_STATE_HOME", "IOTRIAL_STORE", "IOTRIAL_PROBE")


def _name(trial: str, pid: int) -> str:
    """Return the name of a trial's watchdog. A resumed trial has a new one: the one before may still be ending."""
    return f"iotrial-live-{trial[:8]}-{pid}"


def heartbeat_path(trial: str, pid: int) -> Path:
    """Return the file of a trial's heartbeat: in memory, so that writing it every second is no I/O of the disk.

    ``pid``: of the process that conducts the trial.
    """
    return _FOLDER / f"{_name(trial, pid)}.heartbeat"


class Watchdog:
    """The trial's side: starts the watchdog, tells it that the trial is alive, and ends it."""

    def __init__(self, trial: str) -> None:
        self._trial = trial
        self._own = identity()
        self._path = heartbeat_path(trial, self._own.pid)
        self._file: int | None = None
        self._until = 0.0

    def start(self) -> None:
        """Write the first heartbeat and start the process. Raises LabError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._path.unlink(missing_ok=True)
            self._file = os.open(self._path, flags, 0o600)
            self.beat(60.0)  # until the trial has got as far as its first window
        except OSError as error:
            self.stop()
            raise LabError(
                f"writing {self._path}, which the watchdog reads: {error.strerror}; nothing was changed"
            ) from error
        command = _command(self._trial, self._own)
        machine = Machine()
        if machine.exists(_SYSTEMD):
            unit = f"--unit={_name(self._trial, self._own.pid)}"
            machine.run(
                "systemd-run",
                "--quiet",
                "--collect",
                unit,
                "-p",
                "OOMScoreAdjust=-1000",
                *restarted(pause_s=1),
                *command,
            )
        else:
            detach(command)

    def beat(self, silent_s: float = 0.0) -> None:
        """Say that the trial is alive, and that it may be silent for this long and ``STALE_S`` more."""
        if self._file is not None:
            os.pwrite(self._file, f"{time.monotonic() + silent_s + STALE_S:020.3f}\n".encode(), 0)

    def stop(self) -> None:
        """End the watchdog: it ends when the file is gone."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._path.unlink(missing_ok=True)


def _command(trial: str, conductor: ProcessIdentity) -> list[str]:
    """Return the command of a watchdog, with the environment that finds this program, its state and its store."""
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    environment = ("/usr/bin/env", *kept) if kept else ()
    return [*environment, sys.executable, "-m", _MODULE, trial, str(conductor.pid), conductor.pid_started]


# the watchdog's side


def stand_by(trial: str, conductor: ProcessIdentity) -> None:
    """Wait until the trial ends or fails; if it fails, end it and set today's settings again."""
    path = heartbeat_path(trial, conductor.pid)
    looked, patient_until = time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        # held up, and so the trial may have been, with the whole machine
        if now - looked > LOOKS_EVERY_S + _HELD_UP_S:
            patient_until = now + STALE_S
        looked = now
        until = _until(path)
        if until is None:
            return
        alive = is_alive(conductor)
        if alive and now <= max(until, patient_until):
            time.sleep(LOOKS_EVERY_S)
            continue
        why = "was silent" if alive else "ended without setting them"
        if alive:
            end_hung(conductor)
        if _until(path) is None:  # it has just ended by itself
            return
        found = _take_back(trial, conductor)
        if found is not None:
            _note(trial, f"the trial {why}: {found}")
        path.unlink(missing_ok=True)
        return


def _until(path: Path) -> float | None:
    """Return the moment until which the trial may be silent; None if the trial is over."""
    try:
        return float(path.read_text().strip() or "inf")
    except FileNotFoundError:
        return None
    except ValueError:
        return 0.0
    except OSError:  # out of descriptors, for instance: only whether the trial lives is known
        return float("inf")


def _take_back(trial: str, conductor: ProcessIdentity) -> str | None:
    """Undo the journal; return the outcome in words. None: the trial was restored and resumed, the journal is in use.

    A resumed trial has the lock, and a heartbeat before its first entry. For another holder this does not wait for long: it
    is the dead conductor, whatever the kernel still does for it, or restores, or has its own journal.
    """
    with ExitStack() as held:
        for _ in attempts(_FREE_S, every_s=0.2):
            try:
                held.enter_context(MachineLock(restoring=True))
                break
            except Busy as busy:
                pid = 0 if busy.holder is None else busy.holder.pid
                if pid != conductor.pid and heartbeat_path(trial, pid).exists():
                    return None
            except (IotrialError, OSError) as error:  # better without the lock than not at all
                log(f"live trial {trial}: the machine's lock: {error}")
        return _undone()


def _undone() -> str:
    """Undo the journal, and try again for a while what fails. Returns the outcome in words."""
    found = ""
    for _ in attempts(_UNDOING_S, every_s=1.0):
        journal = Journal(state_folder() / "journal")
        try:
            with Probe(isolate=False) as probe:
                results = restore(journal, Target(probe))
            found, again = _in_words(results, journal.read()[1])
        except Exception as error:  # nothing else sets them: whatever fails is tried again
            text = error.message if isinstance(error, IotrialError) else f"{type(error).__name__}: {error}"
            found, again = f"today's settings could not be set: {text}", True
        if not again:
            break
    return found


def _in_words(results: Sequence[Restored], damaged: Sequence[Damage]) -> tuple[str, bool]:
    """Return the outcome in words, and whether another attempt may do more."""
    kept = [f"{one.entry.knob} on {one.entry.target}: {one.problem}" for one in results if one.kept]
    kept += [str(one) for one in damaged]
    if kept:
        again = bool(damaged) or any(one.outcome is None for one in results)
        return f"the watchdog could not set all of today's settings: {'; '.join(kept)}", again
    return "the watchdog has set today's settings again", False


def _note(trial: str, text: str) -> None:
    log(f"live trial {trial}: {text}")
    with suppress(IotrialError), Store.open(store_path()) as store:
        store.note(trial, WATCHDOG, text)


def main() -> None:
    """Run as ``python -m iotrial.live.watchdog TRIAL PID STARTED``."""
    trial, pid, started = sys.argv[1:4]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    conductor = ProcessIdentity(int(pid), started)
    for _ in attempts(_UNDOING_S, every_s=1.0):
        try:
            stand_by(trial, conductor)
            break
        except Exception as error:  # it must not die, whatever fails
            log(f"live trial {trial}: {type(error).__name__}: {error}; trying again")


if __name__ == "__main__":
    main()
