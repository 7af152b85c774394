"""SIGINT, SIGTERM, SIGHUP and SIGQUIT (Ctrl-\\): end cleanly at any time, with exit status 128 + signal.

There are three ways, depending on what is at stake. Outside a trial the process ends at once. In a trial a
signal is recorded, and raised where the conductor waits for the probe or checks for it: never in the middle
of a journal write. While a report is written, the first signal waits for it to finish and the second does
not.

A signal that was ignored when the program started (nohup, a shell's background jobs) stays ignored.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Stopped(BaseException):
    """A signal stopped the conductor. Not an Exception, so that no error handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def end_at_once() -> None:
    """Make signals end the process at once: for everything that changes nothing, imports included."""
    _install(_end)


def _end(number: int, _: FrameType | None) -> None:
    # Not an exception: raised in a finaliser or in the import machinery, it would be printed and lost.
    os._exit(128 + number)


def _install(handler: object) -> dict[int, object]:
    """Install a handler for the signals that are not ignored; return their previous handlers."""
    before: dict[int, object] = {}
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)  # type: ignore[arg-type]
    return before


class _Handlers:
    """Installs handlers for the duration of a ``with`` block."""

    def __init__(self) -> None:
        self.pending: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        self._before = _install(self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pending = self.pending or number


class Held(_Handlers):
    """While entered, the first signal is recorded in ``pending``; the second ends the process at once."""

    def __enter__(self) -> Held:  # type: ignore[override]
        super().__enter__()
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pending is not None:
            _end(number, frame)
        self.pending = number


class StopSignals(_Handlers):
    """While entered, a signal raises Stopped at ``check``, and inside ``interruptible`` during a wait for the
    probe (``waiting``).
    """

    def __init__(self) -> None:
        super().__init__()
        self._interruptible = False
        self._waiting = False

    def __enter__(self) -> StopSignals:  # type: ignore[override]
        super().__enter__()
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        super()._note(number, frame)
        if self._waiting and self._interruptible:
            self._interruptible = False
            raise Stopped(number)

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.pending is not None:
            raise Stopped(self.pending)

    def interruptible(self) -> _While:
        """Return a context manager for work that may be abandoned whenever it waits for the probe."""
        return _While(self._arm)

    def waiting(self) -> _While:
        """Return a context manager that the probe's client enters around each wait for an answer."""
        return _While(self._wait)

    def _arm(self, armed: bool) -> None:
        if armed:
            self.check()
        self._interruptible = armed

    def _wait(self, waits: bool) -> None:
        self._waiting = waits
        if waits and self._interruptible and self.pending is not None:  # it arrived just before
            # Raise only once: the restore that follows waits for a probe, too.
            self._interruptible = self._waiting = False
            raise Stopped(self.pending)


class _While:
    """Sets something for the duration of a ``with`` block. Not a generator: it is entered around every request."""

    def __init__(self, change: Callable[[bool], None]) -> None:
        self._change = change

    def __enter__(self) -> None:
        self._change(True)

    def __exit__(self, *_: object) -> None:
        self._change(False)
