"""Published claims of a study file, each tied to the effect that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iotrial.study import wire
from iotrial.study.factors import WORKLOAD, known_label
from iotrial.study.model import Claim, Factor, Response, Role, Says, Workload
from iotrial.study.source import Source


def read_claims(
    source: Source,
    tables: Sequence[dict[str, Any]],
    factors: Sequence[Factor],
    workloads: Sequence[Workload],
    responses: Sequence[Response],
) -> tuple[Claim, ...]:
    """All ``[[claim]]`` tables. The factor may be left out where there is one treatment factor only."""
    names = {workload.name for workload in workloads}
    claims = []
    for index, data in enumerate(tables):
        path = ("claim", index)
        table = source.table(wire.ClaimTable, data, *path)
        factor = _factor(source, table, factors, path)
        labels = [level.label for level in factor.levels]
        level = known_label(source, factor.name, labels, table.level, *path, "level")
        reference = factor.reference
        if table.reference is not None:
            reference = known_label(source, factor.name, labels, table.reference, *path, "reference")
        if level == reference:
            raise source.error(f'a claim compares two levels, found "{level}" twice', *path, "level")
        if table.workload is not None and table.workload not in names:
            raise source.unknown("workload", table.workload, names, *path, "workload")
        of_work = {r.name for r in responses if table.workload in (None, r.workload)}
        if table.response is not None and table.response not in of_work:
            raise source.unknown("response", table.response, of_work, *path, "response")
        if table.value is not None and (table.ratio is not None or None in (table.workload, table.response)):
            raise source.error(
                "a claim of a value names its workload and response, and has no ratio", *path, "value"
            )
        if table.says is not None and (table.ratio is not None or table.value is not None):
            raise source.error("a claim of a direction has no ratio and no value", *path, "says")
        others = [one for one in factors if one is not factor]
        condition = {
            name: _condition(source, name, text, others, names, (*path, "condition", name))
            for name, text in table.condition.items()
        }
        needs = table.needs.model_dump(exclude_none=True)
        claims.append(
            Claim(
                source=table.source,
                text=table.text,
                factor=factor.name,
                level=level,
                reference=reference,
                ratio=table.ratio,
                workload=table.workload,
                response=table.response,
                condition=condition,
                note=table.note,
                value=table.value,
                says=None if table.says is None else Says(table.says),
                needs={name: tuple(words) for name, words in needs.items()},
                cannot=table.cannot,
            )
        )
    return tuple(claims)


def _factor(
    source: Source, table: wire.ClaimTable, factors: Sequence[Factor], path: tuple[str | int, ...]
) -> Factor:
    treatments = {factor.name: factor for factor in factors if factor.role is Role.TREATMENT}
    if table.factor is None:
        if len(treatments) == 1:
            return next(iter(treatments.values()))
        hint = f"one of: {', '.join(sorted(treatments))}"
        raise source.error("a claim names its factor where there are several", *path, hint=hint)
    if table.factor not in treatments:
        raise source.unknown("treatment factor", table.factor, treatments, *path, "factor")
    return treatments[table.factor]


def _condition(
    source: Source,
    name: str,
    text: str,
    factors: Sequence[Factor],
    workloads: set[str],
    path: tuple[str | int, ...],
) -> str:
    if name == WORKLOAD:
        if text not in workloads:
            raise source.unknown("workload", text, workloads, *path)
        return text
    known = {factor.name: factor for factor in factors}
    if name not in known:
        raise source.unknown("condition", name, [*known, WORKLOAD], *path)
    return known_label(source, name, [level.label for level in known[name].levels], text, *path)
