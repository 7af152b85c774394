"""A server that a workload needs: started in the lab before the timed part and stopped after it, in every arm.

The probe starts it, accounts for it and stops it (``docs/probe-protocol.md``, *Servers*); nothing of it
outlives the probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from iotrial.errors import LabError, ProbeError, TargetError

if TYPE_CHECKING:
    from iotrial.lab.target import Target

#: size of sun_path (unix(7)), less the terminating null byte
LONGEST_SOCKET = 107
#: uid and gid of nobody, used when root must not run a program itself
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Server:
    """A server to start, and how to tell that it is ready.

    ``argv``: a program that stays in the foreground. ``ready`` is one of ``{"tcp": port}`` (on 127.0.0.1),
    ``{"socket": path}`` and ``{"file": path, "contains": text}``; empty: as soon as it runs. ``stop_signal`` makes it shut
    down cleanly. ``rounds``: it may end by itself, and is then done, or started again (None: it may not).
    """

    name: str
    argv: tuple[str, ...]
    ready: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    timeout_s: float = 60.0
    stop_signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    stop_timeout_s: float = 60.0
    rounds: Literal["once", "repeat"] | None = None


def start(target: Target, server: Server, user: Mapping[str, int] | None) -> None:
    """Start the server and wait until it is ready. Raises LabError with its output if it does not become ready."""
    socket = server.ready.get("socket")
    if isinstance(socket, str) and len(socket.encode()) > LONGEST_SOCKET:
        raise LabError(
            f"server {server.name}: its socket {socket} has a path of {len(socket.encode())} bytes, "
            f"expected at most {LONGEST_SOCKET}",
            hint="use a folder with a shorter path: --on FOLDER",
        )
    try:
        target.call(
            "server_start",
            name=server.name,
            argv=list(server.argv),
            environment=dict(server.environment),
            cwd=server.cwd,
            user=None if user is None else dict(user),
            ready=dict(server.ready) or None,
            rounds=server.rounds,
            timeout_s=server.timeout_s,
        )
    except (ProbeError, TargetError) as error:
        raise LabError(f"the work needs a server: {error.message}") from error


def stop(target: Target, server: Server) -> str | None:
    """Stop the server and everything it started. Return how it had already ended, or None if it was still running."""
    done: dict[str, Any] = target.call(
        "server_stop", name=server.name, signal=server.stop_signal, timeout_s=server.stop_timeout_s
    )
    if not done["died"]:
        return None
    how = (
        f"ended with status {done['exit']}"
        if done["exit"] is not None
        else f"was killed by signal {done['signal']}"
    )
    text = str(done["stderr"]).strip()
    return f"server {server.name} {how}" + (f": {text[-400:]}" if text else "")


def free_port(target: Target) -> int:
    """Return a loopback port that nothing is listening on at the moment."""
    return int(target.call("free_port")["port"])
