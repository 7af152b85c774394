"""Evidence: what else changed with the treatment, as medians, and which metrics moved.

Every metric that runs carry (responses first, then counters) has one median per treatment and condition, over the runs
of complete blocks that are neither void nor failed. A metric *moved* with a level if both hold: the blocks distinguish
it from the reference by the e-process, at the trial's alpha shared by e-BH over all metrics, levels and conditions of
the table; and the medians differ by more than the margin (or one of them is zero). What moved most clearly comes first.
This is exploratory: it suggests a mechanism, it is not a verdict.

System calls of accounted repetitions are metrics too: how many, how many failed, how long they took. A program makes
dozens of different calls, most of them at start-up. Shown are only calls with different counts or errors in the arms
of a condition, and those that took most of the time.

Requests of accounted repetitions are metrics too: how many of each kind, and how long they took. A percentile covers
the requests of all repetitions together. It is the upper end of a bucket of a histogram with four buckets per octave,
so the actual time is at most a quarter shorter. With fewer than a hundred requests there is no percentile 99.

In a screening design, evidence is by level of each factor instead of by row, since a single row has no meaning. The
value at a level is the mean, over the rows at that level, of each row's median. It *moved* by the same test as a
treatment: the contrast of a block is the mean over the rows at the level minus the mean over those at the reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.documents import Unbounded
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.findings import row_label
from iotrial.report.metrics import is_accounted_request, is_counter, unit_of
from iotrial.stats.ebh import movements
from iotrial.stats.model import Effect
from iotrial.store.loading import columns, shape_of
from iotrial.store.model import AccountedCall, AccountedRequests, RunRecord, TrialData
from iotrial.study.model import MEAN, TYPICAL, Factor, Study

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
#: calls of a condition that are shown because of their time alone
LONGEST = 5
ALL = "all"
_TIME = "accounted_time."

Repetition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AccountedNumber:
    """One number of one repetition.

    ``metric``: ``accounted_calls.NAME`` (``.all`` for their sum), ``accounted_errors.NAME``, ``accounted_time.NAME`` in
    seconds, from entry to return, including waiting.
    """

    condition: str
    arm: str
    metric: str
    value: float


def accounted_numbers(calls: Sequence[AccountedCall], arms: Container[str]) -> Iterator[AccountedNumber]:
    """Yield the numbers to show for these arms."""
    conditions: dict[str, list[AccountedCall]] = {}
    for call in calls:
        if call.arm in arms:
            conditions.setdefault(call.condition, []).append(call)
    for condition, own in conditions.items():
        yield from _of_condition(condition, own)


def is_marked(metric: str) -> bool:
    """Return whether non-overlapping numbers of arms mean more than chance: counts repeat exactly, times do not."""
    return not metric.startswith(_TIME)


def _of_condition(condition: str, calls: Sequence[AccountedCall]) -> Iterator[AccountedNumber]:
    found = {(call.arm, call.repetition, call.name): call for call in calls}
    repetitions = list(dict.fromkeys((call.arm, call.repetition) for call in calls))
    for arm, repetition in repetitions:
        total = sum(call.count for call in calls if (call.arm, call.repetition) == (arm, repetition))
        yield AccountedNumber(condition, arm, f"accounted_calls.{ALL}", float(total))
    for name in _shown(calls, repetitions):
        failed = any(_errors(call) for call in calls if call.name == name)
        for arm, repetition in repetitions:
            call = found.get((arm, repetition, name))
            yield AccountedNumber(condition, arm, f"accounted_calls.{name}", call.count if call else 0.0)
            if failed:
                yield AccountedNumber(
                    condition, arm, f"accounted_errors.{name}", _errors(call) if call else 0.0
                )
            seconds = call.total_ns / 1e9 if call else 0.0
            yield AccountedNumber(condition, arm, f"{_TIME}{name}", seconds)


def _shown(calls: Sequence[AccountedCall], repetitions: Sequence[Repetition]) -> list[str]:
    names = sorted({call.name for call in calls})
    times = {name: sum(call.total_ns for call in calls if call.name == name) for name in names}
    longest = sorted(names, key=lambda name: -times[name])[:LONGEST]
    return [name for name in names if name in longest or _differs(name, calls, repetitions)]


def _differs(name: str, calls: Iterable[AccountedCall], repetitions: Sequence[Repetition]) -> bool:
    """Return whether the median count, or the median number of errors, differs between arms."""
    own = {(call.arm, call.repetition): call for call in calls if call.name == name}
    medians = set()
    for arm in {arm for arm, _ in repetitions}:
        mine = [own.get(key) for key in repetitions if key[0] == arm]
        medians.add(
            (
                median(call.count if call else 0 for call in mine),
                median(_errors(call) if call else 0 for call in mine),
            )
        )
    return len(medians) > 1


def _errors(call: AccountedCall) -> int:
    return sum(call.errors.values())


COUNT = "accounted_requests"
#: percentiles: metric name, and the share of requests that took no longer
SHARES = {"accounted_request_p50": 0.5, "accounted_request_p99": 0.99}
#: in the probe's spelling
KINDS = ("read", "write", "flush", "discard", "other")


def request_numbers(requests: Sequence[AccountedRequests], arms: Container[str]) -> Iterator[AccountedNumber]:
    """Yield the numbers of these arms.

    ``accounted_requests.KIND`` of each repetition; ``accounted_request_p50.KIND`` and ``accounted_request_p99.KIND`` in
    seconds, from issue to completion.
    """
    conditions: dict[str, list[AccountedRequests]] = {}
    for one in requests:
        if one.arm in arms:
            conditions.setdefault(one.condition, []).append(one)
    for condition, own in conditions.items():
        repetitions = list(dict.fromkeys((one.arm, one.repetition) for one in own))
        for kind in KINDS:
            of_kind = [one for one in own if one.kind == kind]
            if of_kind:
                yield from _of_kind(condition, kind, of_kind, repetitions)


def _of_kind(
    condition: str, kind: str, own: Sequence[AccountedRequests], repetitions: Sequence[tuple[str, int]]
) -> Iterator[AccountedNumber]:
    counts = {(one.arm, one.repetition): one.count for one in own}
    bars: dict[str, Counter[int]] = {}
    for one in own:
        for end_ns, count in one.histogram:
            bars.setdefault(one.arm, Counter())[end_ns] += count
    for arm, repetition in repetitions:
        yield AccountedNumber(condition, arm, f"{COUNT}.{kind}", float(counts.get((arm, repetition), 0)))
    for arm, histogram in bars.items():
        table = np.asarray(sorted(histogram.items()), dtype=np.float64)
        for name, share in SHARES.items():
            if histogram.total() >= round(1 / (1 - share)):  # with fewer requests it is just the longest time
                time_s = histogram_quantile(table[:, 0], table[:, 1], share) / 1e9
                yield AccountedNumber(condition, arm, f"{name}.{kind}", time_s)


@dataclass(frozen=True, slots=True)
class Measured:
    """The values of one metric in the runs of one arm, in order of time, with the block of each run."""

    blocks: Counts
    values: Floats

    def by_block(self) -> tuple[Counts, Floats]:
        """Return the blocks in ascending order and the value of each; repeats within a block are averaged."""
        blocks, first, counts = np.unique(self.blocks, return_index=True, return_counts=True)
        if counts.size == 0 or counts.max() == 1:
            return blocks, self.values[first]
        order = np.argsort(self.blocks, kind="stable")
        repeats = np.split(self.values[order], np.cumsum(counts)[:-1])
        return blocks, np.array([math.fsum(one) / len(one) for one in repeats])


ByArm = Mapping[str, Measured]


@dataclass(frozen=True, slots=True)
class Median:
    """One median of one treatment, with its quartiles ``low`` and ``high``. ``group``: rows that share a reference (a factor,
    if rows are levels)."""

    treatment: str
    metric: Annotated[
        str,
        Meta(
            description="accounted_...: of repetitions that were traced, and not timed, after the last block; "
            "accounted_requests.KIND is how many requests the lab's device was given, accounted_request_p50.KIND and "
            "accounted_request_p99.KIND how long they took at most."
        ),
    ]
    unit: str
    value: Annotated[
        Unbounded,
        Meta(
            description="Median over the runs that count, or over accounted repetitions; latencies of requests are of all of "
            "these together."
        ),
    ]
    low: float
    high: float
    runs: int
    is_response: bool
    is_reference: bool
    moved: Annotated[
        str | None,
        Meta(
            description="Differs from the reference by e-BH over the whole table, and by more than the margin. Exploratory."
        ),
    ] = None
    e_value: Annotated[
        Unbounded,
        Meta(description="Evidence of the blocks against no change; 1 for the reference."),
    ] = 1.0
    group: str = ""
    mean: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow(Median):
    """A median, and the condition in which it was measured."""

    condition: ConditionText


@dataclass(frozen=True, slots=True)
class Typical:
    """The response at one level, in ``unit``: the median of its runs, or their mean if means are compared.

    ``low`` and ``high`` are the quartiles; None for a mean over runs or over several treatments. ``rate``: bytes or
    operations per second with the unit, if they are known.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    rate: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class TypicalValues:
    """Looks up the response at a level in the evidence. ``arms``: the level of each factor, by treatment."""

    rows: Mapping[tuple[str, str], Sequence[EvidenceRow]]
    arms: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, data: TrialData, evidence: Sequence[EvidenceRow]) -> TypicalValues:
        """Index the evidence of a trial by condition key and metric."""
        rows: dict[tuple[str, str], list[EvidenceRow]] = {}
        for row in evidence:
            rows.setdefault((row.condition.key, row.metric), []).append(row)
        return cls(rows, {run.arm: run.treatment for run in data.runs})

    def at(
        self, condition: str, effect: Effect, label: str, other: tuple[str, str] | None = None
    ) -> Typical | None:
        """Return the response of an effect at the level ``label`` of its factor, None if it was not measured.

        ``other``: only where another factor has this level (name and label).
        """
        if effect.kind != "main" or effect.statistic not in (TYPICAL, MEAN):
            return None
        found = self._of_level(condition, effect.response, effect.factor, label, other)
        if not found:
            return None
        mean = effect.statistic == MEAN
        values = [row.mean if mean else row.value for row in found]
        if not all(map(math.isfinite, values)):
            return None
        alone = len(found) == 1 and not mean and not found[0].group
        low, high = (found[0].low, found[0].high) if alone else (None, None)
        value = math.fsum(values) / len(values)
        return Typical(value, low, high, effect.unit, self._rate(condition, effect, label, value, other))

    def _of_level(
        self, condition: str, metric: str, factor: str, label: str, other: tuple[str, str] | None
    ) -> list[EvidenceRow]:
        rows = self.rows.get((condition, metric), ())
        if any(row.group for row in rows):  # by level: there are no rows of cells
            name = row_label(factor, label)
            return [row for row in rows if row.treatment == name and other is None]
        wanted = {(factor, label), *([other] if other else [])}
        return [row for row in rows if wanted <= self.arms.get(row.treatment, {}).items()]

    def _rate(
        self, condition: str, effect: Effect, label: str, time: float, other: tuple[str, str] | None
    ) -> tuple[float, str] | None:
        """Return the rate that runs recorded, else the bytes read or written, whichever are more, by the time of the run.

        Their sum would count a copy twice, and what comes from /dev/zero or through a pipe.
        """
        if effect.unit != "s" or time <= 0:
            return None
        if rates := self._of_level(condition, "rate", effect.factor, label, other):
            return math.fsum(row.value for row in rates) / len(rates), rates[0].unit
        moved = 0.0
        for metric in ("work_read_bytes", "work_written_bytes"):
            if rows := self._of_level(condition, metric, effect.factor, label, other):
                moved = max(moved, math.fsum(row.value for row in rows) / len(rows))
        return (moved / time, "bytes/s") if effect.response == "wall" and moved >= _LEAST_BYTES else None


#: with fewer bytes, most of them are the program's own libraries
_LEAST_BYTES = 2.0**20


def gather(data: TrialData, conditions: Conditions, *, margin: float) -> tuple[EvidenceRow, ...]:
    """Return all medians.

    They are ordered by condition, metric (responses first, then by how clearly it moved) and treatment (reference
    first).
    """
    study = data.trial.header.study
    arms, values = measured_by_arm(data)
    order = arm_order(study, arms)
    reference = next((arm for arm in order if is_reference(study, arms[arm])), None)
    rows: list[EvidenceRow] = []
    contrasts: dict[tuple[str, str, str], Floats] = {}
    for (key, metric), accounted in _accounted(data, arms).items():
        own = list(_rows(conditions.of_key(key), metric, unit_of(metric), False, accounted, order, reference))
        rows.extend(_apart(own, margin) if is_marked(metric) and not is_accounted_request(metric) else own)
    for condition, metric, unit, is_response, by_arm in _metrics(study, conditions, values):
        rows.extend(_rows(condition, metric, unit, is_response, by_arm, order, reference))
        if reference is None or reference not in by_arm:
            continue
        for arm in by_arm:
            if arm != reference:
                contrasts[condition.key, metric, arm] = _differences(by_arm[arm], by_arm[reference])
    metrics = [*(metric for _, metric in values), *(row.metric for row in rows)]
    return marked(rows, contrasts, data.trial.header.alpha, margin, metrics, order)


def measured_by_arm(
    data: TrialData,
) -> tuple[dict[str, Mapping[str, str]], dict[tuple[str, str], dict[str, Measured]]]:
    """Return the treatment of each arm, and the values of valid runs by condition, metric and arm.

    Conditions and metrics are in the order in which they were first measured.
    """
    arms: dict[str, Mapping[str, str]] = {}
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    values: dict[tuple[str, str], dict[str, Measured]] = {}
    shapes: set[tuple[object, ...]] = set()
    treatment = ArmKind.TREATMENT.value
    for run in sound_runs(data):
        if run.kind != treatment:
            continue
        arms.setdefault(run.arm, run.treatment)
        groups.setdefault((run.condition, run.arm), []).append(run)
        shape = (run.condition, shape_of(run.evidence), *run.responses)
        if shape not in shapes:
            shapes.add(shape)
            for metric in (*run.responses, *run.evidence):
                values.setdefault((run.condition, metric), {})
    for (condition, arm), runs in groups.items():
        blocks: Counts = np.array([run.block for run in runs], dtype=np.intp)
        counted = columns([run.evidence for run in runs])
        for found in (columns([run.responses for run in runs]), counted):
            for metric, (places, numbers) in found.items():
                by_arm = values[condition, metric]
                before = by_arm.get(arm)
                own = Measured(blocks[places], numbers)
                by_arm[arm] = own if before is None else _both(before, own)
    return arms, values


def _both(one: Measured, other: Measured) -> Measured:
    return Measured(np.concatenate([one.blocks, other.blocks]), np.concatenate([one.values, other.values]))


def _accounted(
    data: TrialData, arms: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], dict[str, Measured]]:
    """Return system calls and requests of the accounted repetitions, which belong to no block."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in (*accounted_numbers(data.calls, arms), *request_numbers(data.requests, arms)):
        values.setdefault((one.condition, one.metric), {}).setdefault(one.arm, []).append(one.value)
    return {
        key: {
            arm: Measured(np.zeros(len(numbers), dtype=np.intp), np.array(numbers, dtype=np.float64))
            for arm, numbers in by_arm.items()
        }
        for key, by_arm in values.items()
    }


def _apart(rows: Sequence[EvidenceRow], margin: float) -> Iterator[EvidenceRow]:
    """Mark rows that have no blocks and too few repetitions for a test.

    They moved if the interquartile ranges do not overlap.
    """
    reference = next((row for row in rows if row.is_reference), None)
    for row in rows:
        way = None
        if reference is not None and row is not reference:
            higher, lower = row.low > reference.high, row.high < reference.low
            way = _way(row.value, reference.value, float(higher) - float(lower), margin)
        yield replace(row, moved=way)


def _metrics(
    study: Study, conditions: Conditions, values: Mapping[tuple[str, str], ByArm]
) -> Iterator[tuple[ConditionText, str, str, bool, ByArm]]:
    """Yield each metric of each condition with its unit, whether it is a response, and its values.

    A counter of the accounting that was zero in every run is left out.
    """
    units = {(response.workload, response.name): response.unit for response in study.responses}
    for (key, metric), by_arm in values.items():
        condition = conditions.of_key(key)
        unit = units.get((condition.workload, metric))
        if unit is not None:
            yield condition, metric, unit, True, by_arm
        elif not is_counter(metric) or any(one.values.any() for one in by_arm.values()):
            yield condition, metric, unit_of(metric), False, by_arm


def marked(
    rows: Sequence[EvidenceRow],
    contrasts: Mapping[tuple[str, str, str], Floats],
    alpha: float,
    margin: float,
    metrics: Sequence[str],
    order: Sequence[str],
) -> tuple[EvidenceRow, ...]:
    """Return the rows with their marks, in order. ``contrasts`` are keyed by condition key, metric and treatment."""
    found = movements(contrasts, alpha)
    references = {(row.condition.key, row.metric, row.group): row.value for row in rows if row.is_reference}
    judged = []
    for row in rows:
        key = (row.condition.key, row.metric, row.treatment)
        reference = references.get((row.condition.key, row.metric, row.group))
        e_value, discovery = found.get(key, (1.0, False))
        way = row.moved if key not in contrasts else None
        if discovery and reference is not None:
            way = _way(row.value, reference, float(contrasts[key].mean()), margin)
        judged.append(replace(row, moved=way, e_value=e_value))
    clear: dict[tuple[str, str], tuple[float, float]] = {}
    for row in judged:
        place = (row.condition.key, row.metric)
        clear[place] = max(clear.get(place, (0.0, 0.0)), _clearness(row, contrasts))
    first = {metric: position for position, metric in reversed(list(enumerate(metrics)))}
    judged.sort(
        key=lambda r: (
            r.condition.order,
            not r.is_response,
            (0.0, 0.0) if r.is_response else tuple(-part for part in clear[r.condition.key, r.metric]),
            first[r.metric],
            order.index(r.treatment),
        )
    )
    return tuple(judged)


def sound_runs(data: TrialData) -> Iterator[RunRecord]:
    """Yield the valid runs: in complete blocks, not void, not failed."""
    sound = {(block.condition, block.index) for block in data.blocks if block.void is None}
    return (run for run in data.runs if run.failure is None and (run.condition, run.block) in sound)


def arm_order(study: Study, arms: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the treatments with the reference first, then in the order in which the study declares the levels."""
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
    """Return whether this treatment has every factor at its reference."""
    return all(treatment.get(factor.name) == factor.reference for factor in study.treatment_factors)


def _rows(
    condition: ConditionText,
    metric: str,
    unit: str,
    is_response: bool,
    by_arm: ByArm,
    order: Sequence[str],
    reference: str | None,
) -> Iterator[EvidenceRow]:
    for arm in order:
        if arm not in by_arm:
            continue
        numbers = by_arm[arm].values
        low, middle, high = np.quantile(numbers, (0.25, 0.5, 0.75))
        yield EvidenceRow(
            arm,
            metric,
            unit,
            float(middle),
            float(low),
            float(high),
            len(numbers),
            is_response,
            arm == reference,
            mean=float(numbers.mean()),
            condition=condition,
        )


def _differences(here: Measured, reference: Measured) -> Floats:
    """Return one difference per block that holds both, in time order; repeats within a block are averaged."""
    own, values = here.by_block()
    others, base = reference.by_block()
    _, left, right = np.intersect1d(own, others, assume_unique=True, return_indices=True)
    return values[left] - base[right]


def _way(value: float, reference: float, mean: float, margin: float) -> str | None:
    if value - reference > margin * abs(reference) and mean > 0:
        return "up"
    return "down" if reference - value > margin * abs(reference) and mean < 0 else None


def _clearness(row: EvidenceRow, contrasts: Mapping[tuple[str, str, str], Floats]) -> tuple[float, float]:
    """Return how clearly a row moved: its mean difference in units of the scatter between blocks, then the e-value.

    The e-value comes second because it is nearly the same for all metrics without overlapping values.
    """
    if row.moved is None:
        return 0.0, 0.0
    if (row.condition.key, row.metric, row.treatment) not in contrasts:
        return 0.0, 1.0  # before metrics that did not move, after those tested by blocks
    values = contrasts[row.condition.key, row.metric, row.treatment]
    scatter = float(values.std())
    return min(abs(float(values.mean())) / scatter, 1e6) if scatter else 1e6, row.e_value


_ROUNDING = 1e-12  # relative to the sum of magnitudes: smaller differences count as zero


def gather_by_level(data: TrialData, conditions: Conditions, *, margin: float) -> tuple[EvidenceRow, ...]:
    """Return all means.

    They are ordered by condition, metric (responses first, then by how clearly it moved), factor and level (reference
    first).
    """
    study = data.trial.header.study
    arms, values = measured_by_arm(data)
    rows: list[EvidenceRow] = []
    contrasts: dict[tuple[str, str, str], Floats] = {}
    masks: dict[tuple[str, ...], list[tuple[Factor, dict[str, Flags]]]] = {}
    for condition, metric, unit, is_response, by_arm in _metrics(study, conditions, values):
        table, medians = _table(by_arm)
        names = tuple(by_arm)
        if names not in masks:
            masks[names] = [
                (factor, _masks(factor, [arms[arm] for arm in names])) for factor in study.treatment_factors
            ]
        for factor, of_factor in masks[names]:
            own, differences = _of_factor(
                condition, metric, unit, factor, of_factor, table, medians, is_response
            )
            rows += own
            contrasts |= {(condition.key, metric, level): found for level, found in differences.items()}
    metrics = [metric for _, metric in values]
    return marked(rows, contrasts, data.trial.header.alpha, margin, metrics, list(_places(study)))


def _places(study: Study) -> dict[str, int]:
    names = [
        row_label(factor.name, label)
        for factor in study.treatment_factors
        for label in (factor.reference, *factor.others)
    ]
    return {name: place for place, name in enumerate(names)}


def _table(by_arm: Mapping[str, Measured]) -> tuple[Floats, Floats]:
    """Return blocks by arms (repeats averaged, NaN if an arm has no valid run), and each arm's median."""
    blocks = np.unique(np.concatenate([one.blocks for one in by_arm.values()]))
    table = np.full((len(blocks), len(by_arm)), np.nan)
    for column, one in enumerate(by_arm.values()):
        own, values = one.by_block()
        table[np.searchsorted(blocks, own), column] = values
    medians: Floats = np.array([float(np.median(one.values)) for one in by_arm.values()])
    return table, medians


def _masks(factor: Factor, treatments: Sequence[Mapping[str, str]]) -> dict[str, Flags]:
    """Return, by level of a factor, the reference first, which of the arms have it."""
    return {
        label: np.array([treatment.get(factor.name) == label for treatment in treatments])
        for label in (factor.reference, *factor.others)
    }


def quartiles(values: Floats) -> tuple[float, float]:
    """Return what ``np.quantile(values, (0.25, 0.75))`` returns, to the last digit, in a tenth of its time for few values."""
    ordered = sorted(values.tolist())
    found = []
    for share in (0.25, 0.75):
        position = share * (len(ordered) - 1)
        below = int(position)
        low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
        part = position - below
        # numpy interpolates from the nearer end
        found.append(high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part)
    return found[0], found[1]


def _of_factor(
    condition: ConditionText,
    metric: str,
    unit: str,
    factor: Factor,
    masks: Mapping[str, Flags],
    table: Floats,
    medians: Floats,
    is_response: bool,
) -> tuple[list[EvidenceRow], dict[str, Floats]]:
    """Return the rows of a factor's levels, and the contrasts of each level except the reference.

    ``masks``: by level, which arms have it.
    """
    reference = masks[factor.reference]
    rows, contrasts = [], {}
    for label, mask in masks.items():
        if not mask.any():
            continue
        name = row_label(factor.name, label)
        if label != factor.reference and reference.any():
            contrasts[name] = _level_differences(table, mask, reference)
        of_level = medians[mask]
        low, high = quartiles(of_level)
        rows.append(
            EvidenceRow(
                name,
                metric,
                unit,
                float(of_level.mean()),
                low,
                high,
                int(np.isfinite(table[:, mask]).sum()),
                is_response,
                label == factor.reference,
                group=factor.name,
                condition=condition,
            )
        )
    return rows, contrasts


def _level_differences(table: Floats, mask: Flags, reference: Flags) -> Floats:
    """Return one difference per block that holds every row, in time order.

    Means over rows are not exact in binary, so differences of the size of rounding errors are set to zero.
    """
    sound = ~np.isnan(table[:, mask | reference]).any(axis=1)
    here, there = table[sound][:, mask], table[sound][:, reference]
    difference: Floats = here.mean(axis=1) - there.mean(axis=1)
    size = np.abs(here).mean(axis=1) + np.abs(there).mean(axis=1)
    return np.where(np.abs(difference) > _ROUNDING * size, difference, 0.0)


def histogram_quantile(latency_ns: Floats, counts: Floats, share: float) -> float:
    """Return the latency that ``share`` of the operations do not exceed.

    ``latency_ns`` is ascending, with the count of each.
    """
    running = np.cumsum(counts)
    position = int(np.searchsorted(running, share * running[-1], side="left"))
    return float(latency_ns[min(position, latency_ns.size - 1)])
