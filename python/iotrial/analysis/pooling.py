"""Whether the mean of an effect over conditions stands for each of them, or hides that they differ.

A mean of .998 and .389 is .623, which is the effect in neither condition. A pooled effect is one effect only where its parts
*agree*:

* some value lies in the intervals of all parts, and each concludes the same direction, so that the mean says
  nothing that is not true of each; or
* ratios: every part's estimate lies within the margin of the pooled estimate;
* differences, which have no margin: some value lies in the intervals of all parts.

This does not show that the parts are the same; it keeps a mean from being printed where they visibly are not.
Where they do not agree the span of the estimates is reported instead, without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.analysis.model import Effect, Span
from iotrial.study.model import Scale


def agree(pooled: Effect, parts: Sequence[Effect]) -> bool:
    """Whether these effects of single conditions agree with the pooled one, by the rule of this module."""
    if pooled.value is None or any(part.value is None for part in parts):
        return not any(part.blocks for part in parts)  # nothing is known yet, so nothing is hidden
    highest_low = max((part.low for part in parts if part.low is not None), default=-math.inf)
    lowest_high = min((part.high for part in parts if part.high is not None), default=math.inf)
    common = highest_low <= lowest_high
    if pooled.scale is Scale.DIFFERENCE or (
        common and {part.conclusion for part in parts} == {pooled.conclusion}
    ):
        return common
    if pooled.value <= 0.0:
        return False
    reach = math.log1p(pooled.margin)
    return all(
        part.value is not None and part.value > 0.0 and abs(math.log(part.value / pooled.value)) <= reach
        for part in parts
    )


def span_of(parts: Sequence[Effect]) -> Span | None:
    """The parts with the smallest and the largest estimate; None where fewer than two have one."""
    known = sorted((part.value, place) for place, part in enumerate(parts) if part.value is not None)
    if len(known) < 2:
        return None
    (least, first), (most, last) = known[0], known[-1]
    return Span(parts[first].condition, least, parts[last].condition, most, len(parts))
