"""How long must a washout be? Blocks without one show the course of the metric after a switch.

A pilot is a live trial with a washout of zero and long windows. Its proposal comes from the course after each kind of
switch (``stats.switchback.proposed_washout``), and says nothing about which setting is better: that is left to a trial of its
own, on other windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from iotrial.stats.switchback import FEWEST_SWITCHES, possible_error, proposed_washout
from iotrial.store.checks import LEAD_IN, WINDOW
from iotrial.store.model import TrialData
from iotrial.study.scales import Scale

#: blocks of a pilot with two settings: enough for four switches of each kind, but for an unlikely draw
BLOCKS = 12
#: mean error that is left in a window, as a part of the margin
_SHARE = 0.2
_Series = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposed washout in seconds, infinite if the pilot's windows were too short, and what it may overlook.

    ``possible_error``: the largest error of a window after it that the pilot does not exclude, on the metric's scale of
    comparison (natural logarithm, or the metric's unit).
    """

    washout_s: float
    possible_error: float


def proposal(data: TrialData, *, counted_s: float) -> Proposal | None:
    """Return the proposed washout, in whole seconds; None with too few switches."""
    header = data.trial.header
    tolerance = _SHARE * math.log1p(header.margin)
    series: list[_Series] = []
    kinds: list[tuple[str, str]] = []
    for kind, one in _switches(data):
        series.append(one)
        kinds.append(kind)
    kept = [place for place, kind in enumerate(kinds) if kinds.count(kind) >= FEWEST_SWITCHES]
    if not kept:
        return None
    series, kinds = [series[place] for place in kept], [kinds[place] for place in kept]
    found = proposed_washout(series, kinds, counted_s=counted_s, tolerance=tolerance)
    if math.isinf(found):
        return Proposal(math.inf, math.inf)
    washout_s = float(math.ceil(found))
    return Proposal(washout_s, possible_error(series, kinds, washout_s=washout_s, counted_s=counted_s))


def _switches(data: TrialData) -> Iterator[tuple[tuple[str, str], _Series]]:
    """Yield each switch that is not void: from and to which arm, and the judged metric since, on its scale of comparison."""
    response = data.trial.header.study.responses[0]
    void = {(block.condition, block.index) for block in data.blocks if block.void is not None}
    before = ""
    led = False
    for run in data.runs:
        kept = run.checks.get(WINDOW)
        lead_in = kept.get(LEAD_IN) if isinstance(kept, dict) else None
        lead_in = lead_in if isinstance(lead_in, str) else None
        led = led or lead_in is not None
        # earlier versions had today's settings between blocks, and no lead-in
        kind = (lead_in or (before if run.slot or led else ""), run.arm)
        before = run.arm
        if (run.condition, run.block) in void or not isinstance(kept, dict):
            continue
        switched_s = float(kept["switched_s"])
        pairs = zip(kept["at_s"], kept[response.name], strict=True)
        found = [
            (at - switched_s, math.log(value) if response.scale is Scale.LOG else value)
            for at, value in pairs
            if value is not None and (value > 0.0 or response.scale is not Scale.LOG)
        ]
        if len(found) > 1:
            yield kind, found
