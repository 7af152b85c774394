"""Workload kind ``pages``: a list of pages requested from a web server by the probe, or loaded by browsers.

A server is named by its IP address (or ``localhost``), so that it is known beforehand what is asked, and no name is looked
up; or the study starts one.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeGuard
from urllib.parse import urlsplit

from msgspec import Meta
from msgspec.structs import replace

from iotrial.errors import RequestError
from iotrial.store.checks import PAGES
from iotrial.study.model import Setting, Study
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Form, Line, Name, Problem, formed, sorted_pairs
from iotrial.study.work import (
    PATH,
    JobContext,
    LabContext,
    Launched,
    Measured,
    ResponseSpec,
    Work,
    time_response,
)
from iotrial.units import format_duration
from iotrial.workloads.served.figures import MOST_CLIENTS
from iotrial.workloads.served.site import LOOPBACK, ServedWork, make_site

MOST_PAGES = 10_000
#: of all clients in all replicates; as the probe has it
MOST_REQUESTS = 10_000_000
_PATH = re.compile(r"/[!-~]{0,4000}")
_RANGE = re.compile(r"\{([0-9]{1,6})\.\.([0-9]{1,6})\}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")


def _path(text: str) -> None:
    if not _PATH.fullmatch(text):
        raise ValueError(f'wanted a path such as "/index.html", without blanks, found "{text[:80]}"')


def _pattern(text: str) -> None:
    parts = text.split("*")
    if len(parts) < 2 or not all(parts):
        raise ValueError(f'wanted texts with * between them, such as "token=\\"*\\"", found "{text[:80]}"')


PagePath = Annotated[str, formed(Form("text", check=_path))]
Pattern = Annotated[str, Meta(max_length=500), formed(Form("text", check=_pattern))]
Servers = Annotated[
    tuple[tuple[Name, Line], ...], Meta(max_length=16), formed(Form("table of text", read=sorted_pairs))
]

_TIMES = time_response("response_time", "time of all responses, from the request to the last byte, in sum")
RESPONSES = (
    _TIMES,
    ResponseSpec(
        "response_p50", "s", Scale.LOG, Better.LOWER, "median of the time of a response", stretchable=False
    ),
    ResponseSpec(
        "response_p99",
        "s",
        Scale.LOG,
        Better.LOWER,
        "99th percentile of the time of a response",
        stretchable=False,
    ),
    ResponseSpec(
        "server_cpu",
        "s",
        Scale.LOG,
        Better.LOWER,
        "processor time of the server, user and system",
        stretchable=False,
    ),
    ResponseSpec(
        "server_memory",
        "bytes",
        Scale.LOG,
        Better.LOWER,
        "memory of the server after a run, what its processes share counted once",
    ),
    time_response("wall", "time from the first request to the last response, with all delays"),
)


class PagesWork(ServedWork, frozen=True, kw_only=True):
    """Pages requested from a web server. ``pages`` are paths, with ranges as the study has them; ``server`` is one of
    ``servers`` (name and address)."""

    kind = "pages"
    about = "A list of pages requested from a web server over HTTP/1.1 by the probe."
    notes = (
        "A response of another status, a redirect, one that never ends or ends too early is a failure of its level. "
        "What the server spends is that of all processes that share its listening socket; where these cannot be "
        "found (another machine, another user's) there is no server_cpu and no server_memory. Bodies are compared "
        "between treatments (not those that browsers load), and the report says which pages differ. The knob "
        "work.option varies count, server, delay, clients, keep_alive and browser; command.argument varies what "
        "stands in serve."
    )
    documented = RESPONSES
    options = ("count", "server", "delay", "clients", "keep_alive", "browser")
    unstretchable = "percentiles of single responses, and what the server spends"
    takes_program = True
    said = "its server"
    verb = "pages"
    of_client = True
    starts_programs = True

    pages: Annotated[
        tuple[PagePath, ...],
        Meta(
            min_length=1,
            max_length=MOST_PAGES,
            description="paths of the pages, in the order of the requests; `{1..40}` in one stands for 40 pages",
        ),
    ]
    count: Annotated[int, Meta(ge=0, le=MOST_PAGES, description="only the first so many of them; 0: all")] = 0
    server: Annotated[
        Name,
        Meta(description="which server: one of `servers`, or one that `--server NAME=URL` gives an address"),
    ] = "site"
    servers: Annotated[
        Servers,
        Meta(
            description="addresses by name, such as http://127.0.0.1:8080; on this machine, unless the study is trusted"
        ),
    ] = ()
    host: Annotated[
        str,
        Meta(
            max_length=255,
            description="the site's name, where a server has several (the Host header); left out: the address",
        ),
    ] = ""
    delay_s: Annotated[
        Duration,
        Meta(ge=0, le=3600, description="from the end of a response to the client's next request"),
    ] = 0.0
    clients: Annotated[
        int,
        Meta(ge=1, le=MOST_CLIENTS, description="clients at once, each of which requests all pages"),
    ] = 1
    warmup: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="untimed passes through all pages by every client before, without delay",
        ),
    ] = 1
    keep_alive: Annotated[bool, Meta(description="one connection a client; false: one a request")] = True
    timeout_s: Annotated[
        Duration, Meta(gt=0, le=3600, description="longest time of one response; after it the run failed")
    ] = 30.0
    expect_status: Annotated[int, Meta(ge=100, le=599, description="status of success")] = 200
    redirects: Annotated[
        Literal["refuse", "count"],
        Meta(description="a redirect is a failure, or a response like others; it is never followed"),
    ] = "refuse"
    ignore: Annotated[
        tuple[Pattern, ...],
        Meta(
            max_length=64,
            description="what in a page is new each time: texts with `*` between them, which "
            "stands for that part (`token=*;`)",
        ),
    ] = ()
    browser: Annotated[
        bool,
        Meta(
            description="the clients are real browsers (headless Chromium, a profile each), which load style "
            "sheets, scripts and images too; a page is there at its load event"
        ),
    ] = False
    replicates: Annotated[
        int,
        Meta(ge=1, le=100_000, description="passes inside one run; their total is the run's response"),
    ] = 1

    def check(self) -> None:
        pages = 0
        for index, path in enumerate(self.pages):
            pages += len(_expanded(path, index))
            if pages > MOST_PAGES:
                raise Problem(f"more than {MOST_PAGES:,} pages", "pages", index)
        requests = (self.count or pages) * self.clients * max(self.replicates, self.warmup)
        if requests > MOST_REQUESTS:
            raise Problem(f"{requests:,} requests in one run, and {MOST_REQUESTS:,} are the most", "clients")
        for name, url in self.servers:
            try:
                address(url)
            except AddressProblem as problem:
                raise Problem(f'server "{name}": {problem}', "servers", name) from None
        if self.host and not _HOST.fullmatch(self.host):
            raise Problem(f'wanted a name of a site, found "{self.host}"', "host")
        self._check_serving()

    def _check_serving(self) -> None:
        for name in ("serve_environment", "make"):
            if getattr(self, name) and not self.serve:
                raise Problem(f'"{name}" is of a server that the study starts', name, hint="add serve")
        if self.serve and (self.servers or self.host):
            raise Problem("either the study starts its server, or it asks one that is there", "serve")
        if self.browser and self.host:
            raise Problem("a browser asks for the address itself", "host")
        self.check_serving()

    def listed(self) -> tuple[str, ...]:
        """The pages of a run, each by its path."""
        pages = [page for index, path in enumerate(self.pages) for page in _expanded(path, index)]
        return tuple(pages[: self.count or None])

    def responses(self) -> tuple[ResponseSpec, ...]:
        return RESPONSES

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        """Servers that are not on this machine, and what in the programs of one that is started needs trust."""
        for name, url in self.servers:
            if not address(url).own:
                yield f'asks server "{name}", which is not on this machine ({url})'
        yield from super().demands(settings)

    def launched(self) -> Launched:
        asked = () if self.serve else tuple(f"requests pages from {url}" for _, url in self.servers)
        variables = tuple(f"with {name}={value}" for name, value in self.serve_environment)
        commands = tuple(shlex.join(argv) for argv in (self.serve, self.make) if argv)
        return Launched(commands, (*asked, *variables), self.make_input)

    def described(self) -> str:
        of = "a server of its own" if self.serve else f"the server {self.server}"
        words = [f"{len(self.listed())} pages of {of}"]
        words += ["by real browsers"] if self.browser else []
        words += [f"{self.clients} clients at once"] if self.clients > 1 else []
        words += [f"{format_duration(self.delay_s)} between requests"] if self.delay_s else []
        words += [] if self.keep_alive else ["a connection each"]
        words += [f"after {self.warmup} untimed passes"] if self.warmup else []
        return ", ".join(words)

    def probe_job(self, context: JobContext) -> dict[str, object]:
        lab = context.lab
        assert lab is not None
        own = Address(LOOPBACK, lab.port, own=True)
        where = own if self.serve else address(dict(self.servers)[self.server])
        browser = {"browser": _chromium(), "profile": f"{lab.own}/browser", "user": lab.user}
        return {
            "address": where.wire,
            "host": self.host or where.wire,
            "pages": list(self.listed()),
            "delay_s": self.delay_s,
            "clients": self.clients,
            "warmup": self.warmup,
            "keep_alive": self.keep_alive,
            "timeout_s": self.timeout_s,
            "expect_status": self.expect_status,
            "redirects": self.redirects,
            "ignore": list(self.ignore),
            "anywhere": not where.own,
            "histograms": True,
            # a request has no user; a browser has one
            **(browser if self.browser else {"user": None}),
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        response, pages, server = answer["operations"]["response"], answer["pages"], answer["server"]
        spun_ns = 0 if context.stretched == "response_time" else answer["spun"]["wall_ns"]
        numbers = {
            "response_time": (response["total_ns"] - spun_ns) / 1e9,
            "response_p50": response["p50_ns"] / 1e9,
            "response_p99": response["p99_ns"] / 1e9,
            "responses": float(sum(pages["count"])),
            "body_bytes": float(sum(pages["bytes"])),
            "connections": float(answer["connections"]),
            "redirects": float(answer["redirects"]),
        }
        if "resources" in answer:
            numbers["page_resources"] = float(answer["resources"])
        if server is not None:
            numbers["server_cpu"] = server["cpu_ns"] / 1e9
            numbers["server_processes"] = float(server["processes"])
            if server["memory_bytes"] is not None:
                numbers["server_memory"] = float(server["memory_bytes"])
        if answer["failed"]:
            numbers["failed_responses"] = float(answer["failed"])
        each = [
            None if not count else round(total / count)
            for total, count in zip(pages["total_ns"], pages["count"], strict=True)
        ]
        told = {"response_ns": each, "body": pages["body"], "varied": pages["varied"]}
        return Measured(numbers, {"response": response["histogram"]}, checks={PAGES: told})

    def provide(self, lab: LabContext) -> None:
        if self.serve or self.browser:
            lab.target.call("mkdir", path=lab.own, mode="0755")
        if self.serve:
            make_site(self, lab)

    def needed_programs(self) -> Mapping[str, str]:
        return {"chromium": "chromium"} if self.browser else {}

    def optional_programs(self) -> Mapping[str, str]:
        return self.needed_programs()

    def never_root(self) -> bool:
        return bool(self.serve) or self.browser


def _expanded(path: str, index: int) -> list[str]:
    """The pages that a path with a range stands for."""
    found = _RANGE.search(path)
    if found is None:
        return [path]
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MOST_PAGES:
        raise Problem(f"a range goes up, by {MOST_PAGES:,} at most, found {found[0]}", "pages", index)
    before, after = path[: found.start()], path[found.end() :]
    if _RANGE.search(after):
        raise Problem(f'one range in a path, found several in "{path[:80]}"', "pages", index)
    return [f"{before}{number}{after}" for number in range(first, last + 1)]


def _chromium() -> str:
    return shutil.which("chromium", path=PATH) or "/usr/bin/chromium"


# addresses

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


WORK = PagesWork
