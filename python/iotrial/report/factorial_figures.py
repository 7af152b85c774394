"""The figures of a study of several factors: half-normal plot, main effects, interactions, each with what to see in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.design.lenth import lenth_pse
from iotrial.legible import shown
from iotrial.report.adjusted import Adjusted
from iotrial.report.document import Document
from iotrial.report.findings import QUIET, strength
from iotrial.report.interplay import pair_of
from iotrial.report.notation import joined, percent, plain
from iotrial.report.phrases import spoken
from iotrial.report.rows import EffectRow
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_CONDITIONS = 6
MOST_INTERACTIONS = 6
_FEWEST_POINTS = 6
_FEWEST_INTERACTIONS = 2


@dataclass(frozen=True, slots=True)
class Captioned:
    """One figure with a sentence that says what to see."""

    figure: Markup
    caption: str
    title: str = ""
    narrow: Markup | None = None


@dataclass(frozen=True, slots=True)
class FactorialFigures:
    """What is drawn of one primary response in one condition."""

    title: str
    half_normal: Captioned | None
    main_effects: Captioned | None
    interactions: tuple[Captioned, ...]


def factorial_figures(document: Document) -> tuple[FactorialFigures, ...]:
    """One group for each condition and primary response, at most ``MOST_CONDITIONS``; none for a single factor."""
    found = []
    for index, ((key, response), means) in enumerate(document.adjusted.items()):
        if index >= MOST_CONDITIONS:
            break
        rows = [
            row
            for row in document.effects
            if row.effect.kind in ("main", "interaction")
            and row.condition.key == key
            and row.effect.response == response
        ]
        if not rows:
            continue
        several = len({name for _, name in document.adjusted}) > 1
        title = rows[0].condition.text + (f": {spoken(response)}" if several else "")
        found.append(
            FactorialFigures(
                title,
                _half_normal(f"half-normal-{index}", rows),
                _main_effects(document, f"main-effects-{index}", rows, means),
                tuple(_interactions(document, f"interaction-{index}", rows, means)),
            )
        )
    return tuple(found)


def _half_normal(name: str, rows: Sequence[EffectRow]) -> Captioned | None:
    from markupsafe import Markup

    from iotrial.report.plots.factorial import Point, half_normal

    known = [row for row in rows if row.effect.value is not None]
    if len(known) < _FEWEST_POINTS:
        return None
    points = [
        Point(_name(row), strength(row.effect), row.effect.kind == "interaction", row.effect.verdict.value)
        for row in known
    ]
    log = known[0].effect.scale is Scale.LOG
    pse = lenth_pse([point.size for point in points])
    beyond = sorted((p for p in points if p.size > 2.5 * pse), key=lambda p: -p.size)
    guide = percent(math.expm1(pse)) if log else plain(pse)
    seen = (
        f"{joined(p.label for p in beyond[:4])}{f' and {len(beyond) - 4} more' if len(beyond) > 4 else ''} "
        f"{'lies' if len(beyond) == 1 else 'lie'} well above it"
        if beyond
        else "nothing lies well above it"
    )
    caption = (
        f"Effects that are none lie along the dashed line (Lenth's pseudo standard error, {guide}); {seen}. "
        "The line is a guide to the eye, not a verdict."
    )
    if any(point.crossed for point in points):
        caption += " Diamonds are interactions, as half differences."
    drawn = [
        Markup(half_normal(name + end, points, log=log, description=caption, narrow=bool(end)))
        for end in ("", "-narrow")
    ]
    return Captioned(drawn[0], caption, narrow=drawn[1])


def _main_effects(
    document: Document, name: str, rows: Sequence[EffectRow], means: Adjusted
) -> Captioned | None:
    from markupsafe import Markup

    from iotrial.report.plots.factorial import MOST_BARS, Line, main_effects

    study = document.trial.header.study
    mains = [row for row in rows if row.effect.kind == "main"]
    lines = []
    for factor_name in dict.fromkeys(
        row.effect.factor for row in sorted(mains, key=lambda row: -strength(row.effect))
    ):
        factor = next((f for f in study.treatment_factors if f.name == factor_name), None)
        if factor is None:
            continue
        labels = [factor.reference, *(one.label for one in factor.levels if one.label != factor.reference)]
        placed = [
            (label, place) for label in labels if (place := means.level(factor.name, label)) is not None
        ]
        if len(placed) < 2:
            continue
        own = [row.effect.verdict for row in mains if row.effect.factor == factor_name]
        loud = next((verdict for verdict in own if verdict not in QUIET), own[0])
        lines.append(
            Line(
                shown(factor.name),
                tuple(shown(label) for label, _ in placed),
                tuple(place for _, place in placed),
                loud.value,
            )
        )
    if len(lines) < 2:
        return None
    caption = (
        "Mean response at each level, hollow at the reference, each block's own level taken out: the longer a line, the "
        "more the setting does."
    )
    if len(lines) > MOST_BARS:
        caption += f" The {MOST_BARS} largest of {len(lines)} are drawn."
    log = means.response.scale is Scale.LOG
    drawn = [
        Markup(main_effects(name + end, lines, log=log, description=caption, narrow=bool(end)))
        for end in ("", "-narrow")
    ]
    return Captioned(drawn[0], caption, narrow=drawn[1])


def _interactions(
    document: Document, name: str, rows: Sequence[EffectRow], means: Adjusted
) -> Iterator[Captioned]:
    """Those that are there; or the two largest, so that a reader sees what parallel lines look like."""
    from markupsafe import Markup

    from iotrial.report.plots.factorial import interaction

    study = document.trial.header.study
    crossed = sorted(
        (row for row in rows if row.effect.kind == "interaction"), key=lambda row: -strength(row.effect)
    )
    loud = [row for row in crossed if row.effect.verdict not in QUIET]
    for number, row in enumerate((loud or crossed[:_FEWEST_INTERACTIONS])[:MOST_INTERACTIONS]):
        pair = pair_of(row.effect, study)
        if pair is None:
            continue
        (a, level, reference), (b, on, off) = pair.first, pair.second
        places = [[means.cell((a, x), (b, y)) for x in (reference, level)] for y in (off, on)]
        if any(place is None for line in places for place in line):
            continue
        cells = [[means.natural(place or 0.0) for place in line] for line in places]
        caption = f"{row.sentence}{f' But {row.aliases}.' if row.aliases else ''} Parallel lines would mean no interaction."
        figure = interaction(
            f"{name}-{number}",
            (shown(a), (shown(reference), shown(level))),
            (shown(b), (shown(off), shown(on))),
            cells,
            unit=means.response.unit,
            log=means.response.scale is Scale.LOG,
            description=caption,
        )
        yield Captioned(Markup(figure), caption, f"{shown(a)} × {shown(b)}")


def _name(row: EffectRow) -> str:
    effect = row.effect
    if effect.kind == "interaction":
        return row.comparison
    return f"{shown(effect.factor)} {shown(effect.level)}"
