"""What an audit looks at, and what it finds: plain values, frozen.

An observation is one number of a foreign table under its treatment (here *group*), condition and response. Where the
file tells when it was taken, it has a place in time. Nothing here knows of files or formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
    """One number. ``step`` is the smallest difference that it was written with, in its unit (None: unknown).

    ``run`` numbers the repeats of a group, in order of time; ``place`` is the place among all runs of the file;
    ``series`` names a stretch of measuring (a file, a day, a pair): the same group may occur in several.
    ``row`` is the row of the table that holds it, counted from 1 below the header.
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
    """How a published percentage is meant."""

    OF = "of"  # B is p % of A
    LESS = "less"  # B is p % less than A
    MORE = "more"  # B is p % more than A
    FASTER = "faster"  # less of a time, more of a rate
    SLOWER = "slower"
    TIMES = "times"  # B is p times A


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number about a group against its reference. ``decimals`` is how far it was rounded."""

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
    """All observations of the files that are audited together, and what is known about them.

    All values of a response are in one unit. ``group_column`` is what the files call the treatment ("" if they do not).
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


@dataclass(frozen=True, slots=True)
class Cell:
    """The values of one group under one condition for one response, in the order in which they are known."""

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
    """An interval for the ratio group over reference; None for both ends where the method gives none."""

    method: str
    level: float
    low: float | None
    high: float | None
    why_not: str = ""

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def excludes_one(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class Need:
    """What a sufficient trial would take: blocks for a block SD, to see the effect and to settle the margin."""

    block_sd: float
    estimated: bool
    effect_blocks: int | None
    margin_blocks: int | None


class Standing(StrEnum):
    """What the numbers of one comparison can show."""

    NO_RATIO = "no_ratio"  # zero or negative values
    SINGLE = "single"  # a group of one
    TOO_FEW = "too_few"  # two values somewhere: an interval that is no use
    OPEN = "open"  # the interval holds 1
    COARSE = "coarse"  # it says something that the rounding of the values could undo
    WITHIN = "within"  # it lies inside the margin
    APART = "apart"  # the interval excludes 1, and nothing speaks against it
    CONFOUNDED = "confounded"  # it excludes 1, but order or repeats explain as much


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group against its reference under one condition."""

    group: str
    reference: str
    response: str
    unit: str
    condition: Condition
    series: str
    n: int
    n_reference: int
    mean: float
    mean_reference: float
    ratio: float | None
    welch: Interval
    shared: Interval
    rank: Interval
    rounding: tuple[float, float] | None
    needs: tuple[Need, ...]
    standing: Standing
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    """Zero and negative values of one group and response, which have no logarithm.

    ``zeros`` and ``negatives`` say where each stands: its row in the table, else its place among the group's values, from 1.
    """

    group: str
    response: str
    unit: str
    values: int
    zeros: tuple[int, ...]
    negatives: tuple[int, ...]
    rows: bool  # whether the places are rows of a table


@dataclass(frozen=True, slots=True)
class OrderFact:
    """What the order of runs does to a comparison. ``false_alarm`` is that of a Welch test at 5 % in this order."""

    group: str
    reference: str
    response: str
    condition: Condition
    series: str
    arrangement: str  # "separate", "mixed"
    autocorrelation: float | None
    drift: float | None  # ratio that the common trend makes between the two groups' places
    false_alarm: float | None
    values: int


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The first run of each group against the rest. ``chance``: that all firsts are extreme by luck."""

    response: str
    condition: Condition
    series: str
    groups: int
    ratios: tuple[tuple[str, float], ...]
    chance: float


@dataclass(frozen=True, slots=True)
class Modes:
    """Values that fall into two heaps; ``p`` is how often normal values split as clearly."""

    response: str
    condition: Condition
    series: str
    groups: tuple[str, ...]
    low: float
    high: float
    low_count: int
    high_count: int
    p: float
    unit: str
    by_group: tuple[tuple[str, int, int], ...] = ()  # values of each group in the lower and in the upper heap
    switches: int | None = None  # between the heaps, in the order in which the values are known
    switches_p: float | None = None  # how often a random arrangement switches as often


@dataclass(frozen=True, slots=True)
class Repeat:
    """One treatment measured more than once in separate series: an accidental A/A comparison."""

    group: str
    other: str
    response: str
    unit: str
    condition: Condition
    condition_other: Condition
    value: float
    value_other: float
    ratio: float
    effects: int = 0  # effects of the same response that it can be held against
    smaller: int = 0  # of them, those smaller than this difference


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A published number recomputed. ``found`` is the number under the claim's own reading."""

    claim: Claim
    found: float | None
    statistic: str
    recomputes: bool
    slip: str | None
    outcome: str
    comparison: Comparison | None = None
    claimed_ratio: float | None = None
    needs: tuple[Need, ...] = ()  # for the claimed effect, not the one found


@dataclass(frozen=True, slots=True)
class Outlier:
    """One value far from the rest of its response, where a group has a single value for each condition."""

    group: str
    response: str
    unit: str
    condition: Condition
    value: float
    typical: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A single group along one numeric condition: Spearman's rank correlation and its exact or normal p."""

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
    """All that was found."""

    dataset: Dataset
    alpha: float
    margin: float
    groups: tuple[str, ...]
    reference: str | None
    comparisons: tuple[Comparison, ...]
    order: tuple[OrderFact, ...]
    first_runs: tuple[FirstRun, ...]
    modes: tuple[Modes, ...]
    repeats: tuple[Repeat, ...]
    claims: tuple[ClaimCheck, ...]
    outliers: tuple[Outlier, ...]
    trends: tuple[Trend, ...]
    unusable: tuple[Unusable, ...] = ()
    left_out: int = 0
