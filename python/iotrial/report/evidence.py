"""Evidence: what else changed with the treatment, as medians, described and never tested.

For every metric that runs carry (responses first, then counters and checks' numbers) there is one median by treatment
and condition, over the runs of complete blocks that are neither void nor failed. A metric is said to have *moved* with a
level where two things hold: the middle halves of the two arms (first to third quartile) do not overlap, and the
medians differ by more than the margin (or one of them is zero). It is a mark for the eye, not a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.report.accounted import accounted_numbers
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.store.model import RunRecord, TrialData
from iotrial.study.model import Study

# What a counter's name says of its unit; the first pattern that is found counts.
_UNITS = (
    (re.compile(r"bytes|rss"), "bytes"),
    (re.compile(r"_ns$"), "ns"),
    (re.compile(r"_us$"), "us"),
    (re.compile(r"_ms$"), "ms"),
    (re.compile(r"_s$|_seconds$|_time$|^wall\b|^cpu\b|^accounted_time\."), "s"),
)
_TREATMENT = "treatment"


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One median. ``moved`` is "up" or "down" against the reference treatment, None where it did not move."""

    treatment: str
    condition: ConditionText
    metric: str
    unit: str
    value: float
    low: float
    high: float
    runs: int
    is_response: bool
    is_reference: bool
    moved: str | None = None


def gather(data: TrialData, conditions: Conditions, *, margin: float) -> tuple[EvidenceRow, ...]:
    """All medians, ordered by condition, metric (responses first) and treatment (reference first)."""
    study = data.trial.header.study
    units = {(response.workload, response.name): response.unit for response in study.responses}
    arms: dict[str, Mapping[str, str]] = {}
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in sound_runs(data):
        if run.kind != _TREATMENT:
            continue
        arms.setdefault(run.arm, run.treatment)
        for metric, number in (*run.responses.items(), *run.evidence.items()):
            values.setdefault((run.condition, metric), {}).setdefault(run.arm, []).append(number)
    for call in accounted_numbers(data.calls, arms):
        values.setdefault((call.condition, call.metric), {}).setdefault(call.arm, []).append(call.value)
    order = arm_order(study, arms)
    reference = next((arm for arm in order if is_reference(study, arms[arm])), None)
    rows: list[EvidenceRow] = []
    for (key, metric), by_arm in values.items():
        condition = conditions.of_key(key)
        declared = units.get((condition.workload, metric))
        unit = declared if declared is not None else unit_of(metric)
        rows.extend(
            _rows(condition, metric, unit, declared is not None, by_arm, order, reference, margin=margin)
        )
    metrics = {metric: position for position, (_, metric) in enumerate(values)}
    rows.sort(
        key=lambda r: (r.condition.order, not r.is_response, metrics[r.metric], order.index(r.treatment))
    )
    return tuple(rows)


def sound_runs(data: TrialData) -> Iterator[RunRecord]:
    """The runs that count: in complete blocks, not void, not failed."""
    sound = {(block.condition, block.index) for block in data.blocks if block.void is None}
    return (run for run in data.runs if run.failure is None and (run.condition, run.block) in sound)


def arm_order(study: Study, arms: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Treatments with the reference first, then as the study declares the levels."""
    factors = study.treatment_factors
    labels = {factor.name: [level.label for level in factor.levels] for factor in factors}

    def rank(name: str) -> tuple[bool, list[int], str]:
        treatment = arms[name]
        places = [
            labels[factor.name].index(treatment[factor.name])
            if treatment.get(factor.name) in labels[factor.name]
            else len(labels[factor.name])
            for factor in factors
        ]
        return not is_reference(study, treatment), places, name

    return sorted(arms, key=rank)


def is_reference(study: Study, treatment: Mapping[str, str]) -> bool:
    """Whether this treatment has every factor at its reference."""
    return all(treatment.get(factor.name) == factor.reference for factor in study.treatment_factors)


def unit_of(metric: str) -> str:
    """The unit that a counter's name tells; "1" for a plain count."""
    return next((unit for pattern, unit in _UNITS if pattern.search(metric)), "1")


def _rows(
    condition: ConditionText,
    metric: str,
    unit: str,
    is_response: bool,
    by_arm: Mapping[str, Sequence[float]],
    order: Sequence[str],
    reference: str | None,
    *,
    margin: float,
) -> Iterator[EvidenceRow]:
    quartiles = {arm: _quartiles(numbers) for arm, numbers in by_arm.items()}
    for arm in order:
        if arm not in quartiles:
            continue
        low, middle, high = quartiles[arm]
        moved = None
        if reference in quartiles and arm != reference:
            moved = _moved(quartiles[arm], quartiles[reference], margin=margin)
        yield EvidenceRow(
            arm,
            condition,
            metric,
            unit,
            middle,
            low,
            high,
            len(by_arm[arm]),
            is_response,
            arm == reference,
            moved,
        )


def _quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = np.quantile(np.asarray(numbers, dtype=float), (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def _moved(
    here: tuple[float, float, float], reference: tuple[float, float, float], *, margin: float
) -> str | None:
    if here[0] > reference[2] and here[1] - reference[1] > margin * abs(reference[1]):
        return "up"
    if here[2] < reference[0] and reference[1] - here[1] > margin * abs(reference[1]):
        return "down"
    return None
