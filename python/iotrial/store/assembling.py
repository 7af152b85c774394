"""A trial as analysis and reports take it, from its records: those of a store, or those of a packed file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from iotrial.store import records
from iotrial.store.accounted import CALL, NOT_ACCOUNTED, NOT_USED, OUTSIDE, REQUESTS, of_event
from iotrial.store.attempts import Measured, StateChange, duration_s, present
from iotrial.store.columns import Tables
from iotrial.store.continued import KIND as CONTINUED
from iotrial.store.continued import continuations
from iotrial.store.metered import with_energy
from iotrial.store.model import (
    AccountedCall,
    AccountedRequests,
    BlockEnd,
    Event,
    RunRecord,
    StoredTrial,
    TrialData,
    TrialHeader,
)
from iotrial.store.packed import PackedEnd, PackedRecord, PackedRun, PackedState

NOT_STORED = 0  # where a trial's number would be


def assembled(
    trial: StoredTrial, runs: tuple[RunRecord, ...], ends: tuple[BlockEnd, ...], events: Sequence[Event]
) -> TrialData:
    """A trial with everything measured. StoreError where an event of an accounted repetition is damaged."""
    runs = with_energy(runs, events)
    by_block: dict[tuple[str, int], list[RunRecord]] = defaultdict(list)
    for run in runs:
        by_block[run.condition, run.block].append(run)
    accounted = [of_event(event.kind, event.text) for event in events if event.kind in (CALL, REQUESTS)]
    not_accounted, outside, unused = (_texts(events, kind) for kind in (NOT_ACCOUNTED, OUTSIDE, NOT_USED))
    return TrialData(
        trial,
        tuple(records.observed(end, by_block[end.condition, end.block]) for end in ends),
        runs,
        ends,
        tuple(record for record in accounted if isinstance(record, AccountedCall)),
        tuple(record for record in accounted if isinstance(record, AccountedRequests)),
        not_accounted,
        continuations(event for event in events if event.kind == CONTINUED),
        outside,
        unused,
    )


def unpacked(found: Iterable[PackedRecord | PackedEnd], *, source: str) -> TrialData:
    """A packed trial, read into memory and stored nowhere. Raises what ``found`` raises: it has checked every record.

    ``source`` is the name of the file.
    """
    header: TrialHeader | None = None
    states: list[StateChange] = []
    runs: list[PackedRun] = []
    ends: list[BlockEnd] = []
    events: list[Event] = []
    origin = ""
    for record in found:
        match record:
            case PackedRun():
                runs.append(record)
            case BlockEnd():
                ends.append(record)
            case Event():
                events.append(record)
            case PackedState():
                states.append(StateChange(record.at_s, record.state, record.reason))
            case TrialHeader():
                header = replace(record, study=structs.replace(record.study, trusted=False))
            case PackedEnd():
                origin = f'from "{source}", SHA-256 {record.sha256}'
    assert header is not None
    state, reason = present(states, lambda _: False)
    lasted = duration_s(states, _attempts_of(runs).get, now_s=None)
    trial = StoredTrial(NOT_STORED, header, state, lasted, reason, origin)
    tables = Tables()
    in_tables = tuple(replace(one.run, evidence=tables.row(one.run.evidence)) for one in runs)
    return assembled(trial, in_tables, tuple(ends), events)


def _attempts_of(runs: Iterable[PackedRun]) -> dict[int, Measured]:
    ends: dict[int, tuple[PackedRun, PackedRun]] = {}
    for one in runs:
        ends[one.attempt] = (ends.get(one.attempt, (one,))[0], one)
    return {
        attempt: Measured(first.at_s, last.at_s, last.run.started_s - first.run.started_s)
        for attempt, (first, last) in ends.items()
    }


def _texts(events: Iterable[Event], kind: str) -> tuple[str, ...]:
    """The different texts of the events of one kind, oldest first."""
    return tuple(dict.fromkeys(event.text for event in events if event.kind == kind))
