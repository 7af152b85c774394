"""Names of hosts as a user gives them: host, user@host, host:port, [::1]:port, or a name of the ssh configuration.

Checked before any program sees them: nothing that ssh could take for an option, that a ProxyCommand's shell could read as
more than a name, or that a terminal would obey.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from iotrial.errors import RequestError
from iotrial.fleet.values import HOST_NAME
from iotrial.legible import shown

MOST_HOSTS = 1000
_USER = r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
_PORT = r"(?::(?P<port>[0-9]{1,5}))?"
_NAMED = re.compile(_USER + r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})" + _PORT)
_NUMBERED = re.compile(_USER + r"\[(?P<host>[0-9A-Fa-f][0-9A-Fa-f:.]{0,44}|::[0-9A-Fa-f:.]{0,43})\]" + _PORT)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where ssh goes, and the name of the host in the fleet: of the form HOST_NAME."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        """Under which the fleet knows it: the host without the user, with the port where one is given."""
        plain = self.host.strip(":").replace("::", "-").replace(":", "-")
        return (plain or "any") if self.port is None else f"{plain or 'any'}-{self.port}"

    @property
    def argv(self) -> tuple[str, ...]:
        """What stands at the end of ssh's options."""
        user = () if self.user is None else ("-l", self.user)
        port = () if self.port is None else ("-p", str(self.port))
        return (*user, *port, "--", self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'' if self.user is None else self.user + '@'}{host}{'' if self.port is None else f':{self.port}'}"


def destinations(text: str) -> tuple[Destination, ...]:
    """The hosts of a list with commas. RequestError for a name that cannot be one, for two of one name, and for none."""
    found = [_destination(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise RequestError("--hosts: no host is named", hint="such as --hosts a,b,root@c:2222")
    if len(found) > MOST_HOSTS:
        raise RequestError(
            f"--hosts: {len(found)} hosts, more than the {MOST_HOSTS} that one coordinator takes by SSH"
        )
    _refuse_twice(found)
    return tuple(found)


def _destination(word: str) -> Destination:
    match = _NAMED.fullmatch(word) or _NUMBERED.fullmatch(word)
    if match is None:
        raise RequestError(
            f'--hosts: "{shown(word[:100])}" cannot be a host',
            hint="letters, digits, dots and hyphens, as in host, user@host, host:2222 or [2001:db8::1]:22; "
            "what else a host needs goes into ~/.ssh/config",
        )
    port = None if match["port"] is None else int(match["port"])
    if port is not None and not 1 <= port <= 65_535:
        raise RequestError(f"--hosts: port {port} of {match['host']} is none (1 to 65535)")
    found = Destination(match["host"], match["user"], port)
    if not HOST_NAME.fullmatch(found.name):
        raise RequestError(
            f"--hosts: {found.name} has more than the 63 characters that a host's name in a fleet may have",
            hint="give it a short name in ~/.ssh/config (Host short, HostName long)",
        )
    return found


def _refuse_twice(found: Sequence[Destination]) -> None:
    seen: set[str] = set()
    for one in found:
        if one.name.lower() in seen:
            raise RequestError(
                f"--hosts: {one.name} is named twice",
                hint="one host takes part once: two trials on it would disturb each other",
            )
        seen.add(one.name.lower())
