"""How clients and the server's machine are reached, as the user says it: a command that speaks the probe's protocol.

``--client NAME=COMMAND``, as often as there are hosts (``--client @FILE``: a line each), and ``--server-probe
COMMAND``. A command is split into words as a shell would, and run without one: ``ssh nas-client-1 ioprobe``, ``ip
netns exec c1 ioprobe``, or a relay. ``NAME@ADDRESS`` says besides at which address the client is, for programs that
call it (fio).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iotrial.errors import RequestError

MOST_LINKS = 256
MOST_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}")
_EXAMPLE = 'for example --client "c1=ssh nas-client-1 ioprobe"'


@dataclass(frozen=True, slots=True)
class Link:
    """One host of clients. ``address`` is where others reach it, empty where that was not said."""

    name: str
    argv: tuple[str, ...]
    address: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """The hosts that the user has named. Without ``clients`` they are processes of this machine; ``server`` is the
    command of a probe on the server's machine, empty where there is none."""

    clients: tuple[Link, ...] = ()
    server: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.clients or self.server)


def links_of(clients: Sequence[str], server: str | None) -> Links:
    """The links of the options. Raises RequestError for one that is none, and for a name that is given twice."""
    found: dict[str, Link] = {}
    for text in _expanded(clients):
        link = _link(text)
        if link.name in found:
            raise RequestError(
                f"--client {link.name} is given twice", hint="each client host has a name of its own"
            )
        found[link.name] = link
    if len(found) > MOST_LINKS:
        raise RequestError(f"--client: {len(found)} hosts are named, and {MOST_LINKS} are the most")
    return Links(tuple(found.values()), () if server is None else _argv("--server-probe", server))


def _expanded(texts: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        if not text.startswith("@"):
            found.append(text)
            continue
        path = Path(text[1:]).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                lines = file.read(MOST_FILE_BYTES).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise RequestError(f"--client {text}: cannot read {path}: {reason}") from error
        found += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return found


def _link(text: str) -> Link:
    who, equals, command = (part.strip() for part in text.partition("="))
    name, _, address = who.partition("@")
    if not equals or not _NAME.fullmatch(name) or (address and not _ADDRESS.fullmatch(address)):
        raise RequestError(
            f'--client "{text[:80]}": wanted NAME=COMMAND, or NAME@ADDRESS=COMMAND', hint=_EXAMPLE
        )
    return Link(name, _argv(f"--client {name}", command), address)


def _argv(option: str, command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise RequestError(f"{option}: {error} in {command[:80]!r}", hint=_EXAMPLE) from None
    if not words:
        raise RequestError(f"{option}: the command is empty", hint=_EXAMPLE)
    return words


def to_json(links: Links) -> dict[str, object]:
    """For the options of a stored trial, by which it can be resumed; empty where nothing was named. It never leaves
    this machine in a packed trial."""
    if not links:
        return {}
    clients = [{"name": one.name, "argv": list(one.argv), "address": one.address} for one in links.clients]
    return {"links": {"clients": clients, "server": list(links.server)}}


def from_json(options: Mapping[str, Any]) -> Links:
    """What ``to_json`` has stored."""
    stored = options.get("links") or {}
    clients = tuple(
        Link(str(one["name"]), tuple(map(str, one["argv"])), str(one["address"]))
        for one in stored.get("clients", ())
    )
    return Links(clients, tuple(map(str, stored.get("server", ()))))
