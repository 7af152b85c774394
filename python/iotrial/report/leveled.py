"""Evidence of a screen: by level of each factor instead of by row, since a row has no meaning of its own.

The value at a level is the mean over the rows at that level of each row's median. It *moved* by the same test as a treatment:
the contrast of a block is the mean over the rows at the level less the mean over those at the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import EvidenceRow, Measured, counts_nothing, marked, measured_by_arm
from iotrial.report.metrics import unit_of
from iotrial.report.screens import row_label
from iotrial.store.model import TrialData
from iotrial.study.model import Factor, Study

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-12  # of the sum of magnitudes: what is less is nothing


def gather_by_level(data: TrialData, conditions: Conditions, *, margin: float) -> tuple[EvidenceRow, ...]:
    """All means, ordered by condition, metric (responses first, then by how clearly it moved), factor and level (reference
    first)."""
    study = data.trial.header.study
    units = {(response.workload, response.name): response.unit for response in study.responses}
    arms, values = measured_by_arm(data)
    rows: list[EvidenceRow] = []
    contrasts: dict[tuple[str, str, str], Floats] = {}
    for (key, metric), by_arm in values.items():
        condition = conditions.of_key(key)
        declared = units.get((condition.workload, metric))
        if declared is None and counts_nothing(metric, by_arm):
            continue
        unit = declared if declared is not None else unit_of(metric)
        table, medians = _table(by_arm)
        treatments = [arms[arm] for arm in by_arm]
        for factor in study.treatment_factors:
            own, differences = _of_factor(
                condition, metric, unit, factor, treatments, table, medians, declared is not None
            )
            rows += own
            contrasts |= {(condition.key, metric, level): found for level, found in differences.items()}
    names = [metric for _, metric in values]
    return marked(rows, contrasts, data.trial.header.alpha, margin, names, list(_places(study)))


def _places(study: Study) -> dict[str, int]:
    names = [row_label(factor.name, label) for factor in study.treatment_factors for label in _labels(factor)]
    return {name: place for place, name in enumerate(names)}


def _labels(factor: Factor) -> list[str]:
    """The reference first."""
    return [factor.reference, *(level.label for level in factor.levels if level.label != factor.reference)]


def _table(by_arm: Mapping[str, Measured]) -> tuple[Floats, Floats]:
    """Blocks by arms (repeats averaged, NaN where an arm has no run that counts), and each arm's median."""
    blocks = np.unique(np.concatenate([one.blocks for one in by_arm.values()]))
    table = np.full((len(blocks), len(by_arm)), np.nan)
    for column, one in enumerate(by_arm.values()):
        own, values = one.by_block()
        table[np.searchsorted(blocks, own), column] = values
    medians: Floats = np.array([float(np.median(one.values)) for one in by_arm.values()])
    return table, medians


def _of_factor(
    condition: ConditionText,
    metric: str,
    unit: str,
    factor: Factor,
    treatments: Sequence[Mapping[str, str]],
    table: Floats,
    medians: Floats,
    is_response: bool,
) -> tuple[list[EvidenceRow], dict[str, Floats]]:
    """The rows of a factor's levels, and for each that is not the reference its contrasts."""
    masks = {
        label: np.array([treatment.get(factor.name) == label for treatment in treatments])
        for label in _labels(factor)
    }
    reference = masks[factor.reference]
    rows, contrasts = [], {}
    for label, mask in masks.items():
        if not mask.any():
            continue
        name = row_label(factor.name, label)
        if label != factor.reference and reference.any():
            contrasts[name] = _differences(table, mask, reference)
        low, high = np.quantile(medians[mask], (0.25, 0.75))
        rows.append(
            EvidenceRow(
                name,
                condition,
                metric,
                unit,
                float(medians[mask].mean()),
                float(low),
                float(high),
                int(np.isfinite(table[:, mask]).sum()),
                is_response,
                label == factor.reference,
                group=factor.name,
            )
        )
    return rows, contrasts


def _differences(table: Floats, mask: npt.NDArray[np.bool_], reference: npt.NDArray[np.bool_]) -> Floats:
    """One number for each block that holds every row, in time order. Rows are no binary fractions of a block, so what is
    nothing but rounding is made nothing."""
    sound = ~np.isnan(table[:, mask | reference]).any(axis=1)
    here, there = table[sound][:, mask], table[sound][:, reference]
    difference: Floats = here.mean(axis=1) - there.mean(axis=1)
    size = np.abs(here).mean(axis=1) + np.abs(there).mean(axis=1)
    return np.where(np.abs(difference) > _ROUNDING * size, difference, 0.0)
