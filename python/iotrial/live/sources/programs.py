"""A command that prints a number.

It runs in a shell, as the user who called iotrial, at most every N seconds, and is ended after the timeout. Whatever it has
started ends with it. The value of a window is the mean of what it printed from begin to end; with ``rate`` it is a counter,
and the value its growth per second.
"""

from __future__ import annotations

import math
import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from iotrial.errors import ProbeError, RequestError, TargetError
from iotrial.live.sources.base import (
    Metric,
    MetricLost,
    Polled,
    Reading,
    elapsed_s,
    no_number,
    silent,
    was_reset,
)
from iotrial.ownership import invoking_user
from iotrial.probe.client import Probe
from iotrial.units import measured

#: unless every= and timeout= say otherwise
EVERY_S = 5.0
TIMEOUT_S = 5.0
#: how long before the timeout of the source the command is ended, so that the message tells what it printed
_EARLIER_S = 0.2
_MOST_OUTPUT = 1 << 16


class Command(Polled[float]):
    """The number that a shell command prints."""

    def __init__(self, metric: Metric, command: str, *, rate: bool = False) -> None:
        super().__init__(metric)
        if not command.strip() or "\0" in command:
            raise RequestError("command: expected a shell command")
        self._command, self._rate = command, rate
        self.reach_s = 0.0

    def read(self) -> float:
        within_s = max(_EARLIER_S, self.metric.timeout_s - _EARLIER_S)
        return number_of(output_of(self._command, within_s=within_s), self.name)

    def value(self, readings: Sequence[Reading[float]]) -> float:
        values = [one.value for one in readings]
        if not self._rate:
            return math.fsum(values) / len(values)
        if any(after < before for before, after in pairwise(values)):
            raise was_reset(self.name)
        return (values[-1] - values[0]) / elapsed_s(readings)


def number_of(output: str, name: str) -> float:
    """Return the one number that was printed. Raises MetricLost."""
    text = output.strip()
    found = measured(text)
    if found is None:
        raise no_number(f"metric {name}: output of the command", text)
    return found


def output_of(command: str, *, within_s: float) -> str:
    """Run a shell command and return its standard output. Raises MetricLost if it fails, or does not end in time.

    A separate probe runs it, so that nothing that the command has started outlives it, nor this process.
    """
    who = _identity()
    try:
        with Probe(isolate=False) as probe:
            done = probe.call(
                "run",
                argv=["/bin/sh", "-c", command],
                environment=who.environment,
                cwd=str(Path.cwd()),
                timeout_s=within_s,
                output_limit=_MOST_OUTPUT,
                **who.user,
            )
    except (ProbeError, TargetError) as error:
        raise MetricLost(f"the command {command[:80]!r}: {error.message}") from error
    if done["timed_out"]:
        raise silent(f"the command {command[:80]!r}", within_s)
    if done["exit"] != 0:
        status = f"signal {done['signal']}" if done["exit"] is None else f"status {done['exit']}"
        tail = " ".join(str(done["stderr"]).split())[-200:]
        raise MetricLost(f"the command {command[:80]!r} failed with {status}: {tail!r}")
    return str(done["stdout"])


@dataclass(frozen=True, slots=True)
class _Identity:
    """The user who runs a command, in the form of the probe's protocol; empty: the present one."""

    user: dict[str, object]
    environment: dict[str, str]


def _identity() -> _Identity:
    """Return the user who called iotrial, if that is another one: under sudo."""
    uid, gid = invoking_user()
    if os.geteuid() != 0 or uid == 0:
        return _Identity({}, dict(os.environ))
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return _Identity({"user": {"uid": uid, "gid": gid}, "groups": [gid]}, dict(os.environ))
    own = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    groups = os.getgrouplist(entry.pw_name, gid)
    return _Identity({"user": {"uid": uid, "gid": gid}, "groups": groups}, {**os.environ, **own})
