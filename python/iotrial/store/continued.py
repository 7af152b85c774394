"""Continuation of a trial that had ended: an event with its new limits, so that a packed trial includes it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from iotrial.store.model import Continuation, Event

KIND = "continued"
#: Per condition; a store and a packed trial hold no more.
MOST_BLOCKS = 1_000_000
_LONGEST_S = 1e10


def text_of(one: Continuation) -> str:
    """Return the text of the event."""
    return json.dumps({"time_s": one.time_s, "blocks": one.blocks, "no_stop": one.no_stop})


def continuations(events: Iterable[Event]) -> tuple[Continuation, ...]:
    """Return the continuations in the events, oldest first.

    An event of another shape, which a packed trial may hold, is ignored.
    """
    found = (_continuation_of(event) for event in events if event.kind == KIND)
    return tuple(one for one in found if one is not None)


def _continuation_of(event: Event) -> Continuation | None:
    try:
        value = json.loads(event.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    time_s, blocks, no_stop = value.get("time_s"), value.get("blocks"), value.get("no_stop")
    if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 <= time_s <= _LONGEST_S:
        return None
    if type(blocks) is not int or not 0 <= blocks <= MOST_BLOCKS or not isinstance(no_stop, bool):
        return None
    return Continuation(event.at, float(time_s), blocks, no_stop)
