"""The audit as one JSON document (schemas/audit.schema.json). Labels are not escaped."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from iotrial.audits.model import (
    Audit,
    AuditedPair,
    Claim,
    ClaimCheck,
    FirstRuns,
    OutlyingValue,
    RepeatedGroup,
    RunOrder,
    Trend,
    TwoModes,
    Unusable,
)
from iotrial.documents import Count, JsonDocument, JsonObject, Labels, has_fields_of, plain
from iotrial.report.audit import sentences
from iotrial.report.audit.studies import Answer


class AuditedTable(JsonObject, frozen=True):
    """What was audited."""

    file: str
    format: str
    title: str
    observations: Annotated[int, Meta(ge=1)]
    groups: tuple[str, ...]
    reference: str | None
    alpha: Annotated[float, Meta(gt=0, le=0.5)]
    margin: Annotated[float, Meta(gt=0, le=1)]
    traced: str | None
    left_out: Annotated[Count, Meta(description="Comparisons beyond the limit.")]
    summary: str


_CLAIMED = ("text", "group", "number", "reading")


@has_fields_of(ClaimCheck, only=("found", "statistic", "recomputes", "slip"))
@has_fields_of(Claim, only=_CLAIMED)
class CheckedClaim(JsonObject, frozen=True):
    """A published number, recomputed."""

    reference: str | None
    response: str | None
    condition: Labels


class AuditSentences(JsonObject, frozen=True):
    """The same results in words."""

    findings: list[str]
    needs: list[str]
    claims: list[str]


class Audited(JsonDocument, frozen=True):
    """iotrial audit --json

    What foreign numbers can show. Ratios are group over reference; numbers are unrounded; null stands for what is
    unknown or unbounded.
    """

    audit: AuditedTable
    comparisons: tuple[AuditedPair, ...]
    order: tuple[RunOrder, ...]
    first_runs: tuple[FirstRuns, ...]
    modes: tuple[TwoModes, ...]
    repeats: tuple[RepeatedGroup, ...]
    claims: tuple[CheckedClaim, ...]
    outliers: tuple[OutlyingValue, ...]
    trends: tuple[Trend, ...]
    unusable: tuple[Unusable, ...]
    sentences: AuditSentences
    notes: tuple[str, ...]
    unread: tuple[str, ...]
    study: Annotated[Answer | None, Meta(description="The study of the catalogue that answers the question.")]


def audit_json(audit: Audit, answer: Answer | None) -> dict[str, Any]:
    """Convert the audit to plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    data = audit.dataset
    document = Audited.of(
        audit,
        audit=AuditedTable.of(
            audit,
            file=data.name,
            format=data.form,
            title=data.title,
            observations=len(data.observations),
            traced=data.traced,
            summary=sentences.summary(audit),
        ),
        claims=tuple(map(_claim, audit.claims)),
        sentences=AuditSentences(sentences.findings(audit), sentences.needs(audit), sentences.claims(audit)),
        notes=data.notes,
        unread=data.unread,
        study=answer,
    )
    found: dict[str, Any] = plain(document)
    return found


def _claim(one: ClaimCheck) -> CheckedClaim:
    pair = one.comparison
    return CheckedClaim.of(
        one,
        **{name: getattr(one.claim, name) for name in _CLAIMED},
        reference=None if pair is None else pair.reference,
        response=None if pair is None else pair.response,
        condition={} if pair is None else pair.condition,
    )
