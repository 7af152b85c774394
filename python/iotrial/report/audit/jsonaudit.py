"""The audit as one JSON document (schemas/audit.schema.json). Labels are not escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from iotrial.audits.model import (
    Audit,
    ClaimCheck,
    Comparison,
    Interval,
    Modes,
    Need,
    Reading,
    Standing,
    Trend,
    Unusable,
)
from iotrial.documents import Count, JsonDocument, JsonObject, Labels, Unbounded, plain
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


class AuditedPair(JsonObject, frozen=True):
    """A group against its reference under one condition."""

    group: str
    reference: str
    response: str
    unit: str
    condition: Labels
    series: str
    n: Annotated[int, Meta(ge=1)]
    n_reference: Annotated[int, Meta(ge=1)]
    mean: Unbounded
    mean_reference: Unbounded
    ratio: Annotated[float | None, Meta(description="Of geometric means.")]
    rounding: Annotated[
        tuple[Unbounded, Unbounded] | None,
        Meta(description="Ratios between which the rounding of the raw values leaves it."),
    ]
    needs: tuple[Need, ...]
    standing: Standing
    reasons: tuple[Literal["separate", "autocorrelated", "repeat"], ...]
    intervals: Annotated[
        tuple[Interval, ...],
        Meta(min_length=3, max_length=3, description="Welch alone, Welch at the shared level, ranks."),
    ]


class RunOrder(JsonObject, frozen=True):
    """Effect of the run order on a comparison."""

    group: str
    reference: str
    response: str
    condition: Labels
    series: str
    arrangement: Literal["separate", "mixed", "unknown"]
    autocorrelation: float | None
    drift: Annotated[
        float | None, Meta(description="Ratio that the trend inside the groups makes between them.")
    ]
    false_alarm: Annotated[
        float | None, Meta(description="Of Welch's test at 5 %, for identical arms in this order.")
    ]
    values: int


class FirstRuns(JsonObject, frozen=True):
    """The first run of each group against the rest."""

    response: str
    condition: Labels
    series: str
    groups: int
    ratios: Annotated[Mapping[str, Unbounded], Meta(description="By group.")]
    chance: float


class ModeCounts(JsonObject, frozen=True):
    """The number of values of one group in each mode."""

    low: int
    high: int


class TwoModes(JsonObject, frozen=True):
    """A bimodal distribution."""

    response: str
    condition: Labels
    series: str
    groups: tuple[str, ...]
    low: float
    high: float
    low_count: int
    high_count: int
    p: float
    unit: str
    by_group: Mapping[str, ModeCounts]
    switches: int | None
    switches_p: float | None


class RepeatedGroup(JsonObject, frozen=True):
    """One treatment measured more than once: an accidental A/A comparison."""

    group: str
    other: str
    response: str
    unit: str
    condition: Labels
    condition_other: Labels
    value: float
    value_other: float
    ratio: Unbounded
    effects: int
    smaller: Annotated[
        int, Meta(description="Effects of the response that are smaller than this difference.")
    ]


class CheckedClaim(JsonObject, frozen=True):
    """A published number, recomputed."""

    text: str
    group: str
    reference: str | None
    response: str | None
    condition: Labels
    number: float
    reading: Reading
    found: float | None
    statistic: str
    recomputes: bool
    slip: str | None


class OutlyingValue(JsonObject, frozen=True):
    """One value far from the rest of its response."""

    group: str
    response: str
    unit: str
    condition: Labels
    value: float
    typical: float


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
    comparisons: list[AuditedPair]
    order: list[RunOrder]
    first_runs: list[FirstRuns]
    modes: list[TwoModes]
    repeats: list[RepeatedGroup]
    claims: list[CheckedClaim]
    outliers: list[OutlyingValue]
    trends: tuple[Trend, ...]
    unusable: tuple[Unusable, ...]
    sentences: AuditSentences
    notes: tuple[str, ...]
    unread: tuple[str, ...]
    study: Annotated[Answer | None, Meta(description="The study of the catalogue that answers the question.")]


def audit_json(audit: Audit, answer: Answer | None) -> dict[str, Any]:
    """Convert the audit to plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    data = audit.dataset
    document = Audited(
        audit=AuditedTable.of(
            audit,
            file=data.name,
            format=data.form,
            title=data.title,
            observations=len(data.observations),
            traced=data.traced,
            summary=sentences.summary(audit),
        ),
        comparisons=[_comparison(one) for one in audit.comparisons],
        order=[RunOrder.of(one, condition=dict(one.condition)) for one in audit.order],
        first_runs=[
            FirstRuns.of(one, condition=dict(one.condition), ratios=dict(one.ratios))
            for one in audit.first_runs
        ],
        modes=[_modes(one) for one in audit.modes],
        repeats=[
            RepeatedGroup.of(one, condition=dict(one.condition), condition_other=dict(one.condition_other))
            for one in audit.repeats
        ],
        claims=[_claim(one) for one in audit.claims],
        outliers=[OutlyingValue.of(one, condition=dict(one.condition)) for one in audit.outliers],
        trends=audit.trends,
        unusable=audit.unusable,
        sentences=AuditSentences(sentences.findings(audit), sentences.needs(audit), sentences.claims(audit)),
        notes=data.notes,
        unread=data.unread,
        study=answer,
    )
    found: dict[str, Any] = plain(document)
    return found


def _comparison(one: Comparison) -> AuditedPair:
    return AuditedPair.of(one, condition=dict(one.condition), intervals=(one.welch, one.shared, one.rank))


def _modes(one: Modes) -> TwoModes:
    by_group = {group: ModeCounts(low, high) for group, low, high in one.by_group}
    return TwoModes.of(one, condition=dict(one.condition), by_group=by_group)


def _claim(one: ClaimCheck) -> CheckedClaim:
    pair = one.comparison
    return CheckedClaim.of(
        one,
        text=one.claim.text,
        group=one.claim.group,
        reference=None if pair is None else pair.reference,
        response=None if pair is None else pair.response,
        condition={} if pair is None else dict(pair.condition),
        number=one.claim.number,
        reading=one.claim.reading,
    )
