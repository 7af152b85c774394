"""What the arms of a factorial took once each block's own level is taken out: means by level and by cell.

Blocks differ far more than treatments do. On the scale on which effects are compared (the natural logarithm for ratios)
the mean of all treatments of a block is subtracted from each of them, and what is left is averaged over the blocks. Only
blocks count that are not void and hold a usable value of every treatment. These means describe; verdicts come from the
contrasts of the analysis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.analysis.contrast import usable
from iotrial.analysis.model import ObservedBlock
from iotrial.design.model import ArmKind
from iotrial.study.model import Response, Scale

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Adjusted:
    """``means`` holds one number for each of ``treatments``: its mean distance from the mean of its block, on the contrast's
    scale. ``centre`` is the mean of the blocks' means, on the same scale."""

    response: Response
    treatments: tuple[Mapping[str, str], ...]
    means: Floats
    centre: float
    blocks: int

    def level(self, factor: str, label: str) -> float | None:
        """The mean over the treatments that have this factor at this level; None where there is none."""
        return self._mean(treatment.get(factor) == label for treatment in self.treatments)

    def cell(self, first: tuple[str, str], second: tuple[str, str]) -> float | None:
        """The mean over the treatments that have these two factors at these levels (each a name and a label)."""
        return self._mean(
            treatment.get(first[0]) == first[1] and treatment.get(second[0]) == second[1]
            for treatment in self.treatments
        )

    def natural(self, place: float) -> float:
        """A mean as a value of the response: in its unit, at the trial's general level."""
        return math.exp(self.centre + place) if self.response.scale is Scale.LOG else self.centre + place

    def _mean(self, chosen: Iterable[bool]) -> float | None:
        mask = np.fromiter(chosen, dtype=np.bool_, count=len(self.treatments))
        return float(self.means[mask].mean()) if mask.any() else None


def adjust(blocks: Sequence[ObservedBlock], response: Response) -> Adjusted | None:
    """The means of one response over the blocks of one condition; None where no block holds every treatment."""
    rows: list[dict[str, float]] = []
    treatments: dict[str, Mapping[str, str]] = {}
    for block in blocks:
        if block.void is not None:
            continue
        found: dict[str, list[float | None]] = {}
        for run in block.observations:
            if run.kind is ArmKind.TREATMENT:
                treatments.setdefault(run.arm, run.treatment)
                found.setdefault(run.arm, []).append(usable(run, response))
        if all(value is not None for values in found.values() for value in values):
            rows.append(
                {arm: math.fsum(v or 0.0 for v in values) / len(values) for arm, values in found.items()}
            )
    complete = [row for row in rows if len(row) == len(treatments)]
    if not complete:
        return None
    table = np.array([[row[arm] for arm in treatments] for row in complete])
    levels = table.mean(axis=1, keepdims=True)
    means: Floats = (table - levels).mean(axis=0)
    return Adjusted(response, tuple(treatments.values()), means, float(levels.mean()), len(complete))
