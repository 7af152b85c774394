"""One failed control as the looks for reasons take it, and a reason as they give it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from iotrial.analysis.model import Control
from iotrial.analysis.reasons.pairs import Fit, Floats, Pairs, calmed
from iotrial.design.model import ArmKind
from iotrial.study.model import Response, Scale

LEAST_SHARE = 1.0 / 3.0
LEAST_EVIDENCE = 3.0
FULL_EVIDENCE = 6.0


@dataclass(frozen=True, slots=True)
class Reason:
    """One likely reason. ``weight`` is between 0 and 1; ``condition`` and ``response`` are of the control that speaks for
    it most, ``controls`` says for how many failed controls it was found."""

    code: str
    text: str
    remedy: str
    weight: float
    condition: Mapping[str, str]
    response: str
    controls: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One failed control with its pairs; ``deviations`` are the differences less what they should be."""

    control: Control
    response: Response
    pairs: Pairs
    deviations: Floats
    truth: float
    margin: float
    same_files: bool

    @property
    def mean(self) -> float:
        return float(calmed(self.deviations).mean())

    @property
    def name(self) -> str:
        copy = self.control.kind == ArmKind.NEGATIVE.value
        if self.pairs.columns:
            return "one half of the rows" if copy else "slowed half of the rows"
        several = "" if self.pairs.single else " runs"
        return f"copy{several}" if copy else f"slowed copy{several}"

    @property
    def other(self) -> str:
        """What it is held against."""
        return "the other half" if self.pairs.columns else "its original"

    def size(self, value: float) -> str:
        """A difference in words, e.g. +4.1 %."""
        if self.response.scale is Scale.LOG:
            return f"{100.0 * math.expm1(max(-20.0, min(value, 20.0))):+.2g} %"
        return f"{value:+.3g}"

    def reason(self, code: str, text: str, remedy: str, weight: float) -> Reason:
        return Reason(
            code, text, remedy, min(1.0, weight), dict(self.control.condition), self.control.response
        )


def accounts(found: Fit | None) -> bool:
    """Whether a covariate accounts for enough, with enough evidence, to be named."""
    return found is not None and found.evidence >= LEAST_EVIDENCE and found.share >= LEAST_SHARE


def weighed(share: float, evidence: float) -> float:
    """The share, less where the evidence is thin."""
    return share * min(1.0, evidence / FULL_EVIDENCE)
