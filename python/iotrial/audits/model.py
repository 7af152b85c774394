"""Frozen input and output values of an audit, independent of files and formats.

An observation is one number of a third-party table with its treatment (here *group*), condition and response. If the file
records when it was taken, it also has a place in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from iotrial.documents import Labels, Unbounded

#: of an observation: names and levels, as a key
Condition = tuple[tuple[str, str], ...]

TIME_UNITS: Mapping[str, float] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured number. ``step`` is the resolution it was written with, in its unit (None: unknown).

    ``run`` numbers the repeats of a group in time order; ``place`` is the position among all runs of the file;
    ``series`` names a measurement session (a file, a day, a pair): the same group may occur in several.
    ``row`` is its row in the table, counted from 1 below the header.
    """

    group: str
    response: str
    unit: str
    value: float
    condition: Condition = ()
    series: str = ""
    run: int | None = None
    place: float | None = None
    step: float | None = None
    row: int | None = None


class Reading(StrEnum):
    """Meaning of a published percentage."""

    OF = "of"  # B is p % of A
    LESS = "less"  # B is p % less than A
    MORE = "more"  # B is p % more than A
    FASTER = "faster"  # less of a time, more of a rate
    SLOWER = "slower"
    TIMES = "times"  # B is p times A


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number about a group against its reference, rounded to ``decimals`` decimals."""

    text: str
    group: str
    number: float
    decimals: int
    reading: Reading
    reference: str | None = None
    response: str | None = None
    condition: Condition = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """All observations of the files that are audited together, with their metadata.

    All values of a response are in one unit. ``group_column`` is the files' name for the treatment ("" if they have none);
    ``columns`` is what the columns of a table were taken for.
    """

    name: str
    form: str
    observations: tuple[Observation, ...]
    reference: str | None = None
    claims: tuple[Claim, ...] = ()
    same: tuple[tuple[str, ...], ...] = ()
    traced: str | None = None
    title: str = ""
    study: str | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    group_column: str = ""
    columns: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """The values of one group under one condition for one response, in time order if that is known, else in file order."""

    group: str
    response: str
    unit: str
    condition: Condition
    series: str
    observations: tuple[Observation, ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(one.value for one in self.observations)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval for the ratio group over reference; both ends are None if the method gives no interval."""

    method: str
    level: Annotated[float, Meta(ge=0, le=1)]
    low: float | None
    high: float | None
    why_not: Annotated[str, Meta(description="Why there is none.")] = ""

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Need:
    """Size of a sufficient trial at a given block SD: blocks to detect the effect, and blocks to resolve the margin."""

    block_sd: float
    estimated: Annotated[bool, Meta(description="From the values; else assumed.")]
    effect_blocks: int | None
    margin_blocks: int | None


class Standing(StrEnum):
    """Strength of the evidence of one comparison."""

    EQUAL = "equal"  # all values of both groups are the same number
    CONSTANT = "constant"  # each group has the same number in all of its runs
    NO_RATIO = "no_ratio"  # zero or negative values
    SINGLE = "single"  # a group of one
    TOO_FEW = "too_few"  # a group of only two values: the interval is useless
    OPEN = "open"  # the interval contains 1
    COARSE = "coarse"  # the rounding of the values could undo the result
    WITHIN = "within"  # the interval is inside the margin
    APART = "apart"  # the interval excludes 1, and nothing speaks against it
    CONFOUNDED = "confounded"  # it excludes 1, but order or repeats explain as much


#: why an interval is not to be trusted: the order of the runs, neighbours that are alike, a repeat that differs as much
Reason = Literal["separate", "autocorrelated", "repeat"]


@dataclass(frozen=True, slots=True)
class AuditedPair:
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
    reasons: tuple[Reason, ...]
    intervals: Annotated[
        tuple[Interval, ...],
        Meta(min_length=3, max_length=3, description="Welch alone, Welch at the shared level, ranks."),
    ]

    @property
    def place(self) -> Labels:
        """The condition, with the series if there are several."""
        return {**self.condition, "series": self.series} if self.series else self.condition

    @property
    def low(self) -> float | None:
        """The lower end of the interval at the shared level."""
        return self.shared.low

    @property
    def high(self) -> float | None:
        """The upper end."""
        return self.shared.high

    @property
    def welch(self) -> Interval:
        """The interval of Welch's test on logarithms."""
        return self.intervals[0]

    @property
    def shared(self) -> Interval:
        """The same at the level that all comparisons of the response share."""
        return self.intervals[1]

    @property
    def rank(self) -> Interval:
        """The interval by ranks."""
        return self.intervals[2]


@dataclass(frozen=True, slots=True)
class Unusable:
    """Zero and negative values of one group and response, which have no logarithm."""

    group: str
    response: str
    unit: str
    values: int
    zeros: Annotated[
        tuple[int, ...],
        Meta(description="Positions, from 1: rows of the table if known, else among the group's values."),
    ]
    negatives: tuple[int, ...]
    rows: Annotated[bool, Meta(description="Whether the positions are rows of the table.")]


@dataclass(frozen=True, slots=True)
class RunOrder:
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


@dataclass(frozen=True, slots=True)
class FirstRuns:
    """The first run of each group against the rest."""

    response: str
    condition: Labels
    series: str
    groups: int
    ratios: Annotated[Mapping[str, Unbounded], Meta(description="By group.")]
    chance: float  # probability that all first runs are extreme by chance


@dataclass(frozen=True, slots=True)
class ModeCounts:
    """The number of values of one group in each mode."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TwoModes:
    """A bimodal distribution."""

    response: str
    condition: Labels
    series: str
    groups: tuple[str, ...]
    low: float
    high: float
    low_count: int
    high_count: int
    p: float  # probability that normal values split at least as clearly
    unit: str
    by_group: Mapping[str, ModeCounts]
    switches: int | None  # number of switches between the modes, in the known order of the values
    switches_p: float | None  # probability that a random arrangement switches at least as often


@dataclass(frozen=True, slots=True)
class RepeatedGroup:
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
    effects: int = 0  # of the same response, for comparison
    smaller: Annotated[
        int, Meta(description="Effects of the response that are smaller than this difference.")
    ] = 0


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A recomputed published number. ``found`` is the number under the claim's own reading."""

    claim: Claim
    found: float | None
    statistic: str
    recomputes: bool
    slip: str | None
    outcome: str
    comparison: AuditedPair | None = None
    claimed_ratio: float | None = None
    needs: tuple[Need, ...] = ()  # for the claimed effect, not the observed one


@dataclass(frozen=True, slots=True)
class OutlyingValue:
    """One value far from the rest of its response."""

    group: str
    response: str
    unit: str
    condition: Labels
    value: float
    typical: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Trend of one group along a numeric condition: Spearman's rank correlation and its p (exact, or by Student's t)."""

    group: str
    response: str
    unit: str
    along: str
    values: int
    first: float
    last: float
    correlation: float
    p: float


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings of an audit."""

    dataset: Dataset
    alpha: float
    margin: float
    groups: tuple[str, ...]
    reference: str | None
    comparisons: tuple[AuditedPair, ...]
    order: tuple[RunOrder, ...]
    first_runs: tuple[FirstRuns, ...]
    modes: tuple[TwoModes, ...]
    repeats: tuple[RepeatedGroup, ...]
    claims: tuple[ClaimCheck, ...]
    outliers: tuple[OutlyingValue, ...]
    trends: tuple[Trend, ...]
    unusable: tuple[Unusable, ...] = ()
    left_out: int = 0
