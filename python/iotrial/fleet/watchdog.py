"""The keeper, a watchdog process for one host's trial, and the folder that it shares with the agent.

It is a separate process so that it outlives the one that started it: ``python -m iotrial.fleet.watchdog FOLDER
GRACE WORD...`` runs ``iotrial WORD...`` and waits. It stops the trial by SIGTERM, which makes it restore
everything, when it receives a termination signal itself, or when no request has arrived (mtime of the file
``asked``) for GRACE seconds. It never uses SIGKILL: a trial that is still restoring is left to finish.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iotrial.fleet.order import Order
from iotrial.store.states import ProcessIdentity, identity

LOOKS_EVERY_S = 1.0
_LIBC = ctypes.CDLL(None)  # loaded here, since nothing should be loaded between fork and exec


class Folder:
    """The files of one fleet on one host: order, store, report, keeper, exit status."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "trials.db"
        self.study = path / "study.toml"
        self.report = path / "report.html"
        self._order = path / "order.json"
        self._asked = path / "asked"
        self._keeper = path / "keeper.json"
        self._stderr = path / "said"
        self._status = path / "status.json"

    @property
    def ordered(self) -> bool:
        return self._order.exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold an exclusive flock: two concurrent starts would start the trial twice."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def keep_order(self, order: Order) -> bool:
        """Write the order. Return False if a different one exists."""
        text = order.to_json()
        if self.ordered:
            return self._order.read_text("utf-8") == text
        if order.text:
            self.study.write_text(order.text, "utf-8")
        part = self._order.with_suffix(".part")
        part.write_text(text, "utf-8")
        part.replace(self._order)
        return True

    def asked(self) -> None:
        """Record that a request has arrived now."""
        self._asked.touch(mode=0o600)
        os.utime(self._asked)

    def asked_ns(self) -> int:
        """Return the time of the last request as the file's mtime. Only changes are meaningful: the clock may be set."""
        try:
            return self._asked.stat().st_mtime_ns
        except OSError:
            return 0

    def keeper(self) -> ProcessIdentity | None:
        """Return the current or last keeper process."""
        try:
            found = json.loads(self._keeper.read_text("utf-8"))
            return ProcessIdentity(int(found["pid"]), str(found["pid_started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def start_keeper(self, words: Sequence[str], grace_s: float, environment: Mapping[str, str]) -> None:
        """Start a keeper in a new session and record its identity."""
        self._status.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "iotrial.fleet.watchdog", str(self.path), str(grace_s), *words]
        with self._stderr.open("wb") as stderr_file:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr_file,
                start_new_session=True,
                env=dict(environment),
                cwd="/",
            )
        _write(self._keeper, _identified(child.pid))
        _reaped(child)

    def problem(self) -> str:
        """Return the program's error message if it failed; "" if it did not, or is not known to have ended."""
        try:
            status = int(json.loads(self._status.read_text("utf-8"))["status"])
        except (OSError, ValueError, KeyError, TypeError):
            status = 0
        if status in (0, 3):
            return ""
        with suppress(OSError):
            text = error_in(self._stderr.read_text("utf-8", errors="replace")[-20_000:])
            if text:
                return text
        return f"it ended with status {status}"

    def end(self, status: int) -> None:
        """Record the program's exit status."""
        _write(self._status, {"status": status})


def error_in(stderr: str) -> str:
    """Return message and hint of a program that failed with ``--json``; else the end of its standard error."""
    for line in reversed(stderr.strip().splitlines()):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            error = json.loads(line)["error"]
            hint = error.get("hint")
            return f"{error['message']}" + (f" (hint: {hint})" if hint else "")
    return stderr.strip()[-500:]


def _identified(pid: int) -> dict[str, object]:
    found = identity(pid)
    return {"pid": found.pid, "pid_started": found.pid_started}


def _write(path: Path, value: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), "utf-8")
    part.replace(path)


def _reaped(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child in a thread, so that it does not stay a zombie of this process."""
    threading.Thread(target=child.wait, daemon=True).start()


def keep(folder: Folder, grace_s: float, words: Sequence[str]) -> int:
    """Run the program, wait for it and return its status. Forwards SIGTERM, SIGINT, SIGHUP and SIGQUIT as SIGTERM."""
    signalled = False

    def note(*_: object) -> None:
        nonlocal signalled
        signalled = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, note)
    child = subprocess.Popen(
        [sys.executable, "-m", "iotrial", *words], start_new_session=True, preexec_fn=_ends_with_its_parent
    )
    last_request_ns, heard_s, ending = folder.asked_ns(), time.monotonic(), False
    while True:
        with suppress(subprocess.TimeoutExpired):
            status = child.wait(LOOKS_EVERY_S)
            folder.end(status)
            return status
        if folder.asked_ns() != last_request_ns:
            last_request_ns, heard_s = folder.asked_ns(), time.monotonic()
        if not ending and (signalled or time.monotonic() - heard_s > grace_s):
            ending = True
            child.terminate()


def _ends_with_its_parent() -> None:
    """In the child, before exec: request SIGTERM when the keeper dies (PR_SET_PDEATHSIG of prctl(2))."""
    _LIBC.prctl(1, signal.SIGTERM)


def main() -> None:
    """Entry point of the process."""
    path, grace, *words = sys.argv[1:]
    sys.exit(abs(keep(Folder(Path(path)), float(grace), words)) % 256)


if __name__ == "__main__":
    main()
