"""The settings that a trial has shown to be better than its reference: one frozen value for each, with its evidence.

A level is chosen if it is better in at least one condition and worse in none, on the responses that the verdict is based on.
A level with several settings gives one choice for each of them, with the same effect.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, field

from iotrial.documents import JsonObject, Labels
from iotrial.errors import RequestError
from iotrial.knobs.declaration import HARMLESS, Consequence, Safety, consequence_of
from iotrial.knobs.filesystem import MountAtime
from iotrial.knobs.sysctl import Sysctl
from iotrial.powercut.results import shown_to_lose
from iotrial.report.best import Advice, advised, described, evidence_of_settings
from iotrial.report.conditions import EVERYWHERE
from iotrial.report.durability import harm_seen, level_verdict, measured_risks
from iotrial.report.notation import counted, joined, named_level
from iotrial.report.phrases import size_in_words, size_of
from iotrial.stats.model import Conclusion, Effect
from iotrial.store.model import TrialState, objects_in
from iotrial.study.model import Better, DesignKind, Factor, Level, Scale, Setting, setting_name
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.report.document import Document

_BETTER = (Conclusion.FASTER, Conclusion.BETTER)
_PROBABLY_BETTER = (Conclusion.PROBABLY_FASTER, Conclusion.PROBABLY_BETTER)
_WORSE = (
    Conclusion.SLOWER,
    Conclusion.WORSE,
    Conclusion.PROBABLY_SLOWER,
    Conclusion.PROBABLY_WORSE,
    Conclusion.EQUIVALENT_MORE_SLOW_RUNS,
)


class Choice(JsonObject, frozen=True):
    """A setting that a trial has shown to be better than its reference."""

    knob: str
    options: Annotated[Labels, Meta(description="what addresses the knob, such as the key of a sysctl")]
    value: str
    was: Annotated[str | None, Meta(description="the value at the reference level; null: it has none")]
    consequence: str
    factor: str
    level: str
    reference: str
    ratio: Annotated[
        float | None, Meta(description="of the level to the reference; a difference if the scale is")
    ]
    low: float | None
    high: float | None
    scale: Scale
    response: str
    better: Annotated[Better, Meta(description="which way the response is better")]
    effect: Annotated[str, Meta(description="the effect and its interval, in words")]
    conclusion: str
    workload: str
    conditions: Annotated[tuple[Labels, ...], Meta(description="in which it is better")]
    elsewhere: Annotated[
        tuple[str, ...], Meta(description="conditions in which it is not known to be better, in words")
    ]
    trial: str
    date: Annotated[str, Meta(description="when the trial began, ISO 8601")]
    safety: Safety = field(name="class")

    @property
    def name(self) -> str:
        """The knob with what addresses it: "vm.swappiness", "mount.option commit", "block.scheduler"."""
        return setting_name(self.knob, self.options)

    @property
    def evidence(self) -> str:
        """One line: "read_ahead_kb 1024 vs 128: it takes 9.1 % less time [-15.4, -5.0]"."""
        label = escape(named_level(self.factor, self.level))
        values = [
            f"{escape(text)} ({escape(value)})" if value is not None and value not in text else escape(text)
            for text, value in ((label, self.value), (self.reference, self.was))
        ]
        return f"{' vs '.join(values)}: {self.effect}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A level, or a knob of it, that is not applied, and the reason."""

    factor: str
    level: str
    reason: str

    def __str__(self) -> str:
        return f"{escape(named_level(self.factor, self.level))}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a trial says: the settings to keep, and the levels that are not chosen."""

    choices: tuple[Choice, ...]
    left_out: tuple[LeftOut, ...]


def choices(document: Document) -> tuple[Choice, ...]:
    """Return the settings that the trial has shown to be better. Raises what ``chosen`` raises."""
    return chosen(document).choices


def chosen(document: Document, *, named: Collection[str] = ()) -> Chosen:
    """Choose for each factor the level with the largest improvement. Raises RequestError for a trial without verdicts.

    ``named``: knobs or factors for which an effect that is only probable suffices.
    """
    trial = document.trial
    if trial.state is TrialState.RUNNING:
        raise RequestError(
            f"trial {trial.number or trial.header.id} is still running", hint="wait for its end"
        )
    if not document.valid:
        raise RequestError(
            f"trial {trial.number or trial.header.id} is invalid: its controls failed, so it shows no effect of any setting",
            hint="`iotrial report` says why; measure again",
        )
    found: list[Choice] = []
    left: list[LeftOut] = []
    for race in document.analysis.races:
        raise RequestError(
            f"trial {trial.number or trial.header.id} is a race: its winner counts once it is confirmed on fresh blocks",
            hint=f"apply the confirmation instead, the trial after it; the race had {counted(len(race.places), 'setting')}",
        )
    best: dict[str, _Best] = {}
    for factor in trial.header.study.treatment_factors:
        one, others = _best(document, factor, named)
        left += others
        if one is not None:
            best[factor.name] = one
    left += _not_in_force(document, best)
    for one in best.values():
        advice = _advice(document, one.effects)
        if advice is not None:
            left += [
                LeftOut(one.factor.name, setting_name(s.knob, dict(s.options)), _not_applied(s, without))
                for s, without in advice.left_out
                if not setting_is_named(s, named)
            ]
        found += _choices(document, one, advice, named)
    return Chosen(tuple(found), tuple(left))


@dataclass(slots=True)
class _Best:
    """The best level of a factor, with its effects; where its average describes no cell, with those of the cells.

    ``cells``: for the factor that splits them, by its level, the effects there. ``in_force``: the effects at the levels that
    the other factors will have.
    """

    factor: Factor
    level: Level
    effects: list[Effect]
    cells: dict[str, dict[str, list[Effect]]]
    in_force: list[Effect]


def _best(document: Document, factor: Factor, named: Collection[str]) -> tuple[_Best | None, list[LeftOut]]:
    """Return a factor's best level, and why each other level is not chosen."""
    candidates: list[_Best] = []
    left = []
    for level in factor.levels:
        rows = [
            row
            for row in document.primary
            if row.effect.kind == "main"
            and (row.effect.factor, row.effect.level) == (factor.name, level.label)
            and row.effect.reference == factor.reference  # in a confirmation, others lack one setting
        ]
        if not rows:
            continue
        effects = [one for row in rows for one in row.answers]
        cells: dict[str, dict[str, list[Effect]]] = {}
        for cell in (cell for row in rows for cell in row.own_cells):
            other, at = cell.at or ("", "")
            cells.setdefault(other, {}).setdefault(at, []).append(cell.effect)
        is_named = factor.name in named or any(setting_is_named(s, named) for s in level.settings)
        reason = _reason_against(document, effects, is_named=is_named)
        if reason is None:
            candidates.append(_Best(factor, level, effects, cells, effects))
        else:
            left.append(LeftOut(factor.name, level.label, reason))
    if not candidates:
        return None, left
    best = max(candidates, key=lambda one: _gain(one.effects))
    left += [
        LeftOut(factor.name, one.level.label, f"better, but less than {escape(best.level.label)}")
        for one in candidates
        if one is not best
    ]
    return best, left


def _not_in_force(document: Document, best: dict[str, _Best]) -> Iterator[LeftOut]:
    """Leave out of ``best`` what is better only in cells that will not be in force; note the effects in force of the rest.

    In force is the level of the other factor that is chosen too, else its reference. Settings that are better only together
    are both kept; of two that are better only alone, the one with the larger gain.
    """
    references = {one.name: one.reference for one in document.trial.header.study.treatment_factors}
    while True:
        levels = {**references, **{name: one.level.label for name, one in best.items()}}
        for one in best.values():
            split = [effect for name, cells in one.cells.items() for effect in cells.get(levels[name], [])]
            one.in_force = [*(effect for effect in one.effects if effect.kind != "cell"), *split]
        idle = [
            one for one in best.values() if not any(effect.conclusion.improves for effect in one.in_force)
        ]
        if not idle:
            return
        least = min(idle, key=lambda one: _gain(one.effects))
        del best[least.factor.name]
        where = joined(_told(document, one) for one in least.effects if one.conclusion.improves)
        yield LeftOut(
            least.factor.name, least.level.label, f"better only with a setting that is not applied: {where}"
        )


def _advice(document: Document, effects: Sequence[Effect]) -> Advice | None:
    """Return which settings of the winner of a confirmation have evidence of their own; None for other trials."""
    study = document.trial.header.study
    if study.design.kind is not DesignKind.CONFIRM or not any(one.conclusion.improves for one in effects):
        return None
    return advised(study, document.analysis.effects, harm_seen(document.data))


def _not_applied(setting: Setting, without: Effect) -> str:
    name = quoted(setting_name(setting.knob, dict(setting.options)))
    return f"{escape(setting.value)}: not among what is recommended (without it {size_of(without)}): only with --only {name}"


def _reason_against(document: Document, effects: Sequence[Effect], *, is_named: bool) -> str | None:
    """Return why a level is not chosen; None if it is better somewhere and worse nowhere."""
    worse = [one for one in effects if one.conclusion in _WORSE]
    better = [one for one in effects if one.conclusion in _BETTER]
    probable = [one for one in effects if one.conclusion in _PROBABLY_BETTER]
    if worse:
        but = "better elsewhere, but " if better or probable else ""
        return f"{but}{joined(dict.fromkeys(_told(document, one) for one in worse))}"
    if better or (probable and is_named):
        return None
    if probable:
        return f"{_told(document, probable[0])}, which is not decided: name the knob with --only to apply it"
    words = dict.fromkeys(one.conclusion.words for one in effects)
    return joined(words)


def _told(document: Document, effect: Effect) -> str:
    where = document.conditions.of_effect(effect).text
    if cell := _cell(document, effect):
        where = cell if where == EVERYWHERE else f"{where}, {cell}"
    return f"{effect.conclusion.words} ({escape(effect.response)}, {where}: {size_of(effect)})"


def _cell(document: Document, effect: Effect) -> str:
    """Return the level of another factor at which an effect is measured: "with interval on"; empty if it is not of a cell."""
    others = {factor.name for factor in document.trial.header.study.treatment_factors}
    return ", ".join(
        f"with {escape(named_level(name, at))}" for name, at in effect.condition.items() if name in others
    )


def _gain(effects: Sequence[Effect]) -> float:
    """Return the mean improvement over the effects, in logarithms for ratios; larger is better."""
    gains = []
    for one in effects:
        if one.value is None:
            continue
        size = (math.log(one.value) if one.value > 0 else -math.inf) if one.scale is Scale.LOG else one.value
        gains.append(size if one.better is Better.HIGHER else -size)
    return sum(gains) / len(gains) if gains else 0.0


def _choices(
    document: Document, best: _Best, advice: Advice | None, named: Collection[str]
) -> Iterator[Choice]:
    header, factor, level, effects = document.trial.header, best.factor, best.level, best.effects
    shown = [one for one in best.in_force if one.conclusion in _BETTER] or [
        one for one in best.in_force if one.conclusion in _PROBABLY_BETTER
    ]
    first = max(shown, key=lambda one: _gain([one]))
    reference = {
        (setting.knob, setting.options): setting.value for setting in factor.level(factor.reference).settings
    }
    conditions = {str(sorted(one.condition.items())): dict(one.condition) for one in shown}
    without = {} if advice is None else dict(evidence_of_settings(header.study, document.analysis.effects))
    whole = level, first
    for setting in whole[0].settings:
        if setting.value == reference.get((setting.knob, setting.options)):
            continue
        level, first = whole
        if advice is not None and setting in advice.kept:
            level, first = factor.level(advice.against.level), advice.against
        elif advice is not None and setting in without and not setting_is_named(setting, named):
            continue
        if setting.value == "0" and _is_cleared(setting, level):
            continue
        judged = _judged(setting, document, factor.name, level.label)
        yield Choice(
            knob=setting.knob,
            options=dict(setting.options),
            value=setting.value,
            was=reference.get((setting.knob, setting.options)),
            consequence=judged.sentence,
            factor=factor.name,
            level=level.label,
            reference=factor.reference,
            ratio=first.value,
            low=first.low,
            high=first.high,
            scale=first.scale,
            response=first.response,
            better=first.better,
            effect=f"{size_in_words(first)} {_cell(document, first)}".rstrip()
            + (
                f"; without {described([setting])}: {size_of(without[setting])}"
                if advice is not None and setting in without and setting in advice.contributing
                else ""
            ),
            conclusion=first.conclusion.words,
            workload=first.workload,
            conditions=tuple(conditions.values()),
            elsewhere=tuple(_told(document, one) for one in effects if one not in shown),
            trial=header.id,
            date=header.started,
            safety=judged.safety,
        )


def _is_cleared(setting: Setting, level: Level) -> bool:
    """Return whether the kernel shows this sysctl as 0 because the level sets the other one of its pair."""
    other = Sysctl.PAIRS.get(dict(setting.options).get("key", ""))
    return setting.knob == Sysctl.name and any(
        s.knob == Sysctl.name and s.value != "0" and dict(s.options).get("key") == other
        for s in level.settings
    )


def _judged(setting: Setting, document: Document, factor: str, level: str) -> Consequence:
    """Return what a setting does to the safety of data: as declared, as power cuts showed of its level, and as those of the
    user's own service showed."""
    judged = consequence_of(setting)
    declared = "" if judged == HARMLESS else f"{judged.sentence}; "
    cuts, study = document.data.cuts, document.trial.header.study
    if (verdict := level_verdict(cuts, study, factor, level)) is not None:
        harmed = level in measured_risks(cuts, study).get(factor, {})
        safety = Safety.DATA_AT_RISK if harmed else judged.safety
        judged = Consequence(safety, f"{declared}in power cuts it {verdict}")
        declared = f"{judged.sentence}; "
    if (lost := shown_to_lose(setting)) is not None:
        judged = Consequence(Safety.DATA_AT_RISK, f"{declared}in power cuts it {lost}")
    return judged


def was_measured(document: Document, choice: Choice, value: str) -> bool:
    """Return whether one of the levels that the trial compared is this value of the setting, as the kernel shows it."""
    header = document.trial.header
    for one in objects_in(header.lab, "today"):
        if (one.get("factor"), one.get("setting"), one.get("value")) == (choice.factor, choice.name, value):
            return bool(one.get("levels"))
    factor = next(one for one in header.study.factors if one.name == choice.factor)
    address = choice.knob, tuple(choice.options.items())
    measured = {s.value for one in factor.levels for s in one.settings if (s.knob, s.options) == address}
    if choice.knob == MountAtime.name:
        flags = set(value.split(","))
        value = next((mode for mode in ("noatime", "relatime", "nodiratime") if mode in flags), "strictatime")
    return bool(measured & {value, "default"})


def without_unmeasured(
    document: Document, what: Chosen, replaced: Sequence[tuple[Choice, str]], named: Collection[str]
) -> Chosen:
    """Leave out the choices that would replace a value that the trial has not compared, unless they are ``named``."""
    kept, left = list(what.choices), list(what.left_out)
    for choice, value in replaced:
        if choice not in kept or was_measured(document, choice, value):
            continue
        if any(is_called(choice, name) for name in named):
            continue
        kept.remove(choice)
        left.append(
            LeftOut(
                choice.factor,
                choice.level,
                f"it would replace {escape(value)}, which the trial did not measure (it compared {escape(choice.value)} with "
                f"{escape(choice.was or choice.reference)}): measure it (`iotrial try ... --today`), or name it: "
                f"--replace-unmeasured {quoted(choice.name)}",
            )
        )
    return Chosen(tuple(kept), tuple(left))


def setting_is_named(setting: Setting, named: Collection[str]) -> bool:
    """Return whether the user has named this setting: its knob, the key that addresses it, or the last part of that."""
    name = setting_name(setting.knob, dict(setting.options))
    return bool({setting.knob, name, name.rpartition(".")[2]} & set(named))


def selected(found: Chosen, only: Collection[str]) -> Chosen:
    """Return the choices to apply: those that are named, or without ``only`` all that need not be named.

    A setting that puts data at risk, or of unknown safety, must be named. Raises RequestError if a name fits nothing,
    or nothing is left.
    """
    for name in only:
        if not any(is_called(choice, name) for choice in found.choices):
            why = [
                str(one)
                for one in found.left_out
                if name.rpartition(".")[2] == one.factor or name == one.factor
            ]
            there = joined(dict.fromkeys(choice.name for choice in found.choices)) or "none"
            raise RequestError(
                f"--only {name}: the trial has not shown a setting of that name to be better",
                hint="; ".join(why) or f"those that it has shown to be better: {there}",
            )
    if only:
        return Chosen(
            tuple(c for c in found.choices if any(is_called(c, name) for name in only)), found.left_out
        )
    kept, left = [], list(found.left_out)
    for choice in found.choices:
        if choice.safety in (Safety.HARMLESS, Safety.TRADE_OFF):
            kept.append(choice)
        else:
            reason = (
                f"better, but {choice.safety} ({choice.consequence}): only with --only {quoted(choice.name)}"
            )
            left.append(LeftOut(choice.factor, choice.level, reason))
    return Chosen(tuple(kept), tuple(left))


def is_called(choice: Choice, name: str) -> bool:
    return name in (choice.knob, choice.name, choice.factor) or choice.name.rpartition(".")[2] == name


def quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name
