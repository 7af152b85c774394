"""Why a trial is invalid, in sentences: the likely reasons, the most likely first, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iotrial.analysis.model import Analysis
from iotrial.analysis.reasons import Reason
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.notation import counted, joined

_MOST = 3


def reason_sentences(analysis: Analysis, reasons: Sequence[Reason], conditions: Conditions) -> Iterator[str]:
    """What stands beside the sentence that says that a trial is invalid."""
    for place, reason in enumerate(reasons[:_MOST]):
        lead = "Likely reason" if place == 0 else "Or"
        text, remedy = shown(reason.text), shown(reason.remedy)
        yield f"{lead}: {text}{_where(reason, conditions)}. What to do: {remedy}."
    failed = sum(not control.passed for control in analysis.controls)
    if not reasons and failed:
        yield (
            "Nothing that was recorded explains it. Run the study again with a new seed: one sound trial in a thousand "
            "fails its controls by chance. If it fails again, something that is not recorded differs between the arms."
        )
    # The analysis gives one reason for each failed control, then for each carry-over, said already, then the others.
    carried = sum(not one.passed for one in analysis.carry_over)
    if failed and (others := analysis.invalid_reasons[failed + carried :]):
        yield f"Also: {joined(shown(reason) for reason in others)}."
    yield "Effects below are shown for the search of the cause; they are no verdicts."


def _where(reason: Reason, conditions: Conditions) -> str:
    if not reason.condition:
        return ""
    where = conditions.of_levels(reason.condition, reason.condition.get("workload", "")).text
    more = f"; found for {counted(reason.controls, 'failed control')}" if reason.controls > 1 else ""
    return f" ({where}{more})" if where else ""
