"""A server that a work needs: started in the lab before the timed part, stopped after it, in every arm alike.

The probe holds it, accounts for it and ends it (``docs/probe-protocol.md``, *Servers*): nothing of it outlives the probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from iotrial.errors import LabError, ProbeError, TargetError

if TYPE_CHECKING:
    from iotrial.lab.target import Target

#: sun_path of unix(7), less the byte at its end
LONGEST_SOCKET = 107
#: whom root lets do what root must not: nobody, and nobody's group
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Server:
    """What is started, and how it is known to be ready.

    ``argv``: a program that stays in the foreground. ``ready`` is one of ``{"tcp": port}`` (on 127.0.0.1), ``{"socket":
    path}`` and ``{"file": path, "contains": text}``. ``stop_signal`` is what makes it end in order.
    """

    name: str
    argv: tuple[str, ...]
    ready: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    timeout_s: float = 60.0
    stop_signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    stop_timeout_s: float = 60.0


def start(target: Target, server: Server, user: Mapping[str, int] | None) -> None:
    """Start it and wait until it is ready. Raises LabError with what it said where it never is."""
    socket = server.ready.get("socket")
    if isinstance(socket, str) and len(socket.encode()) > LONGEST_SOCKET:
        raise LabError(
            f"server {server.name}: its socket {socket} has a path of {len(socket.encode())} bytes, "
            f"wanted at most {LONGEST_SOCKET}",
            hint="name a folder with a shorter path with --on FOLDER",
        )
    try:
        target.call(
            "server_start",
            name=server.name,
            argv=list(server.argv),
            environment=dict(server.environment),
            cwd=server.cwd,
            user=None if user is None else dict(user),
            ready=dict(server.ready),
            timeout_s=server.timeout_s,
        )
    except (ProbeError, TargetError) as error:
        raise LabError(f"the work needs a server: {error.message}") from error


def stop(target: Target, server: Server) -> str | None:
    """Stop it, with all that it has started; in words how it had ended before, None where it had not."""
    done: dict[str, Any] = target.call(
        "server_stop", name=server.name, signal=server.stop_signal, timeout_s=server.stop_timeout_s
    )
    if not done["died"]:
        return None
    how = (
        f"ended with status {done['exit']}"
        if done["exit"] is not None
        else f"was ended by signal {done['signal']}"
    )
    text = str(done["stderr"]).strip()
    return f"server {server.name} {how}" + (f": {text[-400:]}" if text else "")


def free_port(target: Target) -> int:
    """A port of the loopback that nobody listens on now."""
    return int(target.call("free_port")["port"])
