"""Counts each arm's system calls and its device's requests, in extra repetitions after the last block.

Traced runs are not timed: these repetitions belong to no block, and only their counts are stored. They go
through the same transitions as a run, in blocks that the plan draws like all others, so that arms stay
comparable. If the kernel does not allow counting, or something fails, the trial is still valid without the
counts, and a note gives the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iotrial.design.model import ArmKind, Condition, PlannedRun
from iotrial.design.plan import Plan
from iotrial.errors import IotrialError, NotSupported
from iotrial.runner.progress import Watcher
from iotrial.runner.run import Runner
from iotrial.runner.signals import StopSignals
from iotrial.runner.trace_job import REPETITIONS, Counted, Lost, TraceCounts, accounts
from iotrial.store import Store
from iotrial.store.accounted import NOT_ACCOUNTED, Accounted
from iotrial.store.model import AccountedCall, AccountedRequests

#: Attempts at a repetition in which some requests were lost.
ATTEMPTS = 3
#: Start another repetition of all arms only while the earlier ones have taken less than this. Applied
#: separately to conditions where system calls are counted and to those where only requests are.
ENOUGH_S = 5.0
#: Start a condition only while all earlier ones have taken less than this share of the time the trial has measured, in the
#: first repetition also while they have taken less than AT_LEAST_S. The first condition of each kind is always counted once.
A_TENTH = 0.1
AT_LEAST_S = 1.0
#: Recorded even if there were none.
_ALWAYS_RECORDED = ("read", "write")
_NO_REQUEST: Mapping[str, Any] = {"count": 0, "total_ns": 0, "histogram": []}


@dataclass(frozen=True, slots=True)
class _Due:
    """A condition, the number of a block that was not run, and what is counted in it."""

    condition: Condition
    block: int
    what: frozenset[Counted]

    @property
    def requests_alone(self) -> bool:
        """Whether no system calls are counted."""
        return Counted.CALLS not in self.what


class Accounting:
    """The accounted repetitions of one trial."""

    def __init__(
        self,
        plan: Plan,
        lab: str,
        runner: Runner,
        store: Store,
        trial: str,
        watcher: Watcher,
        signals: StopSignals,
    ) -> None:
        self._plan = plan
        self._wanted = accounts(plan.study, lab)
        self._runner = runner
        self._store = store
        self._trial = trial
        self._watcher = watcher
        self._signals = signals
        self._refused: frozenset[Counted] = frozenset()
        self._noted: set[str] = set()

    def run(self, conditions: Iterable[tuple[Condition, int]], *, measured_s: float) -> None:
        """Count every treatment of these conditions, each with the index of its first block that was not run.

        ``measured_s``: seconds that the trial has measured. Counts that an interrupted trial already stored
        are not repeated. Raises Stopped on a signal. An IotrialError is noted in the trial instead of raised.
        """
        due = [
            _Due(condition, block, self._wanted[condition.workload])
            for condition, block in conditions
            if condition.workload in self._wanted
        ]
        if not due:
            return
        what = _words(frozenset().union(*(one.what for one in due)))
        self._watcher.say(f"counting {what} of each arm in untimed repetitions")
        try:
            self._account(due, A_TENTH * measured_s)
        except IotrialError as error:
            self._note(f"{what} were not counted: {error.message}")

    def _account(self, due: list[_Due], most_s: float) -> None:
        had = set(self._store.accounted(self._trial))
        spent_s = {True: 0.0, False: 0.0}  # by whether only requests are counted
        given_up: set[str] = set()
        for repetition in range(REPETITIONS):
            begins = {alone for alone, seconds in spent_s.items() if seconds <= ENOUGH_S}
            left_out: list[_Due] = []
            for one in due:
                if one.condition.key in given_up or one.requests_alone not in begins:
                    continue
                first = repetition == 0 and not spent_s[one.requests_alone]
                least_s = 0.0 if repetition else AT_LEAST_S
                if not first and sum(spent_s.values()) > max(least_s, most_s):
                    left_out.append(one)
                    continue
                began = time.monotonic()
                try:
                    self._repetition(one, repetition, had)
                except IotrialError as error:
                    given_up.add(one.condition.key)
                    self._note(f"{_words(one.what)} of {one.condition.key} were not counted: {error.message}")
                    if not self._runner.alive:
                        return
                spent_s[one.requests_alone] += time.monotonic() - began
            if left_out and repetition == 0:
                self._note(
                    f"{_words(left_out[0].what)} were not counted in {len(left_out)} of {len(due)} conditions: this "
                    f"would have taken more than a tenth of the measured time"
                )

    def _repetition(self, one: _Due, repetition: int, had: set[tuple[str, str, int]]) -> None:
        """Do the first run of each treatment in a block."""
        block = one.block + repetition
        for planned in self._plan.block(one.condition, block).runs:
            place = (one.condition.key, planned.arm.name, repetition)
            if planned.arm.kind is not ArmKind.TREATMENT or planned.arm.stretched or place in had:
                continue
            what = one.what - self._refused
            if not what:
                return
            with self._signals.interruptible():
                found = self._counted(one.condition, planned, block, what)
            self._store.append_accounted(
                self._trial, list(_records(one.condition, planned, repetition, found))
            )
            had.add(place)
            self._signals.check()

    def _counted(
        self, condition: Condition, planned: PlannedRun, block: int, what: frozenset[Counted]
    ) -> TraceCounts:
        """Return what a run was found to do. What this machine cannot count is skipped from then on."""
        try:
            return self._complete(condition, planned, block, what)
        except NotSupported as error:
            if len(what) == 1:
                self._refused |= what
                self._note(f"{_words(what)} were not counted: {error.message}")
                return TraceCounts()
        # count each alone to find out which one is unsupported
        calls = self._counted(condition, planned, block, frozenset({Counted.CALLS}))
        requests = self._counted(condition, planned, block, frozenset({Counted.REQUESTS}))
        return TraceCounts(calls.calls, requests.requests)

    def _complete(
        self, condition: Condition, planned: PlannedRun, block: int, what: frozenset[Counted]
    ) -> TraceCounts:
        """Return counts of a run without losses.

        If requests are lost in every attempt, return the other counts; raises Lost if there are none.
        """
        lost: Lost | None = None
        for _ in range(ATTEMPTS):
            try:
                return self._runner.account(condition, planned, block=block, what=what)
            except Lost as error:
                lost = error
        rest = what - {Counted.REQUESTS}
        assert lost is not None
        if not rest:
            raise lost
        self._note(f"{Counted.REQUESTS} of {condition.key} were not counted: {lost.message}")
        return self._runner.account(condition, planned, block=block, what=rest)

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._watcher.say(text)
            self._store.note(self._trial, NOT_ACCOUNTED, text)


def _words(what: frozenset[Counted]) -> str:
    return " and ".join(sorted(what, reverse=True))


def _records(
    condition: Condition, planned: PlannedRun, repetition: int, found: TraceCounts
) -> Iterator[Accounted]:
    arm, treatment = planned.arm.name, dict(planned.arm.treatment)
    for name, call in (found.calls or {}).items():
        yield AccountedCall(
            condition=condition.key,
            arm=arm,
            treatment=treatment,
            repetition=repetition,
            name=name,
            count=call["count"],
            errors=call["errors"],
            total_ns=call["total_ns"],
            histogram=call["histogram"],
        )
    if found.requests is None:
        return
    for kind, row in {**dict.fromkeys(_ALWAYS_RECORDED, _NO_REQUEST), **found.requests}.items():
        yield AccountedRequests(
            condition=condition.key,
            arm=arm,
            treatment=treatment,
            repetition=repetition,
            kind=kind,
            count=row["count"],
            total_ns=row["total_ns"],
            histogram=row["histogram"],
            alone=True,
        )
