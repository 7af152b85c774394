"""The audit as one JSON document (schemas/audit.schema.json). Numbers are unrounded; null means unknown or unbounded."""

from __future__ import annotations

import dataclasses
from typing import Any

from iotrial.audits.model import Audit, Comparison, Condition
from iotrial.documents import plain
from iotrial.report.audit.sentences import claims, findings, needs, summary
from iotrial.report.audit.studies import Answer


def audit_json(audit: Audit, answer: Answer | None) -> dict[str, Any]:
    """Build the document. Labels are not escaped."""
    data = audit.dataset
    document = {
        "schema": 1,
        "audit": {
            "file": data.name,
            "format": data.form,
            "title": data.title,
            "observations": len(data.observations),
            "groups": list(audit.groups),
            "reference": audit.reference,
            "alpha": audit.alpha,
            "margin": audit.margin,
            "traced": data.traced,
            "left_out": audit.left_out,
            "summary": summary(audit),
        },
        "comparisons": [_comparison(one) for one in audit.comparisons],
        "order": [_plain(one) for one in audit.order],
        "first_runs": [{**_plain(one), "ratios": dict(one.ratios)} for one in audit.first_runs],
        "modes": [
            {
                **_plain(one),
                "groups": list(one.groups),
                "by_group": {group: {"low": low, "high": high} for group, low, high in one.by_group},
            }
            for one in audit.modes
        ],
        "repeats": [_plain(one) for one in audit.repeats],
        "claims": [
            {
                "text": one.claim.text,
                "group": one.claim.group,
                "reference": None if one.comparison is None else one.comparison.reference,
                "response": None if one.comparison is None else one.comparison.response,
                "condition": {} if one.comparison is None else dict(one.comparison.condition),
                "number": one.claim.number,
                "reading": one.claim.reading.value,
                "found": one.found,
                "statistic": one.statistic,
                "recomputes": one.recomputes,
                "slip": one.slip,
            }
            for one in audit.claims
        ],
        "outliers": [_plain(one) for one in audit.outliers],
        "trends": [_plain(one) for one in audit.trends],
        "unusable": [_plain(one) for one in audit.unusable],
        "sentences": {"findings": findings(audit), "needs": needs(audit), "claims": claims(audit)},
        "notes": list(data.notes),
        "unread": list(data.unread),
        "study": answer,
    }
    found: dict[str, Any] = plain(document)
    return found


def _comparison(one: Comparison) -> dict[str, Any]:
    row = _plain(one)
    row["intervals"] = [row.pop(name) for name in ("welch", "shared", "rank")]
    return row


def _plain(value: Any) -> dict[str, Any]:
    """Convert a dataclass to a dict of its own fields, with conditions as objects."""
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for name, part in found.items():
        if name.startswith("condition"):
            pairs: Condition = part
            found[name] = dict(pairs)
    return found
