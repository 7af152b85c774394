"""Factors, levels and pinned knobs of a study file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from iotrial.study import wire
from iotrial.study.labels import fold, match
from iotrial.study.model import Factor, Level, Role, Setting
from iotrial.study.source import Source, printed

WORKLOAD = "workload"


def read_factors(source: Source, tables: Sequence[dict[str, Any]]) -> tuple[Factor, ...]:
    """All ``[[factor]]`` tables; at least one is a treatment."""
    factors: list[Factor] = []
    for index, table in enumerate(tables):
        factor = _factor(source, table, ("factor", index))
        if factor.name == WORKLOAD:
            raise source.error('the name "workload" is reserved for [[workload]]', "factor", index, "name")
        if any(factor.name == other.name for other in factors):
            raise source.error(f'two factors are called "{factor.name}"', "factor", index, "name")
        factors.append(factor)
    if not any(factor.role is Role.TREATMENT for factor in factors):
        hint = (
            "add a [[factor]] with name, knob and levels" if not factors else 'one needs role = "treatment"'
        )
        raise source.error("a study needs a factor whose effect is asked for", hint=hint)
    return tuple(factors)


def read_fixed(source: Source, tables: Sequence[dict[str, Any]]) -> tuple[Setting, ...]:
    """All ``[[fixed]]`` tables."""
    wires = [source.table(wire.SettingTable, table, "fixed", index) for index, table in enumerate(tables)]
    return tuple(Setting(entry.knob, entry.level, entry.options()) for entry in wires)


def check_distinct_knobs(source: Source, factors: Sequence[Factor], fixed: Sequence[Setting]) -> None:
    """A knob (with its options) is set by one factor only, or pinned once."""
    owners: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for index, factor in enumerate(factors):
        for knob in {
            (setting.knob, setting.options) for level in factor.levels for setting in level.settings
        }:
            if knob in owners:
                message = f'the knob {knob[0]} is varied by factor "{owners[knob]}" already'
                raise source.error(message, "factor", index)
            owners[knob] = factor.name
    for index, setting in enumerate(fixed):
        knob = (setting.knob, setting.options)
        if knob in owners:
            by = f'varied by factor "{owners[knob]}"' if owners[knob] else "pinned"
            raise source.error(f"the knob {setting.knob} is {by} already", "fixed", index)
        owners[knob] = ""


def _factor(source: Source, data: dict[str, Any], path: tuple[str | int, ...]) -> Factor:
    table = source.table(wire.FactorTable, data, *path)
    levels = tuple(
        _level(source, table, entry, (*path, "levels", index)) for index, entry in enumerate(table.levels)
    )
    labels = [level.label for level in levels]
    for index, label in enumerate(labels):
        if any(fold(label) == fold(other) for other in labels[:index]):
            message = f'factor "{table.name}" has the level "{label}" twice (blanks and case do not count)'
            raise source.error(message, *path, "levels", index)
    role = Role(table.role)
    if role is Role.TREATMENT and len(levels) < 2:
        raise source.error(f'factor "{table.name}" needs two levels to compare', *path, "levels")
    reference = labels[0]
    if table.reference is not None:
        reference = known_label(source, table.name, labels, table.reference, *path, "reference")
    default = tuple(labels)
    if table.default is not None:
        wanted = [
            known_label(source, table.name, labels, label, *path, "default", index)
            for index, label in enumerate(table.default)
        ]
        default = tuple(label for label in labels if label in wanted)
        if role is Role.TREATMENT and (reference not in default or len(default) < 2):
            message = (
                f'default of factor "{table.name}" must hold the reference "{reference}" and another level'
            )
            raise source.error(message, *path, "default")
    whole = table.plot == "whole"
    if whole and role is not Role.TREATMENT:
        raise source.error(f'factor "{table.name}" is a condition, which has no plot', *path, "plot")
    return Factor(table.name, role, levels, reference, default, source.line(*path), whole_plot=whole)


def known_label(source: Source, factor: str, labels: Iterable[str], text: str, *path: str | int) -> str:
    """The label of this factor that ``text`` means; an error with the nearest where it has none."""
    labels = tuple(labels)
    label = match(text, labels)
    if label is None:
        raise source.unknown(f'level of "{factor}"', text, labels, *path)
    return label


def _level(source: Source, factor: wire.FactorTable, entry: object, path: tuple[str | int, ...]) -> Level:
    if not isinstance(entry, dict):
        try:
            value = wire.scalar(entry)
            label = wire.label(value)
        except ValueError as error:
            raise source.error(f'level of factor "{factor.name}": {error}', *path) from None
        return Level(label, (_own(source, factor, value, path),))
    table = source.table(wire.LevelTable, entry, *path)
    if (table.value is None) == (table.set is None):
        raise source.error("a level's table has a label and either value or set", *path)
    if table.value is not None:
        return Level(table.label, (_own(source, factor, table.value, path),))
    if factor.options():
        name = factor.options()[0][0]
        message = f'"{name}" addresses the factor\'s own knob, but this level sets knobs of its own'
        raise source.error(
            message, *path, hint=f"write set as a list: [{{ knob = ..., level = ..., {name} = ... }}]"
        )
    return Level(table.label, _bundle(source, table.set or {}, (*path, "set")))


def _own(source: Source, factor: wire.FactorTable, value: str, path: tuple[str | int, ...]) -> Setting:
    if factor.knob is None:
        hint = "name the knob, or give every level a table { label, set }"
        raise source.error(f'factor "{factor.name}" names no knob for this level', *path, hint=hint)
    return Setting(factor.knob, value, factor.options())


def _bundle(
    source: Source, table: dict[str, Any] | list[Any], path: tuple[str | int, ...]
) -> tuple[Setting, ...]:
    """The settings of ``set``: a table of knobs, or (knobs with options) a list as in ``[[fixed]]``."""
    settings = []
    if isinstance(table, list):
        wires = [source.table(wire.SettingTable, entry, *path, index) for index, entry in enumerate(table)]
        settings = [Setting(entry.knob, entry.level, entry.options()) for entry in wires]
    else:
        for name, value in table.items():
            if isinstance(value, dict):
                hint = (
                    f'write the knob in quotes: "{printed(name)}.{printed(next(iter(value), "..."))}" = ...'
                )
                raise source.error(f'"{printed(name)}" is a table', *path, name, hint=hint)
            entry = source.table(wire.SettingTable, {"knob": name, "level": value}, *path, name)
            settings.append(Setting(entry.knob, entry.level))
    if len({(setting.knob, setting.options) for setting in settings}) < len(settings):
        raise source.error("a level sets one knob twice", *path)
    return tuple(settings)
