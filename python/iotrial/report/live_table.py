"""How a running trial stands, as the lines that a terminal shows: what is spent, each effect, what lies ahead.

Laid out by hand, for each width anew: what is dropped where a terminal is narrow goes in the order of what is missed least,
the count of blocks, then the bar; and names are cut before numbers are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from iotrial.legible import shown
from iotrial.report.interval_bar import PLAIN_MARKS, Marks, interval_bar, reach_of
from iotrial.report.notation import counted, elided, percent
from iotrial.report.phrases import VERDICT_STYLES, interval_title
from iotrial.report.progress import GOING_ON, EffectLine, Progress
from iotrial.study.model import Scale
from iotrial.units import format_duration

if TYPE_CHECKING:
    from rich.text import Text

WIDEST = 100
NARROWEST = 20
_ROOM_FOR_LEGEND = 18  # lines of a terminal
_GAP = "  "
#: before the verdict where the level that is not slower puts data at risk; nothing but ASCII
_RISK = "! "
_LEAST_NAME = 14
_STYLES = {**VERDICT_STYLES, GOING_ON: "dim"}
#: what a table has beside name, numbers and verdict: the width of the bar, and whether blocks are counted
_LAYOUTS = ((25, True), (19, True), (15, True), (15, False), (11, False), (0, False))


@dataclass(frozen=True, slots=True)
class _Columns:
    name: int
    numbers: int
    bar: int
    blocks: int
    verdict: int


def live_lines(progress: Progress, *, width: int, height: int, plain: bool = False) -> list[Text]:
    """Some ``height`` lines of at most ``width`` cells; ``plain``: nothing but ASCII for what is drawn."""
    from rich.text import Text

    width = max(NARROWEST, min(width, WIDEST))
    marks = PLAIN_MARKS if plain else Marks()
    head = [_head(progress, width), _spent(progress, width, marks)]
    foot = [part for one in _foot(progress) for part in textwrap.wrap(one, width, subsequent_indent="  ")]
    legend = _legend(progress, marks) if height >= _ROOM_FOR_LEGEND else ""
    body, bars = _body(progress, width, max(3, height - len(head) - len(foot) - 1 - bool(legend)), marks)
    foot += [legend] if legend and bars else []
    lines = [*head, *body, *(Text(line, style="dim") for line in foot)]
    for line in lines:
        line.truncate(width, overflow="crop" if plain else "ellipsis")
    return lines


def _head(progress: Progress, width: int) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    right = f"{format_duration(progress.elapsed_s)} of {format_duration(progress.budget_s)}"
    left = f"Trial {progress.trial}, {shown(progress.study)}"
    room = width - len(right) - len(_GAP)
    left = left if cell_len(left) <= room else elided(left, max(8, room))
    text = Text(left, style="bold")
    text.append(" " * max(len(_GAP), width - cell_len(left) - len(right)) + right, style="not bold")
    return text


def _spent(progress: Progress, width: int, marks: Marks) -> Text:
    """The budget as a line, the spent part of it thick."""
    from rich.text import Text

    share = min(1.0, progress.elapsed_s / progress.budget_s) if progress.budget_s > 0.0 else 1.0
    full = round(share * width)
    text = Text(marks.now * full, style="blue")
    text.append(marks.before * (width - full), style="dim")
    return text


def _foot(progress: Progress) -> list[str]:
    standing = [counted(sum(progress.blocks.values()), "complete block"), *losses(progress)]
    if progress.conditions > 1:
        standing.append(
            f"{progress.conditions_decided} of {counted(progress.conditions, 'condition')} decided"
        )
    if progress.activity:
        standing.append(shown(progress.activity))
    lines = [", ".join(standing)]
    lines += widest(progress)
    if progress.upcoming:
        lines.append(f"next: {progress.upcoming}")
    if progress.outlook_s is not None:
        lines.append(outlook_words(progress.outlook_s, progress.left_s))
    return lines


def _legend(progress: Progress, marks: Marks) -> str:
    """What the marks of a bar mean; nothing while there is no interval."""
    if all(line.low is None and line.high is None for line in progress.effects):
        return ""
    margin = f"{marks.margin} margin {percent(progress.margin)}  " if progress.margin else ""
    if any(line.risk for line in progress.effects):
        margin = f"{_RISK}data at risk  {margin}"
    return f"{margin}{marks.now} interval  {marks.before} at half the blocks  {marks.estimate} estimate"


def outlook_words(outlook_s: float, left_s: float) -> str:
    """The median and twice that, within which nine of ten simulated trials are decided (METHOD.md, widths)."""
    if outlook_s > left_s:
        return "not decided within the budget, by its scatter so far, if nothing makes a difference"
    likely = max(1, round(outlook_s))
    ends = f"{format_duration(likely)} to {format_duration(2 * likely)}"
    return f"decided in some {ends}, if nothing makes a difference"


def widest(progress: Progress) -> list[str]:
    """How far the widest interval of a ratio has come that is not decided: what the trial waits for."""
    open_ = [line for line in progress.effects if line.verdict is None and line.null]
    widths = [(width, line) for line in open_ if (width := half_width(line.low, line.high)) is not None]
    if not widths or len(widths) < len(open_):
        return []
    width, line = max(widths, key=lambda one: one[0])
    before = half_width(line.before_low, line.before_high)
    was = f", {_about(before)} at {counted(line.before_blocks, 'block')}" if before is not None else ""
    return [f"widest interval {_about(width)}{was}"]


def _about(width: float) -> str:
    """Beyond a factor of two per cent say nothing to anybody."""
    return f"± {percent(width)}" if width <= 1.0 else "over ± 100 %"


def half_width(low: float | None, high: float | None) -> float | None:
    """Half the width of a ratio's interval, relative: .9 to 1.1 is about .105. None where it has no end."""
    if low is None or high is None or low <= 0.0:
        return None
    width: float = (high / low) ** 0.5 - 1.0
    return width


def losses(progress: Progress) -> list[str]:
    """What was thrown out, and what failed."""
    said = []
    if progress.void:
        said.append(f"{progress.void} void")
    if progress.failures:
        said.append(f"{progress.failures} with a failed run")
    return said


def _body(progress: Progress, width: int, most: int, marks: Marks) -> tuple[list[Text], bool]:
    """At most so many lines, and whether there are bars in them."""
    from rich.text import Text

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
    """Names with their effects: by condition where there is one comparison, by comparison where there is one condition,
    and else by comparison under a line for each condition."""
    comparisons = {line.comparison for line in effects}
    if len(comparisons) == 1:
        return [(line.condition, line) for line in effects]
    one_factor = len({(line.factor, line.crossed, line.response) for line in effects}) == 1
    found: list[tuple[str, EffectLine | None]] = []
    several = len({line.condition for line in effects}) > 1
    for condition, lines in groupby(effects, key=lambda line: line.condition):
        if several:
            found.append((condition, None))
        for line in lines:
            short = f"{shown(line.level)} / {shown(line.reference)}" if one_factor else line.comparison
            found.append(("  " * several + short, line))
    return found


def _columns(lines: Sequence[EffectLine], names: Sequence[str], width: int) -> _Columns:
    from rich.cells import cell_len

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
            found = one  # with a bar, though names are cut
    return found or replace(one, name=max(8, one.name))


def _numbers(line: EffectLine) -> str:
    """What has no end yet in few characters: nearly every line begins so, and the columns should not jump."""
    if line.low is not None or line.high is not None:
        return line.numbers
    return f"{line.numbers.partition(' [')[0]} […, …]"


def _numbers_title(lines: Sequence[EffectLine]) -> str:
    return interval_title(Scale.LOG if line.null else Scale.DIFFERENCE for line in lines)


def _title(progress: Progress, columns: _Columns) -> Text:
    from rich.text import Text

    effects = progress.effects
    comparisons = {line.comparison for line in effects}
    factors = {line.factor for line in effects if not line.crossed}
    name = comparisons.pop() if len(comparisons) == 1 else shown(factors.pop()) if len(factors) == 1 else ""
    parts = [_cut(name, columns.name), f"{_numbers_title(effects):>{columns.numbers}}"]
    if columns.bar:
        parts.append(" " * columns.bar)
    if columns.blocks:
        parts.append(f"{'blocks':>{columns.blocks}}")
    parts.append("verdict")
    return Text(_GAP.join(parts), style="bold")


def _row(name: str, line: EffectLine, columns: _Columns, bar: str) -> Text:
    from rich.text import Text

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
    """The name in so many cells, its middle left out where it is longer."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(name if cell_len(name) <= width else elided(name, width), width)
