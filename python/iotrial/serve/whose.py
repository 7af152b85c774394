"""Whose program asks: a loopback port is open to every user of the machine, and a store is its owner's alone.

The kernel lists who owns each end of a connection (/proc/net/tcp, proc_pid_net(5)); the other end of one to a loopback
address is on this machine, so it is listed. Through an ssh tunnel it is the user who logged in.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

NET = Path("/proc/net")
_LOCAL, _REMOTE, _USER = 1, 2, 7  # columns
Address = tuple[str, int]


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


def asker(client: Address, server: Address, *, net: Path = NET) -> int | None:
    """The user id at the client's end of a connection; None where it is not listed, as for one that is over."""
    wanted = [_written(*client), _written(*server)]
    try:
        text = (net / ("tcp6" if ":" in client[0] else "tcp")).read_text("ascii", "replace")
    except OSError:
        return None
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) > _USER and [columns[_LOCAL], columns[_REMOTE]] == wanted:
            return int(columns[_USER])
    return None


def _written(host: str, port: int) -> str:
    """As the kernel writes it: words of four bytes in the machine's own order, in hexadecimal."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
