"""A service on trial for power cuts: what to run, how its client acknowledges, and what must be there afterwards.

A client prints a line for each operation that the service has acknowledged to it:

    acknowledged KEY VALUE      KEY has VALUE now, a word such as a checksum; "-": KEY is deleted; none: KEY was done
    begins KEY VALUE            an operation that was sent: it may be found though it is not acknowledged yet

After a cut the service is started on what is left of its files. Then ``check`` prints ``lost ITEM`` and ``corrupt ITEM``, or
``dump`` prints KEY and VALUE of everything that it finds, and the two lists are compared here.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from iotrial.errors import LabError
from iotrial.powercut.checking import LIMIT_S, MARKS, run_as, run_checker
from iotrial.powercut.enclosure import Guard, as_user
from iotrial.powercut.log import MARK_BYTES
from iotrial.powercut.mounts import sync_filesystem
from iotrial.powercut.record import WORK_BEGUN, WORK_ENDED, Marker
from iotrial.powercut.recover import Findings

#: a mark that is no acknowledgement
BEGINS_MARK = "iotrial: begins "
ACKNOWLEDGES, BEGINS, DELETED = "acknowledged ", "begins ", "-"
DIR, PORT = "{dir}", "{port}"
#: folder of the service on its file system
FILES = "files"
#: how long a service may take to become ready, and a command that prepares its files may take
READY_S, PREPARE_S = 60.0, 120.0
_SAID_BYTES, _PIECE = 2000, 1 << 16
_MOST_SHOWN = 80
#: how long after a failure a server may take to end
_ENDS_WITHIN_S = 0.5
#: how often to look for lines of the client
_LOOK_S = 0.0003
MOST_ACKNOWLEDGED = 200_000
#: how many operations of one key the reader of its lines may be behind
_BEHIND = 3


@dataclass(frozen=True, slots=True)
class Service:
    """What is run. Each command is a list of words, with ``{dir}`` for the folder on the disk; only ``client`` is needed.

    ``server`` stays in the foreground; ``restart`` is started in its place after a cut. ``ready``: it is ready once this
    command succeeds; else once it listens on ``{port}``, if it is given one. ``prepare`` fills the folder before; ``copied``:
    files to begin with. ``folder``: where commands run. ``user``: uid and gid. ``run_s``: how long the client may take.
    """

    client: tuple[str, ...]
    server: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    dump: tuple[str, ...] = ()
    copied: str = ""
    folder: str = "/"
    user: tuple[int, int] = (0, 0)
    environment: tuple[tuple[str, str], ...] = ()
    run_s: float = 15.0

    @property
    def commands(self) -> Mapping[str, tuple[str, ...]]:
        """The commands that are given, by what they are for."""
        named = {
            name: getattr(self, name)
            for name in ("server", "restart", "ready", "prepare", "client", "check", "dump")
        }
        return {name: words for name, words in named.items() if words}

    def filled(self, values: Mapping[str, str]) -> Service:
        """Return the service with other placeholders filled in."""

        def fill(words: tuple[str, ...]) -> tuple[str, ...]:
            for name, value in values.items():
                words = tuple(word.replace(name, value) for word in words)
            return words

        changed: dict[str, Any] = {name: fill(words) for name, words in self.commands.items()}
        return replace(self, **changed)


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command as words; one word with blanks or other signs of a shell is a line for sh."""
    bare = words[0].replace("{", "").replace("}", "")
    return ("sh", "-c", words[0]) if len(words) == 1 and shlex.quote(bare) != bare else tuple(words)


# -- acknowledgements


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was acknowledged in a whole run: by key, its values in this order.

    ``late``: the marks are those of a reader that may be behind, so that more operations may have been sent than they show.
    """

    values: Mapping[str, Sequence[str]]
    late: bool = False

    @classmethod
    def of(cls, marks: Sequence[str], *, late: bool = False) -> Ledger:
        """Read the marks of a run."""
        values: dict[str, list[str]] = {}
        for key, value in map(_item, acknowledgements(marks)):
            values.setdefault(key, []).append(value)
        return cls(values, late)

    def compare(self, marks: Sequence[str], found: Mapping[str, str]) -> Findings:
        """Compare what was found after a cut with what had been acknowledged before it, by these marks.

        An operation in flight may have been done or not: one that was begun, or else the next one of the key.
        """
        done: dict[str, int] = {}
        begun: dict[str, list[str]] = {}
        for mark in marks:
            key, value = _item(mark.removeprefix(BEGINS_MARK))
            if mark.startswith(BEGINS_MARK):
                begun.setdefault(key, []).append(value)
            else:
                done[key] = done.get(key, 0) + 1
                with suppress(ValueError):
                    begun.get(key, []).remove(value)
        lost, corrupt = [], []
        for key, count in done.items():
            values = self.values[key]
            expected, here = values[count - 1], found.get(key, DELETED)
            ahead = _BEHIND if self.late else 1
            if here in (expected, *values[count : count + ahead], *begun.get(key, ())):
                continue
            item = f"{key} {expected}".strip()
            if here == DELETED:
                lost.append(item)
            elif here in values[:count]:
                lost.append(f"{item}: found {here}, an older value")
            else:
                corrupt.append(f"{item}: found {here[:_MOST_SHOWN]}")
        return Findings(tuple(lost), tuple(corrupt))


def _item(text: str) -> tuple[str, str]:
    key, _, value = text.strip().partition(" ")
    return key, value.strip()


def acknowledgements(marks: Sequence[str]) -> tuple[str, ...]:
    """Return the marks that are acknowledgements."""
    return tuple(mark for mark in marks if not mark.startswith("iotrial: "))


# -- running


@dataclass(frozen=True, slots=True)
class Placed:
    """A service on a mounted file system. ``place`` values: of its placeholders."""

    service: Service
    root: Path

    @property
    def files(self) -> Path:
        """The folder of the service."""
        return self.root / FILES

    def words(self, command: Sequence[str], port: int = 0) -> list[str]:
        """Return a command with its placeholders filled in."""
        return [word.replace(DIR, str(self.files)).replace(PORT, str(port)) for word in command]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a command."""
        return {**dict(self.service.environment), "IOTRIAL_DIR": str(self.files), **more}

    def make(self) -> None:
        """Make the folder with what it begins with. Raises LabError."""
        if self.service.copied:
            subprocess.run(["cp", "-a", "--", self.service.copied, str(self.files)], check=True)
        else:
            self.files.mkdir()
            self.files.chmod(0o755)
            os.chown(self.files, *self.service.user)
        if self.service.prepare:
            try:
                done = self._run(self.service.prepare, PREPARE_S)
            except subprocess.TimeoutExpired as error:
                raise LabError(f"preparing the files did not end within {PREPARE_S:g} s") from error
            if done.returncode != 0:
                raise LabError(f"preparing the files ended with status {done.returncode}: {_said(done)}")

    def _run(self, command: Sequence[str], limit_s: float, port: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises LabError, subprocess.TimeoutExpired."""
        words = self.words(command, port)
        try:
            return run_as(
                words, cwd=self.service.folder, environment=self.environment(), stdin="",
                before=as_user(*self.service.user), limit_s=limit_s,
            )  # fmt: skip
        except OSError as error:
            raise LabError(f"cannot start {words[0]}: {error.strerror}") from error

    def _start(
        self, command: Sequence[str], port: int, output: IO[bytes], errors: IO[bytes], **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a command and return at once. Raises LabError."""
        words = self.words(command, port)
        try:
            return subprocess.Popen(
                words, cwd=self.service.folder, env=self.environment(**variables), stdin=subprocess.DEVNULL, stdout=output,
                stderr=errors, start_new_session=True, preexec_fn=as_user(*self.service.user),
            )  # fmt: skip
        except OSError as error:
            raise LabError(f"cannot start {words[0]}: {error.strerror}") from error

    @contextmanager
    def serving(self, *, after_cut: bool) -> Iterator[_Running | None]:
        """Start the server and wait until it is ready. Raises NotStarted."""
        command = (after_cut and self.service.restart) or self.service.server
        if not command:
            yield None
            return
        port = _free_port() if any(PORT in word for word in command) else 0
        with ExitStack() as stack:
            output = stack.enter_context(tempfile.TemporaryFile())
            process = self._start(command, port, output, output)
            stack.callback(_end, process)
            running = _Running(process, port, output)
            self._wait(running)
            yield running

    def _wait(self, running: _Running) -> None:
        ready = self.service.ready
        until = time.monotonic() + READY_S
        while True:
            if (status := running.process.poll()) is not None:
                how = f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"
                raise NotStarted(f"it {how} before it was ready: {running.said()}")
            if time.monotonic() > until:
                raise NotStarted(f"it was not ready within {READY_S:g} s: {running.said()}")
            if ready:
                with suppress(subprocess.TimeoutExpired):
                    if self._run(ready, READY_S, running.port).returncode == 0:
                        return
            elif not running.port or _listens(running.port):
                return
            time.sleep(0.02)

    def work(self, marks: Path, output: Path) -> list[tuple[int, str]]:
        """Start server and client, and mark what the client acknowledges, until it ends or its time is over.

        ``output``: a new file for what it prints. Returns the marks, each with the offset in it where its line ends.
        Raises LabError if the client fails.
        """
        with (
            self.serving(after_cut=False) as running,
            Marker(marks) as marker,
            output.open("xb") as printed,
            tempfile.TemporaryFile() as errors,
        ):
            # what was done until now has reached the disk long ago
            sync_filesystem(self.root)
            marker.mark(WORK_BEGUN)
            port = 0 if running is None else running.port
            process = self._start(self.service.client, port, printed, errors, **{MARKS: str(marks)})
            try:
                made, in_time = _marked(process, output, marker, time.monotonic() + self.service.run_s)
                status = process.wait() if in_time else 0
            finally:
                _end(process)
            if status != 0:
                errors.seek(0)
                raise LabError(f"the client ended with status {status}: {_last(errors.read(_SAID_BYTES))}")
            if running is not None and running.process.poll() is not None:
                raise LabError(f"the service ended while the client was at work: {running.said()}")
            marker.mark(WORK_ENDED)
        return made

    def examine(self, marks: Sequence[str], ledger: Ledger) -> Findings:
        """Start the service on what a cut has left, and look for everything that had been acknowledged by these marks.

        For process 1 of a PID namespace; the caller ends what is left running. Raises LabError if the check itself fails.
        """
        with Guard() as guard:
            try:
                with self.serving(after_cut=True) as running:
                    found = self._look(marks, ledger, 0 if running is None else running.port)
                    if (found.lost or found.corrupt) and running is not None and running.has_ended():
                        raise NotStarted(f"it ended while it was read: {running.said()}")
                return Findings(not_started=guard.reason) if guard.reason else found
            except NotStarted as error:
                return Findings(not_started=guard.reason or error.message)
            except LabError:
                if guard.reason:
                    return Findings(not_started=guard.reason)
                raise

    def _look(self, marks: Sequence[str], ledger: Ledger, port: int) -> Findings:
        found = Findings()
        if self.service.check:
            try:
                damage = run_checker(
                    self.service.check, {DIR: str(self.files), PORT: str(port)}, acknowledgements(marks),
                    cwd=self.service.folder, environment=self.environment(), stdin="", user=None,
                    before=as_user(*self.service.user),
                )  # fmt: skip
            except LabError as error:
                if not isinstance(error.__cause__, subprocess.TimeoutExpired):
                    raise
                return Findings(corrupt=(error.message,))
            found = Findings(damage.lost, damage.corrupt)
        if self.service.dump:
            try:
                done = self._run(self.service.dump, LIMIT_S, port)
            except subprocess.TimeoutExpired:
                return Findings(
                    found.lost, (*found.corrupt, f"reading it back did not end within {LIMIT_S:g} s")
                )
            if done.returncode != 0:
                corrupt = f"reading it back ended with status {done.returncode}: {_said(done)}"
                return Findings(found.lost, (*found.corrupt, corrupt))
            more = ledger.compare(marks, dict(map(_item, done.stdout.splitlines())))
            found = Findings((*found.lost, *more.lost), (*found.corrupt, *more.corrupt))
        return found


class NotStarted(LabError):
    """The service does not become ready."""


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    port: int
    output: IO[bytes]

    def has_ended(self) -> bool:
        """Return whether it has ended, or ends now."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_WITHIN_S)
        return self.process.returncode is not None

    def said(self) -> str:
        """Return the last that it printed."""
        size = os.fstat(self.output.fileno()).st_size
        text = os.pread(self.output.fileno(), _SAID_BYTES, max(0, size - _SAID_BYTES))
        return _last(text)


def _marked(
    process: subprocess.Popen[bytes], output: Path, marker: Marker, until: float
) -> tuple[list[tuple[int, str]], bool]:
    """Mark the lines of a client as they appear, until it ends; return the marks, and whether it ended in time."""
    made: list[tuple[int, str]] = []
    with output.open("rb", buffering=0) as printed, suppress(OSError), _soon():
        rest, at = b"", 0
        while time.monotonic() < until:
            ended = process.poll() is not None
            piece = printed.read(_PIECE)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                at += len(line) + 1
                mark = _mark_of(line.decode(errors="replace").strip())
                if mark is not None:
                    marker.mark(mark)
                    made.append((at, mark))
            if len(made) > MOST_ACKNOWLEDGED:
                raise LabError(
                    f"the client acknowledged more than {MOST_ACKNOWLEDGED:,} operations: let it end earlier"
                )
            if ended and not piece:
                return made, True
            if not piece:
                time.sleep(_LOOK_S)
    return made, False


@contextmanager
def _soon() -> Iterator[None]:
    """Let this process run at once when it is due, on a busy machine too, if that is allowed here."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _mark_of(line: str) -> str | None:
    """Return the mark for a line of the client; None for any other line. Raises LabError for an item that is no item."""
    for word, prefix in ((ACKNOWLEDGES, ""), (BEGINS, BEGINS_MARK)):
        if not line.startswith(word):
            continue
        item = line.removeprefix(word).strip()
        mark = f"{prefix}{item}"
        if not item or item.startswith("iotrial: ") or len(mark.encode()) > MARK_BYTES:
            raise LabError(
                f"an item of the client has 1 to {MARK_BYTES - len(BEGINS_MARK)} bytes, found: {line[:80]}"
            )
        return mark
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return _last((done.stderr or done.stdout).encode())


def _last(output: bytes) -> str:
    """Return the end of what a program printed, on one line."""
    return " ".join(output.decode(errors="replace").split())[-400:] or "it printed nothing"
