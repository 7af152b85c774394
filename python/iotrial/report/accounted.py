"""System calls of accounted repetitions as metrics of the evidence table: how many, how many failed, how long they took.

A program makes dozens of different calls, most of them while it starts. Shown are those whose counts or errors differ
between the arms of a condition, and those that took most of the time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from iotrial.store.model import AccountedCall

#: so many calls of a condition are shown for their time alone
LONGEST = 5
ALL = "all"
_TIME = "accounted_time."

Repetition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AccountedNumber:
    """One number of one repetition. ``metric``: ``accounted_calls.NAME`` (``.all`` for their sum), ``accounted_errors.NAME``,
    ``accounted_time.NAME`` in seconds, from entry to return, waiting included."""

    condition: str
    arm: str
    metric: str
    value: float


def accounted_numbers(calls: Sequence[AccountedCall], arms: Container[str]) -> Iterator[AccountedNumber]:
    """The numbers that are shown, of these arms."""
    conditions: dict[str, list[AccountedCall]] = {}
    for call in calls:
        if call.arm in arms:
            conditions.setdefault(call.condition, []).append(call)
    for condition, own in conditions.items():
        yield from _of_condition(condition, own)


def is_marked(metric: str) -> bool:
    """Whether arms whose numbers do not overlap differ by more than chance: counts repeat themselves, times do not."""
    return not metric.startswith(_TIME)


def _of_condition(condition: str, calls: Sequence[AccountedCall]) -> Iterator[AccountedNumber]:
    found = {(call.arm, call.repetition, call.name): call for call in calls}
    repetitions = list(dict.fromkeys((call.arm, call.repetition) for call in calls))
    for arm, repetition in repetitions:
        total = sum(call.count for call in calls if (call.arm, call.repetition) == (arm, repetition))
        yield AccountedNumber(condition, arm, f"accounted_calls.{ALL}", float(total))
    for name in _shown(calls, repetitions):
        failed = any(_errors(call) for call in calls if call.name == name)
        for arm, repetition in repetitions:
            call = found.get((arm, repetition, name))
            yield AccountedNumber(condition, arm, f"accounted_calls.{name}", call.count if call else 0.0)
            if failed:
                yield AccountedNumber(
                    condition, arm, f"accounted_errors.{name}", _errors(call) if call else 0.0
                )
            seconds = call.total_ns / 1e9 if call else 0.0
            yield AccountedNumber(condition, arm, f"{_TIME}{name}", seconds)


def _shown(calls: Sequence[AccountedCall], repetitions: Sequence[Repetition]) -> list[str]:
    names = sorted({call.name for call in calls})
    times = {name: sum(call.total_ns for call in calls if call.name == name) for name in names}
    longest = sorted(names, key=lambda name: -times[name])[:LONGEST]
    return [name for name in names if name in longest or _differs(name, calls, repetitions)]


def _differs(name: str, calls: Iterable[AccountedCall], repetitions: Sequence[Repetition]) -> bool:
    """Whether the median count, or that of errors, is not the same in every arm."""
    own = {(call.arm, call.repetition): call for call in calls if call.name == name}
    medians = set()
    for arm in {arm for arm, _ in repetitions}:
        mine = [own.get(key) for key in repetitions if key[0] == arm]
        medians.add(
            (
                median(call.count if call else 0 for call in mine),
                median(_errors(call) if call else 0 for call in mine),
            )
        )
    return len(medians) > 1


def _errors(call: AccountedCall) -> int:
    return sum(call.errors.values())
