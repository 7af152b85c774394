"""Input and output of the checks for likely causes: one failed control, and one reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.documents import Labels, Probability
from iotrial.stats.model import Control
from iotrial.stats.reasons.pairs import Fit, Floats, Pairs, calmed
from iotrial.study.model import Response, Scale

LEAST_SHARE = 1.0 / 3.0
LEAST_EVIDENCE = 3.0
FULL_EVIDENCE = 6.0


@dataclass(frozen=True, slots=True)
class Reason:
    """One likely cause of a failed control. ``weight`` is between 0 and 1; ``condition`` and ``response`` are those of the
    control with the strongest support for it; ``controls`` is the number of failed controls for which it was found."""

    code: Annotated[
        str,
        Meta(
            extra_json_schema={
                "enum": [
                    *(
                        "order",
                        "carry_over",
                        "neighbour",
                        "waiting",
                        "memory",
                        "cache",
                        "write_back",
                        "two_modes",
                    ),
                    *("regime_change", "assignment", "left_out", "void_rule", "spin", "not_in_response"),
                    *("part_of_response", "not_proportional", "coarse", "left_running"),
                ]
            }
        ),
    ]
    text: str
    remedy: str
    weight: Probability
    condition: Labels
    response: str
    controls: Annotated[int, Meta(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One failed control with its pairs; ``deviations`` are the differences minus their expected value."""

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
        """Name of the arm that the control is compared with."""
        return "the other half" if self.pairs.columns else "its original"

    def size(self, value: float) -> str:
        """Format a difference, e.g. +4.1 %."""
        if self.response.scale is Scale.LOG:
            return f"{100.0 * math.expm1(max(-20.0, min(value, 20.0))):+.2g} %"
        return f"{value:+.3g}"

    def reason(self, code: str, text: str, remedy: str, weight: float) -> Reason:
        return Reason(
            code, text, remedy, min(1.0, weight), dict(self.control.condition), self.control.response
        )


def accounts(found: Fit | None) -> bool:
    """Return whether a covariate accounts for enough of the deviation, with enough evidence, to be listed."""
    return found is not None and found.evidence >= LEAST_EVIDENCE and found.share >= LEAST_SHARE


def weighed(share: float, evidence: float) -> float:
    """Return the share, reduced if the evidence is weak."""
    return share * min(1.0, evidence / FULL_EVIDENCE)
