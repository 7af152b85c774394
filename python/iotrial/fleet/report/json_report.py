"""A fleet as JSON: numbers are unrounded, unbounded ends are null, labels are those of the trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from iotrial.documents import (
    RATIO_OR_DIFFERENCE,
    JsonDocument,
    JsonObject,
    Size,
    has_fields_of,
    plain,
)
from iotrial.fleet.report.words import claims, details, headline
from iotrial.fleet.summary import HostTrial
from iotrial.fleet.verdict import FleetComparison, FleetReport, HostRow, on_scale
from iotrial.stats.fleet import model
from iotrial.stats.model import Conclusion, Effect, Finding, Verdict
from iotrial.store.states import TrialState


@has_fields_of(
    FleetReport,
    without=(
        "comparisons",
        "shared",
        "risks",
    ),
)
class FleetFacts(JsonObject, frozen=True, kw_only=True):
    """The fleet as a whole."""

    hosts: int
    running: Annotated[int, Meta(description="Hosts that have not ended: the mean is not final.")]


@has_fields_of(
    HostTrial,
    without=(
        "number",
        "study",
        "question",
        "alpha",
        "margin",
        "reason",
        "invalid",
        "controlled",
        "effects",
        "risks",
    ),
)
class Host(JsonObject, frozen=True, kw_only=True):
    """One host and its trial."""

    trial: Annotated[int, Meta(description="Its number, for iotrial report.")]
    valid: bool
    invalid_reasons: tuple[str, ...]
    controls: bool


@has_fields_of(
    model.Mean,
    without=(
        "hosts",
        "error",
    ),
)
class Mean(JsonObject, frozen=True, kw_only=True):
    """The mean over hosts, and the spread between them."""

    ratio: float | UnsetType = UNSET
    difference: float | UnsetType = UNSET


@has_fields_of(model.Difference)
class GroupDifference(JsonObject, frozen=True):
    """Between two groups of hosts."""

    shown: bool


@has_fields_of(model.Moderator)
class HostProperty(JsonObject, frozen=True):
    """One property of hosts."""

    differences: list[GroupDifference]


class HostEffect(JsonObject, frozen=True, kw_only=True):
    """What one host says of a comparison."""

    host: str
    verdict: Annotated[Verdict | None, Meta(description="The host's own; null where nothing of it counts.")]
    conclusion: Annotated[
        Conclusion | UnsetType | None,
        Meta(description="As in report.schema.json; null where nothing of it counts."),
    ] = UNSET
    ratio: Size = UNSET
    difference: Size = UNSET
    low: Size = UNSET
    high: Size = UNSET
    blocks: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    mean_contrast: Annotated[
        float | UnsetType | None,
        Meta(
            description="What is averaged: the mean of its blocks' contrasts, natural logarithms where the scale is log."
        ),
    ] = UNSET
    standard_error: float | UnsetType | None = UNSET
    log_e: float | UnsetType | None = UNSET
    not_averaged: Annotated[str | None, Meta(description="Why; null for a host that is.")]


@has_fields_of(Finding)
class ComparisonOfHosts(JsonObject, frozen=True):
    """One comparison over all hosts."""

    alpha: Annotated[float, Meta(description="Of this comparison, as in each host's trial.")]
    averaged: int
    verdict: Annotated[
        Verdict | None,
        Meta(description="Read from the mean's interval; null where fewer than two hosts are averaged."),
    ]
    conclusion: Annotated[
        Conclusion | None,
        Meta(
            description="As in report.schema.json, of the mean; null where fewer than two hosts are averaged."
        ),
    ]
    mean: Annotated[Mean, RATIO_OR_DIFFERENCE] | None
    evidence: model.Evidence
    outliers: tuple[model.Outlier, ...]
    outliers_sought: bool
    moderators: list[HostProperty]
    differences_sharing_alpha: int
    hosts: list[HostEffect]


class FleetReported(JsonDocument, frozen=True):
    """iotrial fleet report --json

    One verdict over the hosts of a fleet. Ratios (or differences, where the scale is difference) are of level to reference.
    What is not known or not bounded is null.
    """

    fleet: FleetFacts
    headline: Annotated[str, Meta(description="The result in one sentence.")]
    details: tuple[str, ...]
    claims: Annotated[tuple[str, ...], Meta(description="What this can and cannot claim.")]
    hosts: list[Host]
    comparisons: list[ComparisonOfHosts]


def fleet_json(report: FleetReport) -> dict[str, Any]:
    """All of it as plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    hosts = [
        Host.of(
            one,
            trial=one.number,
            valid=one.problem is None and not one.invalid and one.state is not TrialState.INVALID,
            invalid_reasons=one.invalid,
            controls=one.controlled,
        )
        for one in report.hosts
    ]
    document = FleetReported(
        FleetFacts.of(report, hosts=len(hosts)),
        headline(report),
        tuple(details(report)),
        tuple(claims(report)),
        hosts,
        [_comparison(one) for one in report.comparisons],
    )
    made: dict[str, Any] = plain(document)
    return made


def _comparison(one: FleetComparison) -> ComparisonOfHosts:
    found = one.found
    return ComparisonOfHosts.of(
        one.like,
        alpha=found.alpha,
        averaged=len(one.averaged),
        verdict=None if one.mean is None else one.mean.verdict,
        conclusion=None if one.mean is None else one.mean.conclusion,
        mean=_mean(one),
        evidence=found.evidence,
        outliers=found.outliers,
        outliers_sought=found.outliers_sought,
        moderators=[_property(table, one.like) for table in found.moderators],
        differences_sharing_alpha=found.comparisons,
        hosts=[_host(row) for row in one.rows],
    )


def _property(table: model.Moderator, like: Effect) -> HostProperty:
    def sized(part: Any, *names: str) -> dict[str, Any]:
        return {name: on_scale(getattr(part, name), like) for name in names}

    return HostProperty.of(
        table,
        groups=[replace(group, **sized(group, "mean", "low", "high")) for group in table.groups],
        differences=[
            GroupDifference.of(apart, **sized(apart, "value", "low", "high")) for apart in table.differences
        ],
    )


def _mean(one: FleetComparison) -> Mean | None:
    mean, like = one.found.mean, one.like
    if mean is None:
        return None
    numbers = {
        name: on_scale(getattr(mean, name), like)
        for name in ("low", "high", "spread", "spread_low", "spread_high", "new_host_low", "new_host_high")
    }
    return Mean.of(replace(like, value=on_scale(mean.value, like)), **numbers)


def _host(row: HostRow) -> HostEffect:
    effect, part = row.effect, row.part
    if effect is None:
        return HostEffect(host=row.trial.host, verdict=None, not_averaged=row.why)
    trusted = part.distrusted is None
    return HostEffect.of(
        effect,
        host=row.trial.host,
        verdict=effect.verdict if trusted else None,
        conclusion=effect.conclusion if trusted else None,
        mean_contrast=part.estimate,
        standard_error=part.error,
        log_e=part.log_e,
        not_averaged=row.why,
    )
