"""The forest plots: every effect with its interval, what they show in a sentence, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.analysis.model import Verdict
from iotrial.report.document import Document
from iotrial.report.factorial_figures import MOST_CONDITIONS
from iotrial.report.figure import Figure, Row, stem
from iotrial.report.findings import QUIET, width
from iotrial.report.interplay import is_interaction
from iotrial.report.notation import counted, joined, percent
from iotrial.report.phrases import interval, label, level_name, null_value, spoken
from iotrial.report.rows import EffectRow
from iotrial.report.screens import is_screen
from iotrial.study.model import Scale

COLUMNS = (
    "condition", "comparison", "response", "scale", "unit", "estimate", "low", "high", "p (anytime)", "blocks",
    "failed runs", "verdict",
)  # fmt: skip


def effect_figures(document: Document) -> tuple[Figure, ...]:
    """One forest a scale, all conditions beside each other; in a screen one a condition and response, largest first."""
    from iotrial.report.plots.forest import MOST_ROWS, forest

    margin = document.trial.header.margin
    found = []
    for name, title, rows in _groups(document):
        reading = _reading(rows, margin=margin, most=MOST_ROWS)
        if any(is_interaction(row.effect) for row in rows):
            reading += " Interactions are drawn as half differences, on the same scale as main effects."
        scale = rows[0].effect.scale
        found.append(
            Figure(
                stem=stem("effects", title) if title else "effects" if scale is Scale.LOG else "effects-differences",
                title=f"Effects: {title}" if title else "Effects" if scale is Scale.LOG else "Effects, as differences",
                sentence=seen(rows, valid=document.valid),
                reading=reading,
                columns=COLUMNS,
                rows=tuple(row_of(row, valid=document.valid) for row in rows),
                parts=(forest(f"forest-{name}", rows, margin=margin, narrow=False),),
                narrow=forest(f"forest-{name}-narrow", rows, margin=margin, narrow=True),
            )
        )  # fmt: skip
    return tuple(found)


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
    """One effect as a row of data, after ``COLUMNS``."""
    effect = row.effect
    return (
        row.condition.text, row.comparison, spoken(effect.response), "ratio" if effect.scale is Scale.LOG else "difference",
        "" if effect.scale is Scale.LOG else effect.unit, effect.value, effect.low, effect.high, effect.p_anytime,
        effect.blocks, effect.failures, row.verdict if valid else "no verdict",
    )  # fmt: skip


def seen(rows: Sequence[EffectRow], *, valid: bool) -> str:
    """E.g. "Mode 0444 lies right of 0777 (slower) in all 4 conditions; the widest interval is that of cache cold: …"."""
    if not valid:
        return f"The trial is invalid: of {counted(len(rows), 'interval')} none is a verdict{_widest(rows)}."
    text = _by_pair(rows) or _counted(rows)
    return f"{text[:1].upper()}{text[1:]}{_widest(rows)}."


def _by_pair(rows: Sequence[EffectRow]) -> str:
    """Where one level is compared with one reference, and all verdicts agree."""
    first = rows[0].effect
    same = {(r.effect.factor, r.effect.level, r.effect.response, r.effect.conclusion.words) for r in rows}
    places = {_place(row) for row in rows}
    if len(same) > 1 or len(places) > 1 or is_interaction(first):
        return ""
    name, reference = level_name(first), label(first.reference)
    where = f" in {'both' if len(rows) == 2 else f'all {len(rows):,}'} conditions" if len(rows) > 1 else ""
    if first.verdict is Verdict.INCONCLUSIVE:
        return f"Undecided whether {name} lies left or right of {reference}{where}"
    if first.verdict is Verdict.EQUIVALENT:
        return f"{name} is where {reference} is, within the margin (equivalent){where}"
    return f"{name} lies {places.pop()} of {reference} ({rows[0].verdict}){where}"


def _place(row: EffectRow) -> str:
    """ "left" or "right" of no effect by its verdict, else ""."""
    effect = row.effect
    if effect.verdict in QUIET or effect.value is None:
        return ""
    return "left" if effect.value < null_value(effect) else "right"


def _counted(rows: Sequence[EffectRow]) -> str:
    null = f"{null_value(rows[0].effect):g}"
    groups: dict[str, int] = {}
    for row in rows:
        side = _place(row)
        open_one = row.effect.verdict is Verdict.INCONCLUSIVE
        words = "undecided" if open_one else f"{side} of {null} ({row.verdict})" if side else row.verdict
        groups[words] = groups.get(words, 0) + 1
    largest = sorted(groups.items(), key=lambda group: -group[1])
    if len(largest) == 1 and len(rows) > 1:
        return f"{'Both' if len(rows) == 2 else f'All {len(rows):,}'} intervals are {largest[0][0]}"
    if len(rows) == 1:
        return f"The interval is {largest[0][0]}"
    return f"Of {len(rows):,} intervals {joined(f'{number:,} {_are(number)} {words}' for words, number in largest)}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _widest(rows: Sequence[EffectRow]) -> str:
    """The one that says least."""
    if len(rows) < 2:
        return f": {interval(rows[0].effect)}"
    unbounded = sum(math.isinf(width(row.effect)) for row in rows)
    if unbounded:
        return f"; {unbounded:,} {'has' if unbounded == 1 else 'have'} an open end"
    widest = max(rows, key=lambda row: width(row.effect))
    parts = (
        (widest.comparison, len({row.comparison for row in rows})),
        (spoken(widest.effect.response), len({row.effect.response for row in rows})),
        (widest.condition.text, len({row.condition.key for row in rows})),
    )
    name = ", ".join(text for text, different in parts if different > 1) or widest.comparison
    return f"; the widest interval is that of {name}: {interval(widest.effect)}"


def _reading(rows: Sequence[EffectRow], *, margin: float, most: int) -> str:
    log = rows[0].effect.scale is Scale.LOG
    null = "1" if log else "0"
    text = f"An interval that does not touch {null} is an effect"
    if log:
        text += f"; one that stays inside the band is equivalent within {percent(margin)}, and one that "
        text += "ends a little outside it may be, as each side is tested by itself"
    text += ". A triangle points to less or more, a full dot is equivalent, a hollow one undecided; an arrow "
    text += "means that the interval goes on."
    if len(rows) > most:
        text += f" The first {most} of {len(rows)} are drawn; the table has all."
    return text
