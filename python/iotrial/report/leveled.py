"""Evidence of a screen: by level of each factor instead of by row, since a row has no meaning of its own.

The value at a level is the mean over the rows at that level of each row's median. It *moved* where two things hold: in at
least three quarters of the blocks the level's rows lie on the same side of the reference's, and the means differ by more
than the margin (or one of them is zero). As for single treatments, that is a mark for the eye.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import EvidenceRow, sound_runs, unit_of
from iotrial.report.screens import row_label
from iotrial.store.model import TrialData
from iotrial.study.model import Factor, Study

Floats = npt.NDArray[np.float64]
_TREATMENT = "treatment"


def gather_by_level(data: TrialData, conditions: Conditions, *, margin: float) -> tuple[EvidenceRow, ...]:
    """All means, ordered by condition, metric (responses first), factor and level (reference first)."""
    study = data.trial.header.study
    units = {(response.workload, response.name): response.unit for response in study.responses}
    arms: dict[str, Mapping[str, str]] = {}
    values: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = {}
    for run in sound_runs(data):
        if run.kind != _TREATMENT:
            continue
        arms.setdefault(run.arm, run.treatment)
        for metric, number in (*run.responses.items(), *run.evidence.items()):
            by_arm = values.setdefault((run.condition, metric), {})
            by_arm.setdefault(run.arm, {}).setdefault(run.block, []).append(number)
    rows: list[EvidenceRow] = []
    for (key, metric), by_arm in values.items():
        condition = conditions.of_key(key)
        declared = units.get((condition.workload, metric))
        unit = declared if declared is not None else unit_of(metric)
        table, medians = _table(by_arm)
        treatments = [arms[arm] for arm in by_arm]
        for factor in study.treatment_factors:
            rows += _rows(
                condition, metric, unit, factor, treatments, table, medians, declared is not None, margin
            )
    metrics = {metric: position for position, (_, metric) in enumerate(values)}
    places = _places(study)
    rows.sort(key=lambda r: (r.condition.order, not r.is_response, metrics[r.metric], places[r.treatment]))
    return tuple(rows)


def _places(study: Study) -> dict[str, int]:
    names = [row_label(factor.name, label) for factor in study.treatment_factors for label in _labels(factor)]
    return {name: place for place, name in enumerate(names)}


def _labels(factor: Factor) -> list[str]:
    """The reference first."""
    return [factor.reference, *(level.label for level in factor.levels if level.label != factor.reference)]


def _table(by_arm: Mapping[str, Mapping[int, Sequence[float]]]) -> tuple[Floats, Floats]:
    """Blocks by arms (repeats averaged, NaN where an arm has no run that counts), and each arm's median."""
    blocks = sorted({block for runs in by_arm.values() for block in runs})
    table = np.full((len(blocks), len(by_arm)), np.nan)
    place = {block: row for row, block in enumerate(blocks)}
    for column, runs in enumerate(by_arm.values()):
        for block, numbers in runs.items():
            table[place[block], column] = float(np.mean(numbers))
    medians: Floats = np.array(
        [float(np.median([n for r in runs.values() for n in r])) for runs in by_arm.values()]
    )
    return table, medians


def _rows(
    condition: ConditionText,
    metric: str,
    unit: str,
    factor: Factor,
    treatments: Sequence[Mapping[str, str]],
    table: Floats,
    medians: Floats,
    is_response: bool,
    margin: float,
) -> Iterator[EvidenceRow]:
    masks = {
        label: np.array([treatment.get(factor.name) == label for treatment in treatments])
        for label in _labels(factor)
    }
    reference = masks[factor.reference]
    for label, mask in masks.items():
        if not mask.any():
            continue
        moved = None
        if label != factor.reference and reference.any():
            moved = _moved(table, medians, mask, reference, margin=margin)
        low, high = np.quantile(medians[mask], (0.25, 0.75))
        yield EvidenceRow(
            row_label(factor.name, label),
            condition,
            metric,
            unit,
            float(medians[mask].mean()),
            float(low),
            float(high),
            int(np.isfinite(table[:, mask]).sum()),
            is_response,
            label == factor.reference,
            moved,
        )


def _moved(
    table: Floats,
    medians: Floats,
    mask: npt.NDArray[np.bool_],
    reference: npt.NDArray[np.bool_],
    *,
    margin: float,
) -> str | None:
    here, there = float(medians[mask].mean()), float(medians[reference].mean())
    if abs(here - there) <= margin * abs(there):
        return None
    sound = ~np.isnan(table[:, mask | reference]).any(axis=1)
    if not sound.any():
        return None
    difference = table[sound][:, mask].mean(axis=1) - table[sound][:, reference].mean(axis=1)
    low, high = np.quantile(difference, (0.25, 0.75))
    if low > 0 and here > there:
        return "up"
    return "down" if high < 0 and here < there else None
