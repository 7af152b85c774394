"""The neighbour of a workload: a program that works in the lab at the same time, such as the backup of a database.

It has a response of its own, which is what a setting that protects the measured work costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Arguments, Duration, Problem
from iotrial.study.server import Server
from iotrial.study.work import LabContext, ResponseSpec, Step, check_program, filled, minimal_environment

#: as a server of the probe, and in reports
NAME = "neighbour"
#: its folder in the lab, empty when a run starts
FOLDER = "{neighbour}"
RATE, TIME = "neighbour_rate", "neighbour_time"
_RATE = ResponseSpec(
    RATE,
    "bytes/s",
    Scale.LOG,
    Better.HIGHER,
    "bytes that the neighbour read from disks and wrote to files, per second of the timed part",
    stretchable=False,
)
_TIME = ResponseSpec(
    TIME,
    "s",
    Scale.LOG,
    Better.LOWER,
    "time of the neighbour from its start to its end, which may be after the timed part",
    stretchable=False,
)
RESPONSES = (_RATE, _TIME)


class Neighbour(Struct, frozen=True, kw_only=True):
    """``[workload.neighbour]``"""

    argv: Annotated[
        Arguments,
        Meta(
            min_length=1,
            description="program and arguments; `{neighbour}`: its folder in the lab, empty when a run starts; `{dir}`: "
            "the files of the lab; `{place.NAME}` as in a command",
        ),
    ]
    rounds: Annotated[
        Literal["repeat", "once"],
        Meta(
            description="repeat: it is started again whenever it has ended, until the work has (response "
            "`neighbour_rate`); once: the run lasts until it has ended too (`neighbour_time`)"
        ),
    ] = "repeat"
    lead_in_s: Annotated[
        Duration, Meta(ge=0, le=600, description="how long it works before the timed part begins")
    ] = 1.0
    timeout_s: Annotated[Duration, Meta(gt=0, le=86400, description="of `once`: then the run fails")] = 600.0

    def responses(self) -> tuple[ResponseSpec, ...]:
        """Return what it is judged by."""
        return (_TIME,) if self.rounds == "once" else (_RATE,)

    def step(self) -> Step:
        """Return it as a command, for the rules of trust."""
        return Step(NAME, self.argv)

    def server(self, lab: LabContext, arguments: Mapping[str, str]) -> Server:
        """Return the program to start in a run."""
        values = {**arguments, FOLDER: folder(lab), "{dir}": arguments.get("{dir}", lab.files)}
        return Server(
            name=NAME,
            argv=tuple(filled(word, values) for word in self.argv),
            ready={},
            environment=minimal_environment(),
            cwd=folder(lab),
            stop_timeout_s=self.timeout_s,
            rounds=self.rounds,
        )

    def measured(self, answer: Mapping[str, Any]) -> dict[str, float]:
        """Return its number, given the answer of the job that ran at the same time."""
        if self.rounds == "once":
            ((start_ns, end_ns),) = answer[NAME]["rounds_ns"]
            return {TIME: (end_ns - start_ns) / 1e9}
        used = answer["servers"][NAME]
        moved = [used[name] for name in ("fetched_bytes", "dirtied_bytes")]
        # the kernel may deny these counts
        return {} if None in moved else {RATE: sum(moved) / (answer["wall_ns"] / 1e9)}


def folder(lab: LabContext) -> str:
    """Return its folder in the lab."""
    return f"{lab.own}/{NAME}"


def check_neighbour(neighbour: Neighbour | None, cache: str | None) -> None:
    """Raise Problem for one without a program, and for a cache state that cannot be checked while it reads too."""
    if neighbour is None:
        return
    check_program(neighbour.argv, NAME, "argv")
    if cache == "warm":
        raise Problem(
            'cache = "warm" cannot be checked while a neighbour reads from the device',
            "cache",
            hint="use as-is, a cold state, or direct = true",
        )
