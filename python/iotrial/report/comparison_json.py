"""A comparison of trials as JSON, schema 1 (``schemas/compare.schema.json``). Numbers are unrounded, what is not bounded is
null, labels are as the trials have them."""

from __future__ import annotations

import math

from iotrial.report.comparison import Cell, Column, Comparison, LevelRow, Row, details, headline
from iotrial.study.model import Scale

SCHEMA = 1


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """All of it as plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    marks = [column.mark for column in comparison.columns]
    return {
        "schema": SCHEMA,
        "headline": headline(comparison),
        "details": list(details(comparison)),
        "alpha": comparison.alpha,
        "trials": [_trial(column) for column in comparison.columns],
        "differences": [
            {"group": one.group, "name": one.name, "values": dict(zip(marks, one.values, strict=True))}
            for one in comparison.differences
        ],
        "comparisons": [_row(row, marks) for row in comparison.rows],
        "levels": [_level(row, marks) for row in comparison.levels],
    }


def _trial(column: Column) -> dict[str, object]:
    one = column.trial
    return {
        "mark": column.mark,
        "name": column.name,
        "id": one.id,
        "number": one.number or None,
        "study": one.study,
        "state": one.state,
        "valid": one.valid,
        "started": one.started,
        "duration_s": one.duration_s,
        "alpha": one.alpha,
        "analysed_at": one.alpha / one.share,
        "margin": one.margin,
        "version": one.version,
        "imported": one.imported,
        "verdict": one.headline,
        "machine": dict(one.machine),
        "lab": dict(one.lab),
        "blocks": one.blocks,
        "runs": one.runs,
        "void": one.void,
        "failures": one.failures,
    }


def _row(row: Row, marks: list[str]) -> dict[str, object]:
    return {
        "kind": row.kind,
        "condition": dict(row.condition),
        "workload": row.workload,
        "response": row.response,
        "unit": row.unit,
        "scale": row.scale.value,
        "better": row.better.value,
        "factor": row.factor,
        "level": row.level,
        "reference": row.reference,
        "agreement": row.agreement.value.replace(" ", "_"),
        "apart": [
            {"low": marks[one.low], "high": marks[one.high], "least": _number(one.least)} for one in row.apart
        ],
        "verdict": None if row.verdict is None else row.verdict.value,
        "opposite": row.opposite,
        "trials": {
            mark: None if cell is None else _cell(cell, row.scale)
            for mark, cell in zip(marks, row.cells, strict=True)
        },
    }


def _cell(cell: Cell, scale: Scale) -> dict[str, object]:
    effect = cell.effect
    gain = cell.gain
    return {
        "ratio" if scale is Scale.LOG else "difference": _number(effect.value),
        "low": _number(effect.low),
        "high": _number(effect.high),
        "gain": None
        if gain is None
        else {
            "percent": _number(gain.percent),
            "low": _number(gain.low),
            "high": _number(gain.high),
            "word": gain.word,
            "said": gain.said,
        },
        "verdict": None if cell.verdict is None else cell.verdict.value,
        "conclusion": effect.conclusion.value if cell.valid else None,
        "detectably": effect.detectably if cell.valid else None,
        "reason": effect.reason,
        "counts": cell.counts,
        "family_alpha": effect.family_alpha,
        "blocks": effect.blocks,
        "failures": effect.failures,
    }


def _level(row: LevelRow, marks: list[str]) -> dict[str, object]:
    return {
        "condition": dict(row.condition),
        "workload": row.workload,
        "arm": row.arm,
        "response": row.response,
        "unit": row.unit,
        "medians": {mark: _number(median) for mark, median in zip(marks, row.medians, strict=True)},
        "runs": dict(zip(marks, row.runs, strict=True)),
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
