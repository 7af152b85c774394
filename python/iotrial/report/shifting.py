"""Effects of which later blocks say something else than earlier ones have left.

The interval is what no look has excluded, so an effect that is not the same all the time is driven to an end of it: the
candidate that the blocks speak least against lies outside, and the end is as near as it may come. The interval is then
narrower than one number deserves. Told, never judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from iotrial.analysis.model import Effect
from iotrial.report.conditions import Conditions
from iotrial.report.notation import counted, joined
from iotrial.report.phrases import level_name

#: of the width of an interval: as near to an end is at it
_NEAR = 1e-3
_MOST_NAMED = 3


def at_an_end(value: float | None, low: float | None, high: float | None) -> bool:
    """Whether an estimate is one of its interval's ends; never of an interval without width, or without two ends."""
    if value is None or low is None or high is None or not low < high:
        return False
    return min(value - low, high - value) <= _NEAR * (high - low)


def on_shifting(effects: Sequence[Effect], conditions: Conditions) -> str | None:
    """One sentence on all such effects; None where there is none."""
    found = [effect for effect in effects if at_an_end(effect.value, effect.low, effect.high)]
    if not found:
        return None
    named = []
    for effect in found[:_MOST_NAMED]:
        where = conditions.of_levels(effect.condition, effect.workload).text
        named.append(level_name(effect) + (f" ({where})" if where else ""))
    if len(found) > _MOST_NAMED:
        named.append(f"{len(found) - _MOST_NAMED} more")
    return (
        f"In {counted(len(found), 'comparison')} later blocks say more, or less, than earlier ones have left open: "
        f"{joined(named)}. The effect was not the same all the time there, and the interval is too narrow for one number: "
        "look at the runs over time."
    )
