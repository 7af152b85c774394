"""What a killed ``iotrial record`` has left running, found by a mark in the environment of its processes.

The recorder gets SIGTERM from the kernel when its parent is killed, passes it on to the command, and completes the trace.
What goes on in spite of that (a command that ignores SIGTERM, or that lost its recorder too) is found by the mark,
which names the process of ``iotrial record`` by number and time of start.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from iotrial.polling import attempts
from iotrial.store.states import PROC, ProcessIdentity, identity, is_alive
from iotrial.terminal import escape

_MARK = "IOTRIAL_RECORDING"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded here, since nothing should be loaded between fork and exec
#: how long processes have to end after SIGTERM, and after SIGKILL
_TERM_S, _KILL_S = 5.0, 5.0


def marked_environment() -> dict[str, str]:
    """Return this environment with the mark of a recording by this process."""
    own = identity()
    return {**os.environ, _MARK: f"{own.pid}:{own.pid_started}"}


def end_with(parent: int) -> None:
    """In the child, before exec: request SIGTERM when the parent dies, however it dies (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has died already
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class LeftRunning:
    """A process of a recording without its ``iotrial record``."""

    process: ProcessIdentity
    command: str

    def __str__(self) -> str:
        return f"process {self.process.pid} ({self.command})"


def left_running() -> list[LeftRunning]:
    """Return the processes of interrupted recordings, but for those that this process runs in."""
    own = set(_ancestors(os.getpid()))
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        process = identity(int(entry.name))
        with suppress(OSError):
            words = (entry / "environ").read_bytes().split(b"\0")
            mark = next((word for word in words if word.startswith(f"{_MARK}=".encode())), None)
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if mark is not None and not is_alive(_recorder(mark)) and is_alive(process):
                found.append(LeftRunning(process, escape(command[:100])))
    return found


def end(left: list[LeftRunning]) -> list[LeftRunning]:
    """End these processes, and none that has taken over a number since. Returns those that are still there."""
    for number, within_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        for one in left:
            with suppress(OSError):
                handle = os.pidfd_open(one.process.pid)
                try:
                    if is_alive(one.process):
                        signal.pidfd_send_signal(handle, number)
                finally:
                    os.close(handle)
        for _ in attempts(within_s, every_s=0.05):
            left = [one for one in left if is_alive(one.process)]
            if not left:
                return []
    return left


def _recorder(mark: bytes) -> ProcessIdentity:
    """Return the process that a mark names; a mark of another form names none that is alive."""
    pid, _, started = mark.partition(b"=")[2].decode(errors="replace").partition(":")
    return ProcessIdentity(int(pid) if pid.isascii() and pid.isdigit() else 0, started)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            text = (PROC / str(pid) / "stat").read_text(errors="replace")
            pid = int(text.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
