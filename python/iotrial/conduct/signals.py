"""SIGINT, SIGTERM and SIGHUP end a trial well: at once while the probe works, else at the next safe point."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Stopped(BaseException):
    """A signal asked the conductor to stop. Not an Exception, so that no handler of errors swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class StopSignals:
    """While entered, the three signals raise Stopped: inside ``interruptible`` at once, else at ``check``."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.pending: int | None = None
        self._at_once = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        for number in self.NUMBERS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.pending = number
        if self._at_once:
            self._at_once = False
            raise Stopped(number)

    def check(self) -> None:
        """Raises Stopped if a signal has come."""
        if self.pending is not None:
            raise Stopped(self.pending)

    def interruptible(self) -> _Interruptible:
        """Within, a signal raises Stopped at once: for work that may be abandoned at any instant."""
        return _Interruptible(self)

    def arm(self, at_once: bool) -> None:
        """Used by ``interruptible``."""
        if at_once:
            self.check()
        self._at_once = at_once


class _Interruptible:
    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        self._signals.arm(True)

    def __exit__(self, *_: object) -> None:
        self._signals.arm(False)
