"""Workloads of a study file, each by its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iotrial.study import wire
from iotrial.study.factors import known_label
from iotrial.study.kinds import KeyProblem, kind_of, kinds
from iotrial.study.model import Factor, Role, Setting, Workload
from iotrial.study.source import Source, table_name

CACHE_KNOB = "cache.state"
CACHE_STATES = ("as-is", "cold", "cold-data", "cold-files", "cold-system", "warm")


def read_workloads(
    source: Source, tables: Sequence[dict[str, Any]], factors: Sequence[Factor]
) -> tuple[Workload, ...]:
    """All ``[[workload]]`` tables, at least one of which runs by default."""
    workloads: list[Workload] = []
    for index, table in enumerate(tables):
        workload = _workload(source, table, factors, ("workload", index))
        if any(workload.name == other.name for other in workloads):
            raise source.error(f'two workloads are called "{workload.name}"', "workload", index, "name")
        workloads.append(workload)
    if not any(workload.default for workload in workloads):
        hint = "add a [[workload]] with name and kind" if not workloads else "all have default = false"
        raise source.error("a study needs a workload that runs by default", hint=hint)
    return tuple(workloads)


def check_placeholders(
    source: Source, factors: Sequence[Factor], fixed: Sequence[Setting], workloads: Sequence[Workload]
) -> None:
    """A placeholder that no command holds would make a factor without effect: an error."""
    texts = [
        text
        for workload in workloads
        if (programs := kind_of(workload.work).programs) is not None
        for text in programs.texts(workload.work)
    ]
    places = [
        (setting, ("factor", index))
        for index, factor in enumerate(factors)
        for level in factor.levels
        for setting in level.settings
    ]
    places += [(setting, ("fixed", index)) for index, setting in enumerate(fixed)]
    for setting, place in places:
        placeholder = dict(setting.options).get("placeholder")
        if placeholder is not None and not any(placeholder in text for text in texts):
            message = f'no command workload holds the placeholder "{placeholder}"'
            raise source.error(message, *place, "placeholder")


def _workload(
    source: Source, data: dict[str, Any], factors: Sequence[Factor], path: tuple[str | int, ...]
) -> Workload:
    common = {key: value for key, value in data.items() if key in wire.WorkloadTable.model_fields}
    table = source.table(wire.WorkloadTable, common, *path)
    if table.kind not in kinds():
        raise source.unknown("workload kind", table.kind, kinds(), *path, "kind")
    kind = kinds()[table.kind]
    own = {key: value for key, value in data.items() if key not in common}
    if kind.text_file is not None:
        own = _with_text(source, own, kind.text_file, path)
    keys = source.table(kind.keys, own, *path)
    try:
        work = kind.build(keys)
    except KeyProblem as problem:
        raise source.error(problem.message, *path, *problem.path, hint=problem.hint) from None
    _check_cache(source, table.cache, factors, path)
    cache = table.cache
    if cache is None and not _varies_cache(factors):
        cache = kind.cache(work)
    return Workload(
        name=table.name,
        kind=table.kind,
        work=work,
        cache=cache,
        only={name: _only(source, name, labels, factors, path) for name, labels in table.only.items()},
        default=table.default,
    )


def _with_text(
    source: Source, own: dict[str, Any], keys: tuple[str, str], path: tuple[str | int, ...]
) -> dict[str, Any]:
    """The table with the text of the file that it names in place of the file's name."""
    named, content = keys
    if named not in own:
        return own
    if content in own:
        raise source.error(f'either "{named}" or "{content}", found both', *path, named)
    if not isinstance(own[named], str):
        raise source.error(f"{named}: wanted text in quotes", *path, named)
    text = source.text_beside(own[named], *path, named)
    return {key: value for key, value in own.items() if key != named} | {content: text}


def _check_cache(
    source: Source, cache: str | None, factors: Sequence[Factor], path: tuple[str | int, ...]
) -> None:
    if cache is None:
        return
    if cache not in CACHE_STATES:
        raise source.unknown("cache state", cache, CACHE_STATES, *path, "cache")
    for factor in factors:
        if any(setting.knob == CACHE_KNOB for level in factor.levels for setting in level.settings):
            message = f'the cache state is varied by factor "{factor.name}", so a workload cannot name one'
            raise source.error(message, *path, "cache")


def _varies_cache(factors: Sequence[Factor]) -> bool:
    return any(s.knob == CACHE_KNOB for factor in factors for level in factor.levels for s in level.settings)


def _only(
    source: Source, name: str, labels: list[str], factors: Sequence[Factor], path: tuple[str | int, ...]
) -> tuple[str, ...]:
    place = (*path, "only", name)
    conditions = {factor.name: factor for factor in factors if factor.role is Role.CONDITION}
    if name not in conditions:
        if any(factor.name == name for factor in factors):
            message = (
                f'"{name}" is a treatment; {table_name(path)} can be restricted by condition factors only'
            )
            raise source.error(message, *place)
        raise source.unknown("condition factor", name, conditions, *place)
    if not labels:
        raise source.error(f'"{name}" has no level left', *place)
    known = [level.label for level in conditions[name].levels]
    wanted = [known_label(source, name, known, text, *place, index) for index, text in enumerate(labels)]
    return tuple(label for label in known if label in wanted)
