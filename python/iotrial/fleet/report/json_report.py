"""A fleet as JSON, schema 1 (``schemas/fleet-report.schema.json``).

Numbers are unrounded, unbounded ends are null, labels are those of the trials.
"""

from __future__ import annotations

import math

from iotrial.fleet.report.words import claims, details, headline
from iotrial.fleet.verdict import FleetComparison, FleetReport, HostRow, on_scale
from iotrial.study.model import Scale

SCHEMA = 1


def fleet_json(report: FleetReport) -> dict[str, object]:
    """Return the report as plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    return {
        "schema": SCHEMA,
        "fleet": {
            "id": report.id,
            "study": report.study,
            "question": report.question,
            "alpha": report.alpha,
            "margin": report.margin,
            "hosts": len(report.hosts),
            "running": report.running,
            "replaced": list(report.replaced),
        },
        "headline": headline(report),
        "details": list(details(report)),
        "claims": list(claims(report)),
        "hosts": [
            {
                "host": one.host,
                "trial": one.number,
                "id": one.id,
                "state": one.state.value,
                "started": one.started,
                "duration_s": one.duration_s,
                "blocks": one.blocks,
                "void": one.void,
                "valid": one.problem is None and not one.invalid and one.state.value != "invalid",
                "invalid_reasons": list(one.invalid),
                "problem": one.problem,
                "controls": one.controlled,
                "properties": dict(one.properties),
            }
            for one in report.hosts
        ],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def _comparison(one: FleetComparison) -> dict[str, object]:
    like, found = one.like, one.found
    return {
        "kind": like.kind,
        "factor": like.factor,
        "level": like.level,
        "reference": like.reference,
        "condition": dict(like.condition),
        "workload": like.workload,
        "response": like.response,
        "unit": like.unit,
        "scale": like.scale.value,
        "better": like.better.value,
        "alpha": found.alpha,
        "averaged": len(one.averaged),
        "verdict": None if one.mean is None else one.mean.verdict.value,
        "conclusion": None if one.mean is None else one.mean.conclusion.value,
        "mean": _mean(one),
        "evidence": {
            "hosts": found.evidence.hosts,
            "log_e": _number(found.evidence.log_e),
            "log_e_product": _number(found.evidence.log_product),
            "log_e_mean": _number(found.evidence.log_mean),
            "excluded": found.evidence.excluded,
            "least_hosts_with_an_effect": found.evidence.least,
        },
        "outliers": [{"host": out.host, "distance": out.distance, "p": out.p} for out in found.outliers],
        "outliers_sought": found.outliers_sought,
        "moderators": [
            {
                "name": table.name,
                "groups": [
                    {
                        "value": group.value,
                        "hosts": group.hosts,
                        "mean": on_scale(group.mean, like),
                        "low": on_scale(group.low, like),
                        "high": on_scale(group.high, like),
                    }
                    for group in table.groups
                ],
                "differences": [
                    {
                        "base": apart.base,
                        "other": apart.other,
                        "value": on_scale(apart.value, like),
                        "low": on_scale(apart.low, like),
                        "high": on_scale(apart.high, like),
                        "shown": apart.shown,
                    }
                    for apart in table.differences
                ],
            }
            for table in found.moderators
        ],
        "differences_sharing_alpha": found.comparisons,
        "hosts": [_host(row) for row in one.rows],
    }


def _mean(one: FleetComparison) -> dict[str, object] | None:
    mean, like = one.found.mean, one.like
    if mean is None:
        return None
    name = "ratio" if like.scale is Scale.LOG else "difference"
    spread = [mean.spread, mean.spread_low, mean.spread_high]
    if like.scale is Scale.LOG:
        spread = [math.exp(min(end, 690.0)) for end in spread]
    return {
        name: on_scale(mean.value, like),
        "low": on_scale(mean.low, like),
        "high": on_scale(mean.high, like),
        "spread": spread[0],
        "spread_low": spread[1],
        "spread_high": spread[2],
        "new_host_low": on_scale(mean.new_low, like),
        "new_host_high": on_scale(mean.new_high, like),
    }


def _host(row: HostRow) -> dict[str, object]:
    effect, part = row.effect, row.part
    if effect is None:
        return {"host": row.trial.host, "verdict": None, "not_averaged": row.why}
    name = "ratio" if effect.scale is Scale.LOG else "difference"
    return {
        "host": row.trial.host,
        "verdict": None if part.distrusted is not None else effect.verdict.value,
        "conclusion": None if part.distrusted is not None else effect.conclusion.value,
        name: _number(effect.value),
        "low": _number(effect.low),
        "high": _number(effect.high),
        "blocks": effect.blocks,
        "failures": effect.failures,
        "mean_contrast": _number(part.estimate),
        "standard_error": _number(part.error),
        "log_e": _number(part.log_e),
        "not_averaged": row.why,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
