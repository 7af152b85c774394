"""Whose program asks: a loopback port is open to every user of the machine, and a store is its owner's alone.

The kernel knows who owns each end of a connection; the other end of one to a loopback address is on this machine. It is asked
for one connection by sock_diag(7), which takes the same time however many there are; where that is not possible, the list of
all of them is read (/proc/net/tcp, proc_pid_net(5)). Through an ssh tunnel it is the user who logged in.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

NET = Path("/proc/net")
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9  # columns
Address = tuple[str, int]
# sock_diag(7), linux/inet_diag.h: header of netlink; family, protocol, states; ports, addresses, interface, cookie
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF
_HEADER, _ASKED, _SOCKET = struct.Struct("=IHHII"), struct.Struct("=BBxxI"), struct.Struct("=2s2s16s16sIII")
_FOUND = struct.Struct("=4s48sIIIII")  # state and timers; the socket; expires, queues, user, inode


def trusted(environment: Mapping[str, str] | None = None) -> frozenset[int]:
    """The users that are answered: this one, root, and who became root by sudo to start it."""
    environment = os.environ if environment is None else environment
    users = {os.geteuid(), 0}
    by_sudo = environment.get("SUDO_UID", "")
    if os.geteuid() == 0 and by_sudo.isascii() and by_sudo.isdigit() and len(by_sudo) < 11:
        users.add(int(by_sudo))
    return frozenset(users)


def can_tell(net: Path = NET) -> bool:
    """Whether this kernel lists connections."""
    return os.access(net / "tcp", os.R_OK)


def asker(client: Address, server: Address, *, net: Path | None = None) -> int | None:
    """The user id at the client's end of a connection; None where nobody has it open, as one that is over.

    ``net``: read the lists in this folder; without, the kernel is asked directly where it can be.
    """
    if net is None and _can_diagnose():
        return _diagnosed(client, server)
    net = net or NET
    wanted = [_written(*client), _written(*server)]
    try:
        text = (net / ("tcp6" if ":" in client[0] else "tcp")).read_text("ascii", "replace")
    except OSError:
        return None
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) > _INODE and [columns[_LOCAL], columns[_REMOTE]] == wanted:
            return int(columns[_USER]) if columns[_INODE] != "0" else None
    return None


@cache
def _can_diagnose() -> bool:
    """Whether the kernel finds a connection of our own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        return _diagnosed(ours.getsockname(), ours.getpeername()) == os.geteuid()


def _diagnosed(client: Address, server: Address) -> int | None:
    """As ``asker``, by sock_diag(7); None also where this kernel does not answer."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host) for host, _ in (client, server)]
    ports = [port.to_bytes(2, "big") for _, port in (client, server)]
    wanted = _SOCKET.pack(*ports, *ends, 0, _ANY, _ANY)
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, _ANY) + wanted
    request = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0) + asked
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(request)
            answer = kernel.recv(4096)
    except OSError:
        return None
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    _, found, _, _, _, user, inode = _FOUND.unpack_from(answer, _HEADER.size)
    # Where the connection is gone, the kernel answers with a socket that listens at its port. One that its owner has closed
    # is nobody's any more: its user reads 0, as root's, and so does its inode.
    return int(user) if found[:4] == wanted[:4] and inode else None


def _written(host: str, port: int) -> str:
    """As the kernel writes it: words of four bytes in the machine's own order, in hexadecimal."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
