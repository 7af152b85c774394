"""Frozen input and output values of the analysis, independent of labs, probes and stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.documents import Amount, Count, JsonObject, Labels, Probability, Unbounded
from iotrial.study.model import MEAN, TYPICAL, Better, Scale

EffectKind = Literal["main", "interaction", "pooled", "cell"]
Condition = Annotated[Labels, Meta(description="Condition factors, and the workload, by name.")]


class Verdict(StrEnum):
    """Position of one effect's interval relative to no effect. The last four are for responses that are not times or
    rates."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    HIGHER = "higher"
    LOWER = "lower"
    BETTER = "better"
    WORSE = "worse"


#: verdicts without a direction
QUIET = frozenset({Verdict.EQUIVALENT, Verdict.INCONCLUSIVE})


class Conclusion(StrEnum):
    """Conclusion on one effect, with the margin taken into account. Reports print ``words``.

    The plain words are for effects whose whole interval is beyond the margin; METHOD.md has the table.
    """

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"
    LOWER = "lower"
    BETTER = "better"
    WORSE = "worse"
    PROBABLY_FASTER = "probably_faster"
    PROBABLY_SLOWER = "probably_slower"
    PROBABLY_HIGHER = "probably_higher"
    PROBABLY_LOWER = "probably_lower"
    PROBABLY_BETTER = "probably_better"
    PROBABLY_WORSE = "probably_worse"
    EQUIVALENT = "equivalent"
    EQUIVALENT_DETECTABLE = "equivalent_detectable"
    EQUIVALENT_TYPICALLY = "equivalent_typically"
    EQUIVALENT_CAPPED = "equivalent_capped"
    EQUIVALENT_MORE_SLOW_RUNS = "equivalent_more_slow_runs"
    EQUIVALENT_FEWER_SLOW_RUNS = "equivalent_fewer_slow_runs"
    UNDECIDED = "undecided"
    NOT_TRIED = "not_tried"
    VARIES = "varies"

    @property
    def probable(self) -> bool:
        """True if zero is excluded, but not the margin."""
        return self.value.startswith("probably_")

    @property
    def improves(self) -> bool:
        """True if the level is better, or probably better, in the direction that is wanted."""
        return self.value.removeprefix("probably_") in (Conclusion.FASTER, Conclusion.BETTER)

    @property
    def equivalent(self) -> bool:
        """True if the whole interval is inside the margin, and slow runs are not shown to differ."""
        return self in _EQUIVALENT

    @property
    def only_typically(self) -> bool:
        """True if the whole interval is inside the margin, but one side has more slow runs."""
        return self in (Conclusion.EQUIVALENT_MORE_SLOW_RUNS, Conclusion.EQUIVALENT_FEWER_SLOW_RUNS)

    @property
    def open(self) -> bool:
        """True if nothing is shown: the effect is undecided, or no run could feel the setting."""
        return self in (Conclusion.UNDECIDED, Conclusion.NOT_TRIED)

    @property
    def words(self) -> str:
        """Text for reports, e.g. "probably slower". Detectability of an equivalent effect is reported separately."""
        if self is Conclusion.VARIES:
            return "differs by condition"
        if self is Conclusion.EQUIVALENT_TYPICALLY:
            return "typical runs equivalent"
        if self is Conclusion.EQUIVALENT_CAPPED:
            return "equivalent with runs capped"
        if self.only_typically:
            more = "more" if self is Conclusion.EQUIVALENT_MORE_SLOW_RUNS else "fewer"
            return f"typical runs equivalent, but {more} slow runs"
        return "equivalent" if self.equivalent else self.value.replace("_", " ")

    @property
    def tone(self) -> str:
        """CSS class for its colour on a page; a merely probable effect never gets that of a plain direction."""
        if self.equivalent or self.open:
            return "equivalent" if self.equivalent else "undecided"
        return "probable" if self.probable or self.only_typically or self is Conclusion.VARIES else self.words


_EQUIVALENT = frozenset(
    {
        Conclusion.EQUIVALENT,
        Conclusion.EQUIVALENT_DETECTABLE,
        Conclusion.EQUIVALENT_TYPICALLY,
        Conclusion.EQUIVALENT_CAPPED,
    }
)
#: the words of conclusions that exclude every difference that matters
EQUIVALENT_WORDS = frozenset(one.words for one in _EQUIVALENT)


@dataclass(frozen=True, slots=True)
class Observation:
    """One run: its responses by name (totals over replicates), or the description of its failure.

    ``after_other``: the unmeasured run before it had another level, by the draw of a wash-in with drawn levels.
    ``after_itself``: without a wash-in, an unmeasured run of the same arm came just before it. ``parts``:
    of a window of a live trial, means of its responses in the washout (None without one), and in the earlier and the later
    half of the counted part, if known.
    """

    arm: str
    kind: ArmKind
    treatment: Mapping[str, str]
    slot: int
    started_s: float
    responses: Mapping[str, float]
    failure: str | None = None
    after_other: bool = False
    after_itself: bool = False
    parts: Mapping[str, tuple[float | None, float, float]] | None = None


@dataclass(frozen=True, slots=True)
class ObservedBlock:
    """A complete block of one condition in time order; ``void`` names the rule that discarded it. ``wash_in``: the
    unmeasured runs that preceded each of its runs."""

    condition: str
    index: int
    observations: tuple[Observation, ...]
    void: str | None = None
    void_level: str | None = None
    gap: bool = False
    wash_in: WashIn | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """Anytime-valid interval of one contrast, on the contrast's own scale (natural log for ratios).

    ``low``/``high`` are None if unbounded. ``p_anytime`` = min(1, 1/max M(0)). ``e_value`` is M(0) at the last block, for
    e-BH. ``empty``: every candidate is excluded (the effect changed over time). ``leaning``: all blocks together favour an
    effect that the first blocks excluded; the interval is then the wider one that uses all blocks alike. ``bounds``: the
    one-sided bounds, each at alpha, if they exclude every effect beyond the margin. ``skewed``: it is the interval of the
    median of the contrasts (``skew.py``), because they are not symmetric.
    """

    estimate: float | None
    low: float | None
    high: float | None
    p_anytime: float
    e_value: float
    blocks: int
    empty: bool = False
    leaning: bool = False
    bounds: tuple[float, float] | None = None
    skewed: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What is compared: a response at a level of a factor and at the reference, in one condition."""

    kind: Annotated[
        EffectKind,
        Meta(
            description="An interaction is half the difference of one factor's effects at the two levels of "
            "the other, on the scale of the response. A cell is a main effect at one level of another factor, which its "
            "condition names: cells are given where they are the answer, and the conclusion of their main effect is varies. "
            "A pooled effect is the mean over the conditions of a workload; its own condition is empty."
        ),
    ]
    factor: Annotated[
        str,
        Meta(description="Of an interaction two names joined by a colon, and so are level and reference."),
    ]
    level: str
    reference: str
    condition: Condition
    workload: str
    response: str
    unit: str
    scale: Scale
    better: Better


@dataclass(frozen=True, slots=True)
class Effect(Finding):
    """One comparison with its verdict. ``value``, ``low``, ``high`` are ratios (scale log) or differences.

    ``discovery`` and ``e_value`` are those of e-BH, of exploratory effects. ``leaning`` is that of ``Interval``. ``span``: if
    the conditions of a pooled effect do not agree (``pooling.agree``), those with the smallest and the largest estimate.
    ``averaged``, of a main effect: another factor changes it, and the effects of kind ``cell`` are the answer.
    """

    primary: bool
    value: float | None
    low: float | None
    high: float | None
    family_alpha: Annotated[float, Meta(gt=0, le=1)]
    p_anytime: Probability
    verdict: Verdict
    detectably: str | None
    reason: str | None
    detectable: float | None
    blocks: Annotated[
        Count,
        Meta(
            description="The number of contrasts: one for each block, or for each repeat in the plots of a study with whole "
            "plots."
        ),
    ]
    failures: Count
    decided: bool
    block_sd: float | None
    margin: float
    cross_check: tuple[float, float] | None = None
    discovery: bool | None = None
    e_value: float | None = None
    aliases: Annotated[
        tuple[str, ...],
        Meta(
            description="Interactions that the design cannot tell from this one (one:other, a minus before "
            "it where the sign is opposite)."
        ),
    ] = ()
    leaning: bool = False
    agree: Annotated[
        bool | None,
        Meta(
            description="Of a pooled effect: whether its conditions show the same effect within the margin; null for others."
        ),
    ] = None
    span: Span | None = None
    bounds: Annotated[
        tuple[float, float] | None,
        Meta(
            description="Where every effect beyond the margin is excluded: the one-sided bounds, each at "
            "family_alpha. If the verdict is equivalent, low and high are these bounds."
        ),
    ] = None
    slow_runs: Annotated[
        SlowRuns | None,
        Meta(
            description="Of primary main effects on a time or a rate: runs that took more than factor times as long as is "
            "typical. null where they are not counted."
        ),
    ] = None
    mean_ratio: Annotated[
        MeanRatio | None,
        Meta(
            description="Ratio of the mean values, next to that of typical runs; null with fewer than 20 blocks and "
            "where factors are crossed."
        ),
    ] = None
    statistic: Annotated[
        str,
        Meta(
            pattern="^(typical|mean|p[0-9.]+)$",
            description="What is compared of an arm's runs: the typical one, their mean, or a quantile.",
        ),
    ] = TYPICAL
    means: Annotated[
        Means | None,
        Meta(
            description="Ratio of the arms' mean runs with its interval at family_alpha, each run counted as at most cap "
            "times the typical one; null where means are not compared."
        ),
    ] = None
    two_sided: Annotated[
        tuple[float | None, float | None] | None,
        Meta(description="Both ends of the two-sided interval at family_alpha, whatever the verdict."),
    ] = None
    skewed: Annotated[
        bool,
        Meta(
            description="The contrasts are skewed, so the interval is that of their median: it rests on their signs alone."
        ),
    ] = False
    plain_beyond: Annotated[
        float | None,
        Meta(
            description="The whole interval must lie beyond this relative effect for a plain word: the margin, or the "
            "injected slowdown until it has been seen."
        ),
    ] = None
    averaged: bool = False

    @property
    def not_tried(self) -> str:
        """Why no run could feel the setting; empty if one could."""
        reason = self.reason or ""
        return reason.removeprefix(NOT_TRIED) if reason.startswith(NOT_TRIED) else ""

    @property
    def conclusion(self) -> Conclusion:
        """The conclusion that interval, margin and scale allow. This is the only place that derives it."""
        if self.averaged or (self.agree is False and self.verdict is not Verdict.INCONCLUSIVE):
            return Conclusion.VARIES
        match self.verdict:
            case Verdict.INCONCLUSIVE:
                return Conclusion.NOT_TRIED if self.not_tried else Conclusion.UNDECIDED
            case Verdict.EQUIVALENT if self.slow_runs is not None and self.slow_runs.differ:
                more = self.slow_runs.difference > 0.0
                return Conclusion.EQUIVALENT_MORE_SLOW_RUNS if more else Conclusion.EQUIVALENT_FEWER_SLOW_RUNS
            case Verdict.EQUIVALENT if self.means is not None and not self.means.equivalent:
                return Conclusion.EQUIVALENT_TYPICALLY
            case Verdict.EQUIVALENT if self.statistic == MEAN:
                return Conclusion.EQUIVALENT_CAPPED  # no number of runs excludes rare ones far beyond the cap
            case Verdict.EQUIVALENT:
                return Conclusion.EQUIVALENT_DETECTABLE if self.detectably else Conclusion.EQUIVALENT
            case direction:
                return Conclusion(direction.value if self._beyond_margin else f"probably_{direction.value}")

    @property
    def _beyond_margin(self) -> bool:
        """True if the interval excludes every effect up to ``plain_beyond``. Always true for differences, which have no
        margin."""
        if self.scale is Scale.DIFFERENCE:
            return True
        limit = math.log1p(self.margin if self.plain_beyond is None else self.plain_beyond)
        above = self.low is not None and self.low > 0.0 and math.log(self.low) > limit
        below = self.high is not None and (self.high <= 0.0 or math.log(self.high) < -limit)
        return above or below


#: the reason of an effect that no run could feel begins with it
NOT_TRIED = "not tried: "


def untried(effect: Effect, why: str | None) -> Effect:
    """Return an effect that no run could feel as undecided for that reason: more blocks do not help. As it is if None."""
    if why is None:
        return effect
    reason = f"{NOT_TRIED}{why}"
    return replace(effect, verdict=Verdict.INCONCLUSIVE, detectably=None, reason=reason, decided=True)


@dataclass(frozen=True, slots=True)
class Share:
    """Slow runs of one arm: their number, the number of all runs, and bounds on the share."""

    slow: Count
    runs: Count
    low: Probability
    high: Probability


ShareDifference = Annotated[float, Meta(ge=-1, le=1)]


@dataclass(frozen=True, slots=True)
class SlowRuns:
    """Runs that took more than ``factor`` times the typical time, at the level and at the reference.

    ``difference`` is the share at the level minus the share at the reference; ``low`` and ``high`` are its bounds. All
    three pairs of bounds are valid at any look, each at ``alpha``.
    """

    factor: Annotated[float, Meta(gt=1)]
    level: Share
    reference: Share
    difference: ShareDifference
    low: ShareDifference
    high: ShareDifference
    alpha: float

    @property
    def differ(self) -> bool:
        """True if one of the two has more slow runs: 0 is excluded."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The ratio of the arms' mean values, and that of ``typical`` runs; ``p`` is the p-value of their equality."""

    ratio: Unbounded
    typical: Unbounded
    p: Probability
    differs: Annotated[
        bool,
        Meta(
            description="p is below 0.02, and the ratio is outside the interval or differs by more than the margin: the mean "
            "changes by another ratio than typical runs do."
        ),
    ]


@dataclass(frozen=True, slots=True)
class Means:
    """The ratio of the arms' mean runs with its interval, valid at any look at the effect's level (``run_statistics.py``).

    A run counts as at most ``cap`` times the typical value. Of the level's and the reference's runs, ``capped_level`` and
    ``capped_reference`` took longer. All numbers are None where means were not compared.
    """

    cap: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    capped_level: Count = 0
    capped_reference: Count = 0
    equivalent: Annotated[
        bool,
        Meta(
            description="Every ratio of means beyond the margin is excluded, each side at family_alpha, with the capped "
            "runs as long as they were."
        ),
    ] = False

    @property
    def capped(self) -> int:
        """Number of capped runs of both arms."""
        return self.capped_level + self.capped_reference

    @property
    def differ(self) -> bool:
        """True if equal means are excluded."""
        return (self.low is not None and self.low > 1.0) or (self.high is not None and self.high < 1.0)


@dataclass(frozen=True, slots=True)
class Span:
    """The smallest and the largest estimate of a pooled effect's parts, with their conditions."""

    least_at: Mapping[str, str]
    least: float
    most_at: Mapping[str, str]
    most: float
    conditions: int


@dataclass(frozen=True, slots=True)
class Control:
    """One control effect in one condition. ``told_from_zero``: "no effect" is excluded at the study's alpha."""

    kind: Literal["negative", "positive"]
    condition: Condition
    response: str
    injected: float
    ratio: float | None
    low: float | None
    high: float | None
    passed: bool
    told_from_zero: bool
    blocks: int

    @property
    def standing(self) -> str:
        """Why a control that has not failed shows nothing yet; empty if it failed or passed."""
        if not self.passed:
            return ""
        seen = self.kind == "positive" and self.told_from_zero
        if self.low is None and self.high is None:
            return "seen, no interval yet" if seen else "too few blocks"
        return "not seen yet" if self.kind == "positive" and not seen else ""


@dataclass(frozen=True, slots=True)
class Unaffected:
    """One primary comparison on the blocks in which neither run follows the level that carries over: exploratory. The
    interval is at the effect's own level."""

    factor: str
    level: str
    reference: str
    response: str
    value: float | None
    low: float | None
    high: float | None
    scale: Scale
    blocks: Count


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """What a switch costs: a run after another level against one after its own, as a ratio, or a difference if the response
    is compared by difference. ``typical``: that of a run after its own level, in the response's unit. ``score``: its z."""

    size: float
    typical: float
    score: float


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Carry-over control of a condition: does its main response depend on the runs before (``carryover.py``)?

    ``value`` compares runs after ``level`` with runs after ``others`` (None with too few blocks). The exact control fails
    at an e-value of 1 / ``alpha``. ``blocks`` counts those that gave a bet. ``wash_in``: the unmeasured runs before each
    measured one, of the blocks that are judged. ``score`` is from ``dependence.py``. ``suspected`` ends with a wash-in.
    ``doubtful``: a verdict might rest on such a dependence, so more blocks are needed. ``explicable``: the levels
    with a verdict that a cost of switching could explain, so it is withheld. ``upcoming``: the wash-in of the next block.
    ``passed``: false if the exact control failed, or if the runs still depend on those before them with the
    longest wash-in. ``switching``: what a switch costs, where that was found.
    """

    condition: Condition
    response: str
    factor: str
    level: Annotated[str, Meta(description="The level with the strongest evidence of carry-over.")]
    others: Annotated[tuple[str, ...], Meta(description="The factor's other levels.")]
    between_blocks: Annotated[bool, Meta(description="Seen from one block to the next, else inside blocks.")]
    value: float | None
    unit: str
    scale: Scale
    e_value: Annotated[Unbounded, Meta(description="The largest so far.")]
    alpha: float
    passed: bool
    blocks: Count
    wash_in: WashIn | None = None
    score: Annotated[
        float,
        Meta(description="The largest score (z) of the least squares on the levels of the runs before."),
    ] = 0.0
    suspected: Annotated[
        bool, Meta(description="The runs seem to depend on those before them, so no verdict is given.")
    ] = False
    doubtful: bool = False
    explicable: tuple[tuple[str, str], ...] = ()
    upcoming: WashIn | None = None
    switching: SwitchCost | None = None
    unaffected: tuple[Unaffected, ...] = ()

    @property
    def held(self) -> bool:
        """Whether no verdict may be given yet: the runs seem to depend on those before, or it is being found out how."""
        return self.suspected or (self.wash_in is not None and self.wash_in.before is Before.DRAWN)


@dataclass(frozen=True, slots=True)
class VoidCount:
    """Number of blocks that a void rule discarded, by the level that failed its check."""

    rule: str
    level: str
    count: Count


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change in the level of all arms' blocks, by a ratio or a difference, with the block that begins at that time."""

    at_s: Unbounded
    ratio: float | None
    difference: float | None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Facts about one condition's primary response that inform and never gate (None: too few blocks)."""

    condition: Condition
    response: str
    blocks: Count
    order_effect: float | None
    order_p: float | None
    autocorrelation: float | None
    drift_per_hour: float | None
    bimodality: float | None
    block_share: float | None
    changes: tuple[LevelChange, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureCounts:
    """Failed runs ``by_arm``. ``shared``: factors and labels that all failed combinations have in common, if there are
    several ``factors``."""

    by_arm: tuple[tuple[str, int], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    factors: int = 1

    @property
    def count(self) -> int:
        """Total number of failed runs."""
        return sum(count for _, count in self.by_arm)


class Left(StrEnum):
    """Why an arm left a race."""

    WORSE = "worse"
    NO_GAIN = "no gain"
    FAILS = "fails"


class Place(JsonObject, frozen=True):
    """How one arm stands in a race. ``effect`` is its mean effect against the reference, a natural logarithm."""

    arm: str
    blocks: Annotated[Count, Meta(description="blocks that compare it with the reference")]
    effect: float | None
    left: Annotated[Left | None, Meta(description="why it left the race")] = None
    because_of: Annotated[
        str | None, Meta(description="the arm that is better, or with most evidence of it")
    ] = None
    better: Annotated[bool, Meta(description="shown to be better than the reference")] = False
    good: Annotated[
        bool, Meta(description="no arm is better by the margin, and it is the reference or better")
    ] = False


class Race(JsonObject, frozen=True):
    """A race after some blocks: the arms, the reference first. ``over``: an arm is good, so no further block is needed.

    ``sign`` is -1 where a higher value is better.
    """

    condition: str
    response: str
    reference: str
    places: tuple[Place, ...]
    blocks: Count
    over: bool
    sign: int = 1

    @property
    def better(self) -> tuple[str, ...]:
        """The arms still in the race that are shown to be better than the reference."""
        return tuple(one.arm for one in self.places if one.better and one.left is None)

    @property
    def inside(self) -> frozenset[str]:
        """The arms that the next block runs: those still in the race, and the reference."""
        return frozenset(one.arm for one in self.places if one.left is None or one.arm == self.reference)

    @property
    def good(self) -> tuple[str, ...]:
        """The arms that may be recommended; the reference alone if it is one of them."""
        found = tuple(one.arm for one in self.places if one.good)
        return (self.reference,) if self.reference in found else found


@dataclass(frozen=True, slots=True)
class Analysis:
    """Results of the analysis of one trial's runs."""

    effects: tuple[Effect, ...]
    controls: tuple[Control, ...]
    void: tuple[VoidCount, ...]
    diagnostics: tuple[Diagnostic, ...]
    valid: bool
    invalid_reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    failures: FailureCounts = FailureCounts()
    carry_over: tuple[CarryOver, ...] = ()
    #: one for each condition of a race
    races: tuple[Race, ...] = ()


@dataclass(frozen=True, slots=True)
class FinalAnalysis:
    """The analysis at the end of a trial, without remarks, and what it is of: its report need not repeat it."""

    blocks: tuple[ObservedBlock, ...]
    unused: tuple[str, ...]
    analysis: Analysis


#: confidence level of the range of a scatter
RANGE_LEVEL = 0.90


@dataclass(frozen=True, slots=True)
class Scatter:
    """Block SD of the contrast of two single arms, on the contrast's scale (natural log for ratios).

    ``sd`` is used for planning, ``low`` to ``high`` is its 90 % range, ``plain_sd`` the root mean square,
    ``blocks`` the number of blocks it is based on.
    """

    sd: Amount
    low: Amount
    high: Amount
    plain_sd: Amount
    blocks: Count
