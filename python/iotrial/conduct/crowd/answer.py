"""What one client's probe tells of its job, checked: it may be of another machine, and is believed no further than that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iotrial.conduct.crowd.client import moment
from iotrial.errors import ProbeError
from iotrial.legible import shown

MOST_FAILURES, MOST_SAID = 8, 400
_USAGE = (
    "faults_minor",
    "faults_major",
    "switches_voluntary",
    "switches_involuntary",
    "blocks_in",
    "blocks_out",
)


@dataclass(frozen=True, slots=True)
class Told:
    """One client's answer. Moments are of its own clock; ``steps_ns`` by name."""

    started_ns: int
    ended_ns: int
    cpu: Mapping[str, int]
    usage: Mapping[str, int]
    steps_ns: Mapping[str, int]
    failures: tuple[Mapping[str, Any], ...]


def told(answer: Mapping[str, Any], who: str) -> Told:
    """The answer of a ``command`` job. Raises ProbeError that names the client where it can be none."""
    started, ended = moment(answer, "started_ns", who), moment(answer, "ended_ns", who)
    if ended < started:
        raise ProbeError(f"{who}: ended {started - ended} ns before it began")
    usage, steps = _table(answer, "usage", who), answer.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ProbeError(f"{who}: wanted its steps, found {shown(repr(steps)[:60])}")
    failures = answer.get("failures")
    if not isinstance(failures, list):
        raise ProbeError(f"{who}: wanted its failures, found {shown(repr(failures)[:60])}")
    return Told(
        started,
        ended,
        {name: moment(answer, name, who) for name in ("user_ns", "sys_ns", "cpu_ns")},
        {name: moment(usage, name, who) for name in _USAGE},
        {str(step.get("name"))[:64]: moment(step, "wall_ns", who) for step in steps},
        tuple(_failure(one, who) for one in failures[:MOST_FAILURES]),
    )


def _table(answer: Mapping[str, Any], name: str, who: str) -> Mapping[str, Any]:
    value = answer.get(name)
    if not isinstance(value, dict):
        raise ProbeError(f"{who}: wanted {name} as an object, found {shown(repr(value)[:60])}")
    return value


def _failure(found: object, who: str) -> Mapping[str, Any]:
    """As a job has them, with the client's name before that of the program."""
    one = found if isinstance(found, dict) else {}
    return {
        "argv0": f"{who}: {shown(str(one.get('argv0'))[:80])}",
        "timed_out": one.get("timed_out") is True,
        "signal": one["signal"] if isinstance(one.get("signal"), int) else None,
        "exit": one["exit"] if isinstance(one.get("exit"), int) else None,
        "stderr": str(one.get("stderr", ""))[:MOST_SAID],
    }
