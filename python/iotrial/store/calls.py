"""System calls of accounted repetitions as events of a trial: one a call, in JSON.

An event is what every iotrial can read, keep and pack; one that knows nothing of calls shows it as a note.
"""

from __future__ import annotations

import json
from typing import Any

from iotrial.errors import StoreError
from iotrial.store.model import AccountedCall
from iotrial.store.records import to_json

KIND = "call"


def text_of_call(call: AccountedCall) -> str:
    """The text of the event."""
    return to_json(
        {
            "condition": call.condition,
            "arm": call.arm,
            "treatment": call.treatment,
            "repetition": call.repetition,
            "name": call.name,
            "count": call.count,
            "errors": call.errors,
            "total_ns": call.total_ns,
            "histogram": call.histogram,
        }
    )


def call_of_text(text: object) -> AccountedCall:
    """The call in the text of an event; StoreError where it is none."""
    try:
        found = json.loads(str(text))
        call = AccountedCall(**found)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError("holds a damaged record: an accounted call of another shape") from error
    whole = (call.repetition, call.count, call.total_ns)
    tables = (call.treatment, call.errors)
    sound = (
        all(isinstance(text, str) for text in (call.condition, call.arm, call.name))
        and all(_is_count(number) for number in whole)
        and all(isinstance(table, dict) for table in tables)
        and all(isinstance(level, str) for level in call.treatment.values())
        and all(_is_count(number) for number in call.errors.values())
        and isinstance(call.histogram, list)
        and all(
            isinstance(bar, list) and len(bar) == 2 and all(map(_is_count, bar)) for bar in call.histogram
        )
    )
    if not sound:
        raise StoreError("holds a damaged record: an accounted call of another shape")
    return call


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
