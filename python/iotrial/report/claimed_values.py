"""Published values held against what was counted here: a count is right or it is not, and by how much is said.

Compared is the median of all runs at the claim's level; its quartiles are the same number where a program does the same thing
every time.
"""

from __future__ import annotations

from collections.abc import Sequence

from iotrial.legible import shown
from iotrial.report.claims import NOT_MEASURED, HeldClaim, Outcome, unjudged
from iotrial.report.comparable import Setup, mismatches, not_run
from iotrial.report.evidence import EvidenceRow
from iotrial.study.model import Claim


def hold_value(
    claim: Claim, evidence: Sequence[EvidenceRow], *, valid: bool, setup: Setup | None = None
) -> tuple[HeldClaim, ...]:
    """The claim against every condition that it may mean; one entry that says so where there is none."""
    rows = [row for row in evidence if _speaks_of(claim, row)]
    if not rows:
        why = (setup and not_run(claim, setup.study)) or "this trial has no such runs"
        return (unjudged(claim, (shown(claim.cannot), why), NOT_MEASURED),)
    if setup is None:
        return tuple(_against(claim, row, valid=valid) for row in rows)
    unlike = [mismatches(claim, setup, row.condition.levels, row.condition.workload) for row in rows]
    if all(unlike):
        return (unjudged(claim, min(unlike, key=len)),)
    pairs = zip(rows, unlike, strict=True)
    return tuple(_against(claim, row, valid=valid) for row, reasons in pairs if not reasons)


def _speaks_of(claim: Claim, row: EvidenceRow) -> bool:
    here = {**row.condition.levels, "workload": row.condition.workload}
    return (
        row.is_response
        and row.metric == claim.response
        and row.condition.workload == claim.workload
        and row.treatment == claim.level
        and all(here.get(name) == label for name, label in claim.condition.items())
    )


def _against(claim: Claim, row: EvidenceRow, *, valid: bool) -> HeldClaim:
    assert claim.value is not None
    here = f"{_count(row.value)} in the median of {row.runs} runs"
    if row.low == row.high:
        here = f"{_count(row.value)} in {row.runs} runs"
    difference = row.value - claim.value
    if not valid:
        return _held(claim, row, Outcome.CANNOT_SAY, "the trial is invalid", here)
    if difference == 0:
        return _held(claim, row, Outcome.CONFIRMED, "the same number", here)
    if difference > 0:
        return _held(claim, row, Outcome.LARGER, f"{_count(difference)} more", here)
    return _held(claim, row, Outcome.SMALLER, f"{_count(-difference)} fewer", here)


def _held(claim: Claim, row: EvidenceRow, outcome: Outcome, why: str, here: str) -> HeldClaim:
    published = f"{_count(claim.value or 0.0)} {shown(claim.response or '')} ({shown(claim.factor)} {shown(claim.level)})"
    return HeldClaim(claim, row.condition, claim.response, None, None, None, outcome, why, published, here)


def _count(value: float) -> str:
    """In full: rounded, two counts that differ would look the same."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
