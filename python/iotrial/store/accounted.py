"""Counts of accounted repetitions as JSON events of a trial: one per system call, and one per kind of request.

Every iotrial can read, keep and pack an event; one that does not know these kinds shows them as notes. Each
is short enough for a packed trial, which limits the length of texts.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from iotrial.errors import StoreError
from iotrial.store.model import AccountedCall, AccountedRequests
from iotrial.store.records import to_json

CALL, REQUESTS = "call", "requests"
#: Event kind: what could not be counted, and why.
NOT_ACCOUNTED = "not-accounted"
#: Event kinds: what the work used outside the lab; conditions in which no run used the device under test.
OUTSIDE, NOT_USED = "outside", "not-used"
#: Event kinds of a live trial: why a guard has ended it; what its watchdog has done.
GUARD, WATCHDOG = "guard", "watchdog"

Accounted = AccountedCall | AccountedRequests
#: Condition, arm and number of a repetition.
Repetition = tuple[str, str, int]


def event_of(record: Accounted) -> tuple[str, str]:
    """Return kind and text of the event."""
    return CALL if isinstance(record, AccountedCall) else REQUESTS, to_json(asdict(record))


def of_event(kind: object, text: object) -> Accounted:
    """Return the record in an event of one of these two kinds; StoreError if its text holds none."""
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
    """Return the repetition that a record belongs to."""
    return record.condition, record.arm, record.repetition


def _is_sound(record: Accounted) -> bool:
    """Return whether the fields common to both kinds have the right types."""
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
