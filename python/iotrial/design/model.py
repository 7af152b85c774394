"""A plan as frozen values: conditions, arms, blocks, what each run works on, and the contrasts that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ArmKind(StrEnum):
    """What an arm is in a block for."""

    TREATMENT = "treatment"
    NEGATIVE = "negative"  # a second, identical copy of the reference
    POSITIVE = "positive"  # the reference, stretched by the injected ratio


class TermKind(StrEnum):
    """What a contrast stands for."""

    MAIN = "main"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class Arm:
    """One member of a block. ``name`` is unique in the plan: the labels joined by ``+``, or ``row`` and a number where a
    design has many factors, or ``control:negative`` / ``control:positive``. ``treatment`` maps treatment factors to labels.

    ``stretched``: its timed part is made longer by the injected ratio.
    """

    name: str
    kind: ArmKind
    treatment: Mapping[str, str]
    stretched: bool = False

    @property
    def of_control(self) -> bool:
        """Whether a control rests on this arm: it is one, or belongs to the stretched half of a screening design."""
        return self.kind is not ArmKind.TREATMENT or self.stretched


@dataclass(frozen=True, slots=True)
class Term:
    """A contrast: the sum of ``weights`` (by name of the arm) times the arms' values, on the scale of the response.

    ``factor`` is a factor's name, or two joined by ``:`` for an interaction, and so are ``level`` and ``reference``.
    An interaction is half the difference of one factor's effects at the two levels of the other. ``aliases`` are other
    interactions that this design cannot tell from it, with their signs (``-a:b``). ``whole``: all arms of a stretch
    share its level, so it has one value a block; others have one for each repeat in the stretches.
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
    """A combination that is crossed with the treatments. ``levels`` maps condition factors to labels.

    ``key`` is stable text (``cache=cold,size=10 KiB,workload=probe``), sorted by name.
    """

    index: int
    key: str
    workload: str
    levels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One slot of a block. ``files`` are the indices, into the pool, of the files of this run
    (None where every arm works on the whole pool).

    ``stretch`` counts the stretches of the block that share the levels of the whole-plot factors; None where a study has
    no such factor.
    """

    slot: int
    arm: Arm
    files: tuple[int, ...] | None
    stretch: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Every treatment of one condition, in an order drawn at random: once, or ``repeats`` times in each stretch of a study
    with whole plots. ``index`` counts from 0 in its condition; ``controls``: control arms take part."""

    condition: Condition
    index: int
    controls: bool
    runs: tuple[PlannedRun, ...]
