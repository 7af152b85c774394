"""The agent of a host: starts the ordered trial, reports what its store has, stops it.

The trial is an ordinary one, run by the ordinary program in a separate process, with the host's own lock,
journal and controls, and a separate store for each fleet. A keeper (``fleet.keeper``) stands between the two:
it outlives the agent, and stops the trial when no request has arrived for the time given in the order. So a
killed worker, or a connection that is restored within that time, costs nothing; after it the host restores
everything by itself.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from iotrial import __version__
from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.fleet.batch import MAX_BATCH, MAX_PROBLEM, Batch, Count, HostFacts, Position, Stage, tail
from iotrial.fleet.order import FLEET_ID, Distrusted, FleetId, Order, read
from iotrial.fleet.watchdog import Folder, error_in
from iotrial.lab.journal import Journal
from iotrial.paths import state_folder
from iotrial.polling import attempts
from iotrial.store import Store
from iotrial.store.states import TrialState, is_alive
from iotrial.terminal import escape

STOPPED_WITHIN_S = 600.0
MAX_QUESTION_BYTES = 4 << 20
DONE = "{}"
_LOOKED_EVERY_S = 0.05


class Agent:
    """What one host does for fleets. Thread-safe: each method call is independent."""

    def __init__(self, name: str, state: Path | None = None) -> None:
        """Create the agent; ``state`` is the state folder, by default the ordinary one."""
        self.name = name
        self._state = state_folder() if state is None else state

    def facts(self) -> HostFacts:
        """Return the facts about this host."""
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return HostFacts(
            self.name, __version__, platform.release()[:200], os.cpu_count() or 1, pages, os.geteuid() == 0
        )

    def begin(self, order: Order) -> None:
        """Start or continue the ordered trial.

        Does nothing if it is running or done. First restores what an interrupted trial has left. Raises
        RequestError if this fleet ordered a different trial here before.
        """
        folder = self._folder(order.fleet)
        with folder.alone():
            folder.asked()
            if not folder.keep_order(order):
                raise RequestError(
                    f"host {self.name}: fleet {order.fleet} already started another trial here",
                    hint="start a new fleet; `iotrial fleet resume` continues the old one unchanged",
                )
            if self._going(folder) or self._over(folder):
                return
            self._start(folder, order)

    def after(self, fleet: str, position: Position) -> Batch:
        """Return what the store has after a position. The request also keeps the trial running."""
        folder = self._folder(fleet)
        if not folder.ordered:
            return Batch(position, Stage.NONE)
        folder.asked()
        stage = Stage.GOING if self._going(folder) else Stage.ENDED  # determine before reading the store
        batch = tail(folder.store, position, stage)
        if stage is Stage.GOING:
            return batch
        return replace(batch, problem=folder.problem()[:MAX_PROBLEM], left=self._left())

    def stop(self, fleet: str) -> None:
        """Make the trial end and restore everything; does not wait for it."""
        keeper = self._folder(fleet).keeper()
        if keeper is not None and is_alive(keeper):
            with suppress(ProcessLookupError):
                os.kill(keeper.pid, signal.SIGTERM)

    def wait(self, fleet: str, within_s: float = STOPPED_WITHIN_S) -> bool:
        """Wait at most ``within_s`` for the trial to end; return whether it has."""
        folder = self._folder(fleet)
        return any(not self._going(folder) for _ in attempts(within_s, _LOOKED_EVERY_S))

    def going(self) -> tuple[str, ...]:
        """Return the fleets with a trial running here."""
        found = (self._state / "fleet").iterdir() if (self._state / "fleet").is_dir() else ()
        return tuple(
            one.name for one in found if FLEET_ID.fullmatch(one.name) and self._going(self._folder(one.name))
        )

    def mend(self) -> str:
        """Restore what an interrupted trial has left, unless one is running. Return what failed, or ""."""
        if self.going() or not self._left(alone=False):
            return ""
        done = subprocess.run(
            [sys.executable, "-m", "iotrial", "restore", "--json"],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment(),
        )
        return "" if done.returncode == 0 or not self._left(alone=False) else error_in(done.stderr)

    def _start(self, folder: Folder, order: Order) -> None:
        problem = self.mend()
        if problem:
            raise IotrialError(
                f"host {self.name}: changes left by an earlier trial could not be undone: {problem}",
                hint="run `iotrial restore` on that host for details",
            )
        begun = _state(folder) is not None
        words = (
            ("resume", "last", f"--html={folder.report}", "--json", *(("--trust",) if "trust" in order.flags else ()))
            if begun
            else order.words(folder.study, folder.report)
        )  # fmt: skip
        folder.start_keeper(words, order.grace_s, self._environment(folder))

    def _going(self, folder: Folder) -> bool:
        keeper = folder.keeper()
        if keeper is None:
            return False
        # If the keeper was killed, the program may still be running and restoring things.
        if is_alive(keeper):
            return True
        try:
            return _state(folder) is TrialState.RUNNING
        except StoreError:
            # a damaged store of one fleet must not stop the trial of another; a running one holds the machine lock
            return False

    def _over(self, folder: Folder) -> bool:
        return _state(folder) in (TrialState.DONE, TrialState.INVALID)

    def _left(self, *, alone: bool = True) -> int:
        """Return the number of entries in the undo journal. ``alone``: include those left alone, which block no trial."""
        journal = self._state / "journal"
        if not journal.is_dir():
            return 0
        entries, damaged = Journal(journal).read()
        return sum(alone or not entry.left_alone for entry in entries) + len(damaged)

    def _folder(self, fleet: str) -> Folder:
        if not FLEET_ID.fullmatch(fleet):
            raise RequestError("not the id of a fleet")
        return Folder(self._state / "fleet" / fleet)

    def _environment(self, folder: Folder | None = None) -> dict[str, str]:
        found = dict(os.environ)
        if self._state.name == "iotrial" and self._state != state_folder():
            found["XDG_STATE_HOME"] = str(self._state.parent)
        found.pop("IOTRIAL_STORE", None)
        if folder is not None:
            found["IOTRIAL_STORE"] = str(folder.store)
        return found


def _state(folder: Folder) -> TrialState | None:
    """Return the state of the trial in its store, or None if it has none."""
    if not folder.store.exists():
        return None
    with Store.open(folder.store, read_only=True, checked=False) as store:
        trials = store.trials()
    return trials[-1].state if trials else None


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    fleet: FleetId
    position: tuple[Count, Count, Count] | None = None


def after_request(fleet: str, position: Position) -> str:
    """Return the text of an ``after`` request."""
    question = _Question(fleet, (position.states, position.blocks, position.events))
    return msgspec.json.encode(question).decode()


def stop_request(fleet: str) -> str:
    """Return the text of a ``stop`` request."""
    return msgspec.json.encode(_Question(fleet)).decode()


def answered(agent: Agent, ask: str, text: str) -> str:
    """Answer one request to an agent: ``facts``, ``begin``, ``after`` or ``stop``. Request and answer are JSON text."""
    try:
        if ask == "facts":
            return agent.facts().to_json()
        if ask == "begin":
            agent.begin(Order.from_json(text))
            return DONE
        question = read(_Question, text, longest=MAX_QUESTION_BYTES, what="a question")
        if ask == "after" and question.position is not None:
            return agent.after(question.fleet, Position(*question.position)).to_json()
        if ask == "stop":
            agent.stop(question.fleet)
            return DONE
        raise RequestError(f"unknown request {str(ask)[:40]!r}")
    except IotrialError as error:
        return json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}})


def refused(host: str, answer: object) -> str:
    """Check the answer of a host and return it.

    Raises IotrialError with the host's message if it is an error, and Distrusted if it is not valid.
    """
    if not isinstance(answer, str) or len(answer) > MAX_BATCH:
        raise Distrusted(f"host {host}: the answer is not text, or too long")
    if answer.startswith('{"error"'):
        with suppress(ValueError, KeyError, TypeError):
            error = json.loads(answer)["error"]
            raise IotrialError(f"host {host}: {escape(str(error['message'])[:2000])}")
        raise Distrusted(f"host {host}: the answer cannot be decoded")
    return answer
