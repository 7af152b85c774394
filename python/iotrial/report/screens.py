"""Studies of many settings: their first sentence, and the order in which effects are read.

In a screen nobody looks for one comparison; one asks which of dozens matter. So the sentence counts and names the
largest, and tables list the largest first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iotrial.analysis.model import Effect
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.findings import QUIET, effect_of, strength
from iotrial.report.notation import counted, joined, percent
from iotrial.report.phrases import SIZE_OPEN, Kind, kind_of, label, response_name
from iotrial.study.model import DesignKind, Study

MANY = 4
_MOST_ARMS = 12
_MOST_NAMED = 3
_MOST_LISTED = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """One level against its reference, over conditions and responses."""

    factor: str
    level: str
    effects: tuple[Effect, ...]

    @property
    def name(self) -> str:
        """E.g. "atime noatime"."""
        return f"{label(self.factor)} {label(self.level)}"

    @property
    def loud(self) -> tuple[Effect, ...]:
        """The effects that are there, largest first."""
        found = [effect for effect in self.effects if effect.verdict not in QUIET]
        return tuple(sorted(found, key=strength, reverse=True))

    @property
    def plain(self) -> tuple[Effect, ...]:
        """Those of them that are beyond the margin as a whole, largest first."""
        return tuple(effect for effect in self.loud if not effect.conclusion.probable)

    @property
    def equivalent(self) -> bool:
        """Whether an effect that matters is excluded everywhere."""
        return all(effect.conclusion.equivalent for effect in self.effects)


def is_screen(study: Study) -> bool:
    """Whether a study asks which of many settings matter."""
    return len(study.treatment_factors) >= MANY


def arms_are_rows(study: Study) -> bool:
    """Whether its arms are too many to be looked at one by one: figures and evidence then go by the level of a factor."""
    factors = study.treatment_factors
    if len(factors) < 2:
        return False
    return study.design.kind is not DesignKind.FULL or math.prod(len(f.levels) for f in factors) > _MOST_ARMS


def settings_of(effects: Sequence[Effect]) -> tuple[Setting, ...]:
    """The effects by level, the largest first."""
    found: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        found.setdefault((effect.factor, effect.level), []).append(effect)
    settings = [Setting(*key, tuple(members)) for key, members in found.items()]
    return tuple(sorted(settings, key=lambda one: -max(map(strength, one.effects))))


def screen_finding(
    effects: Sequence[Effect],
    conditions: Conditions,
    *,
    margin: float,
    together: Collection[tuple[str, str]] = (),
) -> str:
    """E.g. "4 of 26 settings change the wall time: atime noatime takes 0.91 times the time of relatime [0.88, 0.94], ...;
    15 are equivalent within 3 %, 7 undecided". ``together``: factor and level of settings that act only together with
    another, which are neither."""
    settings = settings_of(effects)
    plain = sorted((one for one in settings if one.plain), key=lambda one: -strength(one.plain[0]))
    probable = [one for one in settings if one.loud and not one.plain]
    rest = _rest(_apart(settings, together), margin=margin)
    what = f"{_subject(effects)}{_where(effects, conditions)}"
    of = counted(len(settings), "setting")
    if not plain and not probable:
        return f"none of {of} is shown to change {what}{f': {rest}' if rest else ''}"
    several = len({(effect.workload, tuple(effect.condition.items())) for effect in effects}) > 1

    def named(chosen: Sequence[Effect]) -> str:
        texts = []
        for effect in chosen[:_MOST_NAMED]:
            where = conditions.of_levels(effect.condition, effect.workload).text
            texts.append(effect_of(effect) + (f" ({where})" if several else ""))
        return "; ".join([*texts, f"{len(chosen) - len(texts)} more"] if len(chosen) > len(texts) else texts)

    said = []
    if plain:
        count = f"{len(plain)} of {of}" if len(settings) > 1 else "the setting"
        change = "change" if len(plain) > 1 else "changes"
        said.append(f"{count} {change} {what}: {named([one.plain[0] for one in plain])}")
    if probable:
        count = f"{len(probable)}{'' if plain else f' of {of}'}" if len(settings) > 1 else "the setting"
        change = "change" if len(probable) > 1 else "changes"
        what = "it" if plain else what
        said.append(
            f"{count} probably {change} {what}{SIZE_OPEN}: {named([one.loud[0] for one in probable])}"
        )
    return "; ".join([*said, rest] if rest else said)


def screen_details(
    effects: Sequence[Effect], *, margin: float, together: Collection[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Which settings are undecided, and which are equivalent, by name; without a full stop."""
    settings = _apart(settings_of(effects), together)
    undecided = [one.name for one in settings if not one.loud and not one.equivalent]
    equivalent = [one.name for one in settings if one.equivalent]
    said = []
    if undecided:
        said.append(f"undecided, the largest estimate first: {_listed(undecided)}")
    if equivalent:
        said.append(f"equivalent within {percent(margin)}: {_listed(equivalent)}")
    return tuple(said)


def _apart(settings: Sequence[Setting], together: Collection[tuple[str, str]]) -> tuple[Setting, ...]:
    """Those settings that do not act only together with another."""
    return tuple(one for one in settings if (one.factor, one.level) not in together)


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_LISTED:
        return f"{', '.join(names[:_MOST_LISTED])} and {len(names) - _MOST_LISTED} more"
    return joined(names)


def _rest(settings: Sequence[Setting], *, margin: float) -> str:
    equivalent = sum(one.equivalent for one in settings)
    undecided = sum(not one.loud and not one.equivalent for one in settings)
    parts = []
    if equivalent:
        parts.append(f"{equivalent} {'is' if equivalent == 1 else 'are'} equivalent within {percent(margin)}")
    if undecided:
        parts.append(f"{undecided} undecided")
    return ", ".join(parts)


def _subject(effects: Sequence[Effect]) -> str:
    names = dict.fromkeys(map(_spoken, effects))
    return f"the {joined(names, last='or')}"


def _spoken(effect: Effect) -> str:
    name = response_name(effect)
    return f"{name} time" if kind_of(effect) is Kind.TIME and "time" not in name else name


def _where(effects: Sequence[Effect], conditions: Conditions) -> str:
    found = {conditions.of_levels(effect.condition, effect.workload).key for effect in effects}
    return f" in at least one of {len(found)} conditions" if len(found) > 1 else ""


def largest_factor(effects: Sequence[Effect], key: str, conditions: Conditions) -> str | None:
    """The factor whose main effect is the largest in the condition of this key; None where there is none."""
    mains = [
        effect
        for effect in effects
        if effect.kind == "main"
        and effect.primary
        and conditions.of_levels(effect.condition, effect.workload).key == key
    ]
    return max(mains, key=strength).factor if mains else None


def row_label(name: str, level: str) -> str:
    """E.g. "atime noatime", shown."""
    return f"{shown(name)} {shown(level)}"
