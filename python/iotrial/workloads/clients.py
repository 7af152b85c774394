"""Workload kind ``clients``: the same commands of many clients at once, against one server.

A server that serves one client well may serve eight badly, and what is to be known of it then is another thing: the
rate of all of them together, how evenly it is shared, and what it costs the server. So all clients begin at one
moment, each is timed by its own probe, and a run whose clients did not begin together is thrown out.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from msgspec import Meta

from iotrial.store.checks import CLIENTS
from iotrial.study import command_trust
from iotrial.study.model import Setting
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Argument, Arguments, Duration, Line, Problem, Prose, Size, Variables, keyed
from iotrial.study.work import (
    DEVICE_RESPONSES,
    HasClients,
    JobContext,
    LabContext,
    Launched,
    Measured,
    ResponseSpec,
    Step,
    filled,
    minimal_environment,
    rate_response,
    time_response,
)
from iotrial.workloads.command import STEP_TABLES, check_steps, path_of, with_steps
from iotrial.workloads.served import figures
from iotrial.workloads.served.figures import MOST_CLIENTS
from iotrial.workloads.served.site import LOOPBACK, ServedWork, make_site, site_folder

#: placeholders of other kinds, which a client of another machine could not have
_OF_LAB = ("{file}", "{files}", "{dir}", "{out}")
#: of so many clients each one's time is told as evidence; of more only what comes of them
MOST_TOLD = 16

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
    return _client_time(f"wall.{name}", f"time of the step {name}, mean over the clients")


def _client_time(name: str, text: str) -> ResponseSpec:
    return time_response(name, text, stretchable=False)


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


class ClientsWork(HasClients, ServedWork, frozen=True, kw_only=True):
    """The same commands of many clients at once, against one server.

    ``server`` is what ``{server}`` stands for: an address or a folder as the clients see it; with ``serve``, where that
    program listens; with neither, the lab's own folder that ``make`` has filled.
    """

    kind = "clients"
    about = (
        "The same commands of many clients at once, against one server: processes of this machine, or on hosts that "
        "--client names."
    )
    notes = (
        "All clients begin at one moment of a common clock; their clocks are compared before and after each run, "
        "and a run whose clients began further apart than spread is void. wall.STEP is there where a workload has "
        "several steps. server_cpu is that of the processes of serve, or of the machine that --server-probe "
        "reaches, which alone gives server_softirq and server_busy; without either they are not there. A client "
        "that fails, hangs or dies is a failure of the run, and is named. The knob work.option varies clients, "
        "server and volume; command.argument varies what stands in commands and in serve."
    )
    documented = (_WALL, *_rates("bytes/s or 1/s"), _step("STEP"), *_SHARED, *_SERVER, *DEVICE_RESPONSES)
    file_keys = {
        "argv": Annotated[
            Arguments,
            Meta(
                min_length=1,
                description="program and arguments of each client; `{server}`: the server's address or folder, `{client}`: "
                "the client's number from 1, `{clients}`: how many there are",
            ),
        ],
        **ServedWork.file_keys,
    }
    options = ("clients", "server", "volume")
    unstretchable = "times and rates of single clients, and what the server spends"
    said = "its clients and server"
    verb = "command"
    of_client = True
    starts_programs = True

    steps: Annotated[
        tuple[Step, ...],
        keyed("step"),
        STEP_TABLES,
        Meta(
            max_length=32,
            description="instead of `argv`: several commands with `name` and `argv`, one after the other",
        ),
    ] = ()
    clients: Annotated[int, Meta(ge=1, le=MOST_CLIENTS, description="how many clients there are at once")] = 2
    server: Annotated[
        Line,
        Meta(
            description="what `{server}` stands for: an address or a folder, as the clients see it; left out: where `serve` "
            "listens, or without `serve` the lab's folder that `make` has filled"
        ),
    ] = ""
    volume_bytes: Annotated[
        Size,
        Meta(ge=0, le=1 << 50, description="what one client moves in a run; 0: rates are works a second"),
    ] = 0
    spread: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="by which share of a run's length the clients may begin apart, the error of their clocks included; a "
            "run of more is void",
        ),
    ] = 0.1
    cwd: Annotated[
        Argument, Meta(min_length=1, description="working folder of the commands; may be in `{server}`")
    ] = "/"
    stdin: Annotated[Prose, Meta(description="text for standard input of each command")] = ""
    timeout_s: Annotated[
        Duration, Meta(gt=0, le=86400, description="longest time of one command; after it the run failed")
    ] = 60.0
    expect_exit: Annotated[int, Meta(ge=0, le=255, description="exit status of success")] = 0
    environment: Annotated[
        Variables, Meta(description="variables added to a minimal environment of the clients")
    ] = ()

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        return cls(**with_steps(values, "clients have"))

    def check(self) -> None:
        if self.serve and self.server:
            raise Problem("either the study starts its server, or it has one that is there", "server")
        if self.serve_environment and not self.serve:
            raise Problem(
                '"serve_environment" is of a server that the study starts',
                "serve_environment",
                hint="add serve",
            )
        if self.make and self.server:
            raise Problem("what is made in the lab is not what a server elsewhere serves", "make")
        self.check_serving()
        check_steps(self.steps)
        for index, step in enumerate(self.steps):
            for at, word in enumerate(step.argv):
                _check_word(word, (*path_of(self.steps, index), at))
        _check_word(self.cwd, ("cwd",))

    def responses(self) -> tuple[ResponseSpec, ...]:
        names = [step.name for step in self.steps] if len(self.steps) > 1 else []
        unit = "bytes/s" if self.volume_bytes else "1/s"
        return (_WALL, *_rates(unit), *map(_step, names), *_SHARED, *_SERVER, *DEVICE_RESPONSES)

    def texts(self) -> Iterator[str]:
        for step in self.steps:
            yield from step.argv
        yield self.cwd
        yield self.stdin
        yield from (value for _, value in self.environment)
        yield from super().texts()

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        """A server that is not on this machine, and what in the programs of clients and server needs trust."""
        varied = [s.value for s in settings if s.knob == "work.option" and ("option", "server") in s.options]
        for server in dict.fromkeys([self.server, *varied]):
            if server and not is_own(server):
                yield f"has clients work on {server[:80]}, which is not plainly an address of this machine"
        yield from command_trust.demands(self.steps, settings, stdin=self.stdin, environment=self.environment)
        yield from super().demands(settings)

    def named_programs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(step.argv[0] for step in self.steps), *super().named_programs()]))

    def launched(self) -> Launched:
        details = [f"by {self.clients} clients at once unless a level says otherwise"]
        details += [f"on {self.server}"] if self.server else []
        details += [f"in the folder {self.cwd}"] if self.cwd != "/" else []
        details += [f"with {name}={value}" for name, value in (*self.environment, *self.serve_environment)]
        commands = [shlex.join(step.argv) for step in self.steps]
        commands += [shlex.join(argv) for argv in (self.serve, self.make) if argv]
        return Launched(tuple(commands), tuple(details), self.stdin or self.make_input)

    def described(self) -> str:
        commands = "; ".join(" ".join(step.argv) for step in self.steps)
        own = "a server of its own" if self.serve else "a folder of the lab"
        return f"{self.clients} clients at once on {self.server or own}: {commands}"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        """The job of each client, its number still to be put in."""
        lab = context.lab
        assert lab is not None
        own = f"{LOOPBACK}:{lab.port}" if self.serve else site_folder(self, lab)
        values = {**context.arguments, "{server}": self.server or own}
        return {
            "steps": [
                {"name": step.name, "argv": [filled(word, values) for word in step.argv]}
                for step in self.steps
            ],
            "environment": {
                **minimal_environment(),
                **{name: filled(value, values) for name, value in self.environment},
                **context.environment,
            },
            "cwd": filled(self.cwd, values),
            "stdin": filled(self.stdin, values),
            "timeout_s": self.timeout_s,
            "expect_exit": self.expect_exit,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        timed, clocks, since = answer["timed"], answer["clocks"], answer["clocks_since"]
        if answer["failures"]:
            return Measured()
        numbers = figures.numbers(timed, self.volume_bytes)
        if context.stretched == "rate":
            numbers["rate"] *= answer["whole_ns"] / answer["wall_ns"]
        numbers["clock_doubt_time"] = max(clock.bound_ns for clock in clocks) / 1e9
        machine = answer["machine"]
        numbers |= {k: v for k, v in machine.items() if not (k == "server_cpu" and "servers" in answer)}
        if len(self.steps) > 1:
            for step in self.steps:
                times = [steps.get(step.name, 0) / 1e9 for steps in answer["steps_of"]]
                numbers[f"wall.{step.name}"] = sum(times) / len(times)
        if len(timed) <= MOST_TOLD:
            numbers |= {f"client_{one.name}_time": one.took_ns / 1e9 for one in timed}
        began_ns = min(one.start_ns for one in timed)
        told = {
            "names": [one.name for one in timed],
            "began_s": [(one.start_ns - began_ns) / 1e9 for one in timed],
            "took_s": [one.took_ns / 1e9 for one in timed],
            "clock_bound_s": [clock.bound_ns / 1e9 for clock in clocks],
            "clock_drift_ppm": [round(clock.drift * 1e6, 1) for clock in since],
            "clock_drift_bound_ppm": [round(clock.drift_bound * 1e6, 1) for clock in since],
        }
        return Measured(numbers, checks={CLIENTS: told}, void=answer["void"])

    def client_count(self) -> int:
        return self.clients

    def longest_s(self) -> float:
        return self.timeout_s * len(self.steps)

    def allowed_spread(self) -> float:
        return self.spread

    def never_root(self) -> bool:
        return True

    def provide(self, lab: LabContext) -> None:
        if not self.server:
            lab.target.call("mkdir", path=lab.own, mode="0755")
            make_site(self, lab)

    def labs(self) -> frozenset[str]:
        # a lab's own mount is seen by its probe alone: a server reaches it, a client of its own process does not
        folder = not (self.serve or self.server)
        return frozenset({"directory"} if folder else {"directory", "image", "device"})


def is_own(server: str) -> bool:
    """Whether it is plainly an address of the loopback: ``127.0.0.1:8080``, ``[::1]:80``, ``localhost``."""
    host = server[1:].partition("]")[0] if server.startswith("[") else server.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_word(word: str, path: tuple[str | int, ...]) -> None:
    for placeholder in _OF_LAB:
        if placeholder in word:
            hint = "clients may be on other machines: they reach {server}, which may be a folder"
            raise Problem(f"{placeholder} is of the lab, and a client has none", *path, hint=hint)


WORK = ClientsWork
