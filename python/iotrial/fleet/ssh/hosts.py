"""The hosts of a fleet that are reached by ssh: from what the user named to links; all are looked at before any begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from iotrial.errors import IotrialError, PrivilegeError, RequestError
from iotrial.fleet.hosts import HOSTS, SSH_CONFIG
from iotrial.fleet.link import HostLink, Lost
from iotrial.fleet.ssh.bundle import bundle
from iotrial.fleet.ssh.client import Ssh
from iotrial.fleet.ssh.destination import destinations
from iotrial.fleet.ssh.link import SshLink
from iotrial.fleet.ssh.placing import clean
from iotrial.probe.binary import find_binary

#: at once; each costs this machine an ssh process and the bundle's way through it
_AT_ONCE = 16

T = TypeVar("T")
T2 = TypeVar("T2")
Say = Callable[[str], None]


class SshHosts:
    """The hosts that are named; a ``Hosts`` of the coordinator."""

    def __init__(self, links: Sequence[SshLink]) -> None:
        self.links = tuple(links)

    def present(self) -> Sequence[HostLink]:
        """All of them, always: one that cannot be reached is lost, and tried again."""
        return self.links

    def close(self) -> None:
        """Let go of all of them."""
        for link in self.links:
            link.close()


def reached_by_ssh(hosts: str, config: str | None) -> dict[str, str]:
    """The words that a fleet is written down with. RequestError for a host that cannot be one, or a missing file."""
    found = {HOSTS: ",".join(map(str, destinations(hosts)))}
    return found if config is None else {**found, SSH_CONFIG: str(_config(config))}


def ssh_hosts(reached: Mapping[str, str], say: Say | None = None) -> SshHosts:
    """Links to hosts by their words; nothing is asked of them yet. The bundle is made where there is none."""
    ways = ssh_ways(reached[HOSTS], reached.get(SSH_CONFIG))
    carried = bundle(find_binary(), say=say)
    return SshHosts([SshLink(way, carried, say) for way in ways])


def ssh_ways(hosts: str, config: str | None) -> list[Ssh]:
    """How each host is reached. Raises as ``reached_by_ssh``."""
    file = None if config is None else _config(config)
    return [Ssh(one, file) for one in destinations(hosts)]


def prepare(hosts: SshHosts) -> dict[str, str]:
    """Look at all hosts, and carry to them what they lack. Those that cannot be reached now, and why, by name: they may come.

    Raises RequestError (or its kin) where one of them cannot take part as it is; nothing has begun anywhere by then.
    """
    found = _each(hosts.links, SshLink.prepare)
    refused = {name: error for name, error in found.items() if error and not isinstance(error, Lost)}
    if refused:
        first = next(iter(refused.values()))
        kind = (
            PrivilegeError
            if all(isinstance(error, PrivilegeError) for error in refused.values())
            else RequestError
        )
        if len(hosts.links) == 1:
            raise kind(first.message, hint=first.hint)
        raise kind(
            f"{len(refused)} of {len(hosts.links)} hosts cannot take part; no trial was begun: "
            + "; ".join(error.message for error in refused.values()),
            hint=first.hint,
        )
    lost = {name: error.message for name, error in found.items() if error}
    if len(lost) == len(hosts.links):
        raise Lost(
            "no host can be reached: " + "; ".join(lost.values()),
            hint="does `ssh HOST` work for one of them?",
        )
    return lost


def clean_hosts(ways: Sequence[Ssh]) -> dict[str, int | IotrialError]:
    """Take away what was carried; how many bundles each host had, or why it could not be, by name."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(_outcome(clean), ways))
    return {way.destination.name: answer for way, answer in zip(ways, answers, strict=True)}


def _each(links: Sequence[SshLink], do: Callable[[SshLink], None]) -> dict[str, IotrialError | None]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(_outcome(do), links))
    return {link.name: answer for link, answer in zip(links, answers, strict=True)}


def _outcome(do: Callable[[T], T2]) -> Callable[[T], T2 | IotrialError]:
    def done(one: T) -> T2 | IotrialError:
        try:
            return do(one)
        except IotrialError as error:
            return error

    return done


def _config(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise RequestError(f"--ssh-config: {path} is no file", hint="a file as ssh_config(5) describes it")
    return path
