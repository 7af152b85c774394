"""One client: a probe behind a link, asked with a limit of time, and never believed more than its answer can mean.

A probe that answers nothing for too long is ended, and so is one whose answer is none; the next run finds a fresh
one. Whoever stands behind a link may be broken or hostile: a moment that cannot be, or a number that is none, is an
error of that client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from iotrial.conduct.crowd.clock import Reading, read_clock
from iotrial.errors import NotSupported, ProbeError, TargetError
from iotrial.legible import shown
from iotrial.probe.client import Probe
from iotrial.probe.launch import Launch
from iotrial.study.server import NOBODY

#: how long a link may take to give its first answer, and a small question later on
CONNECTS_S, ANSWERS_S = 30.0, 20.0
LARGEST_NS = 1 << 62


class Client:
    """A client of this name, ``local`` where it is a process of our own; ``address`` is where programs
    here can call it, empty where that was not said. ``start`` makes its probe; whatever goes
    wrong is a ProbeError that names it."""

    def __init__(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        local: bool,
        begun: Callable[[Probe], None],
        contained: bool = False,
        address: str = "",
    ) -> None:
        self.name = name
        self._argv = argv
        self.local = local
        self.address = address
        self._begun = begun
        self._contained = contained
        self._probe: Probe | None = None
        self._until_s = self._within_s = 0.0

    @property
    def alive(self) -> bool:
        """Whether there is a probe to ask."""
        return self._probe is not None and self._probe.alive

    @property
    def facts(self) -> Mapping[str, object]:
        """What its probe said of itself."""
        return {} if self._probe is None else self._probe.facts

    def start(self) -> None:
        """Start the link, and ask its probe who it is; from the thread that stays, with which the probe ends."""
        self.close()
        launch = Launch(
            self._argv,
            name=self._who,
            contained=self._contained,
            elsewhere=not self.local,
            begins_within_s=CONNECTS_S,
            hung=self._overdue,
        )
        self._allow(CONNECTS_S)
        try:
            self._probe = Probe(launch=launch)
        except ProbeError as error:
            raise ProbeError(
                f"{self._who} cannot be reached: {_said(error)}",
                hint=f"its command is: {' '.join(map(shown, self._argv))}",
            ) from error
        self._begun(self._probe)

    def clock(self) -> Reading:
        """Its clock against ours."""

        def ask() -> int:
            return moment(self.call("time", {}, ANSWERS_S), "monotonic_ns", self._who)

        return read_clock(ask)

    def call(self, verb: str, fields: Mapping[str, object], within_s: float) -> dict[str, Any]:
        """Its answer. Raises ProbeError that names it."""
        if self._probe is None:
            raise ProbeError(f"{self._who} is not there")
        self._allow(within_s)
        try:
            return self._probe.call(verb, **fields)
        except (ProbeError, TargetError, NotSupported) as error:
            raise ProbeError(f"{self._who}: {_said(error)}") from error

    def user(self) -> dict[str, int] | None:
        """Who does the work where the link leads to root: nobody. Else whoever the link leads to."""
        return {"uid": NOBODY, "gid": NOBODY} if self.facts.get("uid") == 0 else None

    def kill(self) -> None:
        """End its probe at once, whatever it does."""
        if self._probe is not None:
            self._probe.kill()

    def close(self) -> None:
        """End its probe; it may be dead already."""
        probe, self._probe = self._probe, None
        if probe is None:
            return
        if self.local:
            probe.close()
        else:  # what it was asked may still go on there: the end of its input, and not our patience, ends it
            probe.kill()
            probe.close()

    @property
    def _who(self) -> str:
        return f"client {self.name}"

    def _allow(self, within_s: float) -> None:
        self._until_s = time.monotonic() + within_s
        self._within_s = within_s

    def _overdue(self) -> str | None:
        return f"no answer for {self._within_s:.0f} s" if time.monotonic() > self._until_s else None


def moment(answer: Mapping[str, Any], name: str, who: str) -> int:
    """A moment or a length of time in an answer. Raises ProbeError where it can be none."""
    value = answer.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST_NS:
        raise ProbeError(f"{who}: wanted {name} in nanoseconds, found {shown(repr(value)[:60])}")
    return value


def _said(error: ProbeError | TargetError | NotSupported) -> str:
    return shown(error.message[:500])
