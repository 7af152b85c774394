"""Responses of a study: those that its workloads have, and what the study says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from iotrial.study import wire
from iotrial.study.kinds import ResponseSpec, kinds
from iotrial.study.kinds.contract import ACTIVITY_RESPONSES, SERVED_RESPONSES
from iotrial.study.model import (
    DEFAULT_CAP,
    MEAN,
    TYPICAL,
    Better,
    Design,
    DesignKind,
    Response,
    Scale,
    Workload,
)
from iotrial.study.source import Source

_Named = dict[str, tuple[int, wire.ResponseTable]]


def read_responses(
    source: Source, tables: Sequence[dict[str, Any]], workloads: Sequence[Workload], design: Design
) -> tuple[Response, ...]:
    """The responses of every workload: named ones first, then what its kind measures besides.

    Primary are the named ones that say so; else the first named that does not say otherwise; else the
    kind's first.
    """
    entries = [
        source.table(wire.ResponseTable, table, "response", index) for index, table in enumerate(tables)
    ]
    specs = {workload.name: kinds()[workload.kind].responses(workload.work) for workload in workloads}
    named: dict[str, _Named] = {workload.name: {} for workload in workloads}
    for index, entry in enumerate(entries):
        for workload in _workloads_of(source, index, entry, specs):
            if entry.name in named[workload]:
                message = f'the response "{entry.name}" of workload "{workload}" is declared twice'
                raise source.error(message, "response", index)
            named[workload][entry.name] = (index, entry)
    if design.kind is not DesignKind.FULL:
        for index, entry in enumerate(entries):
            if entry.statistic != TYPICAL:
                message = f'a "{design.kind.value}" design has no two arms that differ in one factor alone'
                raise source.error(message, "response", index, "statistic")
    return tuple(
        response
        for workload in workloads
        for response in _responses(source, workload.name, specs[workload.name], named[workload.name])
    )


def _with_statistic(source: Source, response: Response, index: int, entry: wire.ResponseTable) -> Response:
    path = ("response", index, "statistic")
    if entry.cap is not None and entry.statistic != MEAN:
        raise source.error('only a response with statistic = "mean" has a cap', "response", index, "cap")
    if entry.statistic == TYPICAL:
        return response
    if response.scale is not Scale.LOG or response.unit != "s":
        raise source.error(
            f'"{response.name}" is no time compared by ratio, so it has no mean or tail to compare', *path
        )
    if not response.primary:
        hint = "or leave statistic out: exploratory responses are compared by typical runs"
        raise source.error(f'"{response.name}" is not primary', *path, hint=f"add primary = true, {hint}")
    return replace(response, statistic=entry.statistic, cap=DEFAULT_CAP if entry.cap is None else entry.cap)


def nameable(specs: tuple[ResponseSpec, ...]) -> tuple[ResponseSpec, ...]:
    """What a study may name of a workload: the responses of its kind, and how busy machine and device were meanwhile."""
    return (*specs, *ACTIVITY_RESPONSES, *SERVED_RESPONSES)


def _workloads_of(
    source: Source, index: int, entry: wire.ResponseTable, specs: dict[str, tuple[ResponseSpec, ...]]
) -> list[str]:
    if entry.workload is not None and entry.workload not in specs:
        raise source.unknown("workload", entry.workload, specs, "response", index, "workload")
    asked = [entry.workload] if entry.workload is not None else list(specs)
    having = [name for name in asked if any(spec.name == entry.name for spec in nameable(specs[name]))]
    if not having:
        known = {spec.name for name in asked for spec in nameable(specs[name])}
        raise source.unknown("response", entry.name, known, "response", index, "name")
    return having


def _responses(
    source: Source, workload: str, specs: tuple[ResponseSpec, ...], named: _Named
) -> list[Response]:
    order = [*named, *(spec.name for spec in specs if spec.name not in named)]
    primary = {name for name, (_, entry) in named.items() if entry.primary}
    if not primary:
        first = (name for name in order if name not in named or named[name][1].primary is None)
        primary = {next(first, order[0])}
    by_name = {spec.name: spec for spec in nameable(specs)}
    responses = []
    for name in order:
        spec = by_name[name]
        scale, better = spec.scale, spec.better
        if name in named:
            index, entry = named[name]
            if entry.unit is not None and entry.unit != spec.unit:
                message = f'"{name}" is measured in "{spec.unit}", not in "{entry.unit}"'
                raise source.error(message, "response", index, "unit")
            scale = Scale(entry.scale) if entry.scale else scale
            better = Better(entry.better) if entry.better else better
        response = Response(workload, name, spec.unit, scale, better, name in primary, spec.stretchable)
        if name in named:
            response = _with_statistic(source, response, *named[name])
        responses.append(response)
    return responses
