"""Charts of intervals, one to a row: effects of a trial, of several trials, of hosts, and those so far of a running trial.

On a wide page a row has its label, the interval, the numbers and the verdict side by side; on a phone label, numbers and
verdict are above the interval. Lines across the intervals (no effect, margin, ticks) do not run through text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iotrial.report.axes import Axis, difference_axis, ratio_axis
from iotrial.report.chart import (
    BAND,
    INK,
    LINE,
    MUTED,
    NARROW,
    RISK_INK,
    VERDICT_INKS,
    WIDE,
    Chart,
    Curve,
    Interval,
    Mark,
    Pane,
    Points,
    Rect,
    Rule,
    Text,
    fitted,
    sheet,
    shortened,
    text_width,
    thinned,
)
from iotrial.report.notation import percent
from iotrial.report.phrases import axis_name, interval, null_value
from iotrial.report.rows import EffectRow
from iotrial.stats.model import QUIET, Effect, Verdict
from iotrial.study.model import Scale

MOST_ROWS = 80
#: how many times the farthest estimate an axis reaches at most, for the sake of wide intervals
FARTHEST = 2.0
#: in a log of ratios: larger values are cut
_MOST_LOG = math.log(1e9)
_GAP = 14
_MOST_LINES = 3


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One interval with its texts. ``undecided``: it does not widen the axis; ``ink`` is also that of its ``word``."""

    label: str
    low: float | None
    value: float | None
    high: float | None
    numbers: str = ""
    word: str = ""
    ink: str = INK
    word_ink: str = ""
    shape: str = "o"
    undecided: bool = False
    dotted: bool = False
    hollow: bool = False
    label_ink: str = INK
    href: str = ""
    #: instead of an interval, several values joined by a line; the first is hollow
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class IntervalGroup:
    """Rows under a title; ``note`` is at its right."""

    rows: Sequence[IntervalRow]
    title: str = ""
    note: str = ""
    note_ink: str = MUTED


def of_effect(effect: Effect, label: str, **texts: object) -> IntervalRow:
    """Return the row of an effect. Of a mean over conditions that differ only the span of the conditions is drawn."""
    row = IntervalRow(label, effect.low, effect.value, effect.high, **texts)  # type: ignore[arg-type]
    if effect.agree is False and effect.span is not None:
        return replace(row, low=effect.span.least, high=effect.span.most, value=None, dotted=True)
    return row


def interval_axis(
    rows: Iterable[IntervalRow], *, log: bool, unit: str, margin: float, title: str = ""
) -> Axis:
    """Return the axis of these intervals: ratios if ``log``, else differences.

    All decided estimates are inside, and the ``margin`` around no effect. Ends of intervals, and undecided estimates, are
    inside up to ``FARTHEST`` times the farthest of these (at least up to four margins), so that one very uncertain
    interval does not flatten all others. Nor does a difference more than ten times as large as the median one.
    """
    rows = list(rows)

    def placed(values: Iterable[float | None]) -> list[float]:
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not log:
            return [max(-1e100, min(1e100, value)) for value in known]
        return [max(-_MOST_LOG, min(_MOST_LOG, math.log(value))) for value in known if value > 0]

    band = math.log1p(margin) if log else 0.0
    every = placed(row.value for row in rows)
    spans = placed(end for row in rows if row.dotted for end in (row.low, row.high))
    decided = placed(row.value for row in rows if not row.undecided)
    usual = float(np.quantile(np.abs(every), 0.75)) if every else 0.0
    far = max([abs(place) for place in (*decided, *spans)] + [usual])
    if not log and len(every) >= 4 and (middle := float(np.median(np.abs(every)))) > 0:
        far = min(far, 10.0 * middle)
    reach = max(FARTHEST * far, 4 * band) or 1.0
    ends = placed(end for row in rows for end in (row.low, row.high))
    inside = [0.0, -1.6 * band, 1.6 * band, *(min(max(place, -reach), reach) for place in (*every, *ends))]
    low, high = min(inside), max(inside)
    pad = (high - low) * 0.05 or 1.0
    if log:
        return ratio_axis(math.exp(low - pad), math.exp(high + pad), title)
    return difference_axis(low - pad, high + pad, unit, title)


def interval_chart(
    name: str,
    groups: Sequence[IntervalGroup],
    axis: Axis,
    *,
    margin: float,
    description: str,
    narrow: bool,
    band: tuple[float, float] | None = None,
    rules: Sequence[Rule] = (),
) -> Chart:
    """Draw rows of intervals one below the other. The ``margin`` of ratios is a band, unless there is another ``band``."""
    if band is None and axis.log and margin > 0:
        band = (1 / (1 + margin), 1 + margin)
    behind: list[Mark] = [Rect(*band, None, None, BAND)] if band else []
    behind += [Rule(1.0 if axis.log else 0.0, ink=MUTED), *rules]
    drawn = _Intervals([row for group in groups for row in group.rows], axis, behind, narrow=narrow)
    for group in groups:
        if group.title:
            drawn.title(group)
        drawn.rows_of(group)
    drawn.name_axis()
    return drawn.chart(name, description)


class _Intervals:
    """Panes and texts of a chart of intervals, from the top down. Lengths in pixels."""

    def __init__(
        self, rows: Sequence[IntervalRow], axis: Axis, behind: Sequence[Mark], *, narrow: bool
    ) -> None:
        self.width = NARROW if narrow else WIDE
        self.narrow, self.behind = narrow, behind
        numbers = max((text_width(row.numbers) for row in rows), default=0.0)
        word = min(max((text_width(row.word) for row in rows), default=0.0), 250.0)
        columns = numbers + word + _GAP * (bool(numbers) + bool(word))
        longest = max((text_width(row.label) for row in rows), default=0.0)
        #: texts are above the interval, not left and right of it
        self.above = narrow and (columns > 0 or longest > 120)
        free = self.width - columns - 330.0 * (not narrow)
        label = float(self.width) if self.above else max(20.0, min(longest, free, 330.0))
        labels = fitted([row.label for row in rows], label, _MOST_LINES)
        words = [shortened(row.word, (self.width - _GAP if narrow else word)) for row in rows]
        #: rows that are to come: each with the lines of its label and its word
        self.coming = list(zip(rows, labels, words, strict=True))
        self.left = 8.0 if self.above or not longest else label + _GAP
        self.inner = self.width - 16.0 if self.above else self.width - self.left - columns - 8
        self.axis = thinned(axis, self.inner)
        self.panes: list[Pane] = []
        self.texts: list[Text] = []
        self.top = 4.0

    def title(self, group: IntervalGroup) -> None:
        note = "" if self.narrow else shortened(group.note, self.width * 0.45)
        room = self.width - (text_width(note, bold=True) + _GAP if note else 0)
        self.top += 4 if self.texts else 0
        for line in fitted([group.title], room, 2, bold=True)[0]:
            self.texts.append(Text(0, self.top + LINE / 2, line, bold=True))
            self.top += LINE
        if note:
            self.texts.append(Text(self.width, self.top - LINE / 2, note, group.note_ink, "end"))
        if self.narrow and group.note:
            for line in fitted([group.note], self.width, 2)[0]:
                self.texts.append(Text(0, self.top + LINE / 2, line, group.note_ink))
                self.top += LINE
        self.top += 3

    def rows_of(self, group: IntervalGroup) -> None:
        """Add the next rows: on a narrow chart with texts each in a pane, else all in one."""
        begin, marks = self.top, list[Mark]()
        for _ in group.rows:
            row, lines, word = self.coming.pop(0)
            whole = ": ".join(filter(None, (row.label, row.numbers, row.word)))
            if self.above:
                self._texts_above(row, lines if row.label else [], word)
                self._pane(self.top, self.top + 18, _marks(row, 9.0, whole))
                self.top += 18 + 8
            else:
                middle = self._texts_beside(row, lines if row.label else [], word)
                marks += _marks(row, middle - begin, whole)
        if not self.above and group.rows:
            self._pane(begin, self.top, marks)
            self.top += 6

    def _texts_above(self, row: IntervalRow, lines: Sequence[str], word: str) -> None:
        for line in lines:
            self.texts.append(Text(0, self.top + LINE / 2, line, row.label_ink))
            self.top += LINE
        two = text_width(row.numbers) + text_width(word) + _GAP > self.width
        self.texts.append(Text(0, self.top + LINE / 2, row.numbers))
        self.top += LINE if two else 0
        at, anchor = (0, "start") if two else (self.width, "end")
        self.texts.append(Text(at, self.top + LINE / 2, word, row.word_ink or row.ink, anchor))
        self.top += LINE + 1

    def _texts_beside(self, row: IntervalRow, lines: Sequence[str], word: str) -> float:
        """Return the middle of the row."""
        tall = max(1, len(lines)) * LINE + 9
        middle = self.top + tall / 2
        for place, line in enumerate(lines):
            self.texts.append(Text(0, middle + (place - (len(lines) - 1) / 2) * LINE, line, row.label_ink))
        self.texts.append(Text(self.left + self.inner + _GAP + 8, middle, row.numbers))
        self.texts.append(Text(self.width, middle, word, row.word_ink or row.ink, "end"))
        self.top += tall
        return middle

    def _pane(self, begin: float, end: float, marks: Iterable[Mark]) -> None:
        """Add a pane from ``begin`` to ``end``; its vertical axis is in pixels. Only the last one's axis has numbers."""
        across = replace(self.axis, labelled=False) if self.coming else self.axis
        down = Axis(end - begin, 0.0, grid=False)
        self.panes.append(
            Pane(self.left, begin, self.inner, end - begin, across, down, (*self.behind, *marks))
        )

    def name_axis(self) -> None:
        self.top += 18
        for line in fitted([self.axis.title], self.width, 2)[0] if self.axis.title else ():
            half = text_width(line) / 2
            middle = min(max(self.left + self.inner / 2, half), self.width - half)
            self.texts.append(Text(middle, self.top + LINE / 2, line, MUTED, "middle"))
            self.top += LINE

    def chart(self, name: str, description: str) -> Chart:
        height = self.top + 4
        shown = [text for text in self.texts if text.text]
        kind = "narrow" if self.narrow else "wide"
        panes = (*self.panes, sheet(self.width, height, shown))
        return Chart(name, self.width, height, panes, description, kind)


def _marks(row: IntervalRow, at: float, words: str) -> list[Mark]:
    if row.levels:
        return [
            Curve(row.levels, [at] * len(row.levels), row.ink, 2.4),
            Points(row.levels[1:], [at] * (len(row.levels) - 1), row.ink, "o", 4.5),
            Points(row.levels[:1], [at], row.ink, "o", 4.5, hollow=True),
        ]
    look = (row.ink, row.shape, row.hollow, row.dotted)
    return [Interval(at, row.low, row.value, row.high, *look, words=words, href=row.href)]


# effects of one trial


def forest(name: str, rows: Sequence[EffectRow], *, margin: float, narrow: bool) -> Chart:
    """Draw these effects (all of one scale), with the margin as a band.

    The shape of the mark shows the verdict, as does its colour: triangles point in the direction of the effect, a full dot is
    equivalent, a hollow one undecided.
    """
    rows = sorted(rows, key=lambda row: _order(rows, row))[:MOST_ROWS]
    single = len({row.condition.key for row in rows}) == 1
    several = len({row.effect.response for row in rows}) > 1
    groups: dict[str, list[IntervalRow]] = {}
    for row in rows:
        what = row.comparison + (f" ({axis_name(row.effect.response)})" if several else "")
        groups.setdefault("" if single else what, []).append(
            _row(row, what if single else row.condition.text)
        )
    log = rows[0].effect.scale is Scale.LOG
    title = (
        f"ratio to the reference (band: within {percent(margin)})" if log else "difference to the reference"
    )
    every = [row for own in groups.values() for row in own]
    axis = interval_axis(every, log=log, unit=rows[0].effect.unit, margin=margin, title=title)
    words = "; ".join(f"{row.condition.text}: {row.sentence}" for row in rows[:12])
    return interval_chart(
        name,
        [IntervalGroup(own, title) for title, own in groups.items()],
        axis,
        margin=margin,
        description=f"Intervals of effects. {words}",
        narrow=narrow,
    )


def _row(row: EffectRow, label: str) -> IntervalRow:
    effect = row.effect
    undecided = effect.verdict is Verdict.INCONCLUSIVE
    shape = "o"
    if effect.verdict not in QUIET and effect.value is not None:
        shape = "<" if effect.value < null_value(effect) else ">"
    return of_effect(
        effect,
        label,
        numbers=interval(effect),
        word=f"{'⚠ ' * bool(row.risk)}{row.verdict}",
        ink=RISK_INK if row.risk else VERDICT_INKS.get(effect.conclusion.words, INK),
        shape=shape,
        undecided=undecided,
        hollow=undecided,
    )


def _order(rows: Sequence[EffectRow], row: EffectRow) -> tuple[int, tuple[int, ...]]:
    """Sort comparisons together, in the order of their first row, with conditions in the study's order."""
    pairs = list(dict.fromkeys(other.comparison + other.effect.response for other in rows))
    return pairs.index(row.comparison + row.effect.response), row.condition.order
