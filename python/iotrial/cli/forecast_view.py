"""Print a pilot's prediction: as lines, or as the ``prediction`` of ``plan --json``
(schemas/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iotrial.documents import Amount, Count, JsonObject
from iotrial.report.notation import counted, percent
from iotrial.stats.forecast import Forecast, Predicted, Range
from iotrial.study.model import Study
from iotrial.terminal import escape
from iotrial.units import format_duration, format_percent

if TYPE_CHECKING:
    from iotrial.runner.pilot import Pilot


class PilotFacts(JsonObject, frozen=True):
    """What the pilot measured, and what making the lab took."""

    seconds: Amount
    setup_s: Amount
    blocks: Count
    void: Count
    failures: Count


class Prediction(JsonObject, frozen=True, kw_only=True):
    """Seconds of measuring, the making of the lab apart; null: never, or not known."""

    pilot: PilotFacts
    assumes: str = "no effect; likely is the median, low to high hold four trials of five"
    seconds: Range
    conditions: tuple[Predicted, ...]


def forecast_lines(found: Forecast, pilot: Pilot, study: Study) -> Iterator[str]:
    """Format the prediction as text: each condition, then the whole trial."""
    yield (
        f"pilot      {counted(pilot.blocks, 'block')} of copies of the reference in "
        f"{format_duration(pilot.seconds)}, "
        f"after {format_duration(pilot.setup_s)} for making the lab"
    )
    for count, what in ((pilot.void, "void block"), (pilot.failures, "failed run")):
        if count:
            yield f"           {counted(count, what)} in the pilot: find the cause first, or the trial will meet it too"
    yield "           all its arms were the same treatment: it predicts the time, not the answer"
    yield (
        f"to a verdict for a margin of {format_percent(study.margin)}, if there is no effect: median (range of "
        f"four trials of five)"
    )
    for one in found.predicted:
        yield f"  {escape(one.condition)}, {escape(one.response)}" + (
            f", {one.stratum}" if one.stratum else ""
        )
        yield f"    {_words(one)}"
    yield f"all of them decided: {_range(found.seconds)}"
    yield "           a large effect is decided sooner; one near the margin takes several times as long"


def _words(one: Predicted) -> str:
    if one.reason is not None:
        return f"not predicted: {escape(one.reason)}; try a longer pilot, such as --pilot 1m"
    assert one.scatter is not None
    blocks = one.blocks
    count = (
        "never"
        if blocks.likely is None
        else f"{_whole(blocks.likely)} blocks ({_whole(blocks.low)} to {_whole(blocks.high)})"
    )
    held = ", limited by the positive control" if one.held_up_by else ""
    budget = "nothing" if one.resolvable is None else percent(one.resolvable)
    return (
        f"{_range(one.seconds)}: {count}{held}; a block {format_duration(one.block_s or 0.0)}, "
        f"scatter {percent(one.scatter.sd)}; smallest effect the budget can detect: {budget}"
    )


def _range(found: Range) -> str:
    if found.likely is None:
        return "never" if found.low is None else f"perhaps never, at best {format_duration(found.low)}"
    high = "never" if found.high is None else format_duration(found.high)
    low = "?" if found.low is None else format_duration(found.low)
    return f"{format_duration(found.likely)} ({low} to {high})"


def _whole(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def prediction(found: Forecast, pilot: Pilot) -> Prediction:
    """Build the ``prediction`` part of the JSON document."""
    return Prediction(pilot=PilotFacts.of(pilot), seconds=found.seconds, conditions=found.predicted)
