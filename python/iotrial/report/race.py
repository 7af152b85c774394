"""The race of ``iotrial best`` in a report: a table of how the settings stand, and a figure of the race over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.report.axes import Axis, ends_of, linear_ticks, ratio_axis
from iotrial.report.best import race_rows
from iotrial.report.blocks import Block, Drawn, Group, Row, Section, Table, Words, heads
from iotrial.report.chart import (
    MUTED,
    NARROW,
    WIDE,
    Chart,
    Curve,
    Entry,
    Interval,
    Mark,
    Points,
    Rule,
    arm_ink,
    arm_marker,
    plot,
)
from iotrial.report.document import Document
from iotrial.report.figure import Figure as DrawnFigure
from iotrial.report.notation import counted
from iotrial.report.phrases import label
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.model import Race

_LEDE = (
    "Every block runs the settings that are still in the race, in random order, and today’s. A setting leaves once another "
    "is shown to be better, or once it is shown not to be better than today’s by the margin."
)


@dataclass(frozen=True, slots=True)
class Track:
    """One arm: the mean effect so far after each block that it ran in (a logarithm), its interval, and whether it left."""

    name: str
    blocks: tuple[int, ...]
    means: tuple[float, ...]
    low: float | None
    high: float | None
    left: bool


def race_blocks(document: Document, figures: Sequence[Drawn]) -> Iterator[Block]:
    """Yield each race as a table, after its figure if there is one."""
    for number, race in enumerate(document.analysis.races):
        rows = tuple(
            Row((name, blocks, effect, Words(stands, "dim" if stands.startswith("left") else "")))
            for name, blocks, effect, stands in race_rows(race, document.analysis.effects)
        )
        columns = heads("~setting", ">blocks", ">against today's", "~")
        table = Table(columns, (Group(rows),), noun="setting")
        yield Section("The race", (*figures[number : number + 1], table), id="race", lede=_LEDE)


def race_figures(document: Document) -> tuple[DrawnFigure, ...]:
    """Return a figure for each race."""
    found = []
    for number, race in enumerate(document.analysis.races):
        tracks = _tracks(document, race)
        if not any(len(track.blocks) > 1 for track in tracks):
            continue
        inside = sum(not track.left for track in tracks)
        found.append(
            DrawnFigure(
                stem=f"race-{number}" if number else "race",
                title="How did the race go?",
                sentence=f"{inside} of {counted(len(tracks), 'setting')} were still in the race after "
                f"{counted(race.blocks, 'block')}.",
                reading="Lines are mean effects against today’s settings so far; a line ends at a cross where its "
                "setting left. Bars are intervals at the end. A ratio under 1 means less time, or a lower rate.",
                columns=("setting", "block", "ratio to today's so far"),
                rows=tuple(
                    (track.name, block, math.exp(mean))
                    for track in tracks
                    for block, mean in zip(track.blocks, track.means, strict=True)
                ),
                parts=(race_chart(f"race-{number}", tracks, narrow=False),),
                narrow=race_chart(f"race-{number}-narrow", tracks, narrow=True),
            )
        )
    return tuple(found)


def _tracks(document: Document, race: Race) -> list[Track]:
    study = document.trial.header.study
    response = next(one for one in study.responses if one.name == race.response)
    blocks = [block for block in document.data.blocks if block.condition == race.condition]
    arms = [one.arm for one in race.places]
    values, _ = Responses(Runs(blocks), response).by_arm(arms)
    intervals = {
        row.effect.level: row.effect for row in document.primary if row.effect.response == race.response
    }
    tracks = []
    for place, one in enumerate(race.places):
        if one.arm == race.reference:
            continue
        contrasts = values[place] - values[0]
        usable = np.flatnonzero(np.isfinite(contrasts))
        means = np.cumsum(contrasts[usable]) / np.arange(1, usable.size + 1)
        effect = intervals.get(one.arm)
        tracks.append(
            Track(
                label(one.arm),
                tuple((usable + 1).tolist()),
                tuple(means.tolist()),
                None if effect is None or not effect.low else math.log(effect.low),
                None if effect is None or not effect.high else math.log(effect.high),
                one.left is not None,
            )
        )
    return tracks


def race_chart(name: str, tracks: list[Track], *, narrow: bool) -> Chart:
    """Draw the mean effect of each setting so far, block by block, with its interval at the end, and name all settings."""
    last = max((track.blocks[-1] for track in tracks if track.blocks), default=1)
    settled = [mean for track in tracks for mean in track.means[len(track.means) // 3 :]]
    ends = [end for track in tracks if not track.left for end in (track.low, track.high) if end is not None]
    low, high = ends_of([*settled, *ends, 0.0])
    y = ratio_axis(math.exp(low), math.exp(high), "mean effect against today's settings so far (ratio)")
    ticks = tuple((tick, f"{tick:g}") for tick in linear_ticks(1, last) if tick == int(tick))
    x = Axis(0.5, last + 0.8, ticks=ticks, title="blocks", grid=False)
    marks: list[Mark] = [Rule(1.0, level=True)]
    listed = []
    for place, track in sorted(enumerate(tracks), key=lambda one: not one[1].left):
        if not track.blocks:
            continue
        ink = MUTED if track.left else arm_ink(place + 1)
        marker = "x" if track.left else arm_marker(place + 1)
        means = [math.exp(mean) for mean in track.means]
        marks.append(Curve(track.blocks, means, ink, 1.0 if track.left else 1.8))
        if not track.left and track.low is not None and track.high is not None:
            bounds = math.exp(track.low), math.exp(track.high)
            marks.append(Interval(track.blocks[-1], bounds[0], None, bounds[1], ink, upright=True))
        marks.append(Points([track.blocks[-1]], means[-1:], ink, marker, 4, hollow=not track.left))
        text = track.name + (" (left)" if track.left else "")
        listed.append((track.left, means[-1], Entry(text, ink, marker, hollow=not track.left)))
    return plot(
        name,
        x,
        y,
        marks,
        description=f"The mean effect of {len(tracks)} settings against today's, block by block",
        width=NARROW if narrow else WIDE,
        height=300 if narrow else 360,
        entries=[entry for _, _, entry in sorted(listed, key=lambda one: one[:2])],
        kind="narrow" if narrow else "wide",
    )
