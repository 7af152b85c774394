"""Run the probe as a child process: one JSON object per line in, one out.

A ``Probe`` is a channel in the sense of ``iotrial.lab.target``: it carries the verbs of ``docs/probe-protocol.md`` to
this machine. It runs in its own session, so that Ctrl-C at the terminal reaches only the conductor, which then decides
what happens to the probe.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from iotrial.errors import NotSupported, ProbeError, TargetError
from iotrial.probe.binary import Launch, find_binary, local

PROTOCOL = 1
POLL_MS = 500
#: how long a probe may be stopped (SIGSTOP) before it is killed: its measurement is void anyway
STOPPED_S = 3.0
ENDS_WITHIN_S = 20.0
#: how long a probe may take to exit after it has closed its output
HUNG_UP_S = 2.0
TOKEN = "IOTRIAL_SESSION"
#: environment variable of the probe with the descriptor of this process's standard output
STDOUT = "IOTRIAL_STDOUT"
#: signals that a terminal sends to all foreground processes of its session
OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Probe:
    """A running probe. Use as a context manager: leaving it ends the process and everything it holds.

    ``isolate`` (root) gives it its own mount and PID namespaces; ``launch`` starts it elsewhere. ``waiting`` returns a
    context manager that is entered during each wait for an answer and may raise to end the wait. ``shares_stdout``: programs
    may print to the standard output of this process. Raises ProbeError if the
    binary is missing or speaks a different protocol version.
    """

    def __init__(
        self,
        *,
        isolate: bool = False,
        binary: Path | None = None,
        launch: Launch | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        shares_stdout: bool = False,
    ) -> None:
        self._shares_stdout = shares_stdout
        self._launch = launch or local(binary or find_binary(), isolate=isolate)
        self.name = self._launch.name
        self._last = 0
        self._waiting = waiting
        #: environment variable of the probe and of all its descendants, which identifies them even when reparented
        self.token = secrets.token_hex(16)
        self._received = b""
        self._stopped_since: float | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.facts = self._begin()
        if self.facts.get("protocol") != PROTOCOL:
            self.kill()
            raise ProbeError(
                f"the probe {self._launch.argv[0]} speaks protocol {self.facts.get('protocol')}, expected {PROTOCOL}",
                hint="the versions of package and probe differ: install again",
            )

    def _begin(self) -> dict[str, Any]:
        """Start the process and wait for its first answer."""
        self._start()
        within_s = self._launch.begins_within_s
        self._silent_at = None if within_s is None else time.monotonic() + within_s
        try:
            facts = self.call("hello")
        except BaseException:
            self.kill()
            raise
        self._silent_at = None
        return facts

    def _start(self) -> None:
        """Start the process with the terminal's signals blocked.

        Until the child has its own session, Ctrl-C at the terminal reaches it too and would kill it. The signal mask is
        inherited, so such a signal stays pending; the probe discards it at start-up, in its own session.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
        shared = (os.dup(1),) if self._shares_stdout else ()
        try:
            self._process = subprocess.Popen(
                self._launch.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
                close_fds=True,
                pass_fds=(*self._launch.passed, *shared),
                env={**os.environ, TOKEN: self.token, **({STDOUT: str(shared[0])} if shared else {})},
            )
        except OSError as error:
            raise ProbeError(f"cannot start the probe {self._launch.argv[0]}: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for number in shared:
                os.close(number)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._answers = self._process.stdout.fileno()
        os.set_blocking(self._requests, False)

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises TargetError if the target refused (``errno`` is set for a failed system call), ProbeError if the probe
        found its own result wrong, did not understand the request, or died.
        """
        self._last += 1
        line = json.dumps({"id": self._last, "verb": verb, **fields}, separators=(",", ":"))
        try:
            self._send(line.encode() + b"\n", verb)
            answer = self._receive(verb)
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise ProbeError(f'{self._who} died at "{verb}"{self.epitaph()}')
        try:
            return answer_of(answer, verb=verb, number=self._last)
        except NoAnswer:
            self.kill()  # later answers could not be matched to requests
            raise

    def _send(self, line: bytes, verb: str) -> None:
        while line:
            try:
                line = line[os.write(self._requests, line) :]
            except BlockingIOError:
                self._wait(self._requests, select.POLLOUT, verb)

    def _receive(self, verb: str) -> bytes:
        """Read one line; empty if the probe has closed its output, even in the middle of a line."""
        while b"\n" not in self._received:
            if not self._wait(self._answers, select.POLLIN, verb):
                continue
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                return b""
            self._received += chunk
        answer, _, self._received = self._received.partition(b"\n")
        return answer

    def _wait(self, descriptor: int, event: int, verb: str) -> bool:
        poll = select.poll()
        poll.register(descriptor, event)
        with self._waiting():
            if poll.poll(POLL_MS):
                self._stopped_since = None
                return True
        self._give_up_if_stopped(verb)
        hung = None if self._launch.hung is None else self._launch.hung()
        if hung is not None:
            self.kill()
            raise ProbeError(f'{self.name} hangs at "{verb}": {hung}{self._last_words()}')
        if self._silent_at is not None and time.monotonic() > self._silent_at:
            self.kill()
            raise ProbeError(f"{self.name} did not answer in time{self._last_words()}")
        return False

    def _give_up_if_stopped(self, verb: str) -> None:
        """Kill a probe that stays stopped: it would never answer, and restoring settings would wait for it too."""
        if not self._stopped():
            self._stopped_since = None
            return
        now = time.monotonic()
        self._stopped_since = self._stopped_since or now
        if now - self._stopped_since >= STOPPED_S:
            self.kill()
            raise ProbeError(
                f'{self._who} was stopped by a signal at "{verb}", and did not continue for {STOPPED_S:g} s',
            )

    def epitaph(self) -> str:
        """Return the exit status and the last output of a probe that has ended or is about to, for the end of a message."""
        try:
            status = self._process.wait(timeout=HUNG_UP_S)
        except subprocess.TimeoutExpired:
            self.kill()  # it has closed its output but does not exit
            status = self._process.wait()
        return f" (status {status}){self._last_words()}"

    def _last_words(self) -> str:
        self._log.seek(0)
        tail = self._log.read()[-400:].decode(errors="replace").strip()
        more = self._launch.last_words() if self._launch.last_words is not None else ""
        sentence = "; ".join(text for text in (tail, more) if text)
        return f": {sentence}" if sentence else ""

    @property
    def _who(self) -> str:
        """Subject of error messages: the machine's name if it was started for its probe and ends with it."""
        return self.name if self._launch.elsewhere else "the probe"

    @property
    def pid(self) -> int:
        """Process ID on this machine (of the outer process, if isolated)."""
        return self._process.pid

    @property
    def session(self) -> int:
        """Session ID of all its processes, as seen on this machine."""
        return self.pid if self._launch.elsewhere else int(self.facts["session"])

    @property
    def session_started(self) -> int:
        """Start time of the session leader, in clock ticks since this machine's boot."""
        if not self._launch.elsewhere:
            return int(self.facts["session_started"])
        return int(Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def close(self) -> bool:
        """Close the probe's input: it exits by itself, and the kernel destroys its namespaces.

        Returns whether it exited in time; otherwise it is killed.
        """
        ended = True
        if self._process.poll() is None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            ended = self._ends()
            if not ended:
                self.kill()
        self._log.close()
        return ended

    def _ends(self) -> bool:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while time.monotonic() < deadline and not self._stopped():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=POLL_MS / 1000)
                return True
        return False

    def _stopped(self) -> bool:
        return any(_state(pid) == "T" for pid in (self._process.pid, *_children(self._process.pid)))

    def kill(self) -> None:
        """Kill the probe and everything it has started."""
        if not self._launch.contained and self._process.poll() is None:
            # Our child is the guard process. On SIGTERM it first kills its descendants, including orphans in other sessions.
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=HUNG_UP_S)
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NoAnswer(ProbeError):
    """The probe's output is not an answer to the request."""


def answer_of(line: bytes, *, verb: str, number: int) -> dict[str, Any]:
    """Parse one line of the probe as the answer to request ``number``.

    Raises TargetError if the target refused (NotSupported: it cannot do this), ProbeError if the probe refused, NoAnswer
    if the line is not an answer to this request.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    error, ok = (message.get("error"), message.get("ok")) if isinstance(message, dict) else (None, None)
    if not isinstance(message, dict) or message.get("id") != number or not isinstance(error or ok, dict):
        found = line[:80].decode(errors="replace")
        raise NoAnswer(f'the probe answered "{verb}" (request {number}) with {found!r}: it was killed')
    if not isinstance(error, dict):
        assert isinstance(ok, dict)
        return ok
    text = str(error.get("message", "no reason given"))
    errno = error.get("errno")
    if error.get("code") == "unsupported":
        raise NotSupported(text)
    if error.get("code") == "os":
        raise TargetError(text, errno=errno if isinstance(errno, int) else None)
    raise ProbeError(f"{verb}: {text}")


def _state(pid: int) -> str:
    """Return the state letter of proc_pid_stat(5): "T" is stopped by a signal; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return ""


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
