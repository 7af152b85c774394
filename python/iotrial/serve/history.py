"""One effect over all trials of its study in order of time, by machine: what each said, and where its level changes.

Each interval is its own trial's, at that trial's level. Across trials nothing was randomised: what changes from one to the
next may be the kernel, the disk, its filling, or anything else that time brings.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from iotrial.analysis.changes import FEWEST, Change, changes
from iotrial.analysis.model import Conclusion, Effect
from iotrial.legible import shown
from iotrial.report.analysed import Analysed
from iotrial.report.phrases import interval, spoken
from iotrial.report.safety import risk_of
from iotrial.serve.asked import pairs_of, value_of
from iotrial.serve.drawing import NARROW, WIDE, Axis, Mark, timeline
from iotrial.serve.dressing import QUIET_REFRESH_S, REFRESH_S
from iotrial.serve.listed import Row, row_of
from iotrial.serve.rendering import page as rendered
from iotrial.serve.reply import Reply
from iotrial.serve.site import Said, Site
from iotrial.store.states import TrialState
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request

    from iotrial.store.outline import Outline

MOST_TRIALS = 400
MOST_EFFECTS = 500


@dataclass(frozen=True, slots=True)
class Choice:
    """An effect that can be looked at: its key in addresses, and its name."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Point:
    """What one trial says of the effect."""

    row: Row
    effect: Effect
    valid: bool
    numbers: str
    margin: float
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one machine and lab, oldest first, with their figure. ``said``: of changes of level, in words."""

    machine: str
    points: tuple[Point, ...]
    wide: Markup
    narrow: Markup
    said: str


def page(site: Site, request: Request) -> Reply:
    """``/history?study=S&effect=E``"""
    pairs = pairs_of(request.scope["query_string"])
    view = site.view()
    studies = sorted({shown(trial.study) for trial in view.trials}, key=str.casefold)
    study, asked = value_of(pairs, "study"), value_of(pairs, "effect")
    common = {
        "title": "History",
        "studies": studies,
        "study": study,
        "warnings": view.warnings,
        "unknown": bool(study) and study not in studies,
        "choices": [],
        "effect": None,
        "groups": [],
        "open": 0,
        "measuring": False,
        "failed": {},
        "without": 0,
        "left_out": 0,
        "running": 0,
        "fewest": FEWEST,
    }
    if not study or study not in studies:
        return Reply(rendered("history.html.j2", **common))
    of_study = [trial for trial in view.trials if shown(trial.study) == study]
    ended = [trial for trial in of_study if trial.state is not TrialState.RUNNING]
    looked = site.looked(ended[:MOST_TRIALS])
    choices = _choices(looked.found.values())
    effect = next((one for one in choices if one.key == asked), choices[0] if choices else None)
    points = _points(ended, looked.found, effect)
    going = None if not looked.open else QUIET_REFRESH_S if looked.measuring else REFRESH_S
    values = {
        "choices": choices,
        "effect": effect,
        "groups": _groups(points),
        "open": looked.open,
        "measuring": looked.measuring,
        "failed": looked.failed,
        "without": len(looked.found) - len(points),
        "left_out": max(0, len(ended) - MOST_TRIALS),
        "running": len(of_study) - len(ended),
        "refresh": going,
    }
    return Reply(rendered("history.html.j2", **{**common, **values}))


def key_of(effect: Effect) -> str:
    """The same for the same comparison in every trial, and fit for an address."""
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
    """The effects of the newest trial first, then what older ones have besides."""
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
        what = shown(effect.factor.replace(":", " × "))
    else:
        what = f"{shown(effect.factor)} {shown(effect.level)} / {shown(effect.reference)}"
    parts = [f"{shown(name)} {shown(level)}" for name, level in effect.condition.items()]
    if several:
        parts.insert(0, f"workload {shown(effect.workload)}")
    if effect.kind == "pooled":
        parts.append("pooled over conditions")
    return f"{what}, {spoken(effect.response)}" + (f": {', '.join(parts)}" if parts else "")


def _points(trials: Sequence[Outline], found: dict[int, Analysed], choice: Choice | None) -> list[Point]:
    """Oldest first."""
    points = []
    for trial in sorted(trials, key=lambda one: (row_of(one, None).started, one.number)):
        one = found.get(trial.number)
        if one is None or choice is None:
            continue
        effect = next((effect for effect in one.effects if key_of(effect) == choice.key), None)
        if effect is not None:
            row = row_of(trial, Said(one.headline, one.tone))
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
    log = points[0].effect.scale is Scale.LOG
    margin = min(point.margin for point in points) if log else 0.0
    marks = {machine: [_mark(point) for point in own] for machine, own in by_machine.items()}
    axis = Axis.of((mark for own in marks.values() for mark in own), log=log, margin=margin)
    return [_group(machine, own, marks[machine], axis, margin) for machine, own in by_machine.items()]


def _group(machine: str, points: list[Point], marks: list[Mark], axis: Axis, margin: float) -> Group:
    found, said = changes_of(points)
    of = f"{len(points)} trials in order of time, each with its interval; the table has the numbers."
    unit = points[0].effect.unit

    def drawn(width: int) -> Markup:
        places = [change.place for change in found]
        return timeline(marks, axis, unit=unit, margin=margin, changes=places, width=width, said=of)

    return Group(machine, tuple(points), drawn(WIDE), drawn(NARROW), said)


def _mark(point: Point) -> Mark:
    effect = point.effect
    said = f"trial {point.row.trial.number}: {point.numbers}" + ("" if point.valid else ", invalid")
    tone = ("higher" if point.risk else effect.conclusion.tone) if point.valid else ""
    name = point.row.started[:10]
    value, low, high = effect.value, effect.low, effect.high
    if effect.agree is False and effect.span is not None:
        value, low, high = None, effect.span.least, effect.span.most
    return Mark(value, low, high, tone, name, said, f"/trials/{point.row.trial.number}")


def changes_of(points: Sequence[Point]) -> tuple[tuple[Change, ...], str]:
    """Where the estimates' level changes (a place in ``points``), and what can be said of that. Invalid trials and those
    without an estimate are left out of the series."""
    usable = [(i, value) for i, point in enumerate(points) if (value := _level(point)) is not None]
    if len(usable) < FEWEST:
        return (), f"too few trials, {len(usable)} of the {FEWEST} that a search for them takes at least."
    found = changes(np.array([value for _, value in usable]))
    if not found:
        return (), "none was found."
    said = []
    for change in found:
        point = points[usable[change.place][0]]
        said.append(
            f"before trial {point.row.trial.number} ({point.row.started[:10]}): {_moved(point, change)}"
        )
    placed = tuple(Change(usable[one.place][0], one.before, one.after) for one in found)
    return placed, f"the level changes {'; '.join(said)}."


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
        return f"from {before:.3g} to {after:.3g} on the average"
    return f"from {change.before:.3g} to {change.after:.3g} {shown(point.effect.unit)} on the average"
