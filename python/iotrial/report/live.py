"""The view of a running trial: a table on a terminal, lines in a pipe.

A view draws only inside :meth:`LiveView.update`, which the conductor calls between blocks: no thread of its own that
could wake up while a run is being timed. Drawing is limited to four times a second (a line every ten seconds in a
pipe), whatever the number of calls; what is skipped is drawn with the next call or at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from iotrial.legible import shown
from iotrial.report.notation import counted, elided
from iotrial.report.phrases import interval_title
from iotrial.report.progress import GOING_ON, EffectLine, Progress
from iotrial.study.model import Scale
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

TERMINAL_INTERVAL_S = 0.25
PLAIN_INTERVAL_S = 10.0
_LINES_AROUND = 8
_MOST_COLUMNS = 5
_STYLES = {"faster": "green", "slower": "red", "equivalent": "cyan", "inconclusive": "dim", GOING_ON: "dim"}

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
    """A table where the console is a terminal, lines elsewhere."""
    return TerminalView(console, clock=clock) if console.is_terminal else PlainView(console, clock=clock)


class TerminalView:
    """A table that is redrawn in place and gone at the end, where the report takes its place."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._drawn: float | None = None
        self._pending: Progress | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is None:
            return
        if self._pending is not None:
            self._draw(self._pending)
        self._live.stop()
        self._live = None

    def update(self, progress: Progress) -> None:
        """Redraw, unless the last drawing is less than a quarter of a second old."""
        now = self._clock()
        if self._drawn is not None and now - self._drawn < TERMINAL_INTERVAL_S:
            self._pending = progress
            return
        self._draw(progress)

    def say(self, text: str) -> None:
        """A line above the table."""
        from rich.text import Text

        self._console.print(Text(shown(text)))

    def _draw(self, progress: Progress) -> None:
        self._pending = None
        if self._live is not None:
            rows = max(3, self._console.height - _LINES_AROUND)
            self._live.update(progress_table(progress, most_rows=rows), refresh=True)
        self._drawn = self._clock()


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
    return f"{line.condition}: {line.comparison} {line.verdict or GOING_ON}, {line.numbers} after {after}"


def standing_line(progress: Progress) -> str:
    """E.g. "1 min 20 s of 5 min: 136 blocks in 4 conditions, 2 of 4 comparisons decided, 1 void"."""
    spent = f"{format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}"
    said = [
        f"{counted(sum(progress.blocks.values()), 'block')} in {counted(len(progress.blocks), 'condition')}"
    ]
    if progress.effects:
        said.append(f"{progress.decided} of {counted(len(progress.effects), 'comparison')} decided")
    said += _losses(progress)
    if progress.activity:
        said.append(progress.activity)
    return f"{spent}: {', '.join(said)}"


def progress_table(progress: Progress, *, most_rows: int) -> Group:
    """What the terminal shows: a line on top, the effects, the activity. Undecided effects come first where
    there is no room for all."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    lines = progress.effects
    if len(lines) > most_rows:
        lines = tuple(sorted(lines, key=lambda line: line.verdict is not None))[:most_rows]
    comparisons = {line.comparison for line in progress.effects}
    factors = {line.factor for line in progress.effects}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if len(comparisons) == 1:
        table.add_column(Text(elided(comparisons.pop(), 36)), overflow="fold", max_width=36)
    else:
        table.add_column("condition", overflow="fold", max_width=28)
        name = shown(next(iter(factors))) if len(factors) == 1 else "comparison"
        table.add_column(Text(elided(name, 28)), overflow="fold")
    scales = (Scale.LOG if line.null else Scale.DIFFERENCE for line in progress.effects)
    for title in (interval_title(scales), "blocks"):
        table.add_column(Text(title), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    above = None
    for line in lines:
        verdict = line.verdict or GOING_ON
        names = [Text("" if line.condition == above else elided(line.condition, 60))]
        if len(table.columns) == _MOST_COLUMNS:
            short = f"{shown(line.level)} / {shown(line.reference)}"
            names.append(Text(elided(short if len(factors) == 1 else line.comparison, 40)))
        table.add_row(
            *names, Text(line.numbers), f"{line.blocks:,}", Text(verdict, style=_STYLES.get(verdict, ""))
        )
        above = line.condition
    head = Text(f"Trial {progress.trial}, {shown(progress.study)}", style="bold")
    head.append(f"  {format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}", style="")
    parts: list[Table | Text] = [head]
    if lines:
        parts.append(table)
    if hidden := len(progress.effects) - len(lines):
        parts.append(Text(f"… and {counted(hidden, 'more comparison')}", style="dim"))
    below = [f"{counted(sum(progress.blocks.values()), 'complete block')}", *_losses(progress)]
    if progress.activity:
        below.append(shown(progress.activity))
    parts.append(Text(", ".join(below), style="dim"))
    return Group(*parts)


def _losses(progress: Progress) -> list[str]:
    said = []
    if progress.void:
        said.append(f"{progress.void} void")
    if progress.failures:
        said.append(f"{counted(progress.failures, 'run')} failed")
    return said
