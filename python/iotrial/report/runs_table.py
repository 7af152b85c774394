"""Every run of a trial as a long table: one row per run and response, the same for CSV and Parquet.

Nothing is omitted: runs of void and of incomplete blocks are included and marked, and a failed run has a row without a
response. ``counts`` says which rows the analysis uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from iotrial.report.document import Document
from iotrial.report.evidence import sound_runs


class Type(Enum):
    """The type of a column; all but TEXT and NUMBER have no missing values."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    YES_NO = "yes or no"


Value = str | int | float | bool | None
CONDITION, TREATMENT = "condition.", "factor."


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` by name, and ``rows``, an iterator of tuples as long as ``columns``, which can be consumed once."""

    columns: tuple[tuple[str, Type], ...]
    rows: Iterator[tuple[Value, ...]]


def runs_table(document: Document) -> Table:
    """Return the runs in order of time.

    A condition's levels are in columns ``condition.NAME``, a treatment's in ``factor.NAME``.
    """
    study = document.trial.header.study
    conditions = [factor.name for factor in study.condition_factors]
    treatments = [factor.name for factor in study.treatment_factors]
    columns = (
        ("trial", Type.TEXT),
        ("study", Type.TEXT),
        ("workload", Type.TEXT),
        *((CONDITION + name, Type.TEXT) for name in conditions),
        ("block", Type.WHOLE),
        ("slot", Type.WHOLE),
        ("started_s", Type.NUMBER),
        ("kind", Type.TEXT),
        ("arm", Type.TEXT),
        *((TREATMENT + name, Type.TEXT) for name in treatments),
        ("complete", Type.YES_NO),
        ("void", Type.TEXT),
        ("failure", Type.TEXT),
        ("counts", Type.YES_NO),
        ("response", Type.TEXT),
        ("unit", Type.TEXT),
        ("primary", Type.YES_NO),
        ("value", Type.NUMBER),
    )
    return Table(columns, _rows(document, conditions, treatments))


def _rows(document: Document, conditions: list[str], treatments: list[str]) -> Iterator[tuple[Value, ...]]:
    data, header = document.data, document.trial.header
    declared = {(one.workload, one.name): one for one in header.study.responses}
    ends = {(end.condition, end.block): end for end in data.ends}
    counting = {id(run) for run in sound_runs(data)}
    for run in data.runs:
        condition = document.conditions.of_key(run.condition)
        end = ends.get((run.condition, run.block))
        place: tuple[Value, ...] = (
            header.id,
            header.study.name,
            condition.workload,
            *(condition.levels.get(name) for name in conditions),
            run.block,
            run.slot,
            run.started_s,
            run.kind,
            run.arm,
            *(run.treatment.get(name) for name in treatments),
            end is not None,
            None if end is None else end.void,
            run.failure,
            id(run) in counting,
        )
        for name, value in run.responses.items():
            known = declared.get((condition.workload, name))
            unit = None if known is None else known.unit
            yield (*place, name, unit, known is not None and known.primary, float(value))
        if not run.responses:
            yield (*place, None, None, False, None)
