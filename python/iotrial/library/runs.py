"""Measurements: every run, and the per-block contrasts on which the effects are based."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from iotrial.library.table import Column, Table, fields, levels_columns, names_in
from iotrial.report.metrics import unit_of
from iotrial.report.notation import plain
from iotrial.report.opening import spec_of
from iotrial.report.phrases import amount
from iotrial.stats.contrast import Responses
from iotrial.stats.model import Finding
from iotrial.study.model import Response, Scale

if TYPE_CHECKING:
    from iotrial.report.document import Document


@dataclass(frozen=True, slots=True)
class Run:
    """One run as measured.

    ``started_s`` is in seconds since the trial began; ``responses`` are in their declared units; ``counters``
    holds what was counted during the run. ``kind`` is "treatment", or "negative" or "positive" for a control.
    ``counted``: it is in a complete block, did not fail, and no void rule discarded its block (``void`` names
    the rule); effects are based on these runs only.
    """

    condition: Mapping[str, str]
    workload: str
    block: int
    slot: int
    arm: str
    kind: str
    treatment: Mapping[str, str]
    started_s: float
    responses: Mapping[str, float]
    counters: Mapping[str, float]
    failure: str | None
    void: str | None
    counted: bool


def runs_of(document: Document) -> Iterator[Run]:
    """Yield all runs in time order."""
    blocks = {(block.condition, block.index): block.void for block in document.data.blocks}
    for run in document.data.runs:
        condition = document.conditions.of_key(run.condition)
        key = (run.condition, run.block)
        void = blocks.get(key)
        yield Run(
            condition=dict(condition.levels),
            workload=condition.workload,
            block=run.block,
            slot=run.slot,
            arm=run.arm,
            kind=run.kind,
            treatment=dict(run.treatment),
            started_s=run.started_s,
            responses=dict(run.responses),
            counters=dict(run.evidence),
            failure=run.failure,
            void=void,
            counted=run.failure is None and key in blocks and void is None,
        )


class Runs(Table[Run]):
    """The runs of a trial in time order. In the data frame every response and every counter has a column."""

    noun = "run"
    heads = ("at", "block", "condition", "arm", "measured", "counted")
    most_shown = 12

    def __init__(
        self,
        rows: Iterable[Run],
        facts: Mapping[str, object] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
        *,
        responses: tuple[Response, ...] = (),
    ) -> None:
        super().__init__(rows, facts, orders)
        self._responses = responses

    def _of(self, rows: Iterable[Run]) -> Self:
        return type(self)(rows, self._facts, self._orders, responses=self._responses)

    def _units(self) -> dict[str, str]:
        """Return the unit of each response; "sequential: bytes/s, random: 1/s" if workloads use different units."""
        found: dict[str, dict[str, str]] = {}
        for one in self._responses:
            found.setdefault(one.name, {})[one.workload] = one.unit
        return {
            name: next(iter(by.values()))
            if len(set(by.values())) == 1
            else ", ".join(f"{workload}: {unit}" for workload, unit in by.items())
            for name, by in found.items()
        }

    def _cells(self, row: Run) -> tuple[str, ...]:
        at = ", ".join((row.workload, *(f"{name} {label}" for name, label in row.condition.items())))
        first = next(iter(row.responses), None)
        units = {one.name: one.unit for one in self._responses if one.workload == row.workload}
        text = row.failure or (
            ""
            if first is None
            else f"{first} {amount(row.responses[first], units.get(first, unit_of(first)))}"
        )
        started = amount(row.started_s, "s")
        return started, str(row.block), at, row.arm, text, "yes" if row.counted else row.void or "no"

    def _columns(self) -> list[Column[Run]]:
        treatments = names_in(one.treatment for one in self)
        conditions = names_in(one.condition for one in self)
        arms = self._orders.get(treatments[0], ()) if len(treatments) == 1 else ()
        fixed: list[Column[Run]] = [
            Column("workload", "label", lambda one: one.workload),
            *fields("count", "block", "slot"),
            Column("arm", "label", lambda one: one.arm, order=arms),
            Column("kind", "label", lambda one: one.kind, order=("treatment", "negative", "positive")),
            Column("started_s", "number", lambda one: one.started_s, unit="s"),
            Column("counted", "flag", lambda one: one.counted),
            Column("void", "label", lambda one: one.void),
            Column("failure", "text", lambda one: one.failure),
        ]
        taken = {column.name for column in fixed}
        labels = [
            *levels_columns("treatment", treatments, taken, lambda one: one.treatment, self._orders),
            *levels_columns("condition", conditions, taken, lambda one: one.condition, self._orders),
        ]
        return [
            *fixed[:5],
            *labels,
            *fixed[5:],
            *_numbers(self, taken, self._units()),
        ]


def _numbers(runs: Iterable[Run], taken: set[str], units: Mapping[str, str]) -> Iterator[Column[Run]]:
    """Yield one column for each response and counter; a name may be a response of one workload and a counter of another."""
    runs = tuple(runs)
    responses = dict.fromkeys(name for one in runs for name in one.responses)
    counters = dict.fromkeys(name for one in runs for name in one.counters)
    for name in {**responses, **counters}:
        title = name if name not in taken else f"value:{name}"
        taken.add(title)

        def of(one: Run, name: str = name) -> float | None:
            return one.responses.get(name, one.counters.get(name))

        yield Column(title, "number", of, units.get(name) or unit_of(name))


@dataclass(frozen=True, slots=True)
class Contrast(Finding):
    """One number of one block: the level compared with the reference, averaged over the other crossed factors.

    ``value`` is the natural logarithm of a ratio if ``scale`` is "log" (``ratio`` is the ratio itself),
    else a difference in ``unit``.
    """

    block: int
    value: float

    @property
    def ratio(self) -> float | None:
        """The block's ratio, or None if responses are compared by difference."""
        return math.exp(self.value) if self.scale is Scale.LOG else None


def contrasts_of(document: Document) -> Iterator[Contrast]:
    """Yield all contrasts on which the primary effects of a trial are based: by effect, each in block order."""
    spec = spec_of(document.trial.header)
    for condition in spec.conditions:
        own = [block for block in document.data.blocks if block.condition == condition.key]
        for response in spec.responses_of(condition, primary=True):
            table = Responses(own, response)
            for term in spec.terms:
                if not term.primary:
                    continue
                found = table.contrasts(term.weights, whole=term.whole)
                for value, block in zip(found.values, found.blocks, strict=True):
                    yield Contrast(
                        kind=term.kind.value,
                        factor=term.factor,
                        level=term.level,
                        reference=term.reference,
                        condition=dict(condition.levels),
                        workload=condition.workload,
                        response=response.name,
                        unit=response.unit,
                        scale=response.scale,
                        better=response.better,
                        block=block,
                        value=value,
                    )


class Contrasts(Table[Contrast]):
    """The contrasts on which primary effects are based: one number per block."""

    noun = "contrast"
    heads = ("comparison", "condition", "response", "block", "ratio or difference")
    most_shown = 12

    def _cells(self, row: Contrast) -> tuple[str, ...]:
        at = ", ".join((row.workload, *(f"{name} {label}" for name, label in row.condition.items())))
        size = plain(row.value) if row.ratio is None else f"{row.ratio:.4g}"
        pair = f"{row.factor} {row.level} : {row.reference}"
        return pair, at, row.response, str(row.block), size

    def _columns(self) -> list[Column[Contrast]]:
        fixed: list[Column[Contrast]] = [
            *fields("label", "factor", "level", "reference", "workload", "response", "unit", "scale"),
            Column("block", "count", lambda one: one.block),
            *fields("number", "value", "ratio"),
        ]
        return self._with_conditions(fixed, at=4)
