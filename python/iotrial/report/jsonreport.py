"""The report as JSON, schema 1 (``schemas/report.schema.json``).

Numbers are unrounded; null means unknown or unbounded. Labels are as in the study. The schema only ever grows, by keys
inside ``trial``, ``host``, ``diagnostics`` and ``claims``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from iotrial.documents import (
    RATIO_OR_DIFFERENCE,
    Amount,
    Count,
    JsonDocument,
    JsonObject,
    Labels,
    Probability,
    Size,
    has_fields_of,
    plain,
)
from iotrial.knobs.declaration import Consequence
from iotrial.report.claims import HeldClaim
from iotrial.report.document import Document
from iotrial.report.durability import DurabilityRow, lossy_interval
from iotrial.report.evidence import EvidenceRow
from iotrial.report.fidelity import StandIn
from iotrial.report.notation import utc
from iotrial.report.rows import with_cells
from iotrial.report.safety import LevelSafety, consequence_of_level, every_level
from iotrial.report.within import ChangeWithin, changes_within
from iotrial.stats.model import (
    CarryOver,
    Conclusion,
    Condition,
    Control,
    Diagnostic,
    Effect,
    Race,
    SlowRuns,
    Unaffected,
    VoidCount,
)
from iotrial.stats.reasons import Reason
from iotrial.stats.steady_state import SteadyState
from iotrial.store.model import Continuation, PowerCuts
from iotrial.store.states import TrialState
from iotrial.study.model import Claim, Says, Study

if TYPE_CHECKING:
    from iotrial.report.figure_files import FigureFiles


class FactTable(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Words by name, one for each treatment; one table for all conditions that agree."""

    conditions: list[Labels]
    treatments: Sequence[str]
    rows: Mapping[str, Sequence[str]]
    runs: tuple[int, int]
    varying: Count


class Figure(JsonObject, frozen=True, forbid_unknown_fields=False):
    """One figure and its files."""

    title: str
    sentence: str
    svg: str
    csv: str


class Trial(JsonObject, frozen=True, forbid_unknown_fields=False):
    """The trial and its verdict."""

    id: str
    number: Count
    study: str
    state: TrialState
    seed: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    seed_chosen: bool
    alpha: Annotated[float, Meta(gt=0, le=0.5)]
    margin: Annotated[float, Meta(gt=0, le=1)]
    started: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
    duration_s: Amount
    lab: str
    host: Mapping[str, Any]
    title: str
    question: str
    verdict: Annotated[str, Meta(description="The whole trial in one sentence.")]
    reason: str | None
    controls: Annotated[bool, Meta(description="Whether control arms took part.")]
    lab_settings: Mapping[str, Any]
    options: Mapping[str, Any]
    version: str
    imported: Annotated[
        str | None, Meta(description="From where, for a trial that was measured on another machine.")
    ]
    continued: Annotated[
        Sequence[Continuation],
        Meta(
            description="How often the trial was continued after its end, with the limits of the whole trial from then on."
        ),
    ]
    facts: list[FactTable]
    safety: Annotated[
        tuple[LevelSafety, ...], Meta(description="What every level does to the safety of data.")
    ]
    races: (
        Annotated[list[Race], Meta(description="How a race stands, one for each condition.")] | UnsetType
    ) = UNSET
    time_spent: (
        Annotated[
            Mapping[str, Amount],
            Meta(
                description="Seconds by what they were spent on; they add up to the time from the lab's start to its end."
            ),
        ]
        | UnsetType
    ) = UNSET
    figures: (
        Annotated[list[Figure], Meta(description="The files that report --figures has written.")] | UnsetType
    ) = UNSET


@has_fields_of(SlowRuns, without=("alpha",))
class SlowRunsFound(JsonObject, frozen=True):
    """Shares of slow runs and their difference, level minus reference.

    Each has anytime-valid bounds at family_alpha. differ: 0 is outside the bounds of the difference.
    """

    differ: bool


@has_fields_of(
    Effect,
    without=(
        "decided",
        "block_sd",
        "margin",
        "cross_check",
        "discovery",
        "e_value",
        "leaning",
        "span",
        "averaged",
    ),
)
class EffectFound(JsonObject, frozen=True, kw_only=True):
    """One comparison with its verdict."""

    ratio: Annotated[
        Size, Meta(description="Response at the level over response at the reference (scale log).")
    ] = UNSET
    difference: Annotated[
        Size, Meta(description="Response at the level less response at the reference (scale difference).")
    ] = UNSET
    detectably: Literal["faster", "slower", "higher", "lower", "better", "worse"] | None
    conclusion: Annotated[
        Conclusion,
        Meta(
            description="The conclusion, with the margin considered: plain where the whole interval is "
            "beyond the margin, probably_ where zero is excluded but not the margin; "
            "equivalent_typically where the interval of typical runs is inside the margin, but the mean run may "
            "differ by more (means.equivalent is false); equivalent_capped where means are compared: it holds for "
            "means in which no run counts as more than means.cap times the typical one; "
            "equivalent_more_slow_runs and equivalent_fewer_slow_runs where the whole interval is inside "
            "the margin but one side has more slow runs; not_tried where no run could feel the "
            "setting; varies where a pooled effect would hide that "
            "conditions do not agree (agree is false), or where the cells of a main effect are the answer."
        ),
    ]
    slow_runs: SlowRunsFound | None
    level_safety: Annotated[
        Consequence | None,
        Meta(description="What the level does to the safety of data; null for an interaction."),
    ]
    reference_safety: Consequence | None


_BY_SCALE = Meta(
    extra_json_schema={
        "if": {"properties": {"scale": {"const": "log"}}},
        "then": {"required": ["ratio"], "not": {"required": ["difference"]}},
        "else": {"required": ["difference"], "not": {"required": ["ratio"]}},
    }
)


@has_fields_of(Control, without=("blocks",))
class ControlFound(JsonObject, frozen=True):
    """One control effect in one condition. ``told_from_zero``: distinguished from zero at the study's alpha."""


@has_fields_of(
    EvidenceRow,
    without=(
        "low",
        "high",
        "runs",
        "is_response",
        "is_reference",
        "group",
        "mean",
    ),
)
class Evidence(JsonObject, frozen=True):
    """One median of one treatment."""

    condition: Condition
    moved: Literal["up", "down"] | None


@has_fields_of(PowerCuts, without=("arm", "treatment", "repetition"))
class Durability(JsonObject, frozen=True):
    """What power cuts did to one arm under one condition, all runs together.

    Counts are of cut points; a point may be in several. The interval is that of Korn and Graubard, with the run as the
    unit, for the share of points at which acknowledged writes are lost; of a single run, or where none is lost, that of
    Clopper and Pearson for the points of these runs; its upper end is then the one-sided limit of 95 %.
    """

    condition: Condition
    treatment: str
    runs: Count
    lossy_low: Probability
    lossy_high: Probability
    verdict: Annotated[str, Meta(description="The same in words.")]


@has_fields_of(Unaffected, without=("scale",))
class UnaffectedFound(JsonObject, frozen=True, kw_only=True):
    """One primary comparison on the blocks in which neither run follows the level."""

    ratio: Size = UNSET
    difference: Size = UNSET


@has_fields_of(
    CarryOver,
    without=(
        "unit",
        "scale",
        "alpha",
        "doubtful",
        "explicable",
        "upcoming",
        "switching",
    ),
)
class CarryOverFound(JsonObject, frozen=True, kw_only=True):
    """Check for carry-over: whether runs of one condition depend on the level that ran just before."""

    ratio: Annotated[Size, Meta(description="Runs after the level against runs after others.")] = UNSET
    difference: Size = UNSET
    fails_at: float | None
    wash_in: Annotated[
        bool, Meta(description="Judged on blocks with unmeasured runs before each measured one.")
    ]
    wash_in_runs: Annotated[Count, Meta(description="Number of these runs.")]
    wash_in_level: Annotated[
        str | None,
        Meta(
            description='Their level: "reference", "same" (that of the measured run), or "drawn" (of either).'
        ),
    ]
    switch_cost: Annotated[
        Size,
        Meta(
            description="A run after another level against one after its own, if switching costs; else null."
        ),
    ]
    unaffected: Annotated[
        list[Annotated[UnaffectedFound, RATIO_OR_DIFFERENCE]],
        Meta(
            description="Where it failed: each primary comparison on the blocks in which neither run follows the level. "
            "Exploratory."
        ),
    ]


@has_fields_of(Diagnostic)
class ConditionFacts(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Facts about one condition's primary response that inform and never gate (null: too few blocks)."""


@has_fields_of(ChangeWithin, without=("unit",))
class ChangeInRuns(JsonObject, frozen=True, forbid_unknown_fields=False):
    """A change within the runs of one arm, and its time."""

    condition: Labels


@has_fields_of(SteadyState)
class ArmSteady(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Steady state of the device by the rule of the SNIA, over all runs of one arm in five rounds; no verdict depends on it.

    Range and slope are shares of the average: at most .2, and .1 either way."""

    condition: Labels
    arm: str
    response: str


class Diagnostics(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Whether the trial is valid, and other facts about how it went."""

    valid: bool
    invalid_reasons: tuple[str, ...]
    likely_reasons: Annotated[
        tuple[Reason, ...],
        Meta(description="Why an invalid trial is likely to be invalid, the most likely first."),
    ]
    notes: tuple[str, ...]
    not_accounted: Annotated[
        tuple[str, ...],
        Meta(
            description="What could not be counted in repetitions after the last block, and why; verdicts do "
            "not depend on it."
        ),
    ]
    carry_over: Annotated[
        list[Annotated[CarryOverFound, RATIO_OR_DIFFERENCE]],
        Meta(
            description="By condition: whether runs depend on which level ran just before. The trial is "
            "invalid where one has not passed."
        ),
    ]
    conditions: list[ConditionFacts]
    within_runs: list[ChangeInRuns]
    steady_state: Annotated[
        list[ArmSteady],
        Meta(
            description="Of the reference, and of every device compared, in conditions that read or write the device."
        ),
    ]
    not_cut: (
        Annotated[
            tuple[str, ...],
            Meta(
                description="Which arms' power was not cut, and why; verdicts on speed do not depend on it."
            ),
        ]
        | UnsetType
    ) = UNSET


_HELD = ("response", "low", "high", "outcome", "why", "modelled")


@has_fields_of(HeldClaim, only=_HELD)
@has_fields_of(Claim, without=("workload", "response", "condition", "value", "scale", "tolerance"))
class ClaimHeld(JsonObject, frozen=True, forbid_unknown_fields=False):
    """A published claim with the nearest measured effect; ``here``, ``low`` and ``high`` are in the claim's direction."""

    says: Annotated[
        Says | None,
        Meta(description="What was published, where it was a direction or that there is no difference."),
    ]
    condition: Condition | None
    here: float | None
    needs: Annotated[
        Mapping[str, tuple[str, ...]],
        Meta(description="What a trial must have been to judge the claim: the words that will do, by fact."),
    ]
    cannot: Annotated[str | None, Meta(description="Why no trial of this study can judge the claim.")]


class Report(JsonDocument, frozen=True):
    """iotrial report --json

    One trial: its verdicts, controls, evidence and claims. Numbers are unrounded; null means unknown or unbounded.
    """

    trial: Trial
    effects: list[Annotated[EffectFound, _BY_SCALE]]
    controls: list[ControlFound]
    evidence: list[Evidence]
    void: tuple[VoidCount, ...]
    diagnostics: Diagnostics
    claims: list[ClaimHeld]
    durability: (
        Annotated[list[Durability], Meta(description="If the study has its work checked after power cuts.")]
        | UnsetType
    ) = UNSET
    stand_ins: (
        Annotated[
            list[StandIn],
            Meta(
                description="If a workload of the study stands for another one, such as a replay for its application."
            ),
        ]
        | UnsetType
    ) = UNSET


def report_json(document: Document, figures: Sequence[FigureFiles] | None = None) -> dict[str, Any]:
    """Build the whole report as plain objects, ready for ``json.dumps(..., allow_nan=False)``.

    ``figures`` that were written with it are listed in ``trial``.
    """
    analysis = document.analysis
    diagnostics = Diagnostics.of(
        analysis,
        valid=document.valid,
        likely_reasons=tuple(document.reasons),
        not_cut=tuple(document.data.not_cut) or UNSET,
        not_accounted=tuple(document.data.not_accounted),
        carry_over=[_carry_over(row.finding) for row in document.carry_over],
        conditions=[ConditionFacts.of(row.finding) for row in document.diagnostics],
        within_runs=[
            ChangeInRuns.of(one, condition=one.condition.levels)
            for one in changes_within(document.data, document.conditions)
        ],
        steady_state=[
            ArmSteady.of(one.found, condition=one.condition.labels, arm=one.arm, response=one.response)
            for one in document.steady
        ],
    )
    report = Report(
        _trial(document, figures),
        [_effect(row.effect, document.trial.header.study) for row in with_cells(document.effects)],
        [ControlFound.of(row.finding) for row in document.controls],
        [Evidence.of(row, condition=row.condition.labels) for row in document.evidence],
        analysis.void,
        diagnostics,
        [_claim(held) for held in document.claims],
        [_durability(row) for row in document.durability] or UNSET,
        [one.found for one in document.fidelities] or UNSET,
    )
    made: dict[str, Any] = plain(report)
    return made


def _trial(document: Document, figures: Sequence[FigureFiles] | None) -> Trial:
    trial = document.trial
    header = trial.header
    return Trial(
        id=header.id,
        number=trial.number,
        study=header.study.name,
        state=trial.state if document.valid else TrialState.INVALID,
        seed=header.seed,
        seed_chosen=header.seed_chosen,
        alpha=header.alpha,
        margin=header.margin,
        started=utc(header.started),
        duration_s=trial.duration_s,
        lab=str(header.lab.get("kind", header.study.lab.kind or "unknown")),
        host=_plain(header.host),
        title=header.study.title,
        question=header.study.question,
        verdict=document.summary.headline,
        reason=trial.reason,
        controls=document.with_controls,
        lab_settings=_plain(header.lab),
        options=_plain(header.options),
        version=header.version,
        imported=trial.imported,
        continued=document.data.continued,
        facts=[
            FactTable(
                [condition.labels for condition in table.conditions],
                table.columns,
                {name: row.cells for row in table.rows for name in row.names},
                (table.least, table.most),
                table.varying,
            )
            for table in document.facts
        ],
        safety=every_level(header.study),
        races=list(document.analysis.races) or UNSET,
        time_spent=document.data.time_spent or UNSET,
        figures=UNSET
        if figures is None
        else [Figure.of(one, svg=str(one.svg), csv=str(one.csv)) for one in figures],
    )


def _effect(effect: Effect, study: Study) -> EffectFound:
    return EffectFound.of(
        effect,
        slow_runs=None if effect.slow_runs is None else SlowRunsFound.of(effect.slow_runs),
        level_safety=consequence_of_level(study, effect.factor, effect.level),
        reference_safety=consequence_of_level(study, effect.factor, effect.reference),
    )


def _durability(row: DurabilityRow) -> Durability:
    low, high = lossy_interval(row.runs)
    return Durability.of(
        row.cuts,
        runs=len(row.runs),
        treatment=row.arm,
        condition=row.condition.labels,
        lossy_low=low,
        lossy_high=high,
        verdict=row.verdict,
    )


def _carry_over(one: CarryOver) -> CarryOverFound:
    return CarryOverFound.of(
        one,
        fails_at=1.0 / one.alpha,
        wash_in=one.wash_in is not None,
        wash_in_runs=0 if one.wash_in is None else one.wash_in.runs,
        wash_in_level=None if one.wash_in is None else one.wash_in.before.value,
        switch_cost=None if one.switching is None else one.switching.size,
        unaffected=[UnaffectedFound.of(other) for other in one.unaffected],
    )


def _claim(held: HeldClaim) -> ClaimHeld:
    condition = held.condition
    return ClaimHeld.of(
        held.claim,
        condition=None if condition is None else condition.labels,
        here=held.ratio,
        cannot=held.claim.cannot or None,
        **{name: getattr(held, name) for name in _HELD},
    )


def _plain(value: object) -> Any:
    """Convert facts from outside to plain values with text keys, which JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
