"""Where the pages are: a loopback address and a port, and nothing else.

Whoever reaches the port reads every stored trial, so the network is never let in; from another machine ssh is the way.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from iotrial.errors import IotrialError, RequestError
from iotrial.legible import shown

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8137
_BACKLOG = 64
_LOCALHOST = "localhost"


class PortTaken(IotrialError):
    """Somebody else answers there."""

    code = "port_taken"


def loopback(host: str) -> str:
    """The loopback address that is meant, as text without brackets. RequestError for every other address."""
    name = host.strip().removeprefix("[").removesuffix("]")
    if name.lower() == _LOCALHOST:
        return DEFAULT_HOST
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        address = None
    if address is None or not address.is_loopback or "%" in name:
        raise RequestError(
            f'--host "{shown(host[:80])}": wanted a loopback address (127.0.0.1, ::1), so that only this machine is answered',
            hint=f"from another machine: ssh -L {DEFAULT_PORT}:{DEFAULT_HOST}:{DEFAULT_PORT} THIS-MACHINE, "
            f"then open http://{DEFAULT_HOST}:{DEFAULT_PORT}/ there",
        )
    return str(address)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. PortTaken where somebody else does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        at = f"listening at {_written(host)} port {port}"
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"{at}: another program does so already",
                hint="--port 0 takes any free port; perhaps `iotrial serve` runs already: open its address",
            ) from error
        if error.errno == errno.EACCES:
            raise RequestError(f"{at}: {error.strerror}", hint="ports below 1024 are root's") from error
        raise IotrialError(f"{at}: {error.strerror or error}") from error
    return found


def url_of(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{_written(host)}:{port}/"


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def names_this_machine(host_header: str) -> bool:
    """Whether a request's Host is a loopback name, at any port (a tunnel may have another). A page from elsewhere whose
    name somebody has pointed at 127.0.0.1 comes with that name, and is not answered."""
    name, port = _parted(host_header.strip().lower())
    if port is not None and not (port.isascii() and port.isdigit() and len(port) <= 5):
        return False
    if name == _LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback and "%" not in name
    except ValueError:
        return False


def _parted(host: str) -> tuple[str, str | None]:
    """Name and port; an IPv6 address is in brackets."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", None
        return (name, rest[1:] if rest else None) if ":" in name else ("", None)
    name, colon, port = host.partition(":")
    return name, port if colon else None
