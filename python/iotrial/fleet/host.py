"""What runs on a host of a fleet: the Dask task that measures, and what a coordinator asks besides.

The trial is an ordinary ``iotrial run`` in a separate process, with the host's own lock, journal and
controls, and a store for each fleet. It is ended by SIGTERM, which makes it restore everything, if the task is
cancelled, if the worker has lost its scheduler, or if the worker's process dies. Its store stays: the next task
of the same fleet continues it.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from iotrial import __version__
from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.order import Order
from iotrial.lab.journal import Journal
from iotrial.lab.lock import still_held, taken
from iotrial.paths import state_folder
from iotrial.polling import attempts
from iotrial.store import Store
from iotrial.store.connection import connect
from iotrial.store.states import TrialState

#: what went wrong, if anything; number of journal entries that are not restored; the packed trial, if there is one
Result = tuple[str, int, bytes]

#: topic of a fleet's progress among Dask's events, before its id
TOPIC = "iotrial-"
_LOOKED_EVERY_S = 0.5
#: for the program of an earlier task, which restores its settings when its worker dies
_LONGEST_WAIT_S = 300.0
_EXPECTED = (0, 3, 6)  # of ``iotrial run``: done, invalid, and without an answer
_LIBC = ctypes.CDLL(None)  # loaded here, since nothing should be loaded between fork and exec
_ending: set[str] = set()  # keys of tasks, in the worker's process


def facts() -> tuple[str, str]:
    """Return the name of this machine and its version of iotrial."""
    return platform.node(), __version__


def end(keys: Sequence[str]) -> None:
    """Make the trials of these tasks end; each returns what it has measured."""
    _ending.update(keys)


def measure(order_text: str, every_s: float) -> Result:
    """Run, or continue, the ordered trial: the task of a host. Reports its progress every ``every_s`` seconds."""
    from distributed import get_worker

    worker: Any = get_worker()
    key = str(worker.get_current_task())
    order = Order.from_json(order_text)

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        alive = worker.status.name in ("running", "paused", "closing_gracefully")
        return (
            alive and key not in _ending and task is not None and task.state in ("executing", "long-running")
        )

    def report(blocks: int) -> None:
        with suppress(Exception):  # the worker has just lost its scheduler
            worker.log_event(TOPIC + order.fleet, {"key": key, "blocks": blocks})

    try:
        return Trial(order, wanted, report, every_s).run()
    finally:
        _ending.discard(key)


class Trial:
    """The trial of one fleet on this host, in a separate folder."""

    def __init__(
        self, order: Order, wanted: Callable[[], bool], report: Callable[[int], None], every_s: float
    ) -> None:
        """``wanted`` returns false when it has to end; ``report`` is called with the number of finished blocks."""
        self._order, self._wanted, self._report, self._every_s = order, wanted, report, every_s
        self._folder = state_folder() / "fleet" / order.fleet
        self.store = self._folder / "trials.db"

    def run(self) -> Result:
        """Run it until it has ended, and return it; errors are part of the result."""
        packed = b""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / "lock").open("w") as lock:
                problem = self._run(lock.fileno())
            packed = self._packed()
        except IotrialError as error:
            problem = error.message + (f" (hint: {error.hint})" if error.hint else "")
        except OSError as error:
            problem = f"{error.filename or self._folder}: {error.strerror}"
        return problem[:4000], _left(), packed

    def _run(self, lock: int) -> str:
        """Run the program; return what went wrong. It inherits the lock: if its worker is killed, the next task
        waits until it has restored everything."""
        for _ in attempts(_LONGEST_WAIT_S, _LOOKED_EVERY_S):
            if taken(lock):
                break
            if not self._wanted():
                return "its earlier process is still ending"
        else:
            raise still_held(lock, self._folder / "lock", _LONGEST_WAIT_S)
        self._keep_order()
        state = self._state()
        if state in (TrialState.DONE, TrialState.INVALID) or not self._wanted():
            return ""
        self._mend()
        with (self._folder / "said").open("w+b") as said:
            program = subprocess.Popen(
                [sys.executable, "-P", "-m", "iotrial", *self._words(begun=state is not None)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
                pass_fds=(lock,), env=self._environment(), cwd="/", preexec_fn=_ends_with_its_parent,
            )  # fmt: skip
            due, ending = time.monotonic(), False
            while program.poll() is None:
                if not ending and not self._wanted():
                    ending = True
                    program.terminate()
                if not ending and time.monotonic() >= due:
                    due = time.monotonic() + self._every_s
                    self._report(self._blocks())
                with suppress(subprocess.TimeoutExpired):
                    program.wait(_LOOKED_EVERY_S)
            self._mend()  # if it was killed
            if program.returncode in _EXPECTED or ending:
                return ""
            if program.returncode < 0:
                return f"iotrial was killed by signal {-program.returncode}"
            said.seek(0)
            text = error_in(said.read()[-20_000:].decode(errors="replace"))
            return text or f"iotrial ended with status {program.returncode}"

    def _keep_order(self) -> None:
        """Write the order. Raises RequestError if another one is there."""
        path, text = self._folder / "order.json", self._order.to_json()
        if path.exists() and path.read_text("utf-8") != text:
            raise RequestError("this fleet has run another trial here", hint="begin a new fleet")
        (self._folder / "study.toml").write_text(self._order.text, "utf-8")
        part = path.with_suffix(".part")
        part.write_text(text, "utf-8")
        part.replace(path)

    def _words(self, *, begun: bool) -> tuple[str, ...]:
        report = self._folder / "report.html"
        if not begun:
            return self._order.words(self._folder / "study.toml", report)
        trust = ("--trust",) if "trust" in self._order.flags else ()
        return ("resume", "last", f"--html={report}", "--force", "--json", *trust)

    def _mend(self) -> None:
        """Restore what an interrupted trial has left. Raises IotrialError if that fails."""
        if _left(alone=False):
            done = subprocess.run(
                [sys.executable, "-P", "-m", "iotrial", "restore", "--json"],
                capture_output=True, text=True, check=False, env=self._environment(), cwd="/",
            )  # fmt: skip
            if done.returncode and _left(alone=False):
                raise IotrialError(f"an earlier trial could not be undone: {error_in(done.stderr)}")

    def _state(self) -> TrialState | None:
        if not self.store.exists():
            return None
        with Store.open(self.store, read_only=True, checked=False) as store:
            trials = store.trials()
        return trials[-1].state if trials else None

    def _blocks(self) -> int:
        """Return the number of finished blocks; 0 while the store is just being made."""
        with (
            suppress(Exception),
            closing(connect(self.store, read_only=True, checked=False)[0]) as connection,
        ):
            return int(connection.execute("SELECT count(*) FROM block_end").fetchone()[0])
        return 0

    def _packed(self) -> bytes:
        if self._state() in (None, TrialState.RUNNING):
            return b""
        file = io.BytesIO()
        with Store.open(self.store, read_only=True, checked=False) as store:
            store.pack("last", file)
        return file.getvalue()

    def _environment(self) -> dict[str, str]:
        """Return this environment without what Dask sets for its workers: OMP_NUM_THREADS=1 and others would
        change what commands on trial do."""
        import dask

        found = {**os.environ, "IOTRIAL_STORE": str(self.store)}
        for part in ("pre-spawn-environ", "environ"):
            for name, value in dask.config.get(f"distributed.nanny.{part}", {}).items():
                if found.get(name) == str(value):
                    del found[name]
        return found


def error_in(stderr: str) -> str:
    """Return message and hint of a program that failed with ``--json``; else the end of its standard error."""
    for line in reversed(stderr.strip().splitlines()):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            error = json.loads(line)["error"]
            hint = error.get("hint")
            return f"{error['message']}" + (f" (hint: {hint})" if hint else "")
    return stderr.strip()[-500:]


def _left(*, alone: bool = True) -> int:
    """Return the number of entries in the undo journal. ``alone``: include those left alone, which block no trial."""
    journal = state_folder() / "journal"
    entries, damaged = Journal(journal).read() if journal.is_dir() else ((), ())
    return sum(alone or not entry.left_alone for entry in entries) + len(damaged)


def _ends_with_its_parent() -> None:
    """In the child, before exec: request SIGTERM when the worker dies (PR_SET_PDEATHSIG of prctl(2))."""
    _LIBC.prctl(1, signal.SIGTERM)
