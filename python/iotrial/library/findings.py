"""Results of a trial other than effects: published claims compared with it, and evidence of what else moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from iotrial.library.table import Column, Table, copied, fields
from iotrial.report.claims import HeldClaim
from iotrial.report.evidence import EvidenceRow, Median
from iotrial.report.metrics import words_of
from iotrial.report.phrases import amount

Claim = HeldClaim


class Claims(Table[Claim]):
    """The claims that a study names, each compared with the results for its conditions."""

    noun = "claim"
    heads = ("published", "here", "outcome", "why")

    def _cells(self, row: Claim) -> tuple[str, ...]:
        return row.published, row.here, row.outcome.value, row.why

    def _columns(self) -> list[Column[Claim]]:
        return [
            *fields("text", "source", "text", "published", "here"),
            *fields("number", "ratio", "low", "high"),
            Column("outcome", "label", lambda one: one.outcome.value),
            Column("why", "text", lambda one: one.why),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Median):
    """One metric under one treatment and condition: its median in ``unit`` over the ``runs`` that count, and the quartiles.

    ``reference_median`` is the median under the reference treatment (the old value; None if it has none).
    ``moved`` is "up" or "down" relative to the reference if the blocks distinguish it from the reference and
    the medians differ by more than the margin; ``e_value`` is the blocks' evidence against no change.
    Exploratory: no verdict.
    """

    condition: Mapping[str, str]
    workload: str
    reference_median: float | None

    @property
    def words(self) -> str:
        """The metric in words."""
        return words_of(self.metric)

    @property
    def median(self) -> float:
        """The median: ``value``."""
        return self.value


def evidence_of(rows: Iterable[EvidenceRow]) -> Iterator[Evidence]:
    """Convert the rows of a report to evidence."""
    rows = list(rows)
    before = {(one.condition.key, one.metric, one.group): one.value for one in rows if one.is_reference}
    for row in rows:
        yield copied(
            Evidence,
            row,
            condition=dict(row.condition.levels),
            workload=row.condition.workload,
            reference_median=before.get((row.condition.key, row.metric, row.group)),
        )


class EvidenceTable(Table[Evidence]):
    """All medians, responses first, then what moved most clearly."""

    noun = "median"
    heads = ("what", "treatment", "condition", "median", "moved", "runs")

    @property
    def moved(self) -> EvidenceTable:
        """The medians that moved relative to the reference."""
        return self.where(lambda one: one.moved is not None)

    def _cells(self, row: Evidence) -> tuple[str, ...]:
        at = ", ".join(f"{name} {label}" for name, label in row.condition.items())
        place = ", ".join(part for part in (row.workload, at) if part)
        median = amount(row.median, row.unit)
        if row.reference_median is not None and not row.is_reference:
            median = f"{amount(row.reference_median, row.unit)} → {median}"
        return row.words, row.treatment, place, median, row.moved or "", f"{row.runs:,}"

    def _columns(self) -> list[Column[Evidence]]:
        fixed: list[Column[Evidence]] = [
            *fields("label", "metric", "treatment", "workload", "unit"),
            *fields("number", "median", "low", "high", "reference_median"),
            Column("runs", "count", lambda one: one.runs),
            *fields("flag", "is_response", "is_reference"),
            Column("moved", "label", lambda one: one.moved, order=["down", "up"]),
            Column("e_value", "number", lambda one: one.e_value),
        ]
        return self._with_conditions(fixed, at=3)
