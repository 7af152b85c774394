"""Addresses of web servers as a study or a user writes them: ``http://127.0.0.1:8080``.

A server is named by its IP address (or ``localhost``), so that it is known beforehand what is asked, and no
name is looked up.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard
from urllib.parse import urlsplit

from iotrial.errors import RequestError
from iotrial.study.model import PagesWork, Study, Work

HINT = "for example http://127.0.0.1:8080"


class AddressProblem(ValueError):
    """A text that is no address of a web server."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a web server listens. ``own``: on this machine (loopback)."""

    ip: str
    port: int
    own: bool

    @property
    def wire(self) -> str:
        """As the probe takes it."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


def address(url: str) -> Address:
    """The address; AddressProblem in words that follow a colon."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        host = parts.hostname or ""
    except ValueError as error:
        raise AddressProblem(f'"{url[:80]}" is no address ({error})') from None
    if parts.scheme == "https":
        raise AddressProblem("https is not spoken; " + HINT)
    if parts.scheme != "http" or not host or parts.username is not None or parts.query or parts.fragment:
        raise AddressProblem(f'"{url[:80]}" is no address of a web server; {HINT}')
    if parts.path not in ("", "/"):
        raise AddressProblem(f'paths belong to the pages, found "{parts.path[:80]}"')
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise AddressProblem(f'wanted an IP address or localhost, found "{host[:80]}"; {HINT}') from None
    if "%" in host:
        raise AddressProblem(f'wanted an address without a zone, found "{host[:80]}"')
    return Address(str(ip), port, ip.is_loopback)


def with_servers(study: Study, given: Mapping[str, str], *, trust: bool) -> Study:
    """The study with these addresses, by name, as the user gave them. RequestError where no workload asks a server of that
    name, or the address is none, or not on this machine and the user does not say that he trusts."""
    if not given:
        return study
    used = {name for w in study.workloads if _asks(w.work) for name in names(study, w.work)}
    for name, url in given.items():
        try:
            found = address(url)
        except AddressProblem as problem:
            raise RequestError(f"--server {name}: {problem}") from None
        if name not in used:
            known = f"it asks {', '.join(sorted(used))}" if used else "it asks none"
            raise RequestError(f'--server {name}: the study asks no server "{name}"', hint=known)
        if not (found.own or trust):
            raise RequestError(
                f"--server {name}: {url} is not on this machine",
                hint="requests to another machine load it: if it is yours to load, add --trust",
            )
    workloads = tuple(
        replace(w, work=replace(w.work, servers=tuple(sorted({**dict(w.work.servers), **given}.items()))))
        if _asks(w.work)
        else w
        for w in study.workloads
    )
    return replace(study, workloads=workloads)


def _asks(work: Work) -> TypeGuard[PagesWork]:
    """Whether it asks a server that is there already."""
    return isinstance(work, PagesWork) and not work.serve


def names(study: Study, work: PagesWork) -> tuple[str, ...]:
    """The servers that a work asks, whatever level has been set."""
    varied = [
        s.value for s in study.settings if s.knob == "work.option" and ("option", "server") in s.options
    ]
    return tuple(dict.fromkeys(varied)) or (work.server,)


def check_servers(study: Study) -> None:
    """RequestError for a server that nobody has given an address."""
    for workload in study.workloads:
        if not _asks(workload.work):
            continue
        known = dict(workload.work.servers)
        for name in names(study, workload.work):
            if name not in known:
                raise RequestError(
                    f'workload {workload.name}: server "{name}" has no address',
                    hint=f"--server {name}=http://127.0.0.1:8080, or wherever it listens on this machine",
                )
