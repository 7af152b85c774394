"""Forest plots: every effect with its interval, a sentence on what they show, and their numbers.

Also the figures of a study of several factors: half-normal plot, main effects, interactions, each with such a sentence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.design.lenth import half_normal_quantiles, lenth_pse
from iotrial.report.document import Document
from iotrial.report.factorial_charts import MOST_BARS, Line, Point, half_normal, interaction, main_effects
from iotrial.report.figure import Figure, Row, headed, stem
from iotrial.report.findings import is_screen, strength
from iotrial.report.interactions import Adjusted, is_interaction, pair_of
from iotrial.report.interval_charts import MOST_ROWS, forest
from iotrial.report.notation import capitalised, joined, percent, plain
from iotrial.report.phrases import interval, level_name, spoken
from iotrial.report.rows import EffectRow
from iotrial.stats.model import QUIET, Conclusion
from iotrial.study.model import Scale
from iotrial.terminal import escape

COLUMNS = (
    "condition", "comparison", "response", "scale", "unit", "estimate", "low", "high", "p (anytime)", "blocks",
    "failed runs", "verdict",
)  # fmt: skip


def effect_figures(document: Document) -> tuple[Figure, ...]:
    """Return one forest plot per scale, with all conditions; for a screening design one per condition and response."""
    found = []
    for name, group, rows in _groups(document):
        scale = rows[0].effect.scale
        file = stem("effects", group) if group else "effects" if scale is Scale.LOG else "effects-differences"
        crossed = any(is_interaction(row.effect) for row in rows)
        more = (
            " Interactions are drawn as half differences, on the same scale as main effects."
            if crossed
            else ""
        )
        found.append(_forest(document, f"forest-{name}", rows, file, _question(group, scale), more))
    return tuple(found)


def forest_of(document: Document, rows: Sequence[EffectRow]) -> Figure:
    """Return one forest plot of these effects, of all that are on the scale of the first."""
    drawn = [row for row in rows if row.effect.scale is rows[0].effect.scale]
    return _forest(document, "forest", drawn, "effects", document.title)


def _forest(
    document: Document, name: str, rows: Sequence[EffectRow], file: str, title: str, more: str = ""
) -> Figure:
    margin, valid = document.trial.header.margin, document.valid
    return Figure(
        stem=file,
        title=title,
        sentence=seen(rows, valid=valid),
        reading=_reading(rows, margin=margin, most=MOST_ROWS) + more,
        columns=COLUMNS,
        rows=tuple(row_of(row, valid=valid) for row in rows),
        parts=(forest(name, rows, margin=margin, narrow=False),),
        narrow=forest(f"{name}-narrow", rows, margin=margin, narrow=True),
    )


def _question(group: str, scale: Scale) -> str:
    question = (
        "How large is each effect?" if scale is Scale.LOG else "How large is each effect, as a difference?"
    )
    return f"{question} ({group})" if group else question


def _groups(document: Document) -> list[tuple[str, str, list[EffectRow]]]:
    if not is_screen(document.trial.header.study):
        scales = [(scale, [r for r in document.primary if r.effect.scale is scale]) for scale in Scale]
        return [(scale.value, "", rows) for scale, rows in scales if rows]
    groups: dict[tuple[str, str], list[EffectRow]] = {}
    for row in document.primary:
        groups.setdefault((row.condition.key, row.effect.response), []).append(row)
    drawn = list(groups.values())[:MOST_CONDITIONS]
    titles = [f"{rows[0].condition.text}, {spoken(rows[0].effect.response)}" for rows in drawn]
    return [
        (f"screen-{i}", title if len(groups) > 1 else "", rows)
        for i, (title, rows) in enumerate(zip(titles, drawn, strict=True))
    ]


def row_of(row: EffectRow, *, valid: bool) -> Row:
    """Return one effect as a row of data, in the order of ``COLUMNS``."""
    effect = row.effect
    return (
        row.condition.text, row.comparison, spoken(effect.response), "ratio" if effect.scale is Scale.LOG else "difference",
        "" if effect.scale is Scale.LOG else effect.unit, effect.value, effect.low, effect.high, effect.p_anytime,
        effect.blocks, effect.failures, row.verdict if valid else "no verdict",
    )  # fmt: skip


def seen(rows: Sequence[EffectRow], *, valid: bool) -> str:
    """Return the verdicts that a figure shows: "3 slower and 1 undecided."; of one effect its interval."""
    if not valid:
        return "The trial is invalid: no interval is a verdict."
    if len(rows) == 1:
        return f"{capitalised(rows[0].comparison)}: {interval(rows[0].effect)}, {rows[0].verdict}."
    words = Counter("undecided" if row.effect.conclusion.open else row.verdict for row in rows)
    return f"{joined(f'{number:,} {word}' for word, number in words.most_common())}."


def _reading(rows: Sequence[EffectRow], *, margin: float, most: int) -> str:
    log = rows[0].effect.scale is Scale.LOG
    null = "1" if log else "0"
    text = f"An interval that does not touch {null} is an effect"
    if log:
        text += f"; one that stays inside the band is equivalent within {percent(margin)}"
    text += ". A triangle shows the direction, a full dot means equivalent, a hollow one undecided; an arrow "
    text += "means that the interval has no bound, two strokes that it ends outside the picture."
    if len(rows) > most:
        text += f" The first {most} of {len(rows)} are drawn; the table has all."
    return text


MOST_CONDITIONS = 6
MOST_INTERACTIONS = 6
PARALLEL = "Parallel lines would mean no interaction."
_UNMOVED = frozenset(one.words for one in Conclusion if one.equivalent or one.open)
_FEWEST_POINTS = 6
_FEWEST_INTERACTIONS = 2


@dataclass(frozen=True, slots=True)
class FactorialFigures:
    """The figures of one primary response in one condition."""

    title: str
    half_normal: Figure | None
    main_effects: Figure | None
    interactions: tuple[Figure, ...]

    def every(self) -> Iterator[Figure]:
        """Yield each figure, in the order of the page."""
        yield from (figure for figure in (self.half_normal, self.main_effects) if figure is not None)
        yield from self.interactions


def factorial_figures(document: Document) -> tuple[FactorialFigures, ...]:
    """Return one group per condition and primary response, at most ``MOST_CONDITIONS``; none for a single factor."""
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
                _half_normal(f"half-normal-{index}", title, rows, valid=document.valid),
                _main_effects(document, f"main-effects-{index}", title, rows, means),
                tuple(_interactions(document, f"interaction-{index}", title, rows, means)),
            )
        )
    return tuple(found)


def _half_normal(name: str, place: str, rows: Sequence[EffectRow], *, valid: bool) -> Figure | None:
    known = [row for row in rows if row.effect.value is not None]
    if len(known) < _FEWEST_POINTS:
        return None
    points = [
        Point(
            _name(row),
            strength(row.effect),
            row.effect.kind == "interaction",
            row.effect.conclusion.words,
            risk=bool(row.risk),
        )
        for row in known
    ]
    log = known[0].effect.scale is Scale.LOG
    pse = lenth_pse([point.size for point in points])
    beyond = sorted((p for p in points if p.size > 2.5 * pse), key=lambda p: -p.size)
    guide = percent(math.expm1(pse)) if log else plain(pse)
    # with its verdict, since a point above the line need not be an effect
    named = joined((f"{point.label} ({point.verdict})" if valid else point.label) for point in beyond[:4])
    more = f" and {len(beyond) - 4} more" if len(beyond) > 4 else ""
    seen = (
        f"{named}{more} {'lies' if len(beyond) == 1 else 'lie'} well above the dashed line"
        if beyond
        else "Nothing lies well above the dashed line"
    )
    if beyond and not valid:
        seen += "; the trial is invalid, so these are not effects"
    reading = (
        f"If there were no effects, all points would lie along the dashed line (Lenth's pseudo standard error, {guide}). "
        "The line is a guide to the eye, not a verdict."
    )
    if any(point.crossed for point in points):
        reading += " Diamonds are interactions, as half differences."
    wide, narrow = (
        half_normal(name + end, points, log=log, description=f"{seen}. {reading}", narrow=bool(end))
        for end in ("", "-narrow")
    )
    ordered = sorted(points, key=lambda point: point.size)
    return Figure(
        stem=stem("half-normal", place),
        title=headed("Which effects stand out from noise?", place),
        sentence=f"{seen}.",
        reading=reading,
        columns=("effect", "interaction", "half-normal quantile", f"size [{'ln ratio' if log else known[0].effect.unit}]",
                 "verdict"),
        rows=tuple(
            (point.label, "yes" if point.crossed else "no", float(quantile), point.size,
             point.verdict if valid else "no verdict")
            for quantile, point in zip(half_normal_quantiles(len(ordered)), ordered, strict=True)
        ),
        parts=(wide,),
        narrow=narrow,
    )  # fmt: skip


def _main_effects(
    document: Document, name: str, place: str, rows: Sequence[EffectRow], means: Adjusted
) -> Figure | None:
    lines = _lines(document, rows, means)
    if len(lines) < 2:
        return None
    log = means.response.scale is Scale.LOG
    reading = (
        "Mean response at each level (hollow: reference), with differences between blocks removed: the longer a "
        "line, the larger the effect."
    )
    if len(lines) > MOST_BARS:
        reading += f" The {MOST_BARS} largest of {len(lines)} are drawn."
    sentence = _longest(lines, log=log, valid=document.valid)
    wide, narrow = (
        main_effects(name + end, lines, log=log, description=f"{sentence} {reading}", narrow=bool(end))
        for end in ("", "-narrow")
    )
    mean = "ratio to the mean of all treatments" if log else f"difference to the mean [{means.response.unit}]"
    return Figure(
        stem=stem("main-effects", place),
        title=headed("What does each factor do by itself?", place),
        sentence=sentence,
        reading=reading,
        columns=("factor", "level", "reference", mean, "verdict"),
        rows=tuple(
            (line.name, label, "no" if number else "yes", math.exp(at) if log else at,
             line.verdict if document.valid else "no verdict")
            for line in lines
            for number, (label, at) in enumerate(zip(line.labels, line.places, strict=True))
        ),
        parts=(wide,),
        narrow=narrow,
    )  # fmt: skip


def _lines(document: Document, rows: Sequence[EffectRow], means: Adjusted) -> list[Line]:
    """Return one line per factor, the one with the largest effect first."""
    study = document.trial.header.study
    mains = [row for row in rows if row.effect.kind == "main"]
    lines = []
    for factor_name in dict.fromkeys(
        row.effect.factor for row in sorted(mains, key=lambda row: -strength(row.effect))
    ):
        factor = next((f for f in study.treatment_factors if f.name == factor_name), None)
        if factor is None:
            continue
        placed = [
            (label, place)
            for label in (factor.reference, *factor.others)
            if (place := means.level(factor.name, label)) is not None
        ]
        if len(placed) < 2:
            continue
        own = [row.effect for row in mains if row.effect.factor == factor_name]
        loud = next((effect for effect in own if effect.verdict not in QUIET), own[0])
        lines.append(
            Line(
                escape(factor.name),
                tuple(escape(label) for label, _ in placed),
                tuple(place for _, place in placed),
                loud.conclusion.words,
                risk=any(row.risk for row in mains if row.effect.factor == factor_name),
            )
        )
    return lines


def _longest(lines: Sequence[Line], *, log: bool, valid: bool) -> str:
    """Describe the longest line with its ends and verdict; count the factors that are neither equivalent nor undecided."""
    line = max(lines, key=lambda one: max(one.places) - min(one.places))
    low, high = (line.places.index(end) for end in (min(line.places), max(line.places)))

    def at(place: int) -> str:
        value = math.exp(line.places[place]) if log else line.places[place]
        return f"{value:.3f}" if log else plain(value)

    ends = f"{at(low)} at {line.labels[low]}, {at(high)} at {line.labels[high]}"
    if not valid:
        return f"The longest line is that of {line.name}: {ends}. The trial is invalid, so there are no verdicts."
    loud = sum(one.verdict not in _UNMOVED for one in lines)
    return (
        f"The longest line is that of {line.name} ({line.verdict}): {ends}; {loud} of {len(lines)} factors "
        f"{'has' if loud == 1 else 'have'} a level that is neither equivalent nor undecided."
    )


def _interactions(
    document: Document, name: str, place: str, rows: Sequence[EffectRow], means: Adjusted
) -> Iterator[Figure]:
    """Yield the interactions with an effect, or else the two largest, so that a reader sees what parallel lines look like."""
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
        sentence = f"{row.sentence}{f' But {row.aliases}.' if row.aliases else ''}"
        if not document.valid:
            sentence = "The trial is invalid, so there is no verdict on this interaction."
        unit = means.response.unit
        drawing = interaction(
            f"{name}-{number}",
            (escape(a), (escape(reference), escape(level))),
            (escape(b), (escape(off), escape(on))),
            cells,
            unit=unit,
            log=means.response.scale is Scale.LOG,
            description=f"{sentence} {PARALLEL}",
        )
        yield Figure(
            stem=stem("interaction", escape(a), escape(b), place),
            title=f"Does {escape(a)} change the effect of {escape(b)}?",
            sentence=sentence,
            reading=PARALLEL,
            columns=(escape(a), escape(b), f"mean {spoken(means.response.name)} [{unit}]"),
            rows=tuple(
                (escape(x), escape(y), cells[i][j])
                for i, y in enumerate((off, on))
                for j, x in enumerate((reference, level))
            ),
            parts=(drawing,),
        )


def _name(row: EffectRow) -> str:
    effect = row.effect
    if effect.kind == "interaction":
        return row.comparison
    return level_name(effect)
