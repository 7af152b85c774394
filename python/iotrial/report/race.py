"""The race of ``iotrial best`` in a report: a table of how the settings stand, and a figure of the race over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from iotrial.report.best import race_rows
from iotrial.report.blocks import Block, Drawn, Group, Row, Section, Table, Words, heads
from iotrial.report.document import Document
from iotrial.report.figure import Figure as DrawnFigure
from iotrial.report.notation import counted, elided
from iotrial.report.phrases import label
from iotrial.report.plots.canvas import (
    DASHES,
    FONT_PT,
    LINE,
    MUTED,
    PAPER,
    Drawing,
    arm_ink,
    arm_marker,
    calm,
    draw,
    log_ratio_ticks,
)
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.model import Race

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE_IN, _NARROW_IN, _HIGH_IN = 7.6, 4.1, 3.8
_LONGEST_NAME = 30
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
                parts=(_drawing(f"race-{number}", tracks, narrow=False),),
                narrow=_drawing(f"race-{number}-narrow", tracks, narrow=True),
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


def _drawing(name: str, tracks: list[Track], *, narrow: bool) -> Drawing:
    last = max((track.blocks[-1] for track in tracks if track.blocks), default=1)
    settled = [mean for track in tracks for mean in track.means[len(track.means) // 3 :]]
    ends = [end for track in tracks if not track.left for end in (track.low, track.high) if end is not None]
    low, high = min([*settled, *ends, 0.0]), max([*settled, *ends, 0.0])
    room = 0.06 * ((high - low) or 0.1)

    def paint(figure: Figure) -> None:
        axes = figure.add_axes((0.14, 0.14, 0.83, 0.82) if narrow else (0.08, 0.13, 0.6, 0.83))
        calm(axes)
        axes.set_xlim(0.5, last + 0.8)
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel("blocks", color=MUTED, fontsize=FONT_PT - 0.5)
        axes.set_yticks(*log_ratio_ticks(low - room, high + room))
        axes.axhline(0.0, color=LINE, linewidth=1.2, zorder=1)
        for place, track in enumerate(tracks):
            if not track.blocks:
                continue
            ink = MUTED if track.left else arm_ink(place + 1)
            axes.plot(
                track.blocks,
                track.means,
                color=ink,
                linewidth=0.8 if track.left else 1.4,
                zorder=2 + (not track.left),
            )
            marker = "x" if track.left else arm_marker(place + 1)
            axes.plot(
                [track.blocks[-1]], [track.means[-1]], marker=marker, linewidth=0, markersize=5, color=ink,
                markerfacecolor=PAPER, markeredgewidth=1.0, zorder=4,
            )  # fmt: skip
            if not track.left and track.low is not None and track.high is not None:
                axes.plot(
                    [track.blocks[-1]] * 2,
                    [track.low, track.high],
                    color=ink,
                    linewidth=1.0,
                    linestyle=DASHES[0],
                )
        if not narrow:
            _names(figure, tracks)

    return draw(
        name,
        (_NARROW_IN if narrow else _WIDE_IN, _HIGH_IN),
        paint,
        description=f"The mean effect of {len(tracks)} settings against today's, block by block",
    )


def _names(figure: Figure, tracks: list[Track]) -> None:
    """List the settings at the right, those still in the race first."""
    ordered = sorted(
        enumerate(tracks), key=lambda one: (one[1].left, one[1].means[-1] if one[1].means else 0.0)
    )
    step = min(0.06, 0.83 / max(1, len(ordered)))
    for line, (place, track) in enumerate(ordered):
        figure.text(
            0.7, 0.94 - line * step, elided(track.name, _LONGEST_NAME), va="top", fontsize=FONT_PT - 1,
            color=MUTED if track.left else arm_ink(place + 1),
        )  # fmt: skip
