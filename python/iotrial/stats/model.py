"""Frozen input and output values of the analysis, independent of labs, probes and stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.documents import Amount, Count, JsonObject, Probability, Unbounded
from iotrial.study.model import MEAN, TYPICAL, Better, Scale

EffectKind = Literal["main", "interaction", "pooled", "cell"]


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
class Effect:
    """One contrast with its verdict. ``value``, ``low``, ``high`` are ratios (scale log) or differences.

    If the verdict is *equivalent*, ``low`` and ``high`` are ``bounds``, the one-sided bounds that it rests on;
    ``two_sided`` is always the two-sided interval.

    ``kind`` is ``main``, ``cell`` (a main effect at one level of another factor, which ``condition`` names), ``interaction``
    or ``pooled`` (the mean over the conditions of a workload, ``condition`` empty).
    ``aliases`` are interactions that the design cannot separate from this one. ``leaning``, ``skewed`` and ``bounds``
    (ratios) are those of ``Interval``. ``blocks`` counts the contrasts it is based on: one per block, or one for each
    repeat in the plots of a study with whole plots. ``margin`` is relative. ``agree``, of a pooled effect: whether
    its conditions show the same effect, so that their mean represents each of them (``pooling.agree``); None for other
    effects. ``span``: if they do not, the conditions with the smallest and the largest estimate, and the number of
    conditions. ``slow_runs`` and ``mean_ratio``, of a main effect on a time or a rate: differences that the ratio of
    typical runs does not show (``stats.beyond_typical``); ``means`` is the mean run, which *equivalent* is about as well.
    ``statistic`` is the response's: the statistic of an arm's runs that is compared. ``plain_beyond``: the relative
    effect that the interval must exceed for a plain word; the margin once the injected slowdown was seen, before that the
    slowdown. ``averaged``, of a main effect: another factor changes it, and the effects of kind ``cell`` are the answer.
    """

    kind: str
    factor: str
    level: str
    reference: str
    condition: Mapping[str, str]
    workload: str
    response: str
    unit: str
    scale: Scale
    better: Better
    primary: bool
    value: float | None
    low: float | None
    high: float | None
    family_alpha: float
    p_anytime: float
    verdict: Verdict
    detectably: str | None
    reason: str | None
    detectable: float | None
    blocks: int
    failures: int
    decided: bool
    block_sd: float | None
    margin: float
    cross_check: tuple[float, float] | None = None
    discovery: bool | None = None
    e_value: float | None = None
    aliases: tuple[str, ...] = ()
    leaning: bool = False
    agree: bool | None = None
    span: Span | None = None
    bounds: tuple[float, float] | None = None
    slow_runs: SlowRuns | None = None
    mean_ratio: MeanRatio | None = None
    statistic: str = TYPICAL
    means: Means | None = None
    two_sided: tuple[float | None, float | None] | None = None
    skewed: bool = False
    plain_beyond: float | None = None
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


@dataclass(frozen=True, slots=True)
class SlowRuns:
    """Runs that took more than ``factor`` times the typical time, at the level and at the reference.

    ``difference`` is the share at the level minus the share at the reference; ``low`` and ``high`` are its bounds. All
    three pairs of bounds are valid at any look, each at ``alpha``.
    """

    factor: float
    level: Share
    reference: Share
    difference: float
    low: float
    high: float
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

    kind: str
    condition: Mapping[str, str]
    response: str
    injected: float
    ratio: float | None
    low: float | None
    high: float | None
    passed: bool
    told_from_zero: bool
    blocks: int


@dataclass(frozen=True, slots=True)
class Unaffected:
    """One comparison on the blocks in which none of its runs follows the level that carries over: exploratory.

    ``ratio`` is a difference if ``scale`` is; the interval is at the effect's own level, None if unbounded."""

    factor: str
    level: str
    reference: str
    response: str
    ratio: float | None
    low: float | None
    high: float | None
    scale: Scale
    blocks: int


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

    ``factor`` and ``level``: those with the most evidence. ``ratio``: runs after this level against runs after ``others`` (a
    difference if ``scale`` is, None with too few blocks). ``e_value`` is the largest value of the e-process so far; the exact
    control fails at 1 / ``alpha``. ``across``: between blocks, else inside them. ``blocks`` counts those that gave a bet.
    ``wash_in``: the unmeasured runs before each measured one, of the blocks that are judged. ``score``: that of the least
    squares (``dependence.py``). ``suspected``: the runs seem to depend on those before them, so no verdict is given before a
    wash-in. ``doubtful``: a verdict might rest on such a dependence, so more blocks are needed. ``explicable``: the levels
    with a verdict that a cost of switching could explain, so it is withheld. ``upcoming``: the wash-in of the next block.
    ``passed``: false if the exact control failed, or if the runs still depend on those before them with the
    longest wash-in. ``switching``: what a switch costs, where that was found.
    """

    condition: Mapping[str, str]
    response: str
    factor: str
    level: str
    others: tuple[str, ...]
    across: bool
    ratio: float | None
    unit: str
    scale: Scale
    e_value: float
    alpha: float
    passed: bool
    blocks: int
    wash_in: WashIn | None = None
    score: float = 0.0
    suspected: bool = False
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
    """A change of the response level of all arms, starting with the block at ``at_s``.

    ``size`` is in natural logarithms if the response is compared by ratio.
    """

    at_s: float
    size: float
    logarithmic: bool


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Diagnostics of one condition's primary response; they inform and never gate (None: too few blocks)."""

    condition: Mapping[str, str]
    response: str
    blocks: int
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
