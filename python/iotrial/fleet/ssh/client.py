"""The system's ssh as a process: how it is called, and what its failures mean.

The user's own configuration, keys, agent, jump hosts and known hosts all hold. It never asks (BatchMode), notices a dead
link by itself, forwards nothing, and checks host keys as the user has configured it, which this module never weakens.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from iotrial.errors import IotrialError, MissingTool, PrivilegeError, RequestError
from iotrial.fleet.link import Lost
from iotrial.fleet.ssh.destination import Destination
from iotrial.legible import shown

#: seconds without a sign of life, and how many of those end a connection
ALIVE_INTERVAL_S = 5
ALIVE_COUNT = 3
CONNECT_S = 15
#: of what a host says beside the answer, so much is kept
MOST_SAID = 4096
#: of the answer to a short command
MOST_ANSWERED = 65_536
_PIECE = 1 << 16

_OPTIONS = (
    "BatchMode=yes",
    f"ServerAliveInterval={ALIVE_INTERVAL_S}",
    f"ServerAliveCountMax={ALIVE_COUNT}",
    f"ConnectTimeout={CONNECT_S}",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
)


@dataclass(frozen=True, slots=True)
class Ssh:
    """How one host is reached. ``config``: a file instead of the user's own (`ssh -F`)."""

    destination: Destination
    config: Path | None = None

    def argv(self, command: str) -> tuple[str, ...]:
        """The whole command line; ``command`` is read by the shell of the host."""
        program = shutil.which("ssh")
        if program is None:
            raise MissingTool(
                "--hosts needs the program ssh, which is not here", hint="Debian: openssh-client"
            )
        config = () if self.config is None else ("-F", str(self.config))
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return (program, *config, "-T", *options, *self.destination.argv, command)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """A process in a session of its own, so that an interrupt at the terminal does not cut the link before its time."""
        return subprocess.Popen(
            self.argv(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(os.environ),
        )

    def run(self, command: str, *, sends: BinaryIO | None = None, within_s: float) -> str:
        """The output of a command that says little. ``sends`` goes to its standard input.

        Raises as ``failure`` does, and Lost where it has not ended in time or says more than MOST_ANSWERED bytes.
        """
        process = self.start(command)
        try:
            answer, said = _talk(process, sends, time.monotonic() + within_s, str(self.destination))
        finally:
            end(process)
        if process.returncode != 0:
            raise failure(self.destination, process.returncode, said)
        return answer.decode("utf-8", "replace")


def _environment(found: Mapping[str, str]) -> dict[str, str]:
    # A prompt by a window is one too; and messages are recognised in English only.
    return {**found, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


def _talk(
    process: subprocess.Popen[bytes], sends: BinaryIO | None, deadline: float, name: str
) -> tuple[bytes, bytes]:
    """Sends and reads at once, within limits, until the process has closed its outputs."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    kept = {process.stdout: bytearray(), process.stderr: bytearray()}
    waiting = b""
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        if sends is None:
            process.stdin.close()
        else:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise Lost(
                    f"host {name}: no end of a short command in time",
                    hint="is the host, or the way to it, overloaded?",
                )
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    assert sends is not None
                    waiting = waiting or sends.read(_PIECE)
                    try:
                        waiting = waiting[os.write(process.stdin.fileno(), waiting) :] if waiting else waiting
                        over = not waiting and not (waiting := sends.read(_PIECE))
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        over = True  # the host has ended it: its output says why
                    if over:
                        selector.unregister(process.stdin)
                        _closed(process.stdin)
                    continue
                assert key.fileobj is process.stdout or key.fileobj is process.stderr
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    kept[process.stderr] = bytearray((kept[process.stderr] + piece)[-MOST_SAID:])
                else:
                    kept[process.stdout] += piece
                    if len(kept[process.stdout]) > MOST_ANSWERED:
                        raise Lost(
                            f"host {name}: more than {MOST_ANSWERED} bytes where a few lines were asked for",
                            hint="does its shell print something when it starts?",
                        )
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Lost(f"host {name}: ssh does not end") from None
    return bytes(kept[process.stdout]), bytes(kept[process.stderr])


def _closed(stream: object) -> None:
    with suppress(OSError):
        stream.close()  # type: ignore[attr-defined] # a pipe of Popen


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the ssh that was started here, whatever it does, and lets go of its pipes."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            _closed(stream)


def said_in_words(said: bytes) -> str:
    """What a host or ssh wrote on standard error, as one line that no terminal obeys."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines()]
    return shown(" / ".join(line for line in lines if line and set(line) != {"@"})[-600:])


def failure(destination: Destination, status: int, said: bytes) -> IotrialError:
    """What it means that ssh ended with this status (255: ssh itself failed) and these words.

    RequestError, PrivilegeError: as it is now it will fail again. Lost: the host may come back.
    """
    words = said_in_words(said) or "it said nothing"
    host = str(destination)
    # "Host key verification failed" and what else ssh itself says comes with 255; a host's command could say so as well.
    text = said.decode("utf-8", "replace") if status == 255 else ""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return RequestError(
            f"host {host}: its key is not the one that is known of it; nothing was sent there",
            hint="find out why before anything else; `ssh-keygen -R HOST` forgets the old key once the new one is confirmed",
        )
    if "Host key verification failed" in text or "host key is known for" in text:
        return RequestError(
            f"host {host}: its key is not known here, and iotrial never accepts one unseen; nothing was sent there",
            hint=f"`ssh {host_words(destination)}` once by hand shows its fingerprint: compare it, then accept it",
        )
    if "Permission denied" in text or "Too many authentication failures" in text:
        return PrivilegeError(
            f"host {host}: no access ({words})",
            hint=f"`ssh -o BatchMode=yes {host_words(destination)} true` has to work: a key in ssh-agent "
            "or without passphrase, and its public part in authorized_keys there (ssh-copy-id)",
        )
    if "Bad configuration option" in text or "Can't open user config file" in text:
        return RequestError(f"host {host}: {words}")
    if status == 255:
        return Lost(
            f"host {host}: cannot be reached ({words})", hint=f"does `ssh {host_words(destination)}` work?"
        )
    return IotrialError(f"host {host}: a command failed there with status {status} ({words})")


def host_words(destination: Destination) -> str:
    """How a user types this host after `ssh`."""
    port = "" if destination.port is None else f"-p {destination.port} "
    user = "" if destination.user is None else f"{destination.user}@"
    return f"{port}{user}{destination.host}"
