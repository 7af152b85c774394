"""Print what ``iotrial best`` found: the recommendation, what each setting contributes and risks, and the price paid."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import click
from msgspec import Meta

from iotrial.cli.output import tell
from iotrial.documents import Amount, Count, JsonDocument, JsonObject, json_text
from iotrial.knobs.declaration import Safety, consequence_of
from iotrial.report.best import effects_of, race_rows
from iotrial.report.durability import level_verdict
from iotrial.report.notation import capitalised, counted
from iotrial.report.phrases import size_of
from iotrial.stats.model import Effect
from iotrial.terminal import escape
from iotrial.tune.space import Choice, Space
from iotrial.tune.stages import Confirmed
from iotrial.units import format_duration

if TYPE_CHECKING:
    from iotrial.report.document import Document


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The end of a search. ``trials``: the documents of all stages, the confirmation last if there is one."""

    space: Space
    confirmed: Confirmed | None
    trials: tuple[Document, ...]
    undecided: bool

    @property
    def choice(self) -> Choice | None:
        """The settings to use; None for today's."""
        return None if self.confirmed is None else self.confirmed.choice

    @property
    def sentence(self) -> str:
        """The recommendation; if the confirmation is open, what the race has shown comes first.

        If the race was not over, it names that another setting may be better.
        """
        if not self.trials:
            return "Nothing was measured."
        last = self.trials[-1].summary.headline
        raced = self.raced
        if raced is None or raced is self.trials[-1] or self.confirmed is None:
            return last
        race, effect = raced.analysis.races[0], self.confirmed.effect
        if self.choice is not None and not race.over:
            return f"{last} The race was not over: another setting may be better still."
        effects = effects_of(race, raced.analysis.effects)
        shown = any(one.conclusion.improves for one in effects.values())
        return f"{raced.summary.answer} Fresh blocks: {last}" if shown and effect.conclusion.open else last

    @property
    def raced(self) -> Document | None:
        """The last race."""
        return next((one for one in reversed(self.trials) if one.analysis.races), None)


class Recommended(JsonObject, frozen=True):
    """One setting of the winner."""

    setting: str
    today: str
    use: str
    needed: Annotated[bool, Meta(description="it is part of what is recommended")]
    shown: Annotated[
        bool, Meta(description="leaving it out is shown to be worse; if it is the only setting, it is better")
    ]
    without: float | None
    low: float | None
    high: float | None
    safety: Safety
    consequence: str


class Best(JsonDocument, frozen=True):
    """iotrial best --json

    ratio: the recommended settings against today's, or the winner if none is recommended; without: the time or rate
    without a setting, relative to that with it.
    """

    verdict: Literal["change", "keep", "undecided"]
    sentence: str
    ratio: float | None
    low: float | None
    high: float | None
    settings: list[Recommended]
    trials: list[str]
    runs: Count
    seconds: Amount


def print_outcome(outcome: SearchResult, *, as_json: bool) -> None:
    """Print the outcome as text or as one JSON document."""
    if as_json:
        click.echo(json_text(_json(outcome)))
        return
    for line in _lines(outcome):
        tell(line)


def _race_table(outcome: SearchResult) -> Iterator[str]:
    """Yield the last race as a table."""
    raced = outcome.raced
    if raced is None:
        return
    yield ""
    rows = list(race_rows(raced.analysis.races[0], raced.analysis.effects))
    yield from _aligned([("setting", "blocks", "against today's", ""), *rows])
    yield ""


def _price(outcome: SearchResult) -> tuple[int, float]:
    runs = sum(len(one.data.runs) for one in outcome.trials)
    return runs, sum(one.trial.duration_s for one in outcome.trials)


def _lines(outcome: SearchResult) -> Iterator[str]:
    yield capitalised(outcome.sentence)
    settings = _settings(outcome)
    if settings:
        yield ""
        yield from _table(outcome, settings)
        yield ""
        for row in settings:
            if row.needed and row.safety is not Safety.HARMLESS:
                yield f"{row.setting} {row.use}: {row.consequence}."
    else:
        yield from _race_table(outcome)
    if not outcome.trials:
        return
    yield from _power_cuts(outcome)
    runs, seconds = _price(outcome)
    numbers = [str(one.trial.number) for one in outcome.trials]
    trials = f"trial {numbers[0]}"
    if len(numbers) > 1:
        trials = f"trials {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]}"
    yield f"Cost: {counted(runs, 'run')} in {format_duration(seconds)} ({trials})."
    if outcome.confirmed is not None and outcome.confirmed.partial:
        only = "".join(f" --only {shlex.quote(row.setting)}" for row in settings)
        yield f"To use them all the same: `iotrial apply {numbers[-1]}{only}`."
    if outcome.choice is not None:
        yield f"To keep them: `iotrial apply {numbers[-1]}`; to read more: `iotrial report {numbers[-1]}`."


def _power_cuts(outcome: SearchResult) -> Iterator[str]:
    """Yield what power cuts did to the winner, if the study has its work checked."""
    if outcome.confirmed is None:
        return
    last = outcome.trials[-1]
    effect = outcome.confirmed.effect
    verdict = level_verdict(last.data.cuts, last.trial.header.study, effect.factor, effect.level)
    if verdict is not None:
        yield f"In power cuts, {escape(effect.level)} {verdict}."


def _table(outcome: SearchResult, settings: list[Recommended]) -> Iterator[str]:
    assert outcome.confirmed is not None
    rows = [("setting", "today", "tried", "use", "without it", "risk")]
    for one, row in zip(outcome.confirmed.kept, settings, strict=True):
        use = row.use if row.needed else row.today
        rows.append((row.setting, row.today, row.use, use, _without(one.without), row.safety.value))
    yield from _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for cells in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _without(effect: Effect | None) -> str:
    return "" if effect is None else size_of(effect)


def _numbers(effect: Effect | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if effect is None else (effect.value, effect.low, effect.high)


def _settings(outcome: SearchResult) -> list[Recommended]:
    found = outcome.confirmed
    if found is None or not found.better:
        return []
    rows = []
    for one in found.kept:
        dimension = outcome.space.dimensions[one.place]
        level = dimension.levels[found.winner[one.place]]
        consequence = consequence_of(level.settings[0])
        rows.append(
            Recommended(
                dimension.name,
                dimension.levels[0].label,
                level.label,
                one.needed,
                one.shown,
                *_numbers(one.without),
                consequence.safety,
                consequence.sentence,
            )
        )
    return rows


def _json(outcome: SearchResult) -> Best:
    found = outcome.confirmed
    effect = None if found is None else found.effect
    runs, seconds = _price(outcome)
    unsure = outcome.undecided or (effect is not None and outcome.choice is None and not effect.decided)
    ratio, low, high = _numbers(effect)
    return Best(
        verdict="change" if outcome.choice is not None else "undecided" if unsure else "keep",
        sentence=outcome.sentence,
        ratio=ratio,
        low=low,
        high=high,
        settings=_settings(outcome),
        trials=[one.trial.header.id for one in outcome.trials],
        runs=runs,
        seconds=seconds,
    )
