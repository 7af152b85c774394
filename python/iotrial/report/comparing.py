"""Comparison of several trials: the same study on several machines, disks, kernels or dates.

Every trial is analysed at its alpha divided by the number of trials, so that all intervals of a family hold
simultaneously. Two intervals that do not overlap then show that the effect differs between the trials. If all overlap,
nothing is shown; in particular not that the effects are equal. Medians are compared too, but measurements from another
day and another machine were not randomised, so they get no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from iotrial.errors import RequestError
from iotrial.report.analysed import Analysed, Level
from iotrial.report.comparison import (
    Agreement,
    Apart,
    Cell,
    Column,
    Comparison,
    Gain,
    LevelRow,
    Row,
    differences_of,
    gain_of,
    gain_of_ratio,
    machines_of,
)
from iotrial.report.notation import elided, joined
from iotrial.report.risks import risk_of
from iotrial.stats.model import Conclusion, Effect, Verdict
from iotrial.study.model import Scale
from iotrial.terminal import escape

LONGEST_NAME = 40
_OPPOSITES = (
    {Verdict.FASTER, Verdict.SLOWER},
    {Verdict.BETTER, Verdict.WORSE},
    {Verdict.HIGHER, Verdict.LOWER},
)


def compare(trials: Sequence[Analysed], *, names: Mapping[str, str] | None = None) -> Comparison:
    """Compare two or more trials, each analysed with ``share=len(trials)``.

    ``names`` gives names by id to trials that are not in the store. Raises RequestError if there are fewer than two, if
    one occurs twice, or if one of another study shares no comparison with the others.
    """
    refuse_too_few(len(trials))
    _refuse_twice(trials)
    wrong = [one.id for one in trials if one.share != len(trials)]
    if wrong:
        raise ValueError(f"trial {wrong[0]} is not analysed at alpha / {len(trials)}")
    columns = tuple(
        Column(_mark(i), _name(one, names or {}), one, machine)
        for i, (one, machine) in enumerate(zip(trials, machines_of(trials), strict=True))
    )
    rows = tuple(_rows(trials))
    _refuse_strangers(columns, rows)
    return Comparison(
        columns=columns,
        rows=rows,
        levels=_ordered(_levels(trials), rows),
        differences=differences_of(trials),
        alpha=sum(one.alpha for one in trials) / len(trials),
    )


def refuse_too_few(count: int) -> None:
    """Raise RequestError if there is nothing to compare."""
    if count < 2:
        raise RequestError(
            f"a comparison needs two or more trials, found {count}", hint="`iotrial trials` lists them"
        )


def _refuse_twice(trials: Sequence[Analysed]) -> None:
    seen: dict[str, Analysed] = {}
    for one in trials:
        if one.id in seen:
            named = f"trial {one.number}" if one.number else f"trial {escape(one.id)[:12]}"
            raise RequestError(
                f"{named} is named twice: a trial cannot be compared with itself",
            )
        seen[one.id] = one


def _refuse_strangers(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Reject a trial of another study that shares no comparison with any other."""
    sharing = {position for row in rows if row.shared for position in row.has}
    studies = [column.trial.study for column in columns]
    for position, column in enumerate(columns):
        if position not in sharing and studies.count(studies[position]) == 1:
            others = joined(
                dict.fromkeys(f'"{escape(name)}"' for name in studies if name != studies[position])
            )
            raise RequestError(
                f'{column.name} is of study "{escape(column.trial.study)}" and has no comparison in '
                f"common with the others, of {others}",
                hint="compare trials of one study: `iotrial run --like FILE` runs the study of a packed trial here",
            )


def _mark(position: int) -> str:
    """Return A to Z, then AA, AB, ..."""
    text = ""
    position += 1
    while position:
        position, rest = divmod(position - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _name(one: Analysed, names: Mapping[str, str]) -> str:
    name = names.get(one.id) or (f"trial {one.number}" if one.number else f"trial {one.id[:12]}")
    return elided(escape(name), LONGEST_NAME)


def _key(effect: Effect) -> tuple[object, ...]:
    return (
        effect.kind,
        tuple(sorted(effect.condition.items())),
        effect.workload,
        effect.response,
        effect.unit,
        effect.scale,
        effect.better,
        effect.factor,
        effect.level,
        effect.reference,
    )


def _rows(trials: Sequence[Analysed]) -> Iterator[Row]:
    """Yield rows in the order in which trials first have them.

    The rows of one response under one condition are kept together; means over conditions come last.
    """
    found: dict[tuple[object, ...], list[Cell | None]] = {}
    for position, trial in enumerate(trials):
        for effect in trial.effects:
            cells = found.setdefault(_key(effect), [None] * len(trials))
            cells[position] = Cell(effect, trial.valid, gain_of(effect), risk_of(effect, trial.risks))
    rows = [_row(cells) for cells in found.values()]
    places = {place: number for number, place in enumerate(dict.fromkeys(map(_place, rows)))}
    yield from sorted(rows, key=lambda row: (row.like.kind == "pooled", places[_place(row)]))


def _place(row: Row | LevelRow) -> tuple[object, ...]:
    return row.like.workload, tuple(sorted(row.like.condition.items())), row.like.response


def _row(cells: Sequence[Cell | None]) -> Row:
    effect = next(cell.effect for cell in cells if cell is not None)
    counting = [(i, cell.effect) for i, cell in enumerate(cells) if cell is not None and cell.counts]
    apart = tuple(one for a, b in combinations(counting, 2) if (one := _apart(a, b)) is not None)
    if sum(cell is not None for cell in cells) < 2:
        agreement = Agreement.ALONE
    elif len(counting) < 2:
        agreement = Agreement.OPEN
    else:
        agreement = Agreement.DIFFERS if apart else Agreement.NOT_SHOWN
    verdicts = [cell.verdict for cell in cells if cell is not None and cell.verdict is not None]
    sided = {
        cell.verdict for cell in cells if cell is not None and cell.effect.conclusion is not Conclusion.VARIES
    }
    return Row(
        like=effect,
        cells=tuple(cells),
        agreement=agreement,
        apart=apart,
        verdict=verdicts[0] if len(verdicts) > 1 and len(set(verdicts)) == 1 else None,
        opposite=any(pair <= sided for pair in _OPPOSITES),
    )


def _apart(one: tuple[int, Effect], other: tuple[int, Effect]) -> Apart | None:
    """Return the gap between two disjoint intervals. Ends are inclusive; None means unbounded."""
    for (i, low), (j, high) in ((one, other), (other, one)):
        if low.high is not None and high.low is not None and low.high < high.low:
            if low.scale is Scale.DIFFERENCE:
                return Apart(i, j, high.low - low.high)
            return Apart(i, j, high.low / low.high if low.high > 0 else None)
    return None


def _levels(trials: Sequence[Analysed]) -> Iterator[LevelRow]:
    found: dict[tuple[object, ...], list[Level | None]] = {}
    for position, trial in enumerate(trials):
        for one in trial.levels:
            key = (tuple(sorted(one.condition.items())), one.workload, one.arm, one.response, one.unit)
            found.setdefault(key, [None] * len(trials))[position] = one
    for levels in found.values():
        first = next(level for level in levels if level is not None)
        yield LevelRow(
            first,
            medians=tuple(None if level is None else level.median for level in levels),
            runs=tuple(0 if level is None else level.runs for level in levels),
            bounds=tuple((None, None) if level is None else (level.low, level.high) for level in levels),
            changes=tuple(_change(level, first) for level in levels),
        )


def _change(level: Level | None, first: Level) -> Gain | None:
    """Return how the median of an arm differs from that of another trial, with the ratios of opposite bounds."""
    if level is None or level is first or min(level.median, first.median) <= 0.0:
        return None
    low = level.low / first.high if level.low is not None and first.high else None
    high = level.high / first.low if level.high is not None and first.low else None
    return gain_of_ratio(level.median / first.median, low, high, timed=level.unit == "s")


def _ordered(levels: Iterable[LevelRow], rows: Sequence[Row]) -> tuple[LevelRow, ...]:
    """Order levels by condition as in the comparisons, references first. The input has them in the order arms first ran."""
    places = [_place(row) for row in rows]
    labels = [label for row in rows for label in (row.like.reference, row.like.level)]

    def rank(level: LevelRow) -> tuple[int, int]:
        place = _place(level)
        at = places.index(place) if place in places else len(places)
        return at, labels.index(level.like.arm) if level.like.arm in labels else len(labels)

    return tuple(sorted(levels, key=rank))
