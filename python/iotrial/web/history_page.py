"""One effect over all trials of its study in time order, by machine: each trial's interval, and where the level changes.

Each interval is its own trial's, at that trial's level. Nothing was randomised across trials: the difference
between two of them may be due to the kernel, the disk, how full it is, or anything else that changes over
time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from iotrial.report.analysed import Analysed
from iotrial.report.axes import Axis
from iotrial.report.chart import MUTED
from iotrial.report.interval_charts import IntervalRow, interval_axis, of_effect
from iotrial.report.notation import named_level
from iotrial.report.phrases import interval, spoken
from iotrial.report.risks import risk_of
from iotrial.stats.change_points import FEWEST, Change, changes
from iotrial.stats.model import Conclusion, Effect, Verdict
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.study.model import Scale
from iotrial.terminal import escape
from iotrial.web.figures import tone_ink, trials_over_time
from iotrial.web.pages import QUIET_REFRESH_S, REFRESH_S, render_page
from iotrial.web.query_params import pairs_of, value_of
from iotrial.web.store_view import StoreView
from iotrial.web.trial_list import Row, row_of

MOST_TRIALS = 400
MOST_EFFECTS = 500


@dataclass(frozen=True, slots=True)
class Choice:
    """An effect that can be selected: its key in URLs, and its name."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Point:
    """One trial's result for the effect."""

    row: Row
    effect: Effect
    valid: bool
    numbers: str
    margin: float
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one machine and lab, oldest first, with their figure. ``changes``: changes of level, in words."""

    machine: str
    points: tuple[Point, ...]
    wide: Markup
    narrow: Markup
    changes: str


def page(view: StoreView, request: Request) -> Response:
    """``/history?study=S&effect=E``"""
    pairs = pairs_of(request)
    snapshot = view.snapshot()
    studies = sorted({escape(trial.study) for trial in snapshot.trials}, key=str.casefold)
    study, wanted = value_of(pairs, "study"), value_of(pairs, "effect")
    of_study = [trial for trial in snapshot.trials if escape(trial.study) == study] if study else []
    ended = [trial for trial in of_study if trial.state is not TrialState.RUNNING]
    summaries = view.summaries(ended[:MOST_TRIALS])
    choices = _choices(summaries.found.values())
    effect = next((one for one in choices if one.key == wanted), choices[0] if choices else None)
    points = _points(ended, summaries.found, effect)
    refresh = QUIET_REFRESH_S if summaries.measuring else REFRESH_S
    return render_page(
        request,
        "history.html.j2",
        title="History",
        warnings=snapshot.warnings,
        studies=studies,
        study=study,
        unknown=bool(study) and study not in studies,
        choices=choices,
        effect=effect,
        groups=_groups(points),
        open=summaries.open,
        measuring=summaries.measuring,
        failed=summaries.failed,
        without=len(summaries.found) - len(points),
        left_out=max(0, len(ended) - MOST_TRIALS),
        running=len(of_study) - len(ended),
        fewest=FEWEST,
        refresh=refresh if summaries.open else None,
    )


def key_of(effect: Effect) -> str:
    """Return a key that is the same for the same comparison in every trial, and safe in a URL."""
    labels = (
        effect.kind,
        sorted(effect.condition.items()),
        effect.workload,
        effect.response,
        effect.unit,
        effect.scale.value,
        effect.factor,
        effect.level,
        effect.reference,
    )
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()[:12]


def _choices(found: Iterable[Analysed]) -> list[Choice]:
    """Return the effects of the newest trial first, then further ones of older trials."""
    every: dict[str, Choice] = {}
    for one in found:
        several = len({effect.workload for effect in one.effects}) > 1
        for effect in one.effects:
            key = key_of(effect)
            if key not in every and len(every) < MOST_EFFECTS:
                every[key] = Choice(key, _name(effect, several=several))
    return list(every.values())


def _name(effect: Effect, *, several: bool) -> str:
    if effect.kind == "interaction":
        what = escape(effect.factor.replace(":", " × "))
    else:
        what = f"{named_level(escape(effect.factor), escape(effect.level))} / {escape(effect.reference)}"
    parts = [f"{escape(name)} {escape(level)}" for name, level in effect.condition.items()]
    if several:
        parts.insert(0, f"workload {escape(effect.workload)}")
    if effect.kind == "pooled":
        parts.append("pooled over conditions")
    return f"{what}, {spoken(effect.response)}" + (f": {', '.join(parts)}" if parts else "")


def _points(trials: Sequence[Outline], found: Mapping[int, Analysed], choice: Choice | None) -> list[Point]:
    """Return the points, oldest first."""
    points = []
    for trial in sorted(trials, key=lambda one: (row_of(one, None).started, one.number)):
        one = found.get(trial.number)
        if one is None or choice is None:
            continue
        effect = next((effect for effect in one.effects if key_of(effect) == choice.key), None)
        if effect is not None:
            row = row_of(trial, one)
            points.append(
                Point(row, effect, one.valid, interval(effect), one.margin, risk_of(effect, one.risks))
            )
    return points


def _groups(points: Sequence[Point]) -> list[Group]:
    by_machine: dict[str, list[Point]] = {}
    for point in points:
        lab = f", lab {point.row.lab}" if point.row.lab else ""
        by_machine.setdefault(f"{point.row.machine}{lab}", []).append(point)
    if not points:
        return []
    log, unit = points[0].effect.scale is Scale.LOG, points[0].effect.unit
    margin = min(point.margin for point in points)
    title = "ratio to the reference" if log else "difference to the reference"
    axis = interval_axis(map(_row, points), log=log, unit=unit, margin=margin, title=title)
    return [
        _group(f"history-{n}", machine, own, axis, margin) for n, (machine, own) in enumerate(by_machine.items())
    ]  # fmt: skip


def _group(name: str, machine: str, points: list[Point], axis: Axis, margin: float) -> Group:
    found, words = changes_of(points)
    rows, places = [_row(point) for point in points], [change.place for change in found]
    label = f"{len(points)} trials in order of time, each with its interval; the table has the numbers."
    drawn = trials_over_time(name, rows, axis, changes=places, margin=margin, what=label)
    return Group(machine, tuple(points), *drawn, words)


def _row(point: Point) -> IntervalRow:
    effect = point.effect
    tone = ("higher" if point.risk else effect.conclusion.tone) if point.valid else ""
    return of_effect(
        effect,
        point.row.started[:10],
        numbers=f"trial {point.row.trial.number}: {point.numbers}" + ("" if point.valid else ", invalid"),
        ink=tone_ink(tone),
        hollow=tone_ink(tone) == MUTED,
        undecided=not point.valid or effect.verdict is Verdict.INCONCLUSIVE,
        href=f"trials/{point.row.trial.number}",
    )


def changes_of(points: Sequence[Point]) -> tuple[tuple[Change, ...], str]:
    """Find where the level of the estimates changes (as indices into ``points``); also return a description.

    Invalid trials and those without an estimate are left out of the series.
    """
    usable = [(i, value) for i, point in enumerate(points) if (value := _level(point)) is not None]
    if len(usable) < FEWEST:
        return (), f"too few trials, {len(usable)} of the {FEWEST} needed for a search."
    found = changes(np.array([value for _, value in usable]))
    if not found:
        return (), "none was found."
    parts = []
    for change in found:
        point = points[usable[change.place][0]]
        parts.append(
            f"before trial {point.row.trial.number} ({point.row.started[:10]}): {_moved(point, change)}"
        )
    placed = tuple(Change(usable[one.place][0], one.before, one.after) for one in found)
    return placed, f"the level changes {'; '.join(parts)}."


def _level(point: Point) -> float | None:
    value = point.effect.value
    if value is None or not point.valid or not math.isfinite(value):
        return None
    if point.effect.conclusion is Conclusion.VARIES:
        return None
    if point.effect.scale is Scale.LOG:
        return math.log(value) if value > 0 else None
    return value


def _moved(point: Point, change: Change) -> str:
    if point.effect.scale is Scale.LOG:
        before, after = math.exp(change.before), math.exp(change.after)
        return f"from {before:.3g} to {after:.3g} on average"
    return f"from {change.before:.3g} to {change.after:.3g} {escape(point.effect.unit)} on average"
