"""A comparison of trials as JSON. Numbers are unrounded, null means unbounded, labels are as the trials have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from iotrial.documents import (
    RATIO_OR_DIFFERENCE,
    JsonDocument,
    JsonObject,
    Size,
    has_fields_of,
    plain,
)
from iotrial.report.analysed import Analysed, Level
from iotrial.report.comparison import (
    Agreement,
    Apart,
    Cell,
    Column,
    Comparison,
    Difference,
    Gain,
    LevelRow,
    Row,
    details,
    headline,
)
from iotrial.stats.model import Conclusion, Effect, Finding, Verdict

Mark = Annotated[str, Meta(pattern="^[A-Z]+$")]


@has_fields_of(
    Analysed,
    without=(
        "title",
        "question",
        "seed",
        "share",
        "headline",
        "tone",
        "effects",
        "levels",
        "does",
        "answered",
        "risks",
    ),
)
class TrialColumn(JsonObject, frozen=True):
    """One trial, identified by its mark."""

    mark: Mark
    name: Annotated[str, Meta(description='"trial 5", or the name of a packed trial\'s file.')]
    hardware: Annotated[
        str,
        Meta(
            description="What sets its machine apart: processors, memory, modelled disk and kernel, as far as they differ "
            "between the trials."
        ),
    ]
    number: Annotated[int | None, Meta(description="Null for a packed trial that is not stored.")]
    analysed_at: Annotated[
        float, Meta(description="Its own divided by the number of trials: the level of the intervals here.")
    ]
    verdict: Annotated[str, Meta(description="Its own first sentence, at its own alpha.")]


@has_fields_of(Difference)
class DifferingFact(JsonObject, frozen=True):
    """One fact; null if a trial has no such fact."""

    group: Literal["trial", "machine", "lab", "work"]
    values: Mapping[Mark, str | None]


@has_fields_of(Apart)
class TrialsApart(JsonObject, frozen=True):
    """Two trials with intervals that do not overlap; ``low`` has the smaller effect."""

    low: Mark
    high: Mark


@has_fields_of(
    Effect,
    only=("low", "high", "verdict", "detectably", "reason", "family_alpha", "blocks", "failures"),
)
class TrialCell(JsonObject, frozen=True, kw_only=True):
    """The result of one trial for one comparison."""

    ratio: Size = UNSET
    difference: Size = UNSET
    gain: Gain | None
    verdict: Annotated[Verdict | None, Meta(description="At alpha / k; null where the trial is invalid.")]
    conclusion: Annotated[
        Conclusion | None, Meta(description="As in report.schema.json; null where the trial is invalid.")
    ]
    counts: Annotated[
        bool,
        Meta(
            description="Whether the interval is compared with others: the trial is valid, and the interval is bounded, "
            "covers all runs, and is of an effect that did not change."
        ),
    ]


@has_fields_of(Finding)
class ComparedEffect(JsonObject, frozen=True):
    """One comparison, identified by its labels across trials."""

    agreement: Annotated[
        str, Meta(extra_json_schema={"enum": [one.value.replace(" ", "_") for one in Agreement]})
    ]
    apart: Annotated[list[TrialsApart], Meta(description="Pairs of trials without overlap of intervals.")]
    verdict: Annotated[
        Verdict | None,
        Meta(
            description="That of all valid trials which have the comparison, where these are several and agree."
        ),
    ]
    opposite: Annotated[bool, Meta(description="Whether one trial's verdict is the opposite of another's.")]
    trials: Mapping[Mark, Annotated[TrialCell, RATIO_OR_DIFFERENCE] | None]


@has_fields_of(
    Level,
    without=(
        "median",
        "low",
        "high",
    ),
)
class ArmMedians(JsonObject, frozen=True):
    """The medians of one arm."""

    medians: Mapping[Mark, float | None]
    runs: Mapping[Mark, int]
    bounds: Annotated[
        Mapping[Mark, tuple[float | None, float | None]],
        Meta(
            description="Ends of the interval of each median, at the level of the trial's other intervals here."
        ),
    ]
    changes: Annotated[
        Mapping[Mark, Gain | None],
        Meta(
            description="Against the median of the first trial that has the arm, with the interval that follows from the "
            "bounds of both medians: observational. Null for that trial, and where there is no median."
        ),
    ]


class Compared(JsonDocument, frozen=True):
    """iotrial compare --json

    Comparison of several trials, each analysed at its alpha divided by their number. Trials are named by their marks
    (A, B, ...). What is not known or not bounded is null.
    """

    headline: Annotated[str, Meta(description="The result in one sentence.")]
    details: tuple[str, ...]
    alpha: Annotated[
        float,
        Meta(
            description="The level at which all intervals of a family hold together: the mean of the trials' own."
        ),
    ]
    trials: Annotated[list[TrialColumn], Meta(min_length=2)]
    differences: Annotated[
        list[DifferingFact],
        Meta(description="What is not the same in all trials; null where a trial has no such fact."),
    ]
    comparisons: list[ComparedEffect]
    levels: Annotated[list[ArmMedians], Meta(description="Medians by arm: observational, without verdict.")]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Convert the comparison to plain objects, ready for ``json.dumps(..., allow_nan=False)``."""
    marks = [column.mark for column in comparison.columns]
    made: dict[str, Any] = plain(
        Compared(
            headline(comparison),
            tuple(details(comparison)),
            comparison.alpha,
            trials=[_trial(column) for column in comparison.columns],
            differences=[
                DifferingFact.of(one, values=dict(zip(marks, one.values, strict=True)))
                for one in comparison.differences
            ],
            comparisons=[_row(row, marks) for row in comparison.rows],
            levels=[_level(row, marks) for row in comparison.levels],
        )
    )
    return made


def _trial(column: Column) -> TrialColumn:
    one = column.trial
    return TrialColumn.of(
        one,
        mark=column.mark,
        name=column.name,
        hardware=column.machine,
        number=one.number or None,
        analysed_at=one.alpha / one.share,
        verdict=one.headline,
    )


def _row(row: Row, marks: Sequence[str]) -> ComparedEffect:
    cells = (None if cell is None else _cell(cell) for cell in row.cells)
    return ComparedEffect.of(
        row.like,
        agreement=row.agreement.value.replace(" ", "_"),
        verdict=row.verdict,
        opposite=row.opposite,
        apart=[TrialsApart.of(one, low=marks[one.low], high=marks[one.high]) for one in row.apart],
        trials=dict(zip(marks, cells, strict=True)),
    )


def _cell(cell: Cell) -> TrialCell:
    effect = cell.effect
    return TrialCell.of(
        effect,
        gain=cell.gain,
        verdict=cell.verdict,
        conclusion=effect.conclusion if cell.valid else None,
        detectably=effect.detectably if cell.valid else None,
        counts=cell.counts,
    )


def _level(row: LevelRow, marks: Sequence[str]) -> ArmMedians:
    return ArmMedians.of(
        row.like,
        medians=dict(zip(marks, row.medians, strict=True)),
        runs=dict(zip(marks, row.runs, strict=True)),
        bounds=dict(zip(marks, row.bounds, strict=True)),
        changes=dict(zip(marks, row.changes, strict=True)),
    )
