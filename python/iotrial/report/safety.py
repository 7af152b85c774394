"""What the settings of a study do to the safety of data: for plans, headlines, tables and lists.

Each knob declares it (``iotrial.knobs.declaration.Consequence``). Only the study of a trial is used, so that trials
that were packed or stored before knobs declared it show it as well. What it means for an effect: ``report.risks``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, field

from iotrial.documents import JsonObject
from iotrial.knobs.declaration import Consequence, Safety, consequence_of
from iotrial.report.blocks import Block, Note, Section, View
from iotrial.report.notation import joined, named_level
from iotrial.study.model import Level, Setting, Study
from iotrial.terminal import escape
from iotrial.workloads.database import DatabaseWork

_GRAVITY = {Safety.HARMLESS: 0, Safety.TRADE_OFF: 1, Safety.NOT_JUDGED: 2, Safety.DATA_AT_RISK: 3}
#: the width of the heading of a line of a plan
_HEADING = 11
#: with more, a terminal counts the trade-offs
_MOST_TRADE_OFFS = 6
#: by factor and level, the consequence, for levels that put data at risk
Risks = Mapping[str, Mapping[str, str]]
NO_RISKS: Risks = MappingProxyType({})
#: factor of a setting that every run has
FIXED = ""


class LevelSafety(JsonObject, frozen=True):
    """What a level does to the safety of data.

    For a setting that every run has, ``factor`` is empty and ``level`` is the setting in words.
    """

    factor: Annotated[str, Meta(description="empty for a setting that every run has")]
    level: str
    safety: Safety = field(name="class")
    sentence: str = field(name="consequence")

    @property
    def at_risk(self) -> bool:
        """Whether it may cost data that were synced, or are already on the disk."""
        return self.safety is Safety.DATA_AT_RISK

    @property
    def name(self) -> str:
        """E.g. "barrier nobarrier"."""
        return escape(named_level(self.factor, self.level).strip())


def level_safety(study: Study, factor: str, label: str) -> LevelSafety | None:
    """Return the safety of a level by the names in an effect; None if the study has no such level (an interaction)."""
    try:
        return _of_level(factor, study.factor(factor).level(label))
    except KeyError:
        return None


def every_level(study: Study) -> tuple[LevelSafety, ...]:
    """Return every level of every factor in the study's order, then the settings that every run has."""
    varied = [_of_level(factor.name, level) for factor in study.factors for level in factor.levels]
    return (*varied, *_fixed(study))


def worst(study: Study) -> Safety:
    """Return the most severe class among all settings of a study."""
    return max((one.safety for one in every_level(study)), key=_GRAVITY.__getitem__, default=Safety.HARMLESS)


def safety_lines(study: Study) -> tuple[tuple[Safety, str], ...]:
    """Return the lines for settings that are not harmless, the most severe first, each with its class.

    What ``iotrial try`` varies in the user's own command is left out. Levels with the same consequence share a line.
    Of the settings that every run has, only those that put data at risk are included, since they are not compared.
    """
    varied = {factor.name for factor in study.factors if len(factor.levels) > 1}
    own = _of_the_command(study)
    together: dict[tuple[Safety, str], list[LevelSafety]] = {}
    every = every_level(study)
    if study.design.kind.one_factor:  # its levels share most settings: each is named once
        every = tuple(_by_setting(study))
        varied |= {one.factor for one in every}
    for one in every:
        if one.at_risk or (
            one.safety is not Safety.HARMLESS and one.factor in varied and one.factor not in own
        ):
            together.setdefault((one.safety, one.sentence), []).append(one)
    ordered = sorted(together.items(), key=lambda item: -_GRAVITY[item[0][0]])
    number = Counter(one.factor for one in every if one.factor)
    return tuple((safety, f"{_named(levels, number)}: {sentence}") for (safety, sentence), levels in ordered)


def _by_setting(study: Study) -> Iterator[LevelSafety]:
    """Yield every setting by which a level of the only treatment factor differs from the reference, once."""
    for setting in dict.fromkeys(
        setting for level in study.treatment_factors[0].levels for setting in changed(study, level.label)
    ):
        found = consequence_of(setting)
        yield LevelSafety(setting_name(setting), setting.value, found.safety, found.sentence)


def changed(study: Study, label: str) -> tuple[Setting, ...]:
    """Return the settings of a level that differ from those of the reference, in a study of one treatment factor."""
    factor = study.treatment_factors[0]
    today = set(factor.level(factor.reference).settings)
    return tuple(setting for setting in factor.level(label).settings if setting not in today)


def setting_name(setting: Setting) -> str:
    """Return a knob's name, or what addresses it: "block.scheduler", "vm.swappiness", "level" for {level}."""
    return " ".join(value.strip("{}") for _, value in setting.options) or setting.knob


def _of_the_command(study: Study) -> set[str]:
    """Return the factors of ``iotrial try`` that are only an argument or a variable of the command that the user typed."""
    if not study.quick:
        return set()
    own = {"command.argument", "environment.variable"}
    if study.design.kind.one_factor:
        settings = [s for level in study.treatment_factors[0].levels for s in level.settings]
        return {setting_name(s) for s in settings if s.knob in own}
    return {f.name for f in study.factors if {s.knob for level in f.levels for s in level.settings} <= own}


def study_safety_lines(study: Study) -> Iterator[str]:
    """Yield ``safety_lines`` under a heading, for plans and descriptions of studies."""
    lines = safety_lines(study)
    if not lines and _of_the_command(study):
        return
    lines = lines or ((Safety.HARMLESS, "all settings: no risk to data"),)
    for number, (safety, line) in enumerate(lines):
        yield f"{'' if number else 'safety':<{_HEADING}}{safety.value}: {line}"


def risks_of(study: Study) -> Risks:
    """Return the consequences of levels that put data at risk, by factor and level."""
    found: dict[str, dict[str, str]] = {}
    for one in every_level(study):
        if one.at_risk and one.factor:
            found.setdefault(one.factor, {})[one.level] = one.sentence
    return found


def consequence_of_level(study: Study, factor: str, label: str) -> Consequence | None:
    """Return what a level does to the safety of data; None for an interaction."""
    found = level_safety(study, factor, label)
    return None if found is None else Consequence.of(found)


def _of_level(factor: str, level: Level) -> LevelSafety:
    """Return the most severe class of its settings, with all sentences of that class."""
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


def _named(levels: Sequence[LevelSafety], every: Mapping[str, int]) -> str:
    """Return e.g. "barrier nobarrier, commit 30 and 60"; only the factor if the sentence holds at each of its levels.

    ``every``: the number of levels, by factor. A sentence of all levels says nothing about one: for a number, it is a matter
    of degree, such as the memory that read-ahead takes.
    """
    by_factor: dict[str, list[str]] = {}
    for one in levels:
        by_factor.setdefault(one.factor, []).append(escape(one.level))
    return ", ".join(
        f"{escape(factor)} {'' if 1 < every.get(factor, 0) == len(labels) else joined(labels)}".strip()
        for factor, labels in by_factor.items()
    )


def safety_blocks(lines: Sequence[tuple[Safety, str]]) -> Iterator[Block]:
    """Yield what settings do to the safety of data. What puts it at risk, or is not judged, is on the first screen."""
    lesser = []
    for safety, line in lines:
        note = Note(f"{line}.", safety.value.capitalize(), "alarm" if safety is Safety.DATA_AT_RISK else "")
        if safety is Safety.TRADE_OFF:
            lesser.append(note)
        else:
            yield note
    if lesser:
        few = len(lesser) <= _MOST_TRADE_OFFS
        title = f"Trade-offs of these settings ({len(lesser)})"
        yield Section(title, tuple(lesser), folded=True, view=View.LONG if few else View.PAGE)
        if not few:
            yield Note(f"{title}: --json has them.", view=View.FULL)
