"""Workload kind ``pages``: a list of pages requested from a web server by the probe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from iotrial.study import command_trust
from iotrial.study.kinds.command import Variable
from iotrial.study.kinds.contract import (
    KeyProblem,
    Programs,
    ResponseSpec,
    WorkloadKind,
    time_response,
)
from iotrial.study.model import Better, CommandWork, PagesWork, Scale, Setting, Step, Work
from iotrial.study.web import AddressProblem, address
from iotrial.study.wire import Argument, Duration, Line, Name, Table, Written, prose

MOST_PAGES = 10_000
#: of all clients in all replicates; as the probe has it
MOST_REQUESTS = 10_000_000
_PATH = re.compile(r"/[!-~]{0,4000}")
_RANGE = re.compile(r"\{([0-9]{1,6})\.\.([0-9]{1,6})\}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError(f'wanted a path such as "/index.html", without blanks, found "{text[:80]}"')
    return text


def _pattern(text: str) -> str:
    parts = text.split("*")
    if len(parts) < 2 or not all(parts):
        raise ValueError(f'wanted texts with * between them, such as "token=\\"*\\"", found "{text[:80]}"')
    return text


Pages = Annotated[
    list[Annotated[str, AfterValidator(_path)]],
    Field(min_length=1, max_length=MOST_PAGES),
    Written("list of text"),
]
Arguments = Annotated[list[Argument], Field(max_length=256), Written("list of text")]
Patterns = Annotated[
    list[Annotated[Line, AfterValidator(_pattern)]], Field(max_length=64), Written("list of text")
]


class PagesKeys(Table):
    """Keys of ``kind = "pages"``."""

    pages: Pages = Field(
        description="paths of the pages, in the order of the requests; `{1..40}` in one stands for 40 pages"
    )
    count: int = Field(0, ge=0, le=MOST_PAGES, description="only the first so many of them; 0: all")
    server: Name = Field(
        "site", description="which server: one of `servers`, or one that `--server NAME=URL` gives an address"
    )
    servers: Annotated[dict[Name, Line], Written("table of text")] = Field(
        {},
        max_length=16,
        description="addresses by name, such as http://127.0.0.1:8080; on this machine, unless the study is trusted",
    )
    host: Annotated[str, Field(max_length=255), Written("text")] = Field(
        "", description="the site's name, where a server has several (the Host header); left out: the address"
    )
    delay: Duration = Field(
        0.0, ge=0, le=3600, description="from the end of a response to the client's next request"
    )
    clients: int = Field(1, ge=1, le=256, description="clients at once, each of which requests all pages")
    warmup: int = Field(
        1, ge=0, le=1000, description="untimed passes through all pages by every client before, without delay"
    )
    keep_alive: bool = Field(True, description="one connection a client; false: one a request")
    timeout: Duration = Field(
        30.0, gt=0, le=3600, description="longest time of one response; after it the run failed"
    )
    expect_status: int = Field(200, ge=100, le=599, description="status of success")
    redirects: Literal["refuse", "count"] = Field(
        "refuse", description="a redirect is a failure, or a response like others; it is never followed"
    )
    ignore: Patterns = Field(
        [],
        description="what in a page is new each time: texts with * between them, which stands for that part",
    )
    browser: bool = Field(
        False,
        description="the clients are real browsers (headless Chromium, a profile each), which load style sheets, scripts and "
        "images too; a page is there at its load event",
    )
    serve: Arguments = Field(
        [],
        description="instead of `server`: a program and its arguments that serve in the foreground, started anew for each "
        "run; `{address}` and `{port}`: where to listen, `{site}`: the folder that `make` has filled, `{scratch}`: an "
        "empty folder",
    )
    serve_environment: Annotated[dict[Variable, Argument], Written("table of text")] = Field(
        {}, max_length=64, description="variables added to a minimal environment of the server"
    )
    make: Arguments = Field(
        [],
        description="a program that makes the site in `{site}`, its working folder: once in a lab, before the first run",
    )
    make_file: Line = Field(
        "", description="its standard input: a file, by its path from the study file; stored with the study"
    )
    make_input: Annotated[str, AfterValidator(prose), Field(max_length=1 << 17), Written("text")] = Field(
        "", description="instead of `make_file`: the text"
    )
    replicates: int = Field(
        1, ge=1, le=100_000, description="passes inside one run; their total is the run's response"
    )


def build(keys: PagesKeys) -> PagesWork:
    """The work of these keys; KeyProblem where they cannot work."""
    return PagesWork(**declared(keys))


def declared(keys: PagesKeys) -> dict[str, Any]:
    """The fields of the work, for this kind and those that build on it."""
    pages = []
    for index, path in enumerate(keys.pages):
        pages += _expanded(path, index)
        if len(pages) > MOST_PAGES:
            raise KeyProblem(f"more than {MOST_PAGES:,} pages", "pages", index)
    requests = (keys.count or len(pages)) * keys.clients * max(keys.replicates, keys.warmup)
    if requests > MOST_REQUESTS:
        raise KeyProblem(f"{requests:,} requests in one run, and {MOST_REQUESTS:,} are the most", "clients")
    for name, url in keys.servers.items():
        try:
            address(url)
        except AddressProblem as problem:
            raise KeyProblem(f'server "{name}": {problem}', "servers", name) from None
    if keys.host and not _HOST.fullmatch(keys.host):
        raise KeyProblem(f'wanted a name of a site, found "{keys.host}"', "host")
    _check_serving(keys)
    return {
        "pages": tuple(keys.pages),
        "count": keys.count,
        "server": keys.server,
        "servers": tuple(sorted(keys.servers.items())),
        "host": keys.host,
        "delay_s": keys.delay,
        "clients": keys.clients,
        "warmup": keys.warmup,
        "keep_alive": keys.keep_alive,
        "timeout_s": keys.timeout,
        "expect_status": keys.expect_status,
        "redirects": keys.redirects,
        "ignore": tuple(keys.ignore),
        "browser": keys.browser,
        "serve": tuple(keys.serve),
        "serve_environment": tuple(sorted(keys.serve_environment.items())),
        "make": tuple(keys.make),
        "make_input": keys.make_input,
        "replicates": keys.replicates,
    }


def _check_serving(keys: PagesKeys) -> None:
    for name in ("serve_environment", "make"):
        if getattr(keys, name) and not keys.serve:
            raise KeyProblem(f'"{name}" is of a server that the study starts', name, hint="add serve")
    if keys.make_input and not keys.make:
        raise KeyProblem("a text, and no program that it is for", "make_input", hint="add make")
    if not keys.serve:
        if keys.browser and keys.host:
            raise KeyProblem("a browser asks for the address itself", "host")
        return
    if keys.servers or keys.host:
        raise KeyProblem("either the study starts its server, or it asks one that is there", "serve")
    for argv, name in ((keys.serve, "serve"), (keys.make, "make")):
        if argv and not argv[0].strip():
            raise KeyProblem("the first argument names the program and cannot be empty", name, 0)
    if not any("{address}" in word or "{port}" in word for word in keys.serve):
        message = "the server is not told where to listen"
        raise KeyProblem(message, "serve", hint="put {address}, or {port}, among its arguments")


def _expanded(path: str, index: int) -> list[str]:
    """The pages that a path with a range stands for."""
    found = _RANGE.search(path)
    if found is None:
        return [path]
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MOST_PAGES:
        raise KeyProblem(f"a range goes up, by {MOST_PAGES:,} at most, found {found[0]}", "pages", index)
    before, after = path[: found.start()], path[found.end() :]
    if _RANGE.search(after):
        raise KeyProblem(f'one range in a path, found several in "{path[:80]}"', "pages", index)
    return [f"{before}{number}{after}" for number in range(first, last + 1)]


def listed(work: PagesWork) -> tuple[str, ...]:
    """The pages of a run, each by its path."""
    pages = [page for index, path in enumerate(work.pages) for page in _expanded(path, index)]
    return tuple(pages[: work.count or None])


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, PagesWork)
    return RESPONSES


def demands(work: Work, settings: Sequence[Setting]) -> Iterator[str]:
    """Servers that are not on this machine, and what in the programs of one that is started needs trust."""
    assert isinstance(work, PagesWork)
    for name, url in work.servers:
        if not address(url).own:
            yield f'asks server "{name}", which is not on this machine ({url})'
    steps = [Step(name, argv) for name, argv in (("serve", work.serve), ("make", work.make)) if argv]
    if steps:
        programs = CommandWork(tuple(steps), stdin=work.make_input, environment=work.serve_environment)
        yield from command_trust.demands(programs, settings)


def texts(work: Work) -> Iterator[str]:
    """What a placeholder may stand in: the server's arguments, and its environment."""
    assert isinstance(work, PagesWork)
    yield from work.serve
    yield from (value for _, value in work.serve_environment)


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

KIND = WorkloadKind(
    name="pages",
    work=PagesWork,
    summary="A list of pages requested from a web server over HTTP/1.1 by the probe.",
    keys=PagesKeys,
    build=build,
    responses=responses,
    documented=RESPONSES,
    unstretchable="percentiles of single responses, and what the server spends",
    notes="A response of another status, a redirect, one that never ends or ends too early is a failure of its level. "
    "What the server spends is that of all processes that share its listening socket; where these cannot be found (another "
    "machine, another user's) there is no server_cpu and no server_memory. Bodies are compared between treatments (not "
    "those that browsers load), and the report says which pages differ. The knob work.option varies count, server, delay, "
    "clients, keep_alive and browser; command.argument varies what stands in serve.",
    text_file=("make_file", "make_input"),
    options=("count", "server", "delay", "clients", "keep_alive", "browser"),
    takes_program=True,
    programs=Programs("its server", texts, lambda _: False, demands),
)
