"""Many clients at once: each does the commands by a probe of its own, and what they did is one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from iotrial.conduct import own_site
from iotrial.conduct.crowd import figures
from iotrial.conduct.own_site import LOOPBACK
from iotrial.conduct.works.contract import (
    Asked,
    Launched,
    Measured,
    Situation,
    WorkDriver,
    filled,
    minimal_environment,
)
from iotrial.lab.server import Server
from iotrial.store.checks import CLIENTS
from iotrial.study.model import ClientsWork

#: its name among the checks of a stored run
#: of so many clients each one's time is told as evidence; of more only what comes of them
MOST_TOLD = 16


class Clients(WorkDriver[ClientsWork]):
    """Workload kind ``clients``."""

    verb = "command"
    work = ClientsWork
    of_client = True
    starts_programs = True

    def fields(self, work: ClientsWork, asked: Asked) -> dict[str, object]:
        """The job of each client, its number still to be put in."""
        at = asked.at
        assert at is not None
        own = f"{LOOPBACK}:{at.port}" if work.serve else own_site.folder(work, at)
        values = {**asked.arguments, "{server}": work.server or own}
        return {
            "steps": [
                {"name": step.name, "argv": [filled(word, values) for word in step.argv]}
                for step in work.steps
            ],
            "environment": {
                **minimal_environment(),
                **{name: filled(value, values) for name, value in work.environment},
                **asked.environment,
            },
            "cwd": filled(work.cwd, values),
            "stdin": filled(work.stdin, values),
            "timeout_s": work.timeout_s,
            "expect_exit": work.expect_exit,
        }

    def clients(self, work: ClientsWork) -> int:
        return work.clients

    def longest_s(self, work: ClientsWork) -> float:
        return work.timeout_s * len(work.steps)

    def spread(self, work: ClientsWork) -> float:
        return work.spread

    def never_root(self, work: ClientsWork) -> bool:
        return True

    def provide(self, work: ClientsWork, at: Situation) -> None:
        if work.server:
            return
        at.target.call("mkdir", path=at.own, mode="0755")
        own_site.make(work, at)

    def server(self, work: ClientsWork, at: Situation) -> Server | None:
        return own_site.server(work, at)

    def measured(self, work: ClientsWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        timed, clocks, since = answer["timed"], answer["clocks"], answer["clocks_since"]
        if answer["failures"]:
            return Measured()
        numbers = figures.numbers(timed, work.volume_bytes)
        if asked.stretched == "rate":
            numbers["rate"] *= answer["whole_ns"] / answer["wall_ns"]
        numbers["clock_doubt_time"] = max(clock.bound_ns for clock in clocks) / 1e9
        machine = answer["machine"]
        numbers |= {k: v for k, v in machine.items() if not (k == "server_cpu" and "servers" in answer)}
        if len(work.steps) > 1:
            for step in work.steps:
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

    def reads_bytes(self, work: ClientsWork, size: int, files: int) -> int:
        return 0

    def summary(self, work: ClientsWork) -> str:
        commands = "; ".join(" ".join(step.argv) for step in work.steps)
        own = "a server of its own" if work.serve else "a folder of the lab"
        where = f"on {work.server or own}"
        return f"{work.clients} clients at once {where}: {commands}"

    def writes(self, work: ClientsWork) -> bool:
        return False

    def on_files(self, work: ClientsWork) -> bool:
        return False

    def labs(self, work: ClientsWork) -> frozenset[str]:
        # a lab's own mount is seen by its probe alone: a server reaches it, a client of its own process does not
        folder = not (work.serve or work.server)
        return frozenset({"directory"} if folder else {"directory", "image", "device"})

    def named_programs(self, work: ClientsWork) -> tuple[str, ...]:
        steps = [step.argv[0] for step in work.steps]
        return tuple(dict.fromkeys([*steps, *(argv[0] for argv in (work.serve, work.make) if argv)]))

    def launched(self, work: ClientsWork) -> Launched:
        details = [f"by {work.clients} clients at once unless a level says otherwise"]
        details += [f"on {work.server}"] if work.server else []
        details += [f"in the folder {work.cwd}"] if work.cwd != "/" else []
        details += [f"with {name}={value}" for name, value in (*work.environment, *work.serve_environment)]
        commands = [shlex.join(step.argv) for step in work.steps]
        commands += [shlex.join(argv) for argv in (work.serve, work.make) if argv]
        return Launched(tuple(commands), tuple(details), work.stdin or work.make_input)

    def as_root(self, work: ClientsWork) -> bool:
        return False


DRIVER = Clients()
