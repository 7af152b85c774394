"""What analysis takes and gives, as frozen values. Nothing here knows of labs, probes or stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.documents import Count, Probability, Unbounded
from iotrial.study.model import TYPICAL, Better, Scale

EffectKind = Literal["main", "interaction", "pooled"]


class Verdict(StrEnum):
    """On which side of no effect the interval of one effect lies. The last four are for responses that are not times or
    rates."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    HIGHER = "higher"
    LOWER = "lower"
    BETTER = "better"
    WORSE = "worse"


class Conclusion(StrEnum):
    """What may be said of one effect, the margin considered. Reports print ``words``.

    The plain words are for effects that lie beyond the margin with all of their interval; METHOD.md has the table.
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
    EQUIVALENT_MORE_SLOW_RUNS = "equivalent_more_slow_runs"
    EQUIVALENT_FEWER_SLOW_RUNS = "equivalent_fewer_slow_runs"
    UNDECIDED = "undecided"
    VARIES = "varies"

    @property
    def probable(self) -> bool:
        """Whether zero is excluded, but not the margin."""
        return self.value.startswith("probably_")

    @property
    def equivalent(self) -> bool:
        """Whether the whole interval is inside the margin, and slow runs are not shown to differ."""
        return self in (Conclusion.EQUIVALENT, Conclusion.EQUIVALENT_DETECTABLE)

    @property
    def only_typically(self) -> bool:
        """Whether the whole interval is inside the margin, but one side has more slow runs."""
        return self in (Conclusion.EQUIVALENT_MORE_SLOW_RUNS, Conclusion.EQUIVALENT_FEWER_SLOW_RUNS)

    @property
    def words(self) -> str:
        """As reports print it, e.g. "probably slower". Whether an equivalent effect is detectable is said apart."""
        if self is Conclusion.VARIES:
            return "differs by condition"
        if self.only_typically:
            more = "more" if self is Conclusion.EQUIVALENT_MORE_SLOW_RUNS else "fewer"
            return f"typical runs equivalent, but {more} slow runs"
        return "equivalent" if self.equivalent else self.value.replace("_", " ")

    @property
    def tone(self) -> str:
        """The class that colours it on a page: never a plain direction's for what is only probable."""
        return "probable" if self.probable or self.only_typically or self is Conclusion.VARIES else self.words


@dataclass(frozen=True, slots=True)
class Observation:
    """One run: the responses by name (totals over replicates), or a failure in words."""

    arm: str
    kind: ArmKind
    treatment: Mapping[str, str]
    slot: int
    started_s: float
    responses: Mapping[str, float]
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ObservedBlock:
    """A complete block of one condition in time order; ``void`` names the rule that threw it out. ``wash_in``: each of its
    runs came after a neutral one that was not measured."""

    condition: str
    index: int
    observations: tuple[Observation, ...]
    void: str | None = None
    void_level: str | None = None
    gap: bool = False
    wash_in: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """Anytime-valid interval of one contrast, on the contrast's own scale (natural log for ratios).

    ``low``/``high`` are None where unbounded. ``p_anytime`` = min(1, 1/max M(0)). ``e_value`` is M(0) at
    the last block, for e-BH. ``empty`` is true when no candidate is left (the effect moved). ``leaning``: all blocks together
    speak for an effect that the first of them excluded; the interval is then the wider one that rests on all of them alike.
    ``bounds``: the one-sided bounds, each at alpha, where they exclude every effect beyond the margin.
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


@dataclass(frozen=True, slots=True)
class Effect:
    """One contrast with its verdict. ``value``, ``low``, ``high`` are ratios (scale log) or differences.

    ``kind`` is ``main``, ``interaction`` or ``pooled`` (the mean over the conditions of a workload, ``condition`` empty).
    ``aliases`` are interactions that the design cannot tell from this one. ``leaning`` and ``bounds`` (ratios) are those of
    ``Interval``. ``blocks`` counts the contrasts that it rests on: one a block, or one for each repeat in the stretches of a
    study with whole plots.
    ``margin`` is relative. ``agree``, of a pooled effect: whether its conditions show the same effect, so that their mean
    stands for each of them (``pooling.agree``); None for other effects. ``span``: where they do not, the conditions
    with the smallest and the largest estimate, and how many there are. ``slow_runs`` and ``mean_ratio``, of a main effect on
    a time or a rate: what the ratio of typical runs does not show (``analysis.beyond_typical``). ``statistic`` is the
    response's: what of an arm's runs is compared.
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

    @property
    def conclusion(self) -> Conclusion:
        """What the interval, the margin and the scale allow to be said: derived here and nowhere else."""
        if self.agree is False and self.verdict is not Verdict.INCONCLUSIVE:
            return Conclusion.VARIES
        match self.verdict:
            case Verdict.INCONCLUSIVE:
                return Conclusion.UNDECIDED
            case Verdict.EQUIVALENT if self.slow_runs is not None and self.slow_runs.differ:
                more = self.slow_runs.difference > 0.0
                return Conclusion.EQUIVALENT_MORE_SLOW_RUNS if more else Conclusion.EQUIVALENT_FEWER_SLOW_RUNS
            case Verdict.EQUIVALENT:
                return Conclusion.EQUIVALENT_DETECTABLE if self.detectably else Conclusion.EQUIVALENT
            case direction:
                return Conclusion(direction.value if self._beyond_margin else f"probably_{direction.value}")

    @property
    def _beyond_margin(self) -> bool:
        """Whether no effect inside the margin is left in the interval. A difference has no margin."""
        if self.scale is Scale.DIFFERENCE:
            return True
        limit = math.log1p(self.margin)
        above = self.low is not None and self.low > 0.0 and math.log(self.low) > limit
        below = self.high is not None and (self.high <= 0.0 or math.log(self.high) < -limit)
        return above or below


@dataclass(frozen=True, slots=True)
class Share:
    """Slow runs of one arm: how many of how many, and between which bounds their share lies."""

    slow: Count
    runs: Count
    low: Probability
    high: Probability


@dataclass(frozen=True, slots=True)
class SlowRuns:
    """Runs that took more than ``factor`` times as long as is typical, at the level and at the reference.

    ``difference`` is the share at the level less the share at the reference, ``low`` and ``high`` are its bounds. All
    three pairs of bounds hold at any look, each at ``alpha``.
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
        """Whether one of the two has more slow runs: 0 is excluded."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The ratio of the arms' mean values beside that of ``typical`` runs; ``p`` of the test that they are the same."""

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
class Span:
    """The parts of a pooled effect with the smallest and the largest estimate: their conditions and estimates."""

    least_at: Mapping[str, str]
    least: float
    most_at: Mapping[str, str]
    most: float
    conditions: int


@dataclass(frozen=True, slots=True)
class Control:
    """One control effect in one condition. ``told_from_zero`` at the study's alpha."""

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

    ``ratio`` is a difference where ``scale`` says so; the interval is at the effect's own level, None where unbounded."""

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
class CarryOver:
    """Whether runs of a condition depend on which level ran just before, in the main response (``carryover.py``).

    ``factor`` and ``level``: the one with the most evidence. ``ratio``: runs after it against runs after ``others`` (a
    difference if ``scale`` says so, None if too few blocks tell). ``e_value`` is the largest value of the e-process so far;
    the control fails at 1 / ``alpha``. ``across``: between blocks, else inside them. ``blocks`` counts those that gave a bet.
    ``wash_in``: judged on blocks with a neutral run before each measured one.
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
    wash_in: bool = False
    unaffected: tuple[Unaffected, ...] = ()


@dataclass(frozen=True, slots=True)
class VoidCount:
    """How many blocks a void rule threw out, by the level whose check failed."""

    rule: str
    level: str
    count: Count


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The level of all arms' blocks changes with the block that begins at ``at_s``: by ``size``, in natural logarithms where
    the response is compared by ratio."""

    at_s: float
    size: float
    logarithmic: bool


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Facts about one condition's primary response that inform and never gate (None: too few blocks)."""

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
    """Failed runs ``by_arm``. ``shared``: factors and labels that all failed combinations have, where there are several
    ``factors``."""

    by_arm: tuple[tuple[str, int], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    factors: int = 1

    @property
    def count(self) -> int:
        """How many runs failed."""
        return sum(count for _, count in self.by_arm)


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that the stored runs of one trial say."""

    effects: tuple[Effect, ...]
    controls: tuple[Control, ...]
    void: tuple[VoidCount, ...]
    diagnostics: tuple[Diagnostic, ...]
    valid: bool
    invalid_reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    failures: FailureCounts = FailureCounts()
    carry_over: tuple[CarryOver, ...] = ()
