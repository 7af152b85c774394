"""The view of a running trial: a table on a terminal, lines in a pipe.

A view draws only inside :meth:`LiveView.update`, which the conductor calls between blocks: no thread of its own that
could wake up while a run is being timed. Drawing is limited to four times a second (a line every ten seconds in a
pipe), whatever the number of calls; what is skipped is drawn with the next call or at the end.

The table is drawn over itself and the cursor is never hidden, so that a process which is killed leaves a terminal as it
should be. One that cannot move its cursor (``TERM=dumb``) gets lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from iotrial.legible import shown
from iotrial.report.live_table import live_lines, losses, outlook_words, widest
from iotrial.report.notation import counted
from iotrial.report.progress import EffectLine, Progress
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

TERMINAL_INTERVAL_S = 0.25
PLAIN_INTERVAL_S = 10.0

Clock = Callable[[], float]


class LiveView(Protocol):
    """Shows how a trial stands. Use as a context manager; every method is cheap."""

    def update(self, progress: Progress) -> None:
        """The trial stands so; called between blocks only."""
        ...

    def say(self, text: str) -> None:
        """Something that happens once, on a line of its own."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def live_view(console: Console, *, clock: Clock = time.monotonic) -> LiveView:
    """A table where the console is a terminal that can be drawn on, lines elsewhere."""
    drawn_on = console.is_terminal and not console.is_dumb_terminal
    return TerminalView(console, clock=clock) if drawn_on else PlainView(console, clock=clock)


class TerminalView:
    """A table that is redrawn in place and gone at the end, where the report takes its place."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._drawn: float | None = None
        self._pending: Progress | None = None
        self._last: Progress | None = None
        self._cells: list[int] = []  # the length of each line that stands there

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pending is not None:
            self._draw(self._pending)
        self._put("")

    def update(self, progress: Progress) -> None:
        """Redraw, unless the last drawing is less than a quarter of a second old."""
        now = self._clock()
        self._last = progress
        if self._drawn is not None and now - self._drawn < TERMINAL_INTERVAL_S:
            self._pending = progress
            return
        self._draw(progress)

    def say(self, text: str) -> None:
        """A line above the table."""
        self._put("")
        self._console.print(shown(text), markup=False, highlight=False)
        if self._last is not None:
            self._draw(self._last)

    def _draw(self, progress: Progress) -> None:
        self._pending = None
        self._drawn = self._clock()
        plain = not self._console.encoding.startswith("utf")
        # one column and one line less than there are: the cursor stands behind the last line, and nothing wraps or scrolls
        width, height = self._console.width - 1, self._console.height - 1
        lines = live_lines(progress, width=width, height=height, plain=plain)
        with self._console.capture() as caught:
            for line in lines:
                self._console.print(line, no_wrap=True, crop=True, highlight=False)
        self._put(caught.get(), [line.cell_len for line in lines])

    def _put(self, text: str, cells: list[int] | None = None) -> None:
        """This instead of what stands there, in one write. A terminal that was made narrower has wrapped it."""
        width = max(1, self._console.width)
        rows = sum(max(1, -(-length // width)) for length in self._cells)
        up = f"\r\x1b[{min(rows, self._console.height - 1)}A\x1b[J" if rows else ""
        self._cells = cells or []
        if up or text:
            self._console.file.write(up + text)
            self._console.file.flush()


class PlainView:
    """A line every ten seconds, and one for each new verdict."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._said: float | None = None
        self._decided: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put away."""

    def update(self, progress: Progress) -> None:
        """Say new verdicts at once and how the trial stands now and then."""
        for line in progress.effects:
            name = (line.condition, line.comparison)
            if line.verdict is not None and name not in self._decided:
                self._decided.add(name)
                self.say(verdict_line(line))
        now = self._clock()
        if self._said is None or now - self._said >= PLAIN_INTERVAL_S:
            self._said = now
            self.say(standing_line(progress))

    def say(self, text: str) -> None:
        """One line, never wrapped."""
        self._console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def verdict_line(line: EffectLine) -> str:
    """E.g. "cache warm: mode 0444 / 0777 equivalent, 1.001 [0.992, 1.010] after 34 blocks"."""
    after = counted(line.blocks, "block")
    risk = f"; {line.risk}" if line.risk else ""
    return f"{line.condition}: {line.comparison} {line.word}, {line.numbers} after {after}{risk}"


def standing_line(progress: Progress) -> str:
    """E.g. "1 min 20 s of 5 min: 136 blocks in 4 conditions, 2 of 4 comparisons decided, 1 void"."""
    spent = f"{format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}"
    said = [
        f"{counted(sum(progress.blocks.values()), 'block')} in {counted(len(progress.blocks), 'condition')}"
    ]
    if progress.effects:
        said.append(f"{progress.decided} of {counted(len(progress.effects), 'comparison')} decided")
    said += losses(progress)
    said += widest(progress)
    if progress.activity:
        said.append(progress.activity)
    if progress.outlook_s is not None:
        said.append(outlook_words(progress.outlook_s, progress.left_s))
    return f"{spent}: {', '.join(said)}"
