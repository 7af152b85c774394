"""What the settings of a study do to the safety of data: for plans, headlines, tables and lists.

Each knob declares it (``iotrial.lab.knob.Consequence``). Nothing of a trial is asked but its study, so that trials that were
packed or stored before knobs declared it show it as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.analysis.model import Effect, Verdict
from iotrial.lab import registry
from iotrial.lab.knob import Consequence, Safety, not_judged
from iotrial.legible import shown
from iotrial.report.notation import joined
from iotrial.study.model import DatabaseWork, Level, Setting, Study

_GRAVITY = {Safety.HARMLESS: 0, Safety.TRADE_OFF: 1, Safety.NOT_JUDGED: 2, Safety.DATA_AT_RISK: 3}
_MOST_IN_HEADLINE = 3
#: where every run has a setting
FIXED = ""


@dataclass(frozen=True, slots=True)
class LevelSafety:
    """One level of a factor; of a setting that every run has ``factor`` is ``FIXED``, and ``level`` the setting in words."""

    factor: str
    level: str
    safety: Safety
    sentence: str

    @property
    def at_risk(self) -> bool:
        """Whether it may cost data that were synced, or are on the disk already."""
        return self.safety is Safety.DATA_AT_RISK

    @property
    def name(self) -> str:
        """E.g. "barrier nobarrier"."""
        return shown(f"{self.factor} {self.level}".strip())

    def json(self) -> dict[str, str]:
        """Under ``level_safety`` of an effect."""
        return {"class": self.safety.value, "consequence": self.sentence}


def consequence_of(setting: Setting) -> Consequence:
    """What a setting does to the safety of data; not judged, where it is of a knob that this version does not have."""
    knob = registry.knobs().get(setting.knob)
    return (
        not_judged("this version of iotrial has no such knob")
        if knob is None
        else knob.consequence_of(setting)
    )


def level_safety(study: Study, factor: str, label: str) -> LevelSafety | None:
    """Of a level by the names that an effect has; None where the study has no such level (as of an interaction)."""
    try:
        return _of_level(factor, study.factor(factor).level(label))
    except KeyError:
        return None


def every_level(study: Study) -> tuple[LevelSafety, ...]:
    """Every level of every factor in the study's order, then what every run has."""
    varied = [_of_level(factor.name, level) for factor in study.factors for level in factor.levels]
    return (*varied, *_fixed(study))


def worst(study: Study) -> Safety:
    """The gravest class among all settings of a study."""
    return max((one.safety for one in every_level(study)), key=_GRAVITY.__getitem__, default=Safety.HARMLESS)


def safety_json(study: Study) -> list[dict[str, str]]:
    """Every level with its class and its consequence; ``factor`` is "" for a setting that every run has."""
    return [{"factor": one.factor, "level": one.level, **one.json()} for one in every_level(study)]


def safety_lines(study: Study) -> tuple[tuple[Safety, str], ...]:
    """What is not harmless, the gravest first, with the class; levels of the same consequence share a line."""
    together: dict[tuple[Safety, str], list[LevelSafety]] = {}
    for one in every_level(study):
        if one.safety is not Safety.HARMLESS:
            together.setdefault((one.safety, one.sentence), []).append(one)
    ordered = sorted(together.items(), key=lambda item: -_GRAVITY[item[0][0]])
    return tuple((safety, f"{_named(levels)}: {sentence}") for (safety, sentence), levels in ordered)


def at_risk_where_faster(effect: Effect, study: Study) -> LevelSafety | None:
    """The faster (better) one of the two levels compared, where it puts data at risk that the other does not."""
    if effect.verdict in (Verdict.FASTER, Verdict.BETTER):
        praised, other = effect.level, effect.reference
    elif effect.verdict in (Verdict.SLOWER, Verdict.WORSE):
        praised, other = effect.reference, effect.level
    else:
        return None
    found = level_safety(study, effect.factor, praised)
    compared = level_safety(study, effect.factor, other)
    return found if found is not None and found.at_risk and _differs(found, compared) else None


def safety_note(effects: Sequence[Effect], study: Study) -> str:
    """What a headline that calls a level faster must say of it: "; faster, but data at risk: barrier nobarrier: ..."; ""
    where no level that is faster puts data at risk."""
    found = [one for effect in effects if (one := at_risk_where_faster(effect, study)) is not None]
    distinct = list(dict.fromkeys(found))
    if not distinct:
        return ""
    told = [f"under {one.name} {one.sentence}" for one in distinct[:_MOST_IN_HEADLINE]]
    more = len(distinct) - _MOST_IN_HEADLINE
    return f"; faster, but data at risk: {'; '.join(told)}{f'; and {more} more' if more > 0 else ''}"


def risk_of(effect: Effect, study: Study) -> str:
    """What a row of a table says of the levels compared that put data at risk, whatever its verdict; "" for none."""
    levels = (level_safety(study, effect.factor, label) for label in (effect.level, effect.reference))
    return "; ".join(f"{one.name}: {one.sentence}" for one in levels if one is not None and one.at_risk)


def effect_json(effect: Effect, study: Study) -> dict[str, object]:
    """What an effect has besides its numbers; null for an interaction."""
    level = level_safety(study, effect.factor, effect.level)
    reference = level_safety(study, effect.factor, effect.reference)
    return {
        "level_safety": None if level is None else level.json(),
        "reference_safety": None if reference is None else reference.json(),
    }


def _differs(praised: LevelSafety, other: LevelSafety | None) -> bool:
    return other is None or not other.at_risk or other.sentence != praised.sentence


def _of_level(factor: str, level: Level) -> LevelSafety:
    """The gravest of its settings, with all sentences of that class."""
    found = [consequence_of(setting) for setting in level.settings]
    gravest = max((one.safety for one in found), key=_GRAVITY.__getitem__, default=Safety.HARMLESS)
    sentences = dict.fromkeys(one.sentence for one in found if one.safety is gravest)
    return LevelSafety(factor, level.label, gravest, "; ".join(sentences) or "nothing is set")


def _fixed(study: Study) -> Iterator[LevelSafety]:
    varied = {
        (s.knob, s.options) for factor in study.factors for level in factor.levels for s in level.settings
    }
    for setting in _settings_of_all(study):
        if (setting.knob, setting.options) not in varied:
            found = consequence_of(setting)
            options = " ".join(value for _, value in setting.options)
            words = (
                f"{setting.knob} {options} {setting.value}" if options else f"{setting.knob} {setting.value}"
            )
            yield LevelSafety(FIXED, words, found.safety, found.sentence)


def _settings_of_all(study: Study) -> Iterator[Setting]:
    yield from study.fixed
    yield from (Setting("mount.option", option) for option in study.lab.mount_options)
    yield from (Setting("mkfs.option", option) for option in study.lab.mkfs_options)
    if any(
        isinstance(workload.work, DatabaseWork) and not workload.work.durable for workload in study.workloads
    ):
        yield Setting("work.option", "false", (("option", "durable"),))


def _named(levels: Sequence[LevelSafety]) -> str:
    """E.g. "barrier nobarrier, commit 30 and 60"."""
    by_factor: dict[str, list[str]] = {}
    for one in levels:
        by_factor.setdefault(one.factor, []).append(shown(one.level))
    return ", ".join(f"{shown(factor)} {joined(labels)}".strip() for factor, labels in by_factor.items())
