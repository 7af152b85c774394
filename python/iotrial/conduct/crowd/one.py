"""What all clients of a run did, as the answer of one job; and whether they did it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iotrial.conduct.crowd.answer import Told, told
from iotrial.conduct.crowd.clock import Common
from iotrial.workloads.served import figures
from iotrial.workloads.served.figures import Timed

APART = "clients_began_apart"
CLOCK_SET = "a_clients_clock_was_set"


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of the clients of one run. ``limit_s``: the longest time that one of them may take."""

    clients: int
    spread: float
    limit_s: float


def as_one(
    own: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    clocks: Sequence[Common],
    task: Task,
    served: Mapping[str, float],
) -> dict[str, Any]:
    """The answer of all as one job's: times and usage are the clients', counters those of the trial's own probe."""
    each: list[Told] = [told(answer, f"client {name}") for name, answer in zip(names, answers, strict=True)]
    timed = [
        Timed(name, clock.ours(one.started_ns), clock.ours(one.ended_ns))
        for name, clock, one in zip(names, clocks, each, strict=True)
    ]
    failures = [failure for one in each for failure in one.failures]
    whole_ns = max(1, figures.whole_ns(timed))
    spun_ns = int(own["spun"]["wall_ns"])
    cpu = {name: sum(one.cpu[name] for one in each) for name in ("user_ns", "sys_ns", "cpu_ns")}
    usage = {name: sum(one.usage.get(name, 0) for one in each) for name in own["usage"]}
    return {
        **own,
        **cpu,
        "wall_ns": whole_ns + spun_ns,
        "usage": usage,
        "spun": {"wall_ns": spun_ns, "cpu_ns": 0},
        "injected": (whole_ns + spun_ns) / whole_ns,
        "started_ns": min(one.start_ns for one in timed),
        "failures": [*own["failures"], *failures],
        "verified": not (own["failures"] or failures),
        # files of the trial's own probe, which only waited
        "around": {**(own.get("around") or {}), "process": None},
        "whole_ns": whole_ns,
        "timed": timed,
        "steps_of": [one.steps_ns for one in each],
        "clocks": clocks,
        "machine": dict(served),
        "void": None if failures else void_rule(timed, clocks, task.spread),
    }


def void_rule(timed: Sequence[Timed], clocks: Sequence[Common], spread: float) -> str | None:
    """The rule that throws the run out, and with it its block. What the clocks may be off counts against it."""
    if any(clock.stepped for clock in clocks):
        return CLOCK_SET
    doubt_ns = 2 * max(clock.bound_ns for clock in clocks) if len(clocks) > 1 else 0
    apart_ns = figures.spread_ns(timed) + doubt_ns
    return APART if len(timed) > 1 and apart_ns > spread * figures.whole_ns(timed) else None
