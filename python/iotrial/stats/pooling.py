"""Check whether the mean of an effect over conditions represents each of them or hides that they differ.

The mean of .998 and .389 is .623, which is the effect in neither condition. A pooled effect is meaningful only if its parts
*agree*:

* the intervals of all parts have a common value and all parts have the pooled effect's conclusion, so that the
  mean claims nothing that is not true of each; or
* ratios: every part's estimate is within the margin of the pooled estimate;
* differences, which have no margin: the intervals of all parts have a common value.

This does not show that the parts are equal; it only prevents a mean from being printed when they visibly differ. If they do
not agree, the span of the estimates is reported instead, without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.stats.model import Effect, Span
from iotrial.study.model import Scale


def agree(pooled: Effect, parts: Sequence[Effect]) -> bool:
    """Return whether these effects of single conditions agree with the pooled effect, by the rule of this module."""
    if pooled.value is None or any(part.value is None for part in parts):
        return not any(part.blocks for part in parts)  # without data there is nothing to hide
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
    """Return the parts with the smallest and the largest estimate; None if fewer than two have an estimate."""
    known = sorted((part.value, place) for place, part in enumerate(parts) if part.value is not None)
    if len(known) < 2:
        return None
    (least, first), (most, last) = known[0], known[-1]
    return Span(parts[first].condition, least, parts[last].condition, most, len(parts))
