"""What accounted repetitions found as events of a trial, in JSON: one for each system call, and for each kind of request.

An event is what every iotrial can read, keep and pack; one that knows nothing of such a kind shows it as a note. Each is
short enough for a packed trial, which takes no long texts.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from iotrial.errors import StoreError
from iotrial.store.model import AccountedCall, AccountedRequests
from iotrial.store.records import to_json

CALL, REQUESTS = "call", "requests"
#: a note that says what could not be counted, and why
NOT_ACCOUNTED = "not-accounted"
#: notes on what the work used that is not the lab's; and on conditions in which no run used the device under test
OUTSIDE, NOT_USED = "outside", "not-used"

Accounted = AccountedCall | AccountedRequests
#: condition, arm and number of a repetition
Repetition = tuple[str, str, int]


def event_of(record: Accounted) -> tuple[str, str]:
    """Kind and text of the event."""
    return CALL if isinstance(record, AccountedCall) else REQUESTS, to_json(asdict(record))


def of_event(kind: object, text: object) -> Accounted:
    """The record in an event of one of these two kinds; StoreError where its text holds none."""
    wanted = AccountedCall if kind == CALL else AccountedRequests
    try:
        record: Accounted = wanted(**json.loads(str(text)))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(wanted) from error
    if not (
        _is_sound(record)
        and (
            isinstance(record.alone, bool)
            if isinstance(record, AccountedRequests)
            else _is_counts(record.errors)
        )
    ):
        raise _damaged(wanted)
    return record


def repetition_of(record: Accounted) -> Repetition:
    """The repetition that it belongs to."""
    return record.condition, record.arm, record.repetition


def _is_sound(record: Accounted) -> bool:
    """Whether what both kinds have is of its shape."""
    name = record.name if isinstance(record, AccountedCall) else record.kind
    return (
        all(isinstance(text, str) for text in (record.condition, record.arm, name))
        and all(_is_count(number) for number in (record.repetition, record.count, record.total_ns))
        and isinstance(record.treatment, dict)
        and all(isinstance(level, str) for level in record.treatment.values())
        and isinstance(record.histogram, list)
        and all(
            isinstance(bar, list) and len(bar) == 2 and all(map(_is_count, bar)) for bar in record.histogram
        )
    )


def _is_counts(table: object) -> bool:
    return isinstance(table, dict) and all(map(_is_count, table.values()))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _damaged(wanted: type[Any]) -> StoreError:
    what = "an accounted call" if wanted is AccountedCall else "accounted requests"
    return StoreError(f"holds a damaged record: {what} of another shape")
