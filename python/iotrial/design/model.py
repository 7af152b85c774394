"""A plan as frozen values: conditions, arms, blocks, and what each run works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ArmKind(StrEnum):
    """What an arm is in a block for."""

    TREATMENT = "treatment"
    NEGATIVE = "negative"  # a second, identical copy of the reference
    POSITIVE = "positive"  # the reference, stretched by the injected ratio


@dataclass(frozen=True, slots=True)
class Arm:
    """One member of a block. ``name`` is unique in the plan: the labels joined by ``+``, or
    ``control:negative`` / ``control:positive``. ``treatment`` maps treatment factors to labels."""

    name: str
    kind: ArmKind
    treatment: Mapping[str, str]


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
    (None where every arm works on the whole pool)."""

    slot: int
    arm: Arm
    files: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Block:
    """Every arm of one condition once, in an order drawn at random. ``index`` counts from 0 in its condition."""

    condition: Condition
    index: int
    controls: bool
    runs: tuple[PlannedRun, ...]
