"""Findings in words: effects, controls, carry-over and diagnostics; void blocks and failed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import Typical, TypicalValues
from iotrial.report.findings import is_screen, span_sentence, strength
from iotrial.report.interactions import (
    Adjusted,
    AtLevels,
    Split,
    aliases_in_words,
    at_levels,
    comparison,
    interaction_sentence,
    is_interaction,
    only_together,
    split_sentence,
    verdict_word,
)
from iotrial.report.notation import capitalised, named_level
from iotrial.report.phrases import effect_sentence, interval, label, without_interval
from iotrial.report.risks import risk_of
from iotrial.report.safety import NO_RISKS, Risks, risks_of
from iotrial.report.slow_runs import more_slow_runs
from iotrial.report.slow_runs import sentence as slow_sentence
from iotrial.stats.model import CarryOver, Conclusion, Control, Diagnostic, Effect
from iotrial.store.model import TrialData
from iotrial.study.model import Study
from iotrial.terminal import escape


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One effect with its condition and its sentence.

    ``comparison`` and ``verdict`` are the words for a table. ``at_levels`` holds, for an interaction, either factor's
    effect at both levels of the other. ``aliases`` describes what the design cannot distinguish it from. ``risk`` names
    the level that puts data at risk. ``typical`` is the response at the level and at the reference. ``cells``:
    the effect at each level of another factor, where its average describes none of them; ``at`` is a cell's other factor
    and its level.
    """

    effect: Effect
    condition: ConditionText
    sentence: str
    comparison: str
    verdict: str
    at_levels: tuple[AtLevels, ...] = ()
    aliases: str = ""
    risk: str = ""
    typical: tuple[Typical | None, Typical | None] = (None, None)
    cells: tuple[EffectRow, ...] = ()
    at: tuple[str, str] | None = None

    @property
    def answers(self) -> tuple[Effect, ...]:
        """The effect, or those of the cells (kind "cell") if its average describes none of them."""
        return tuple(row.effect for row in self.own_cells) or (self.effect,)

    @property
    def own_cells(self) -> tuple[EffectRow, ...]:
        """The cells that have an interval and a verdict."""
        return tuple(cell for cell in self.cells if cell.effect.kind == "cell")

    @property
    def name(self) -> str:
        """Of a cell, where it holds: "with age on"; else empty."""
        return f"with {named_level(*map(escape, self.at))}" if self.at is not None else ""

    @property
    def size(self) -> str:
        """The effect with its interval, or without if it has none."""
        size = interval(self.effect)
        unbounded = self.effect.low is None and self.effect.high is None
        return without_interval(size) if unbounded else size

    @property
    def place(self) -> str:
        """The condition in words; for a pooled effect, what it is pooled over."""
        return f"pooled over {self.condition.text}" if self.effect.kind == "pooled" else self.condition.text


F = TypeVar("F", Control, CarryOver, Diagnostic)


@dataclass(frozen=True, slots=True)
class Described(Generic[F]):
    """A finding of one condition in words. The first sentence is the main one."""

    finding: F
    condition: ConditionText
    sentences: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The first sentence."""
        return self.sentences[0]


@dataclass(frozen=True, slots=True)
class VoidBlock:
    """One block that was discarded as a whole."""

    condition: ConditionText
    block: int
    rule: str
    level: str
    at_s: float | None


@dataclass(frozen=True, slots=True)
class FailedRun:
    """One run that failed, in words."""

    condition: ConditionText
    block: int
    arm: str
    at_s: float
    message: str


def effect_rows(
    effects: Sequence[Effect],
    conditions: Conditions,
    study: Study,
    adjusted: Mapping[tuple[str, str], Adjusted],
    *,
    margin: float,
    risks: Risks | None = None,
    measured: Risks = NO_RISKS,
    typical: TypicalValues | None = None,
    apart: Sequence[Split] = (),
) -> tuple[EffectRow, ...]:
    """Return the effects as rows, in the study's order.

    Pooled effects come last; the others are ordered by workload and condition, main effects before interactions. Levels
    are in the order of the analysis, except that in a screen, and among interactions, the largest come first.
    """
    screen = is_screen(study)
    risks = risks_of(study) if risks is None else risks
    partners = {
        id(main): f", only with {label(other[0])} {label(other[1])}"
        for one in only_together(effects, study, adjusted)
        for main, other in zip(one.mains, (one.second, one.first), strict=True)
    }
    split = {id(one.main): one for one in apart}
    rows = []
    for original in effects:
        one = split.get(id(original))
        effect = original if one is None else replace(original, averaged=True)
        condition = conditions.of_effect(effect)
        crossed = is_interaction(effect)
        sentence = (
            f"{capitalised(interaction_sentence(effect, study, margin=margin))}."
            if crossed
            else effect_sentence(effect, margin=margin) + slow_sentence(effect)
        )
        if one is not None:
            sentence = f"{capitalised(split_sentence(one, ''))}."
        elif effect.conclusion is Conclusion.VARIES:
            sentence = f"{span_sentence(effect, conditions)}."
        means = adjusted.get((condition.key, effect.response))
        word = "average, see below" if one is not None else verdict_word(effect) + more_slow_runs(effect)
        row = EffectRow(
            effect,
            condition,
            sentence,
            comparison(effect, study),
            word + partners.get(id(original), ""),
            at_levels(effect, study, means) if crossed else (),
            aliases_in_words(effect),
            risk_of(effect, risks, measured),
            _typical(effect, condition.key, typical),
        )
        rows.append(row if one is None else replace(row, cells=tuple(_cells(row, one, typical))))

    def rank(row: EffectRow) -> tuple[object, ...]:
        effect = row.effect
        crossed = is_interaction(effect)
        size = -strength(effect) if crossed or screen else 0.0
        return effect.kind == "pooled", row.condition.order, effect.response if screen else "", crossed, size

    return tuple(sorted(rows, key=rank))


def with_cells(rows: Iterable[EffectRow]) -> Iterator[EffectRow]:
    """Yield every row, each followed by its cells."""
    for row in rows:
        yield row
        yield from row.own_cells


def _typical(
    effect: Effect, key: str, values: TypicalValues | None, at: tuple[str, str] | None = None
) -> tuple[Typical | None, Typical | None]:
    if values is None:
        return None, None
    return values.at(key, effect, effect.level, at), values.at(key, effect, effect.reference, at)


def _cells(row: EffectRow, one: Split, values: TypicalValues | None) -> Iterator[EffectRow]:
    for level, effect in one.cells:
        at = (one.other, level)
        cell = replace(
            row,
            effect=effect,
            sentence=effect_sentence(effect, margin=effect.margin),
            verdict=verdict_word(effect),
            typical=_typical(one.main, row.condition.key, values, at),
            at=at,
        )
        yield replace(cell, comparison=f"{row.comparison} {cell.name}")


def described(
    findings: Sequence[F], conditions: Conditions, sentences: Callable[[F], Iterable[str]]
) -> tuple[Described[F], ...]:
    """Return findings with their conditions and sentences, in the order of the analysis."""
    return tuple(
        Described(one, conditions.of_levels(one.condition), tuple(sentences(one))) for one in findings
    )


def void_blocks(data: TrialData, conditions: Conditions) -> Iterator[VoidBlock]:
    """Yield the void blocks in the order in which they ended."""
    started = {
        (block.condition, block.index): block.observations[0].started_s
        for block in data.blocks
        if block.void is not None and block.observations
    }
    for end in data.ends:
        if end.void is not None:
            at_s = started.get((end.condition, end.block))
            level = escape(end.void_level or "–")
            yield VoidBlock(conditions.of_key(end.condition), end.block, escape(end.void), level, at_s)


def failed_runs(data: TrialData, conditions: Conditions) -> Iterator[FailedRun]:
    """Yield the failed runs in the order in which they ran."""
    for run in data.runs:
        if run.failure is not None:
            condition = conditions.of_key(run.condition)
            yield FailedRun(condition, run.block, escape(run.arm), run.started_s, escape(run.failure))
