"""What a pilot predicts, as lines and as the ``prediction`` of ``plan --json`` (schemas/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iotrial.analysis.forecast import Forecast, Predicted, Range
from iotrial.cli.doctor_view import scatter_json
from iotrial.conduct.pilot import Pilot
from iotrial.legible import shown
from iotrial.report.notation import counted, percent
from iotrial.study.model import Study
from iotrial.units import format_duration, format_percent


def forecast_lines(found: Forecast, pilot: Pilot, study: Study) -> Iterator[str]:
    """The prediction in words: each condition, then the whole trial."""
    yield (
        f"pilot      {counted(pilot.blocks, 'block')} of copies of the reference in {format_duration(pilot.seconds)}, "
        f"after {format_duration(pilot.setup_s)} for making the lab"
    )
    for count, what in ((pilot.void, "void block"), (pilot.failures, "failed run")):
        if count:
            yield f"           {counted(count, what)} in it: look at that first, or the trial will meet it too"
    yield "           its arms were all the same treatment: it says how long, and nothing of the answer"
    yield (
        f"to a verdict for a margin of {format_percent(study.margin)}, where there is no effect: half of the trials "
        "(four of five lie between)"
    )
    for one in found.predicted:
        yield f"  {shown(one.condition)}, {shown(one.response)}" + (f", {one.stratum}" if one.stratum else "")
        yield f"    {_words(one)}"
    yield f"all of them decided: {_range(found.seconds)}"
    yield "           a large effect is decided sooner; one near the margin takes several times as long"


def _words(one: Predicted) -> str:
    if one.reason is not None:
        return f"not predicted: {shown(one.reason)}; give it longer, such as --pilot 1m"
    assert one.scatter is not None
    blocks = one.blocks
    count = (
        "never"
        if blocks.likely is None
        else f"{_whole(blocks.likely)} blocks ({_whole(blocks.low)} to {_whole(blocks.high)})"
    )
    held = ", held up by the positive control" if one.held_up_by else ""
    budget = "nothing" if one.resolvable is None else percent(one.resolvable)
    return (
        f"{_range(one.seconds)}: {count}{held}; a block {format_duration(one.block_s or 0.0)}, "
        f"scatter {percent(one.scatter.sd)}; the budget resolves {budget}"
    )


def _range(found: Range) -> str:
    if found.likely is None:
        return "never" if found.low is None else f"perhaps never, at best {format_duration(found.low)}"
    high = "never" if found.high is None else format_duration(found.high)
    low = "?" if found.low is None else format_duration(found.low)
    return f"{format_duration(found.likely)} ({low} to {high})"


def _whole(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def forecast_json(found: Forecast, pilot: Pilot) -> dict[str, Any]:
    """The same as a JSON object. Seconds of measuring, the making of the lab apart; null: never, or not known."""
    return {
        "pilot": {
            "seconds": pilot.seconds,
            "setup_s": pilot.setup_s,
            "blocks": pilot.blocks,
            "void": pilot.void,
            "failures": pilot.failures,
        },
        "assumes": "no effect; likely is the median, low to high hold four trials of five",
        "seconds": _range_json(found.seconds),
        "conditions": [
            {
                "condition": one.condition,
                "response": one.response,
                "block_s": one.block_s,
                "scatter": None if one.scatter is None else scatter_json(one.scatter),
                "blocks": _range_json(one.blocks),
                "seconds": _range_json(one.seconds),
                "budget_blocks": one.budget_blocks,
                "resolvable": one.resolvable,
                "held_up_by": one.held_up_by,
                "reason": one.reason,
                "stratum": one.stratum,
            }
            for one in found.predicted
        ],
    }


def _range_json(found: Range) -> dict[str, float | None]:
    return {"likely": found.likely, "low": found.low, "high": found.high}
