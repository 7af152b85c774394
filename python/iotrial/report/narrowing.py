"""How the intervals of a running trial narrow: each effect's interval now, and when it had half as many blocks.

Whoever watches a trial wants to know whether it gets anywhere. The width alone does not tell; beside what it was, it
does. An interval takes in what earlier ones took in, so it only ever shrinks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

from iotrial.report.progress import EffectLine

_GROWTH = 1.1  # blocks, from one remembered interval to the next: some fifty in a trial of a thousand blocks

_Seen = tuple[int, float | None, float | None]


class Narrowing:
    """What the effects of one trial were, by condition and comparison."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[_Seen]] = {}

    def of(self, lines: Iterable[EffectLine]) -> tuple[EffectLine, ...]:
        """These effects with the intervals that they had at half as many blocks, as far as these have been seen."""
        return tuple(self._one(line) for line in lines)

    def _one(self, line: EffectLine) -> EffectLine:
        seen = self._seen.setdefault((line.condition, line.comparison), [])
        bounded = line.low is not None or line.high is not None
        if bounded and (not seen or line.blocks >= seen[-1][0] * _GROWTH):
            seen.append((line.blocks, line.low, line.high))
        place = bisect_right(seen, line.blocks / 2.0, key=lambda one: one[0]) - 1
        if place < 0:
            return line
        blocks, low, high = seen[place]
        return replace(line, before_low=low, before_high=high, before_blocks=blocks)
