"""Live view of a running trial: a table on a terminal, lines in a pipe.

A view draws only inside :meth:`LiveView.update`, which the conductor calls between blocks. It has no thread
that could wake up while a run is being timed. Drawing is limited to four times a second (a line every ten seconds in a
pipe), however often it is called; a skipped update is drawn with the next call or at the end.

The table is redrawn in place and the cursor is never hidden, so that a killed process leaves the terminal usable. A
terminal that cannot move its cursor (``TERM=dumb``) gets lines.

The table shows the spent budget, each effect, and the outlook. The layout depends on the width: a narrow terminal loses
the count of blocks first, then the bar, and names are cut before numbers are.

A bar draws an interval in a few characters: its position relative to "no difference" and the margin, and how much it
has narrowed.

    ┊  ──━│━●━──  ┊      the margins, no difference between them, the interval now and at half as many blocks

Ratios are drawn on a logarithmic scale of three margins to each side, more while all intervals are wider; an arrow at
the edge marks what lies beyond. Differences have no margin, so each is drawn on its own scale.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, Self

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from iotrial.report.conditions import EVERYWHERE
from iotrial.report.notation import counted, elided, percent, quantity
from iotrial.report.phrases import VERDICT_STYLES, interval_title, without_interval
from iotrial.report.progress import GOING_ON, EffectLine, Progress, WindowLine
from iotrial.study.model import Scale
from iotrial.terminal import escape
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

TERMINAL_INTERVAL_S = 0.25
PLAIN_INTERVAL_S = 10.0

Clock = Callable[[], float]


class LiveView(Protocol):
    """Shows the progress of a trial. Use as a context manager; every method is cheap."""

    def update(self, progress: Progress) -> None:
        """Show this progress. Called between blocks only."""
        ...

    def say(self, text: str) -> None:
        """Print a one-time message on its own line."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def live_view(console: Console) -> LiveView:
    """Return a table view if the console is a terminal that supports redrawing, else a view of lines."""
    return (
        TerminalView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)
    )


class Redrawn:
    """Lines on a terminal that are replaced in one write."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._cells: Sequence[int] = ()  # the length of each line on the screen

    def put(self, text: str, cells: Sequence[int] = ()) -> None:
        """Replace the lines on the screen; a terminal that was made narrower has wrapped them."""
        width = max(1, self._console.width)
        rows = sum(max(1, -(-length // width)) for length in self._cells)
        up = f"\r\x1b[{min(rows, self._console.height - 1)}A\x1b[J" if rows else ""
        self._cells = cells
        if up or text:
            self._console.file.write(up + text)
            self._console.file.flush()


class TerminalView:
    """A table that is redrawn in place and erased at the end, when the report replaces it."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._drawn: float | None = None
        self._pending: Progress | None = None
        self._last: Progress | None = None
        self._screen = Redrawn(console)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pending is not None:
            self._draw(self._pending)
        self._screen.put("")

    def update(self, progress: Progress) -> None:
        """Redraw, unless the last drawing is less than a quarter of a second old."""
        now = self._clock()
        self._last = progress
        if self._drawn is not None and now - self._drawn < TERMINAL_INTERVAL_S:
            self._pending = progress
            return
        self._draw(progress)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._screen.put("")
        self._console.print(escape(text), markup=False, highlight=False)
        if self._last is not None:
            self._draw(self._last)

    def _draw(self, progress: Progress) -> None:
        self._pending = None
        self._drawn = self._clock()
        plain = not self._console.encoding.startswith("utf")
        # one column and one line less than available: the cursor is after the last line, and nothing wraps or scrolls
        width, height = self._console.width - 1, self._console.height - 1
        lines = live_lines(progress, width=width, height=height, plain=plain)
        with self._console.capture() as caught:
            for line in lines:
                self._console.print(line, no_wrap=True, crop=True, highlight=False)
        self._screen.put(caught.get(), [line.cell_len for line in lines])


class PlainView:
    """A line every ten seconds, and one for each new verdict."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last_line_s: float | None = None
        self._decided: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""

    def update(self, progress: Progress) -> None:
        """Print new verdicts at once, and the progress every ten seconds."""
        for line in progress.effects:
            name = (line.condition, line.comparison)
            if line.verdict is not None and name not in self._decided:
                self._decided.add(name)
                self.say(verdict_line(line))
        now = self._clock()
        if self._last_line_s is None or now - self._last_line_s >= PLAIN_INTERVAL_S:
            self._last_line_s = now
            self.say(standing_line(progress))

    def say(self, text: str) -> None:
        """Print one line, never wrapped."""
        self._console.print(escape(text), markup=False, highlight=False, soft_wrap=True)


def verdict_line(line: EffectLine) -> str:
    """Return e.g. "cache warm: mode 0444 / 0777 equivalent, 1.001 [0.992, 1.010] after 34 blocks"."""
    after = counted(line.blocks, "block")
    risk = f"; {line.risk}" if line.risk else ""
    where = "" if line.condition == EVERYWHERE else f"{line.condition}: "
    if line.not_tried:
        return f"{where}{line.comparison} {line.word}: {line.not_tried}"
    return f"{where}{line.comparison} {line.word}, {line.numbers} after {after}{risk}"


def standing_line(progress: Progress) -> str:
    """Return e.g. "1 min 20 s of 5 min: 136 blocks in 4 conditions, 2 of 4 comparisons decided, 1 void"."""
    spent = f"{format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}"
    blocks, conditions = counted(sum(progress.blocks.values()), "block"), len(progress.blocks)
    parts = [blocks if conditions < 2 else f"{blocks} in {counted(conditions, 'condition')}"]
    if progress.effects:
        parts.append(f"{progress.decided} of {counted(len(progress.effects), 'comparison')} decided")
    parts += losses(progress)
    parts += widest(progress)
    if progress.activity:
        parts.append(progress.activity)
    if progress.outlook_s is not None:
        parts.append(outlook_words(progress.outlook_s, progress.left_s))
    return f"{spent}: {', '.join(parts)}"


WIDEST = 100
NARROWEST = 20
_ROOM_FOR_LEGEND = 18  # terminal lines
_GAP = "  "
#: printed before the verdict if the level that is not slower puts data at risk; ASCII only
_RISK = "! "
_LEAST_NAME = 14
_STYLES = {**VERDICT_STYLES, GOING_ON: "dim"}
#: table layouts in order of preference: the width of the bar, and whether blocks are counted
_LAYOUTS = ((25, True), (19, True), (15, True), (15, False), (11, False), (0, False))


@dataclass(frozen=True, slots=True)
class _Columns:
    name: int
    numbers: int
    bar: int
    blocks: int
    verdict: int


def live_lines(progress: Progress, *, width: int, height: int, plain: bool = False) -> list[Text]:
    """Return about ``height`` lines of at most ``width`` cells; ``plain``: draw with ASCII only."""
    width = max(NARROWEST, min(width, WIDEST))
    marks = PLAIN_MARKS if plain else Marks()
    head = [_head(progress, width), _spent(progress, width, marks)]
    foot = [
        part
        for one in _foot(progress, width, plain=plain)
        for part in textwrap.wrap(one, width, subsequent_indent="  ")
    ]
    legend = _legend(progress, marks) if height >= _ROOM_FOR_LEGEND else ""
    body, bars = _body(progress, width, max(3, height - len(head) - len(foot) - 1 - bool(legend)), marks)
    foot += [legend] if legend and bars else []
    lines = [*head, *body, *(Text(line, style="dim") for line in foot)]
    for line in lines:
        line.truncate(width, overflow="crop" if plain else "ellipsis")
    return lines


def _head(progress: Progress, width: int) -> Text:
    right = f"{format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}"
    left = f"Trial {progress.trial}, {escape(progress.study)}"
    room = width - len(right) - len(_GAP)
    left = left if cell_len(left) <= room else elided(left, max(8, room))
    text = Text(left, style="bold")
    text.append(" " * max(len(_GAP), width - cell_len(left) - len(right)) + right, style="not bold")
    return text


def _spent(progress: Progress, width: int, marks: Marks) -> Text:
    """Draw the budget as a line, the spent part thick."""
    share = min(1.0, progress.elapsed_s / progress.budget_s) if progress.budget_s > 0.0 else 1.0
    full = round(share * width)
    text = Text(marks.now * full, style="blue")
    text.append(marks.before * (width - full), style="dim")
    return text


def _foot(progress: Progress, width: int, *, plain: bool) -> list[str]:
    parts = [counted(sum(progress.blocks.values()), "complete block"), *losses(progress)]
    if progress.conditions > 1:
        parts.append(f"{progress.conditions_decided} of {counted(progress.conditions, 'condition')} decided")
    if progress.activity:
        parts.append(escape(progress.activity))
    lines = [", ".join(parts)]
    lines += line_over_time(progress.windows, width, plain=plain)
    lines += widest(progress)
    if progress.upcoming:
        lines.append(f"next: {progress.upcoming}")
    if progress.outlook_s is not None:
        lines.append(outlook_words(progress.outlook_s, progress.left_s))
    return lines


_HEIGHTS, _PLAIN_HEIGHTS = "▁▂▃▄▅▆▇█", "_.-=*#"


def line_over_time(windows: Sequence[WindowLine], width: int, *, plain: bool) -> list[str]:
    """Draw the metric in the newest windows of a live trial, one character each, above the setting of each as a letter.

    A void window is an x. Empty with fewer than two values; ``plain``: ASCII only.
    """
    windows = windows[-max(2, width // 2) :]
    values = [one.value for one in windows if one.value is not None and not one.void]
    if len(values) < 2:
        return []
    heights = _PLAIN_HEIGHTS if plain else _HEIGHTS
    low, high = min(values), max(values)
    letters = {
        one: chr(ord("a") + number % 26)
        for number, one in enumerate(dict.fromkeys(w.setting for w in windows))
    }
    drawn = "".join(
        "x"
        if one.void or one.value is None
        else heights[round((one.value - low) / ((high - low) or 1.0) * (len(heights) - 1))]
        for one in windows
    )
    unit = escape(windows[-1].unit)
    names = ", ".join(f"{letter} {escape(setting)}" for setting, letter in letters.items())
    return [
        f"windows  {drawn}  {quantity(low, unit)} to {quantity(high, unit)}, newest {windows[-1].numbers}",
        f"setting  {''.join(letters[one.setting] for one in windows)}  {names}",
    ]


def _legend(progress: Progress, marks: Marks) -> str:
    """Explain the marks of a bar; "" while there is no interval."""
    if all(line.low is None and line.high is None for line in progress.effects):
        return ""
    margin = f"{marks.margin} margin {percent(progress.margin)}  " if progress.margin else ""
    if any(line.risk for line in progress.effects):
        margin = f"{_RISK}data at risk  {margin}"
    return f"{margin}{marks.now} interval  {marks.before} at half the blocks  {marks.estimate} estimate"


def outlook_words(outlook_s: float, left_s: float) -> str:
    """Format the median and twice that, within which nine of ten simulated trials are decided (METHOD.md, widths)."""
    if outlook_s > left_s:
        return "not decided within the budget at the scatter so far, if no setting makes a difference"
    likely = max(1, round(outlook_s))
    ends = f"{format_duration(likely)} to {format_duration(2 * likely)}"
    return f"expected time: {ends} if no setting makes a difference"


def widest(progress: Progress) -> list[str]:
    """Describe the widest undecided interval of a ratio and how much it has narrowed: it is what the trial waits for."""
    open_ = [line for line in progress.effects if line.verdict is None and line.null]
    widths = [(width, line) for line in open_ if (width := half_width(line.low, line.high)) is not None]
    if not widths or len(widths) < len(open_):
        return []
    width, line = max(widths, key=lambda one: one[0])
    before = half_width(line.before_low, line.before_high)
    was = f", {_about(before)} at {counted(line.before_blocks, 'block')}" if before is not None else ""
    return [f"widest interval {_about(width)}{was}"]


def _about(width: float) -> str:
    """Format a relative width; beyond a factor of two, percentages are not informative."""
    return f"± {percent(width)}" if width <= 1.0 else "over ± 100 %"


def half_width(low: float | None, high: float | None) -> float | None:
    """Return half the relative width of a ratio's interval: .9 to 1.1 is about .105. None if an end is missing."""
    if low is None or high is None or low <= 0.0:
        return None
    width: float = (high / low) ** 0.5 - 1.0
    return width


def losses(progress: Progress) -> list[str]:
    """Describe how many blocks were void or had a failed run."""
    parts = []
    if progress.void:
        parts.append(f"{progress.void} void")
    if progress.failures:
        parts.append(f"{progress.failures} with a failed run")
    return parts


def _body(progress: Progress, width: int, most: int, marks: Marks) -> tuple[list[Text], bool]:
    """Return at most ``most`` lines, and whether they contain bars."""
    effects = progress.effects
    if not effects:
        return [], False
    rows = _rows(effects)
    hidden = 0
    if len(rows) + 1 > most:
        effects = tuple(sorted(effects, key=lambda line: line.verdict is not None))[:most]
        rows = _rows(_in_order(effects, progress.effects))
        while len(rows) + 2 > most and len(effects) > 1:
            effects = effects[:-1]
            rows = _rows(_in_order(effects, progress.effects))
        hidden = len(progress.effects) - len(effects)
    columns = _columns([line for _, line in rows if line is not None], [name for name, _ in rows], width)
    lines = [_title(progress, columns)]
    reach = reach_of(progress.effects, progress.margin)
    for name, line in rows:
        if line is None:
            lines.append(Text(name, style="bold" if name else ""))
            continue
        bar = interval_bar(line, width=columns.bar or 1, margin=progress.margin, reach=reach, marks=marks)
        lines.append(_row(name, line, columns, bar))
    if hidden:
        lines.append(Text(f"… and {counted(hidden, 'more comparison')}", style="dim"))
    return lines, columns.bar > 0


def _in_order(some: Sequence[EffectLine], every: Sequence[EffectLine]) -> list[EffectLine]:
    kept = {id(line) for line in some}
    return [line for line in every if id(line) in kept]


def _rows(effects: Sequence[EffectLine]) -> list[tuple[str, EffectLine | None]]:
    """Return names with their effects.

    They are listed by condition if there is one comparison, by comparison if there is one condition, and else by
    comparison under a line for each condition.
    """
    if _by_condition(effects):
        return [(line.condition, line) for line in effects]
    one_factor = (
        len(effects) > 1 and len({(line.factor, line.crossed, line.response) for line in effects}) == 1
    )
    found: list[tuple[str, EffectLine | None]] = []
    several = len({line.condition for line in effects}) > 1
    for condition, lines in groupby(effects, key=lambda line: line.condition):
        if several:
            found.append((condition, None))
        for line in lines:
            short = f"{escape(line.level)} / {escape(line.reference)}" if one_factor else line.comparison
            found.append(("  " * several + short, line))
    return found


def _by_condition(effects: Sequence[EffectLine]) -> bool:
    """Return whether all lines are of one comparison, in conditions that have names."""
    return len({line.comparison for line in effects}) == 1 and effects[0].condition != EVERYWHERE


def _columns(lines: Sequence[EffectLine], names: Sequence[str], width: int) -> _Columns:
    numbers = max([len(_numbers_title(lines)), *(len(_numbers(line)) for line in lines)])
    verdict = max(len(line.word) + len(_RISK) * bool(line.risk) for line in lines)
    blocks = max(6, *(len(f"{line.blocks:,}") for line in lines))
    wanted = max(cell_len(name) for name in names)
    found = None
    for bar, counts in _LAYOUTS:
        rest = numbers + verdict + 2 * len(_GAP)
        rest += bar + len(_GAP) if bar else 0
        rest += blocks + len(_GAP) if counts else 0
        one = _Columns(width - rest, numbers, bar, blocks if counts else 0, verdict)
        if one.name >= wanted:
            return replace(one, name=wanted)
        if found is None and not counts and one.name >= _LEAST_NAME:
            found = one  # with a bar, although names are cut
    return found or replace(one, name=max(8, one.name))


def _numbers(line: EffectLine) -> str:
    """Format an unbounded interval briefly: nearly every line begins with one, and the columns should not jump."""
    if line.low is not None or line.high is not None:
        return line.numbers
    return f"{without_interval(line.numbers)} […, …]"


def _numbers_title(lines: Sequence[EffectLine]) -> str:
    return interval_title(Scale.LOG if line.null else Scale.DIFFERENCE for line in lines)


def _title(progress: Progress, columns: _Columns) -> Text:
    effects = progress.effects
    factors = {line.factor for line in effects if not line.crossed}
    if _by_condition(effects):
        name = effects[0].comparison
    elif len(effects) == 1:
        name = "comparison"
    else:
        name = escape(factors.pop()) if len(factors) == 1 else ""
    parts = [_cut(name, columns.name), f"{_numbers_title(effects):>{columns.numbers}}"]
    if columns.bar:
        parts.append(" " * columns.bar)
    if columns.blocks:
        parts.append(f"{'blocks':>{columns.blocks}}")
    parts.append("verdict")
    return Text(_GAP.join(parts), style="bold")


def _row(name: str, line: EffectLine, columns: _Columns, bar: str) -> Text:
    verdict = line.word
    text = Text(f"{_cut(name, columns.name)}{_GAP}{_numbers(line):>{columns.numbers}}{_GAP}")
    style = _STYLES.get(verdict, "")
    if columns.bar:
        text.append(bar + _GAP, style=style if line.verdict else "")
    if columns.blocks:
        text.append(f"{line.blocks:>{columns.blocks},}{_GAP}")
    if line.risk:
        return text.append(f"{_RISK}{verdict}", style="yellow")
    return text.append(verdict, style=style)


def _cut(name: str, width: int) -> str:
    """Fit the name into ``width`` cells, eliding its middle if it is longer."""
    return set_cell_size(name if cell_len(name) <= width else elided(name, width), width)


REACHES = (3.0, 6.0, 12.0, 24.0)  # margins from the middle to an edge


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a bar."""

    now: str = "━"
    before: str = "─"
    estimate: str = "●"
    none: str = "│"
    margin: str = "┊"
    left: str = "◂"
    right: str = "▸"


PLAIN_MARKS = Marks("=", "-", "o", "|", ":", "<", ">")


def reach_of(lines: Iterable[EffectLine], margin: float) -> float:
    """Return how many margins the bars of these ratios reach to each side: enough for half of the undecided ones."""
    ends = sorted(
        max(abs(math.log(line.low)), abs(math.log(line.high))) / math.log1p(margin)
        for line in lines
        if line.null and line.verdict is None and line.low and line.high and margin > 0.0
    )
    middle = ends[(len(ends) - 1) // 2] if ends else 0.0
    return next((reach for reach in REACHES if reach >= middle), REACHES[-1])


def interval_bar(
    line: EffectLine, *, width: int, margin: float, reach: float = REACHES[0], marks: Marks | None = None
) -> str:
    """Draw the bar, ``width`` characters (odd, so that there is a middle), with ``reach`` margins to each side."""
    marks = marks or Marks()
    ratio = line.null != 0.0
    edge = reach * math.log1p(margin) if ratio and margin > 0.0 else _own_reach(line)
    middle = width // 2

    def column(value: float) -> int:
        """Return the column of a value; -1 and ``width`` stand for everything beyond the edges."""
        if ratio and value <= 0.0:
            return -1
        place = (math.log(value) if ratio else value) / edge if edge > 0.0 else 0.0
        return middle + round(max(-1.0 - 1 / max(1, middle), min(1.0 + 1 / max(1, middle), place)) * middle)

    cells = [" "] * width
    bounded = line.low is not None or line.high is not None
    if bounded and line.before_blocks:
        _fill(cells, line.before_low, line.before_high, column, marks, marks.before)
    if ratio and margin > 0.0:
        for end in (1.0 / (1.0 + margin), 1.0 + margin):
            cells[column(end)] = marks.margin
    if bounded:
        _fill(cells, line.low, line.high, column, marks, marks.now)
    cells[middle] = marks.none
    if line.value is not None and math.isfinite(line.value):
        at = column(line.value)
        if 0 <= at < width:
            cells[at] = marks.estimate
        else:
            cells[max(0, min(width - 1, at))] = marks.left if at < 0 else marks.right
    return "".join(cells)


def _fill(
    cells: list[str],
    low: float | None,
    high: float | None,
    column: Callable[[float], int],
    marks: Marks,
    mark: str,
) -> None:
    last = len(cells) - 1
    first = -1 if low is None else column(low)
    end = last + 1 if high is None else column(high)
    for place in range(max(0, first), min(last, end) + 1):
        cells[place] = mark
    if first < 0:
        cells[0] = marks.left
    if end > last:
        cells[last] = marks.right


def _own_reach(line: EffectLine) -> float:
    ends = (line.low, line.high, line.value, line.before_low, line.before_high)
    if line.null != 0.0:
        return max((abs(math.log(end)) for end in ends if end is not None and end > 0.0), default=1.0)
    return max((abs(end) for end in ends if end is not None and math.isfinite(end)), default=1.0)
