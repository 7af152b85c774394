"""Progress display of a running fleet: a table of hosts on a terminal, lines in a pipe, nothing with --json."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.cells import cell_len

from iotrial.cli.output import tell
from iotrial.fleet.conduct import FleetProgress, FleetWatcher, Phase
from iotrial.report.live import Redrawn
from iotrial.report.notation import counted
from iotrial.report.text import Console
from iotrial.terminal import escape
from iotrial.units import format_duration

DRAWN_EVERY_S = 0.25
LINE_EVERY_S = 10.0
NARROWEST = 40


class Quiet:
    """Show nothing."""

    def update(self, progress: FleetProgress) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


class Lines:
    """Print a line per event, and a summary line if nothing was printed for ten seconds."""

    def __init__(self) -> None:
        self._last_line_s = time.monotonic()

    def update(self, progress: FleetProgress) -> None:
        if time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self.say(summary(progress))

    def say(self, text: str) -> None:
        self._last_line_s = time.monotonic()
        tell(escape(text), err=True)


class FleetTable:
    """A table that is redrawn in place and cleared at the end."""

    def __init__(self, console: Console) -> None:
        self._console, self._screen = console, Redrawn(console)
        self._drawn = 0.0
        self._last: list[str] = []

    def update(self, progress: FleetProgress) -> None:
        if time.monotonic() - self._drawn < DRAWN_EVERY_S:
            return
        self._drawn = time.monotonic()
        width, height = max(NARROWEST, self._console.width - 1), max(4, self._console.height - 1)
        lines = table(progress, width=width)
        if len(lines) > height:
            hidden = len(lines) - height + 1
            lines = [*lines[: height - 1], f"... and {counted(hidden, 'host')} more"]
        self._put(lines)

    def say(self, text: str) -> None:
        lines = self._last
        self._put([])
        tell(escape(text), err=True)
        self._put(lines)

    def clear(self) -> None:
        self._put([])

    def _put(self, lines: list[str]) -> None:
        self._screen.put("".join(f"{line}\n" for line in lines), [cell_len(line) for line in lines])
        self._last = lines


@contextmanager
def fleet_view(*, quiet: bool) -> Iterator[FleetWatcher]:
    """Yield the progress display for a fleet, on standard error."""
    if quiet:
        yield Quiet()
        return
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Lines()
        return
    drawn = FleetTable(console)
    try:
        yield drawn
    finally:
        drawn.clear()


def summary(progress: FleetProgress) -> str:
    """Return a one-line summary, e.g. "1 min 20 s: 3 hosts, 136 blocks; 2 measuring, 1 lost"."""
    numbers = Counter(host.phase for host in progress.hosts)
    phases = [f"{numbers[phase]} {phase.value}" for phase in Phase if phase in numbers]
    blocks = sum(host.blocks for host in progress.hosts)
    text = f"{counted(len(progress.hosts), 'host')}, {counted(blocks, 'block')}"
    return f"{_elapsed(progress.elapsed_s)}: {text}{'; ' if phases else ''}{', '.join(phases)}"


def table(progress: FleetProgress, *, width: int) -> list[str]:
    """Return a heading and a line per host: name, state, blocks received, trial number in this store,
    problem.

    No line is longer than ``width``.
    """
    hosts = progress.hosts
    names = min(24, max([4, *(len(host.name) for host in hosts)]))
    lines = [f"{escape(progress.study)}, {summary(progress)}"]
    if hosts:
        lines.append(f"{'host':{names}}  {'state':9}  {'blocks':>6}  {'trial':>5}")
    for host in hosts:
        name = _cut(host.name, names)
        trial = "" if host.trial is None else str(host.trial)
        text = host.said + (f" ({host.left} not undone)" if host.left and host.phase.over else "")
        line = f"{name:{names}}  {host.phase.value:9}  {host.blocks:>6}  {trial:>5}  {escape(text)}"
        lines.append(line.rstrip())
    return [_cut(line, width) for line in lines]


def _cut(text: str, width: int) -> str:
    """Truncate the text to ``width``."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _elapsed(seconds: float) -> str:
    """Format in whole seconds: milliseconds of a figure that is redrawn four times a second cannot be read."""
    return format_duration(float(int(seconds))) if seconds >= 1 else "0 s"
