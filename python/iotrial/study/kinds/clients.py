"""Workload kind ``clients``: the same commands of many clients at once, against one server.

A server that serves one client well may serve eight badly, and what is to be known of it then is another thing: the
rate of all of them together, how evenly it is shared, and what it costs the server. So all clients begin at one
moment, each is timed by its own probe, and a run whose clients did not begin together is thrown out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from iotrial.study import command_trust
from iotrial.study.kinds.command import Arguments as Program
from iotrial.study.kinds.command import StepTable, Variable
from iotrial.study.kinds.contract import (
    DEVICE_RESPONSES,
    KeyProblem,
    Programs,
    ResponseSpec,
    WorkloadKind,
    rate_response,
    time_response,
)
from iotrial.study.model import Better, ClientsWork, CommandWork, Scale, Setting, Step, Work
from iotrial.study.wire import Argument, Duration, Line, Prose, Size, Table, Written, prose

MOST_CLIENTS = 256
SINGLE_STEP = "command"
#: placeholders of other kinds, which a client of another machine could not have
_OF_LAB = ("{file}", "{files}", "{dir}", "{out}")

Arguments = Annotated[list[Argument], Field(max_length=256), Written("list of text")]


class ClientsKeys(Table):
    """Keys of ``kind = "clients"``."""

    argv: Program | None = Field(
        None,
        description="program and arguments of each client; `{server}`: the server's address or folder, `{client}`: "
        "the client's "
        "number from 1, `{clients}`: how many there are",
    )
    step: Annotated[list[StepTable], Written("[[workload.step]] tables")] = Field(
        [],
        max_length=32,
        description="instead of `argv`: several commands with `name` and `argv`, one after the other",
    )
    clients: int = Field(2, ge=1, le=MOST_CLIENTS, description="how many clients there are at once")
    server: Line = Field(
        "",
        description="what `{server}` stands for: an address or a folder, as the clients see it; left out: where "
        "`serve` listens, "
        "or without `serve` the lab's folder that `make` has filled",
    )
    volume: Size = Field(
        0, ge=0, le=1 << 50, description="what one client moves in a run; 0: rates are works a second"
    )
    spread: float = Field(
        0.1,
        gt=0,
        le=1,
        description="by which share of a run's length the clients may begin apart, the error of their clocks "
        "included; a run of "
        "more is void",
    )
    cwd: Argument = Field(
        "/", min_length=1, description="working folder of the commands; may be in `{server}`"
    )
    stdin: Prose = Field("", description="text for standard input of each command")
    timeout: Duration = Field(
        60.0, gt=0, le=86400, description="longest time of one command; after it the run failed"
    )
    expect_exit: int = Field(0, ge=0, le=255, description="exit status of success")
    environment: Annotated[dict[Variable, Argument], Written("table of text")] = Field(
        {}, max_length=64, description="variables added to a minimal environment of the clients"
    )
    serve: Arguments = Field(
        [],
        description="instead of `server`: a program and its arguments that serve in the foreground on this machine, "
        "started anew "
        "for each run; `{address}` and `{port}`: where to listen (127.0.0.1), `{site}`: the folder that `make` has filled, "
        "`{scratch}`: an empty folder",
    )
    serve_environment: Annotated[dict[Variable, Argument], Written("table of text")] = Field(
        {}, max_length=64, description="variables added to a minimal environment of the server"
    )
    make: Arguments = Field(
        [],
        description="a program that fills the folder `{site}` of the lab, its working folder: once, before the first run",
    )
    make_file: Line = Field(
        "", description="its standard input: a file, by its path from the study file; stored with the study"
    )
    make_input: Annotated[str, AfterValidator(prose), Field(max_length=1 << 17), Written("text")] = Field(
        "", description="instead of `make_file`: the text"
    )


def build(keys: ClientsKeys) -> ClientsWork:
    """The work of these keys; KeyProblem where they cannot work."""
    _check_serving(keys)
    return ClientsWork(
        steps=_steps(keys),
        clients=keys.clients,
        server=keys.server,
        volume_bytes=keys.volume,
        spread=keys.spread,
        cwd=keys.cwd,
        stdin=keys.stdin,
        timeout_s=keys.timeout,
        expect_exit=keys.expect_exit,
        environment=tuple(sorted(keys.environment.items())),
        serve=tuple(keys.serve),
        serve_environment=tuple(sorted(keys.serve_environment.items())),
        make=tuple(keys.make),
        make_input=keys.make_input,
    )


def _steps(keys: ClientsKeys) -> tuple[Step, ...]:
    if (keys.argv is None) == (not keys.step):
        raise KeyProblem(
            "clients have either argv or [[workload.step]] tables, found "
            + ("both" if keys.step else "neither"),
            *(("step",) if keys.step else ()),
        )
    steps = (
        (Step(SINGLE_STEP, tuple(keys.argv)),)
        if keys.argv is not None
        else tuple(Step(step.name, tuple(step.argv)) for step in keys.step)
    )
    names = [step.name for step in steps]
    for index, step in enumerate(steps):
        path: tuple[str | int, ...] = ("argv",) if keys.argv is not None else ("step", index, "argv")
        if step.name in names[:index]:
            raise KeyProblem(f'two steps are called "{step.name}"', "step", index, "name")
        if not step.argv[0].strip():
            raise KeyProblem("the first argument names the program and cannot be empty", *path, 0)
        for at, word in enumerate(step.argv):
            _check_word(word, (*path, at))
    _check_word(keys.cwd, ("cwd",))
    return steps


def _check_word(word: str, path: tuple[str | int, ...]) -> None:
    for placeholder in _OF_LAB:
        if placeholder in word:
            hint = "clients may be on other machines: they reach {server}, which may be a folder"
            raise KeyProblem(f"{placeholder} is of the lab, and a client has none", *path, hint=hint)


def _check_serving(keys: ClientsKeys) -> None:
    if keys.serve and keys.server:
        raise KeyProblem("either the study starts its server, or it has one that is there", "server")
    if keys.serve_environment and not keys.serve:
        raise KeyProblem(
            '"serve_environment" is of a server that the study starts', "serve_environment", hint="add serve"
        )
    if keys.make and keys.server:
        raise KeyProblem("what is made in the lab is not what a server elsewhere serves", "make")
    if keys.make_input and not keys.make:
        raise KeyProblem("a text, and no program that it is for", "make_input", hint="add make")
    for argv, name in ((keys.serve, "serve"), (keys.make, "make")):
        if argv and not argv[0].strip():
            raise KeyProblem("the first argument names the program and cannot be empty", name, 0)
    if keys.serve and not any("{address}" in word or "{port}" in word for word in keys.serve):
        message = "the server is not told where to listen"
        raise KeyProblem(message, "serve", hint="put {address}, or {port}, among its arguments")


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, ClientsWork)
    names = [step.name for step in work.steps] if len(work.steps) > 1 else []
    unit = "bytes/s" if work.volume_bytes else "1/s"
    return (_WALL, *_rates(unit), *(_step(name) for name in names), *_SHARED, *_SERVER, *DEVICE_RESPONSES)


def demands(work: Work, settings: Sequence[Setting]) -> Iterator[str]:
    """A server that is not on this machine, and what in the programs of clients and server needs trust."""
    assert isinstance(work, ClientsWork)
    varied = [s.value for s in settings if s.knob == "work.option" and ("option", "server") in s.options]
    for server in dict.fromkeys([work.server, *varied]):
        if server and not is_own(server):
            yield f"has clients work on {server[:80]}, which is not plainly an address of this machine"
    programs = CommandWork(work.steps, stdin=work.stdin, environment=work.environment)
    yield from command_trust.demands(programs, settings)
    started = [Step(name, argv) for name, argv in (("serve", work.serve), ("make", work.make)) if argv]
    if started:
        served = CommandWork(tuple(started), stdin=work.make_input, environment=work.serve_environment)
        yield from command_trust.demands(served, settings)


def is_own(server: str) -> bool:
    """Whether it is plainly an address of the loopback: ``127.0.0.1:8080``, ``[::1]:80``, ``localhost``."""
    host = server[1:].partition("]")[0] if server.startswith("[") else server.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def texts(work: Work) -> Iterator[str]:
    """All texts that a placeholder may stand in."""
    assert isinstance(work, ClientsWork)
    for step in work.steps:
        yield from step.argv
    yield work.cwd
    yield work.stdin
    yield from (value for _, value in work.environment)
    yield from work.serve
    yield from (value for _, value in work.serve_environment)


_WALL = time_response("wall", "time from when the first client began to when the last one was done")


def _rates(unit: str) -> tuple[ResponseSpec, ...]:
    return (
        rate_response("rate", unit, "what all clients moved, over `wall` (unit 1/s: works done)"),
        ResponseSpec(
            "rate_together",
            unit,
            Scale.LOG,
            Better.HIGHER,
            "sum of the clients' own rates: what was moved while all were at work, where each moves evenly",
            stretchable=False,
        ),
    )


def _step(name: str) -> ResponseSpec:
    text = f"time of the step {name}, mean over the clients"
    return ResponseSpec(f"wall.{name}", "s", Scale.LOG, Better.LOWER, text, stretchable=False)


def _client_time(name: str, text: str) -> ResponseSpec:
    return ResponseSpec(name, "s", Scale.LOG, Better.LOWER, text, stretchable=False)


_SHARED = (
    _client_time("client_slowest", "time of the client that took longest"),
    _client_time("client_median", "time of the clients, median"),
    _client_time("client_fastest", "time of the client that was done first"),
    ResponseSpec(
        "fairness",
        "1",
        Scale.DIFFERENCE,
        Better.HIGHER,
        "Jain's index of the clients' rates: 1 where all are equal, 1 / clients where one has all",
        stretchable=False,
    ),
    ResponseSpec(
        "slowest_to_fastest",
        "1",
        Scale.LOG,
        Better.LOWER,
        "time of the slowest client over that of the fastest",
        stretchable=False,
    ),
    _client_time("client_cpu", "processor time of all clients' commands, user and system"),
)
_SERVER = (
    _client_time("server_cpu", "processor time of the server: of its processes, or of its machine"),
    ResponseSpec(
        "server_softirq",
        "s",
        Scale.DIFFERENCE,
        Better.LOWER,
        "processor time of the server's machine in interrupts and in what is done at once because of them",
        stretchable=False,
    ),
    ResponseSpec(
        "server_busy",
        "%",
        Scale.DIFFERENCE,
        Better.NONE,
        "share of the time in which the processors of the server's machine were busy",
        stretchable=False,
    ),
)

KIND = WorkloadKind(
    name="clients",
    work=ClientsWork,
    summary="The same commands of many clients at once, against one server: processes of this machine, or on hosts "
    "that --client "
    "names.",
    keys=ClientsKeys,
    build=build,
    responses=responses,
    documented=(_WALL, *_rates("bytes/s or 1/s"), _step("STEP"), *_SHARED, *_SERVER, *DEVICE_RESPONSES),
    unstretchable="times and rates of single clients, and what the server spends",
    notes="All clients begin at one moment of a common clock; their clocks are compared before and after each run, "
    "and a run whose "
    "clients began further apart than spread is void. wall.STEP is there where a workload has several steps. "
    "server_cpu is that "
    "of the processes of serve, or of the machine that --server-probe reaches, which alone gives server_softirq and "
    "server_busy; "
    "without either they are not there. A client that fails, hangs or dies is a failure of the run, and is named. The knob "
    "work.option varies clients, server and volume; command.argument varies what stands in commands and in serve.",
    text_file=("make_file", "make_input"),
    options=("clients", "server", "volume"),
    programs=Programs("its clients and server", texts, lambda _: False, demands),
)
