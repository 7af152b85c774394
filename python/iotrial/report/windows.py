"""The windows of a live trial: in order of time with the washout before each, and what each block shows.

Charts show one metric each: a line for every window at its value, from the beginning to the end of its counted part, a band
for its washout, and a dashed line at a hard limit of the guard. Windows of void blocks are crosses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from iotrial.report.axes import Axis, difference_axis, ends_of, fitted_axis, ratio_axis, time_axis
from iotrial.report.blocks import Block, Drawn, Note, Section, View, table
from iotrial.report.chart import (
    BAND,
    MUTED,
    NARROW,
    VERDICT_INKS,
    WIDE,
    Chart,
    Curve,
    Entry,
    Mark,
    Points,
    Rect,
    Rule,
    Text,
    arm_entries,
    arm_ink,
    arm_marker,
    plot,
)
from iotrial.report.figure import Figure, Row, stem
from iotrial.report.notation import bracketed, capitalised, counted, named_level, quantity
from iotrial.report.phrases import axis_name, label, null_value, spoken
from iotrial.report.series import Arm, arms_of
from iotrial.stats.switchback import CarryOver, carry_over, in_words
from iotrial.store.checks import LEAD_IN, LONGEST_S, WINDOW, parts_of
from iotrial.store.model import RunRecord, TrialData
from iotrial.study.model import Response
from iotrial.study.scales import Scale
from iotrial.terminal import escape
from iotrial.units import format_duration, format_ratio, is_number
from iotrial.workloads.live import Guard, LiveWork

if TYPE_CHECKING:
    from iotrial.report.document import Document

READING = (
    "Each line is one window at its value, as long as its counted part; the band before it is the washout, which is not "
    "counted. Crosses are windows of void blocks. A dashed line is a hard limit of the guard."
)
CONTRASTS_READING = (
    "Each mark is one block: its window with the setting against that with today's. The band is the margin."
)
_EXACT = (
    "The test of “no effect” is exact, whatever one window leaves for the next: it needs only the drawn order. Sizes and "
    "intervals assume that "
)
_MOST_WINDOWS = 200
_MOST_METRICS = 6


@dataclass(frozen=True, slots=True)
class Window:
    """One window: the arm, seconds since the trial began (switch, begin and end of the counted part), and its block."""

    arm: str
    switched_s: float
    began_s: float
    ended_s: float
    block: int
    void: bool
    values: Mapping[str, float]


def live_work(document: Document) -> LiveWork | None:
    """Return the work of a live trial; None for other trials."""
    work = document.trial.header.study.workloads[0].work
    return work if isinstance(work, LiveWork) else None


def windows_of(data: TrialData) -> tuple[Window, ...]:
    """Return the windows of all complete blocks, in order of time."""
    void = {(block.condition, block.index) for block in data.blocks if block.void is not None}
    ended = {(block.condition, block.index) for block in data.blocks}
    found = [
        _window(run, (run.condition, run.block) in void)
        for run in data.runs
        if (run.condition, run.block) in ended and run.responses
    ]
    return tuple(sorted(found, key=lambda window: window.began_s))


def _window(run: RunRecord, void: bool) -> Window:
    lasted_s = _seconds(run.checks.get("clock"), "lasted_s")
    switched_s = _seconds(run.checks.get(WINDOW), "switched_s")
    return Window(
        run.arm,
        run.started_s + min(0.0, switched_s),
        run.started_s,
        run.started_s + max(0.0, lasted_s),
        run.block,
        void,
        run.responses,
    )


def _seconds(facts: object, name: str) -> float:
    """Return a stored number of seconds, 0 if it is none: a packed trial may contain anything."""
    value = facts.get(name) if isinstance(facts, Mapping) else None
    return float(value) if is_number(value, LONGEST_S) else 0.0


# blocks


def stop_notes(document: Document) -> Iterator[Note]:
    """Yield why a guard or the watchdog has ended the trial, or a part of it."""
    for text in document.data.guarded:
        yield Note(f"{escape(text)}.", "Stopped by the guard", "alarm")
    for text in document.data.taken_back:
        yield Note(f"{escape(text)}.", "Taken back", "alarm")


def window_notes(document: Document) -> Iterator[Note]:
    """Yield what of the result is exact, what rests on the washout, and whether windows show that it was too short."""
    work = live_work(document)
    if work is None:
        return
    text = "nothing is left of the setting before; there was no washout."
    if work.washout_s:
        text = (
            f"after the washout of {format_duration(work.washout_s)} nothing is left of the setting before."
        )
    yield Note(_EXACT + text, "Washout", view=View.LONG)
    if work.guarding and not document.data.guarded:
        named = ", ".join(escape(guard.text) for guard in work.guarding)
        yield Note(f"{named}: none stopped the trial.", "Guards")
    also = [
        f"{escape(effect.response)} {escape(named_level(effect.factor, effect.level))} "
        f"{bracketed(effect.value, effect.low, effect.high, null=null_value(effect), unit=escape(effect.unit))}"
        for effect in (row.effect for row in document.effects)
        if effect.kind == "main" and not effect.primary
    ]
    if also:
        yield Note(
            f"{'; '.join(also)}. These are explored: only the first metric is judged.", "Other metrics"
        )
    found = carry_over_of(document)
    if found is not None:
        response = document.trial.header.study.responses[0]
        words = in_words(found, by_ratio=response.scale is Scale.LOG, unit=response.unit)
        tone, view = ("alarm", View.ALL) if found.found else ("", View.ALL if found.costly else View.LONG)
        yield Note(f"{capitalised(escape(words))}.", "Carry-over", tone, view)


def carry_over_of(document: Document) -> CarryOver | None:
    """Diagnose what one window leaves for the next, from all windows of complete blocks; None with too few of them."""
    study = document.trial.header.study
    response = study.responses[0]
    log = response.scale is Scale.LOG
    arms = arms_of(document.data)
    ended = {(block.condition, block.index): block.void for block in document.data.blocks}
    runs = [run for run in document.data.runs if (run.condition, run.block) in ended]
    values, trends = [], []
    for run in runs:
        value = run.responses.get(response.name, math.nan)
        sound = ended[run.condition, run.block] is None and math.isfinite(value) and (value > 0.0 or not log)
        values.append((math.log(value) if log else value) if sound else math.nan)
        trends.append(_trend(parts_of(run.checks).get(response.name), log=log) if sound else math.nan)
    if not runs or not arms:
        return None
    lead_ins = list(map(_lead_in, runs))
    return carry_over(
        values,
        [run.arm for run in runs],
        [run.block for run in runs],
        reference=arms[0].name,
        trends=trends,
        lead_ins=lead_ins if any(lead_ins) else None,  # trials of earlier versions had none
    )


def _trend(parts: tuple[float | None, float, float] | None, *, log: bool) -> float:
    """Return the later half of a window less the earlier one, on the scale of comparison; NaN if it is not known."""
    if parts is None:
        return math.nan
    _, first, second = parts
    if not log:
        return second - first
    return math.log(second / first) if first > 0.0 and second > 0.0 else math.nan


def _lead_in(run: RunRecord) -> str | None:
    """Return the arm of the lead-in before a window, None if there was none."""
    kept = run.checks.get(WINDOW)
    found = kept.get(LEAD_IN) if isinstance(kept, Mapping) else None
    return found if isinstance(found, str) else None


def windows_section(document: Document, figures: Sequence[Drawn]) -> Iterator[Block]:
    """Yield the section of the page with all windows; nothing for other trials."""
    if live_work(document) is None or not figures:
        return
    columns, rows = ("block", "setting", ">began", *(f">{escape(name)}" for name in _names(document))), []
    units = {one.name: one.unit for one in document.trial.header.study.responses}
    for window in windows_of(document.data):
        values = (
            quantity(window.values[name], units[name]) if name in window.values else "–"
            for name in _names(document)
        )
        began = format_duration(round(window.began_s))
        rows.append(
            (f"{window.block + 1}{' void' if window.void else ''}", escape(window.arm), began, *values)
        )
    yield Section(
        "Windows",
        (
            *figures,
            Section("Windows as a table", (table(columns, rows),), folded=True, view=View.PAGE),
        ),
        id="windows",
        lede=READING,
        view=View.PAGE,
    )


def _names(document: Document) -> tuple[str, ...]:
    return tuple(one.name for one in document.trial.header.study.responses)


# figures


def window_figures(document: Document) -> tuple[Figure, ...]:
    """Return, for a live trial, a figure of each metric's windows and one of each block's contrast; else none."""
    work, windows = live_work(document), windows_of(document.data)
    if work is None or not windows:
        return ()
    study = document.trial.header.study
    arms = arms_of(document.data)
    found = []
    for index, response in enumerate(study.responses[:_MOST_METRICS]):
        own = [window for window in windows if response.name in window.values]
        if not own:
            continue
        guards = [guard for guard in work.guarding if guard.is_limit and guard.metric == response.name]
        found.append(_in_time(index, response, own, arms, guards))
        if response.primary:
            found += _contrasts(document, response, own, arms)
    return tuple(found)


def _in_time(
    index: int, response: Response, windows: Sequence[Window], arms: Sequence[Arm], guards: Sequence[Guard]
) -> Figure:
    void = len({window.block for window in windows if window.void})
    sentence = f"{counted(len(windows), 'window')} in {counted(len({w.block for w in windows}), 'block')}"
    if void:
        sentence += f", {void} of them void"
    if len(windows) > _MOST_WINDOWS:
        sentence += f"; the last {_MOST_WINDOWS} windows are drawn"
    return Figure(
        stem=stem("windows", response.name),
        title=f"How did {spoken(response.name)} go, window by window?",
        sentence=f"{sentence}.",
        reading=READING,
        columns=(
            "setting",
            "block",
            "void",
            "switched [s]",
            "began [s]",
            "ended [s]",
            f"{response.name} [{response.unit}]",
        ),
        rows=tuple(_row(window, response.name) for window in windows),
        parts=(_drawing(f"windows-{index}", response, windows[-_MOST_WINDOWS:], arms, guards, narrow=False),),
        narrow=_drawing(
            f"windows-{index}-narrow", response, windows[-_MOST_WINDOWS:], arms, guards, narrow=True
        ),
    )


def _row(window: Window, name: str) -> Row:
    void = "yes" if window.void else "no"
    times = (window.switched_s, window.began_s, window.ended_s)
    return (window.arm, window.block + 1, void, *times, window.values[name])


def _drawing(
    name: str,
    response: Response,
    windows: Sequence[Window],
    arms: Sequence[Arm],
    guards: Sequence[Guard],
    *,
    narrow: bool,
) -> Chart:
    positions = {arm.name: arm.position for arm in arms}
    limits = [one for guard in guards for one in (guard.above, guard.below) if one is not None]
    y = fitted_axis(
        np.array([window.values[response.name] for window in windows]),
        response.unit,
        axis_name(response.name),
    )
    reached = [limit for limit in limits if y.low - (y.high - y.low) <= limit <= y.high + (y.high - y.low)]
    if reached:
        values = [
            window.values[response.name]
            for window in windows
            if y.low <= window.values[response.name] <= y.high
        ]
        y = fitted_axis(np.array([*values, *reached]), response.unit, axis_name(response.name))
    x = time_axis(windows[-1].ended_s, first_s=windows[0].switched_s)
    marks: list[Mark] = []
    void: dict[str, list[tuple[float, float]]] = {}
    for window in windows:
        if window.began_s > window.switched_s:
            marks.append(Rect(window.switched_s, window.began_s, None, None, BAND))
        value = window.values[response.name]
        ink = arm_ink(positions.get(window.arm, 0))
        if window.void:
            void.setdefault(ink, []).append(((window.began_s + window.ended_s) / 2.0, value))
        elif not y.low <= value <= y.high:  # a mark at the edge
            marks.append(Points([(window.began_s + window.ended_s) / 2.0], [value], ink))
        else:
            marks.append(Curve((window.began_s, window.ended_s), (value, value), ink, 3))
    marks += [
        Points([at for at, _ in own], [at for _, at in own], ink, "x", 3.5) for ink, own in void.items()
    ]
    for limit in limits:
        marks.append(Rule(limit, level=True, ink=VERDICT_INKS["slower"], width=1.3, dash="6 3"))
        if limit in reached:
            text = f"limit {quantity(limit, response.unit)}"
            marks.append(Text(x.high, limit, text, VERDICT_INKS["slower"], "end", dx=-4, dy=-9, halo=True))
    what = f"{spoken(response.name)} of {counted(len(windows), 'window')} in order of time"
    drawn = {window.arm for window in windows}
    own = arm_entries([arm for arm in arms if arm.name in drawn])
    entries = [replace(entry, shape="", dash="") for entry in own]
    return _plot(name, x, y, marks, what, entries, narrow=narrow)


def _plot(
    name: str, x: Axis, y: Axis, marks: Sequence[Mark], what: str, entries: Sequence[Entry], *, narrow: bool
) -> Chart:
    width, height, kind = (NARROW, 240, "narrow") if narrow else (WIDE, 280, "wide")
    return plot(
        name, x, y, marks, description=what, width=width, height=height, kind=kind, entries=entries
    )  # fmt: skip


def _contrasts(
    document: Document, response: Response, windows: Sequence[Window], arms: Sequence[Arm]
) -> Iterator[Figure]:
    """Yield the figure of the contrast of each block, if there are any."""
    log = response.scale is Scale.LOG
    reference = next((arm.name for arm in arms if not arm.is_control), "")
    blocks: dict[int, dict[str, Window]] = {}
    for window in windows:
        if not window.void and (not log or window.values[response.name] > 0.0):
            blocks.setdefault(window.block, {})[window.arm] = window
    points: dict[str, list[tuple[float, float]]] = {}
    for own in blocks.values():
        today = own.get(reference)
        for arm, window in own.items() if today is not None else ():
            if arm == reference or today is None:
                continue
            value, base = window.values[response.name], today.values[response.name]
            points.setdefault(arm, []).append(
                (min(w.began_s for w in own.values()), math.log(value / base) if log else value - base)
            )
    if not points:
        return
    size = "ratio to today's setting" if log else f"difference to today's setting [{response.unit}]"
    yield Figure(
        stem=stem("contrasts", response.name),
        title="What does each block show?",
        sentence=_seen(points, response, log=log),
        reading=CONTRASTS_READING,
        columns=("setting", "block began [s]", size),
        rows=tuple(
            (arm, at, math.exp(found) if log else found) for arm, own in points.items() for at, found in own
        ),
        parts=(_contrast_drawing(document, response, points, arms, size, log=log, narrow=False),),
        narrow=_contrast_drawing(document, response, points, arms, size, log=log, narrow=True),
    )


def _seen(points: Mapping[str, Sequence[tuple[float, float]]], response: Response, *, log: bool) -> str:
    parts = []
    for arm, own in points.items():
        middle = float(np.median([found for _, found in own]))
        size = f"{format_ratio(math.exp(middle))} times" if log else quantity(middle, response.unit)
        above = sum(found > 0 for _, found in own)
        parts.append(f"{label(arm)}: median {size}, above today's in {above} of {counted(len(own), 'block')}")
    return f"{'; '.join(parts[:4])}."


def _contrast_drawing(
    document: Document,
    response: Response,
    points: Mapping[str, Sequence[tuple[float, float]]],
    arms: Sequence[Arm],
    size: str,
    *,
    log: bool,
    narrow: bool,
) -> Chart:
    positions = {arm.name: arm.position for arm in arms}
    every = np.array([found for own in points.values() for _, found in own])
    band = math.log1p(document.trial.header.margin) if log else 0.0
    usual = fitted_axis(every, "1")  # without a few values far from all others
    inside = every[(every >= usual.low) & (every <= usual.high)]
    low, high = ends_of([*inside.tolist(), 0.0, -band, band], 0.08)
    y = ratio_axis(math.exp(low), math.exp(high), size) if log else difference_axis(low, high, "", size)
    x = time_axis(max(at for own in points.values() for at, _ in own))
    marks: list[Mark] = [Rule(1.0 if log else 0.0, level=True, ink=MUTED)]
    if band:
        marks.append(Rect(None, None, math.exp(-band), math.exp(band), BAND))
    for arm, own in points.items():
        position = positions.get(arm, 0)
        values = [math.exp(found) if log else found for _, found in own]
        marks.append(
            Points([at for at, _ in own], values, arm_ink(position), arm_marker(position), 4, hollow=True)
        )
    what = f"The effect on {spoken(response.name)} in each of {counted(len(every), 'block')}"
    entries = tuple(
        Entry(arm.label, arm_ink(arm.position), arm_marker(arm.position), hollow=True, line=False)
        for arm in arms
        if arm.name in points
    )
    return _plot(f"contrasts{'-narrow' * narrow}", x, y, marks, what, entries, narrow=narrow)
