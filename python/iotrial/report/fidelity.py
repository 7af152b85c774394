"""Whether a workload that represents another one (a replay its application) leads to the same verdicts.

A study says ``stands_for = "NAME"`` on the workload that is to stand for another one. Every primary comparison of the
application is set against that of its stand-in under the same condition:

- same: both are decided, and both say faster, or slower, or equivalent;
- different: both are decided and say opposite things, or one says faster or slower and the other equivalent. Two
  settings also rank differently if either workload has them apart, in opposite order;
- open: at least one is undecided, or one is only probably faster or slower and the other equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

from msgspec import Meta

from iotrial.documents import JsonObject, Labels
from iotrial.report.blocks import Block, Group, Note, Row, Section, Table, View, Words, heads, table
from iotrial.report.evidence import EvidenceRow
from iotrial.report.metrics import words_of
from iotrial.report.notation import counted, joined, quantity, some
from iotrial.report.phrases import interval, interval_title
from iotrial.report.rows import EffectRow
from iotrial.stats.model import Conclusion, Effect
from iotrial.study.model import Better, Study, Workload
from iotrial.terminal import escape
from iotrial.units import format_ratio

TITLE = "Does the replay stand for the application?"
Agreement = Literal["same", "different", "open"]
Standing = Literal["stands", "differs", "open"]
_HIT, _ASKED = "work_cache_hit_bytes", "work_read_bytes"
HIT_RATE = "cache_hit_rate"
#: what both did, from the counters around each run
METRICS = (
    "work_read_bytes",
    "work_written_bytes",
    "work_read_calls",
    "work_write_calls",
    "device_read_bytes",
    "device_write_bytes",
    "device_read_ios",
    "device_write_ios",
    "device_flush_ios",
)
_MOST_NAMED = 3


class Side(JsonObject, frozen=True):
    """One workload's effect."""

    response: str
    value: float | None
    low: float | None
    high: float | None
    conclusion: Conclusion
    blocks: int


class Compared(JsonObject, frozen=True):
    """One comparison of settings, on the application and on its stand-in."""

    factor: str
    level: str
    reference: str
    condition: Labels
    application: Side
    stand_in: Side
    agreement: Agreement


class Amount(JsonObject, frozen=True):
    """What both did with one setting: medians of a counter, over the runs that count."""

    treatment: str
    condition: Labels
    metric: str
    unit: str
    application: float
    stand_in: float


class StandIn(JsonObject, frozen=True):
    """How well one workload stands for another."""

    stand_in: str
    application: str
    standing: Annotated[
        Standing,
        Meta(
            description="stands: every comparison has the same verdict; differs: at least one has another, so that settings "
            "rank differently"
        ),
    ]
    sentence: str
    comparisons: tuple[Compared, ...]
    ranked_differently: Annotated[
        tuple[str, ...], Meta(description="the comparisons that differ, and pairs of levels in another order")
    ]
    amounts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """A stand-in with the rows of its comparisons, for the tables of a report."""

    found: StandIn
    rows: tuple[tuple[EffectRow, EffectRow, Agreement], ...]


def fidelities(
    study: Study, effects: Sequence[EffectRow], evidence: Sequence[EvidenceRow], *, valid: bool
) -> tuple[Fidelity, ...]:
    """Return one for each workload that stands for another one, if both were compared."""
    names = {workload.name for workload in study.workloads}
    found = (
        _fidelity(workload, effects, evidence, valid=valid)
        for workload in study.workloads
        if workload.stands_for in names
    )
    return tuple(one for one in found if one.rows)


def _fidelity(
    workload: Workload, effects: Sequence[EffectRow], evidence: Sequence[EvidenceRow], *, valid: bool
) -> Fidelity:
    application = str(workload.stands_for)
    rows = tuple(
        (own, its, _agreement(own.effect, its.effect) if valid else "open")
        for own, its in _pairs(effects, application, workload.name)
    )
    comparisons = tuple(_compared(own.effect, its.effect, agreement) for own, its, agreement in rows)
    apart = tuple(_ranked_differently(rows)) if valid else ()
    same = sum(agreement == "same" for _, _, agreement in rows)
    standing: Standing = "differs" if apart else "stands" if same == len(rows) else "open"
    sentence = _sentence(application, workload.name, standing, same, len(rows), apart)
    amounts = tuple(_amounts(evidence, application, workload.name))
    return Fidelity(
        StandIn(workload.name, application, standing, sentence, comparisons, apart, amounts), rows
    )


def _pairs(
    effects: Iterable[EffectRow], application: str, stand_in: str
) -> Iterator[tuple[EffectRow, EffectRow]]:
    """Yield every primary comparison of the application with that of its stand-in: on the response of the same name, or
    else on its first."""
    main = [row for row in effects if row.effect.kind == "main" and row.effect.primary]
    own = [row for row in main if row.condition.workload == application]
    its: dict[tuple[object, ...], list[EffectRow]] = {}
    for row in main:
        if row.condition.workload == stand_in:
            its.setdefault(_place(row), []).append(row)
    for row in own:
        others = its.get(_place(row), [])
        same = [other for other in others if other.effect.response == row.effect.response]
        if same or others:
            yield row, (same or others)[0]


def _place(row: EffectRow) -> tuple[object, ...]:
    effect = row.effect
    return effect.factor, effect.level, effect.reference, tuple(sorted(row.condition.levels.items()))


def _agreement(own: Effect, its: Effect) -> Agreement:
    one, other = _direction(own), _direction(its)
    if one is None or other is None:
        return "open"
    if one == other:
        return "same"
    if 0 in (one, other) and (own.conclusion.probable or its.conclusion.probable):
        return "open"  # a probable effect may be inside the margin too
    return "different"


def _direction(effect: Effect) -> int | None:
    """Return 1 for better, -1 for worse, 0 for equivalent, None for undecided.

    Of a response without a better direction, higher is 1.
    """
    conclusion = effect.conclusion
    if conclusion.open or conclusion is Conclusion.VARIES:
        return None
    if conclusion.equivalent or conclusion.only_typically:
        return 0
    word = conclusion.value.removeprefix("probably_")
    return 1 if conclusion.improves or word == Conclusion.HIGHER else -1


def _ranked_differently(rows: Sequence[tuple[EffectRow, EffectRow, Agreement]]) -> Iterator[str]:
    for own, its, agreement in rows:
        if agreement == "different":
            yield (
                f"{own.comparison}: {own.effect.conclusion.words} for {escape(own.condition.workload)}, "
                f"{its.effect.conclusion.words} for {escape(its.condition.workload)}"
            )
    for (one, its_one, _), (other, its_other, _) in combinations(rows, 2):
        if _family(one) != _family(other):
            continue
        own_order, its_order = _order(one.effect, other.effect), _order(its_one.effect, its_other.effect)
        if own_order * its_order < 0:
            yield (
                f"{escape(one.effect.level)} and {escape(other.effect.level)}: in another order than for "
                f"{escape(one.condition.workload)}"
            )


def _family(row: EffectRow) -> tuple[object, ...]:
    effect = row.effect
    return effect.factor, effect.reference, effect.response, row.condition.key


def _order(one: Effect, other: Effect) -> int:
    """Return 1 if one level is better than the other by the whole of their intervals, -1 if worse, 0 if they overlap."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return 0
    sign = 1 if one.better is not Better.LOWER else -1
    if one.low > other.high:
        return sign
    return -sign if one.high < other.low else 0


def _compared(own: Effect, its: Effect, agreement: Agreement) -> Compared:
    condition = {name: label for name, label in own.condition.items() if name != "workload"}
    return Compared(own.factor, own.level, own.reference, condition, _side(own), _side(its), agreement)


def _side(effect: Effect) -> Side:
    return Side(effect.response, effect.value, effect.low, effect.high, effect.conclusion, effect.blocks)


def _sentence(
    application: str, stand_in: str, standing: Standing, same: int, every: int, apart: Sequence[str]
) -> str:
    application, stand_in = escape(application), escape(stand_in)
    comparisons = counted(every, "comparison")
    if standing == "stands":
        return (
            f"{stand_in} stands for {application}, as far as was compared: it has the same verdict in "
            f"{'the one comparison' if every == 1 else f'all {comparisons}'}."
        )
    if standing == "differs":
        return (
            f"{stand_in} does not stand for {application}: it ranks settings differently "
            f"({joined(some(apart, _MOST_NAMED))}). Do not choose settings for {application} by it."
        )
    have = "has" if same == 1 else "have"
    return (
        f"Whether {stand_in} stands for {application} is open: {same} of {comparisons} {have} the same verdict, and the "
        "others are undecided for one of the two."
    )


def _amounts(evidence: Sequence[EvidenceRow], application: str, stand_in: str) -> Iterator[Amount]:
    own, its = (_medians(evidence, name) for name in (application, stand_in))
    for (place, metric), (row, value) in own.items():
        other = its.get((place, metric))
        if other is not None and (value or other[1]):
            treatment, levels = place
            yield Amount(treatment, dict(levels), metric, row.unit, value, other[1])


_Place = tuple[str, tuple[tuple[str, str], ...]]


def _medians(
    evidence: Sequence[EvidenceRow], workload: str
) -> dict[tuple[_Place, str], tuple[EvidenceRow, float]]:
    rows: dict[tuple[_Place, str], EvidenceRow] = {}
    for row in evidence:
        if row.condition.workload == workload and row.metric in (*METRICS, _HIT):
            place = row.treatment, tuple(sorted(row.condition.levels.items()))
            rows[place, row.metric] = row
    found = {}
    for place in dict.fromkeys(place for place, _ in rows):
        for metric in METRICS:
            one = rows.get((place, metric))
            if one is not None:
                found[place, metric] = (one, one.value)
        hit, asked = rows.get((place, _HIT)), rows.get((place, _ASKED))
        if hit is not None and asked is not None and asked.value > 0:
            found[place, HIT_RATE] = (hit, hit.value / asked.value)
    return found


# blocks


def fidelity_warnings(found: Sequence[Fidelity]) -> Iterator[Note]:
    """Yield a note for the top of the report where a stand-in ranks settings differently."""
    for one in found:
        if one.found.standing == "differs":
            yield Note(one.found.sentence, "Replay", "risk")


def fidelity_sections(found: Sequence[Fidelity]) -> Iterator[Section]:
    """Yield the section of each stand-in."""
    for number, one in enumerate(found):
        title = TITLE if len(found) == 1 else f"{TITLE[:-1]} {escape(one.found.application)}?"
        # A warning at the top has said it already.
        note = Note(one.found.sentence, view=View.LONG if one.found.standing == "differs" else View.ALL)
        blocks: tuple[Block, ...] = (note, _comparisons(one), *_tables_of_amounts(one))
        yield Section(title, blocks, id="fidelity" if not number else f"fidelity-{number}")


def _comparisons(one: Fidelity) -> Table:
    numbers = interval_title(row.effect.scale for own, its, _ in one.rows for row in (own, its))
    several = len({own.condition.key for own, _, _ in one.rows}) > 1
    groups = []
    for own, its, agreement in one.rows:
        name = f"{own.comparison}, {_conditions(own)}" if several else own.comparison
        words = "open" if agreement == "open" else f"{agreement} verdict"
        rows = tuple(
            Row(
                (
                    escape(row.condition.workload),
                    interval(row.effect),
                    f"{row.effect.blocks:,}",
                    Words(row.verdict, row.effect.conclusion.tone, badge=True),
                )
            )
            for row in (own, its)
        )
        groups.append(Group(rows, f"{name}: {words}"))
    columns = heads("~workload", f">{numbers}", ">blocks", "~verdict")
    return Table(columns, tuple(groups), noun="comparison", whole=True, view=View.LONG)


def _conditions(row: EffectRow) -> str:
    return ", ".join(f"{name} {label}" for name, label in row.condition.parts if name != "workload")


def _tables_of_amounts(one: Fidelity) -> Iterator[Table]:
    treatments = list(
        dict.fromkeys((row.treatment, tuple(row.condition.items())) for row in one.found.amounts)
    )
    for treatment, levels in treatments:
        rows = [
            row
            for row in one.found.amounts
            if (row.treatment, tuple(row.condition.items())) == (treatment, levels)
        ]
        with_levels = ", ".join(f"{escape(name)} {escape(label)}" for name, label in levels)
        yield table(
            (
                "median of a run",
                f">{escape(one.found.application)}",
                f">{escape(one.found.stand_in)}",
                ">ratio",
            ),
            (_amount_row(row) for row in rows),
            title=f"With {escape(treatment)}{f', {with_levels}' if with_levels else ''}",
            view=View.LONG,
        )


def _amount_row(row: Amount) -> tuple[str, ...]:
    if row.metric == HIT_RATE:
        name = "share of the bytes read from the page cache, at least"
        texts = [f"{100 * value:.3g} %" for value in (row.application, row.stand_in)]
    else:
        name = words_of(row.metric)
        texts = [quantity(value, row.unit) for value in (row.application, row.stand_in)]
    ratio = row.stand_in / row.application if row.application else math.inf
    return name, *texts, format_ratio(ratio) if math.isfinite(ratio) else "–"
