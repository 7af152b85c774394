"""A command that prints a number.

It runs in a shell, as the user who called iotrial, at most every N seconds, and is ended after the timeout with everything in
its process group. The value of a window is the mean of what it printed from begin to end; with ``rate`` it is a counter, and
the value its growth per second.
"""

from __future__ import annotations

import math
import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from iotrial.errors import RequestError
from iotrial.live.sources.base import RANGE, Metric, MetricLost, Polled, Reading, WindowVoid, elapsed_s
from iotrial.ownership import invoking_user
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
            raise RequestError("command: the command is missing", hint="command:SHELL COMMAND")
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
            raise WindowVoid(f"metric {self.name}: the counter went down from one reading to the next")
        return (values[-1] - values[0]) / elapsed_s(readings)


def number_of(output: str, name: str) -> float:
    """Return the one number that was printed. Raises MetricLost."""
    text = output.strip()
    found = measured(text)
    if found is None:
        raise MetricLost(
            f"metric {name}: expected one number{RANGE}, the command printed {text[:80]!r}",
            hint="cut the number out of the output, for example with awk",
        )
    return found


def output_of(command: str, *, within_s: float) -> str:
    """Run a shell command and return its standard output. Raises MetricLost if it fails, or does not end in time."""
    deadline, who = time.monotonic() + within_s, _identity()
    try:
        process = subprocess.Popen(
            ("/bin/sh", "-c", command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            user=who.uid,
            group=who.gid,
            extra_groups=who.groups,
            env=who.environment,
        )
    except OSError as error:
        raise MetricLost(f"cannot start the command {command!r}: {error.strerror}") from error
    assert process.stdout is not None
    assert process.stderr is not None
    output = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    try:
        ended = _drain(output, deadline) and _ends(process, deadline)
        whole, errors = (bytes(one).decode("utf-8", "replace") for one in output.values())
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        with suppress(subprocess.TimeoutExpired):  # it may hang in the kernel
            process.wait(timeout=1.0)
    if not ended:
        raise MetricLost(f"the command {command[:80]!r} did not end within {within_s:.1f} s, and was killed")
    if process.returncode != 0:
        tail = " ".join(errors.split())[-200:]
        raise MetricLost(f"the command {command[:80]!r} failed with status {process.returncode}: {tail!r}")
    return whole


@dataclass(frozen=True, slots=True)
class _Identity:
    """The user who runs a command; None: the present one."""

    uid: int | None = None
    gid: int | None = None
    groups: list[int] | None = None
    environment: dict[str, str] | None = None


def _identity() -> _Identity:
    """Return the user who called iotrial, if that is another one: under sudo."""
    uid, gid = invoking_user()
    if os.geteuid() != 0 or uid == 0:
        return _Identity()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return _Identity(uid, gid, [gid])
    own = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return _Identity(uid, gid, os.getgrouplist(entry.pw_name, gid), {**os.environ, **own})


def _drain(output: dict[int, bytearray], deadline: float) -> bool:
    """Read both outputs to their ends, and return whether they ended in time. What is too long is read and dropped."""
    open_ones = set(output)
    while open_ones:
        left = deadline - time.monotonic()
        if left <= 0.0:
            return False
        for file in select.select(list(open_ones), [], [], left)[0]:
            piece = os.read(file, _MOST_OUTPUT)
            if not piece:
                open_ones.discard(file)
            kept = output[file]
            kept += piece[: max(0, _MOST_OUTPUT - len(kept))]
    return True


def _ends(process: subprocess.Popen[bytes], deadline: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=max(0.01, deadline - time.monotonic()))
        return True
    return False
