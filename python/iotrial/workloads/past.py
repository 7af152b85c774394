"""Workload kinds that can no longer be run. Stored or packed trials of them can still be read and reported.

``gone`` says what a study should use instead. Load on a web server: any load generator as a ``command``, with
its output as responses. Several clients: those of fio, or a program with several connections. Access times: a
script that prints facts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Argument, Arguments, Duration, Line, LongText, Name, Problem, Size, Variables
from iotrial.study.work import (
    DEVICE_RESPONSES,
    JobContext,
    Measured,
    ResponseSpec,
    Step,
    Work,
    rate_response,
    time_response,
)

_SERVED = 'use kind = "command" with serve and a load generator, with its numbers as [[workload.output]] (docs/programs.md)'
Paths = Annotated[tuple[Argument, ...], Meta(max_length=10_000)]
Patterns = Annotated[tuple[Line, ...], Meta(max_length=64)]
Count = Annotated[int, Meta(ge=0, le=10_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=86400)]


class PastWork(Work, frozen=True, kw_only=True):
    """A workload of a stored trial that is no longer run."""

    verb = "none"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        raise Problem(f'kind "{self.kind}" is not supported any more')

    def on_files(self) -> bool:
        return False

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        raise Problem(f'kind "{self.kind}" is not supported any more')


def _seconds(name: str) -> ResponseSpec:
    return time_response(name, stretchable=False)


def _difference(name: str, unit: str, better: Better) -> ResponseSpec:
    return ResponseSpec(name, unit, Scale.DIFFERENCE, better, stretchable=False)


class PagesWork(PastWork, frozen=True, kw_only=True):
    """Pages requested from a web server by the probe, or loaded by browsers."""

    kind = "pages"
    gone = _SERVED
    options = ("count", "server", "delay", "clients", "keep_alive", "browser")
    unstretchable = "percentiles of single responses, and the server's resources"

    pages: Paths
    count: Count = 0
    server: Name = "site"
    servers: Annotated[tuple[tuple[Name, Line], ...], Meta(max_length=16)] = ()
    host: Line = ""
    delay_s: Duration = 0.0
    clients: Count = 1
    warmup: Count = 1
    keep_alive: bool = True
    timeout_s: Seconds = 30.0
    expect_status: Count = 200
    redirects: Line = "refuse"
    ignore: Patterns = ()
    browser: bool = False
    replicates: Annotated[int, Meta(ge=1, le=100_000)] = 1
    serve: Arguments = ()
    serve_environment: Variables = ()
    make: Arguments = ()
    make_input: LongText = ""

    def responses(self) -> tuple[ResponseSpec, ...]:
        return (
            time_response("response_time"),
            _seconds("response_p50"),
            _seconds("response_p99"),
            _seconds("server_cpu"),
            ResponseSpec("server_memory", "bytes", Scale.LOG, Better.LOWER),
            time_response("wall"),
        )

    def described(self) -> str:
        of = "its own server" if self.serve else f"the server {self.server}"
        by = f" by {self.clients} {'browsers' if self.browser else 'clients'}"
        return f"pages of {of}{by}"


class ClientsWork(PastWork, frozen=True, kw_only=True):
    """The same commands by many clients at once, against one server."""

    kind = "clients"
    gone = f'use kind = "fio" with clients, or {_SERVED.removeprefix("use ")}'
    options = ("clients", "server", "volume")
    unstretchable = "times and rates of single clients, and the server's resources"

    steps: Annotated[tuple[Step, ...], Meta(max_length=32)] = ()
    clients: Count = 2
    server: Line = ""
    volume_bytes: Size = 0
    spread: Annotated[float, Meta(ge=0, le=1)] = 0.1
    cwd: Argument = "/"
    stdin: LongText = ""
    timeout_s: Seconds = 60.0
    expect_exit: Count = 0
    environment: Variables = ()
    serve: Arguments = ()
    serve_environment: Variables = ()
    make: Arguments = ()
    make_input: LongText = ""

    def responses(self) -> tuple[ResponseSpec, ...]:
        unit = "bytes/s" if self.volume_bytes else "1/s"
        steps = self.steps if len(self.steps) > 1 else ()
        return (
            time_response("wall"),
            rate_response("rate", unit),
            ResponseSpec("rate_together", unit, Scale.LOG, Better.HIGHER, stretchable=False),
            *(_seconds(f"wall.{step.name}") for step in steps),
            _seconds("client_slowest"),
            _seconds("client_median"),
            _seconds("client_fastest"),
            _difference("fairness", "1", Better.HIGHER),
            ResponseSpec("slowest_to_fastest", "1", Scale.LOG, Better.LOWER, stretchable=False),
            _seconds("client_cpu"),
            _seconds("server_cpu"),
            _difference("server_softirq", "s", Better.LOWER),
            _difference("server_busy", "%", Better.NONE),
            *DEVICE_RESPONSES,
        )

    def described(self) -> str:
        commands = "; ".join(shlex.join(step.argv) for step in self.steps)
        return f"{self.clients} clients at once: {commands}"


class AtimeWork(PastWork, frozen=True, kw_only=True):
    """System calls, each done once, and whether each changes the access time."""

    kind = "atime"
    gone = 'use kind = "command" with a script that prints facts, as in the study mount/atime-semantics'

    timed = False

    calls: Annotated[tuple[Line, ...], Meta(max_length=100)] = ()
    each: Annotated[tuple[Line, ...], Meta(max_length=100)] = ()
    burst: Count = 1000

    def responses(self) -> tuple[ResponseSpec, ...]:
        names = ("changed", "changed_again", "changed_lazily", *(f"changes.{call}" for call in self.each))
        return tuple(ResponseSpec(name, "1", Scale.DIFFERENCE, Better.NONE) for name in names)

    def described(self) -> str:
        return f"{len(self.calls)} system calls, each twice, with the access time checked after each"


KINDS: dict[str, type[Work]] = {work.kind: work for work in (PagesWork, ClientsWork, AtimeWork)}
