"""The report as JSON, schema 1 (``schemas/report.schema.json``).

Numbers are unrounded; what is not known or not bounded is null. Labels are as the study has them. Keys are only
ever added, and only inside ``trial``, ``host``, ``diagnostics`` and ``claims``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iotrial.analysis.model import CarryOver, Control, Diagnostic, Effect
from iotrial.analysis.reasons import Reason
from iotrial.documents import plain
from iotrial.report.claims import HeldClaim
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.notation import utc
from iotrial.report.safety import consequence_of_level, every_level
from iotrial.report.within import ChangeWithin, changes_within
from iotrial.study.model import Scale, Study

if TYPE_CHECKING:
    from iotrial.report.figure_files import FigureFiles

SCHEMA = 1


def report_json(document: Document, figures: Sequence[FigureFiles] | None = None) -> dict[str, Any]:
    """The whole report as plain objects, ready for ``json.dumps(..., allow_nan=False)``. ``figures`` that were written
    with it are listed in ``trial``."""
    written = {} if figures is None else {"figures": _figures(figures)}
    made: dict[str, Any] = plain(
        {
            "schema": SCHEMA,
            "trial": {**_trial(document), **written},
            "effects": [_effect(row.effect, document.trial.header.study) for row in document.effects],
            "controls": [_control(row.control) for row in document.controls],
            "evidence": [_evidence(row) for row in document.evidence],
            "void": [
                {"rule": count.rule, "level": count.level, "count": count.count}
                for count in document.analysis.void
            ],
            "diagnostics": {
                "valid": document.valid,
                "invalid_reasons": list(document.analysis.invalid_reasons),
                "likely_reasons": [_reason(reason) for reason in document.reasons],
                "notes": list(document.analysis.notes),
                "not_accounted": list(document.data.not_accounted),
                "carry_over": [_carry_over(row.carry_over) for row in document.carry_over],
                "conditions": [_diagnostic(row.diagnostic) for row in document.diagnostics],
                "within_runs": [_within(one) for one in changes_within(document.data, document.conditions)],
            },
            "claims": [_claim(held) for held in document.claims],
        }
    )
    return made


def _figures(figures: Sequence[FigureFiles]) -> list[dict[str, str]]:
    """The files of ``report --figures``, one object a figure: what stands under ``trial.figures``."""
    return [
        {
            "title": one.title,
            "sentence": one.sentence,
            "svg": str(one.svg),
            "png": str(one.png),
            "csv": str(one.csv),
        }
        for one in figures
    ]


def _trial(document: Document) -> dict[str, object]:
    trial = document.trial
    header = trial.header
    return {
        "id": header.id,
        "number": trial.number,
        "study": header.study.name,
        "state": "invalid" if not document.valid else trial.state.value,
        "seed": header.seed,
        "seed_chosen": header.seed_chosen,
        "alpha": header.alpha,
        "margin": header.margin,
        "started": utc(header.started),
        "duration_s": trial.duration_s,
        "lab": str(header.lab.get("kind", header.study.lab.kind or "unknown")),
        "host": _plain(header.host),
        "title": header.study.title,
        "question": header.study.question,
        "verdict": document.summary.headline,
        "reason": trial.reason,
        "controls": document.with_controls,
        "lab_settings": _plain(header.lab),
        "options": _plain(header.options),
        "version": header.version,
        "imported": trial.imported,
        "continued": [
            {"at": one.at, "time_s": one.time_s, "blocks": one.blocks, "no_stop": one.no_stop}
            for one in document.data.continued
        ],
        "facts": [
            {
                "conditions": [
                    {**condition.levels, "workload": condition.workload} for condition in table.conditions
                ],
                "treatments": list(table.columns),
                "rows": {name: list(row.cells) for row in table.rows for name in row.names},
                "runs": [table.least, table.most],
                "varying": table.varying,
            }
            for table in document.facts
        ],
        "safety": every_level(header.study),
    }


def _effect(effect: Effect, study: Study) -> dict[str, object]:
    size = "ratio" if effect.scale is Scale.LOG else "difference"
    return {
        "kind": effect.kind,
        "factor": effect.factor,
        "level": effect.level,
        "reference": effect.reference,
        "condition": dict(effect.condition),
        "workload": effect.workload,
        "response": effect.response,
        "unit": effect.unit,
        "scale": effect.scale.value,
        "better": effect.better.value,
        "primary": effect.primary,
        size: _number(effect.value),
        "low": _number(effect.low),
        "high": _number(effect.high),
        "family_alpha": effect.family_alpha,
        "p_anytime": effect.p_anytime,
        "verdict": effect.verdict.value,
        "conclusion": effect.conclusion.value,
        "agree": effect.agree,
        "detectably": effect.detectably,
        "bounds": None if effect.bounds is None else list(effect.bounds),
        "reason": effect.reason,
        "detectable": _number(effect.detectable),
        "blocks": effect.blocks,
        "failures": effect.failures,
        "aliases": list(effect.aliases),
        "statistic": effect.statistic,
        "slow_runs": _slow_runs(effect),
        "mean_ratio": _mean_ratio(effect),
        "level_safety": consequence_of_level(study, effect.factor, effect.level),
        "reference_safety": consequence_of_level(study, effect.factor, effect.reference),
    }


def _slow_runs(effect: Effect) -> dict[str, object] | None:
    slow = effect.slow_runs
    if slow is None:
        return None
    sides = {
        name: {"slow": one.slow, "runs": one.runs, "low": one.low, "high": one.high}
        for name, one in (("level", slow.level), ("reference", slow.reference))
    }
    return {
        "factor": slow.factor,
        **sides,
        "difference": slow.difference,
        "low": slow.low,
        "high": slow.high,
        "differ": slow.differ,
    }


def _mean_ratio(effect: Effect) -> dict[str, object] | None:
    found = effect.mean_ratio
    if found is None:
        return None
    return {
        "ratio": _number(found.ratio),
        "typical": _number(found.typical),
        "p": found.p,
        "differs": found.differs,
    }


def _control(control: Control) -> dict[str, object]:
    return {
        "kind": control.kind,
        "condition": dict(control.condition),
        "response": control.response,
        "injected": control.injected,
        "ratio": _number(control.ratio),
        "low": _number(control.low),
        "high": _number(control.high),
        "passed": control.passed,
        "told_from_zero": control.told_from_zero,
    }


def _carry_over(one: CarryOver) -> dict[str, object]:
    size = "ratio" if one.scale is Scale.LOG else "difference"
    return {
        "condition": dict(one.condition),
        "response": one.response,
        "factor": one.factor,
        "level": one.level,
        "others": list(one.others),
        size: _number(one.ratio),
        "between_blocks": one.across,
        "e_value": _number(one.e_value),
        "fails_at": _number(1.0 / one.alpha),
        "passed": one.passed,
        "blocks": one.blocks,
        "wash_in": one.wash_in,
        "unaffected": [
            {
                "factor": other.factor,
                "level": other.level,
                "reference": other.reference,
                "response": other.response,
                "ratio" if other.scale is Scale.LOG else "difference": _number(other.ratio),
                "low": _number(other.low),
                "high": _number(other.high),
                "blocks": other.blocks,
            }
            for other in one.unaffected
        ],
    }


def _evidence(row: EvidenceRow) -> dict[str, object]:
    return {
        "treatment": row.treatment,
        "condition": _levels(row.condition.levels, row.condition.workload),
        "metric": row.metric,
        "value": _number(row.value),
        "unit": row.unit,
        "moved": row.moved,
        "e_value": _number(row.e_value),
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, object]:
    return {
        "condition": dict(diagnostic.condition),
        "response": diagnostic.response,
        "blocks": diagnostic.blocks,
        "order_effect": _number(diagnostic.order_effect),
        "order_p": _number(diagnostic.order_p),
        "autocorrelation": _number(diagnostic.autocorrelation),
        "drift_per_hour": _number(diagnostic.drift_per_hour),
        "bimodality": _number(diagnostic.bimodality),
        "block_share": _number(diagnostic.block_share),
        "changes": [
            {
                "at_s": _number(one.at_s),
                "ratio": _number(math.exp(one.size)) if one.logarithmic else None,
                "difference": None if one.logarithmic else _number(one.size),
            }
            for one in diagnostic.changes
        ],
    }


def _within(change: ChangeWithin) -> dict[str, object]:
    return {
        "condition": dict(change.condition.levels),
        "what": change.what,
        "arm": change.arm,
        "at_s": _number(change.at_s),
        "before": _number(change.before),
        "after": _number(change.after),
    }


def _reason(reason: Reason) -> dict[str, object]:
    return {
        "code": reason.code,
        "text": reason.text,
        "remedy": reason.remedy,
        "weight": _number(reason.weight),
        "condition": dict(reason.condition),
        "response": reason.response,
        "controls": reason.controls,
    }


def _claim(held: HeldClaim) -> dict[str, object]:
    claim = held.claim
    condition = held.condition
    return {
        "source": claim.source,
        "text": claim.text,
        "factor": claim.factor,
        "level": claim.level,
        "reference": claim.reference,
        "ratio": _number(claim.ratio),
        "says": None if claim.says is None else claim.says.value,
        "note": claim.note,
        "condition": None if condition is None else _levels(condition.levels, condition.workload),
        "response": held.response,
        "here": _number(held.ratio),
        "low": _number(held.low),
        "high": _number(held.high),
        "outcome": held.outcome.value,
        "why": held.why,
        "needs": {name: list(words) for name, words in claim.needs.items()},
        "cannot": claim.cannot or None,
    }


def _levels(levels: Mapping[str, str], workload: str) -> dict[str, str]:
    return {**levels, "workload": workload} if workload else dict(levels)


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: object) -> object:
    """Facts from outside as JSON can hold them: finite numbers, text keys."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
