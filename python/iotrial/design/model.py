"""Frozen values of a plan: conditions, arms, blocks, the files of each run, and the contrasts to estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ArmKind(StrEnum):
    """Role of an arm in a block."""

    TREATMENT = "treatment"
    NEGATIVE = "negative"  # a second, identical copy of the reference
    POSITIVE = "positive"  # slowed down by the injected ratio: of two arms the one without a copy, else the reference


class TermKind(StrEnum):
    """Kind of a contrast."""

    MAIN = "main"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm of a block. ``name`` is unique in the plan: the labels joined by ``+``, or ``row`` and a number in a screening
    design, or ``control:negative`` / ``control:positive``. ``treatment`` maps treatment factors to labels.

    ``stretched``: its timed part is slowed down by the injected ratio.
    """

    name: str
    kind: ArmKind
    treatment: Mapping[str, str]
    stretched: bool = False

    @property
    def of_control(self) -> bool:
        """True if the arm is a control or belongs to the slowed-down half of a screening design."""
        return self.kind is not ArmKind.TREATMENT or self.stretched


@dataclass(frozen=True, slots=True)
class Term:
    """A contrast: the sum of ``weights`` (by arm name) times the arms' values, on the scale of the response.

    ``factor`` is a factor's name, or two names joined by ``:`` for an interaction; likewise ``level`` and ``reference``.
    An interaction is half the difference of one factor's effects at the two levels of the other. ``aliases`` are other
    interactions that this design cannot separate from it, with their signs (``-a:b``). ``whole``: all arms of a plot
    share its level, so it has one value per block; other terms have one for each repeat in the plots.
    """

    kind: TermKind
    factor: str
    level: str
    reference: str
    weights: Mapping[str, float]
    primary: bool = True
    aliases: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A workload and condition levels, crossed with the treatments. ``levels`` maps condition factors to labels.

    ``key`` is stable text (``cache=cold,size=10 KiB,workload=probe``), sorted by name.
    """

    index: int
    key: str
    workload: str
    levels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One slot of a block. ``files`` are the pool indices of this run's files (None if every arm uses the whole pool).

    ``plot`` numbers the plots of the block: segments that share the levels of the whole-plot factors. None if the
    study has no such factor.
    """

    slot: int
    arm: Arm
    files: tuple[int, ...] | None
    plot: int | None = None


class Before(StrEnum):
    """The unmeasured runs before a measured one."""

    REFERENCE = "reference"  # neutral: the reference's work before every run
    SAME = "same"  # the run's own level, so that no switch comes just before the measurement
    DRAWN = (
        "drawn"  # the run's own level or another one, at random: tells carry-over from a cost of switching
    )


@dataclass(frozen=True, slots=True)
class WashIn:
    """Unmeasured runs before each measured one of a block: of which level, and how many."""

    before: Before = Before.REFERENCE
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Every treatment of one condition in random order: once, or ``repeats`` times in each plot of a study with whole
    plots. ``index`` counts from 0 within its condition; ``controls``: the block has control arms; ``after_itself``: the slots
    of the runs that an unmeasured run of the same arm precedes, unless there is a wash-in."""

    condition: Condition
    index: int
    controls: bool
    runs: tuple[PlannedRun, ...]
    after_itself: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Screen:
    """A screening design.

    ``codes``: for each row its code in each column, -1 (the reference), 0 or +1. ``weights``: for each column the weights
    of the rows that give its effect. ``text``: the rows in stored form.
    """

    codes: Sequence[Sequence[int]]
    weights: Sequence[Sequence[float]]
    text: Sequence[str]
