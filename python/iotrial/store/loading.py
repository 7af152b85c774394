"""Loads a whole trial into memory, from the rows of a store or the records of a packed file.

A hundred thousand runs take little memory: a run's evidence is a row of a table shared by all runs with the
same names, and its histograms stay JSON text until they are read. Repeated strings are interned. It refuses
what ``records.run_of`` refuses.
"""

from __future__ import annotations

import gc
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from iotrial.errors import StoreError
from iotrial.store import records
from iotrial.store.accounted import (
    CALL,
    GUARD,
    NOT_ACCOUNTED,
    NOT_USED,
    OUTSIDE,
    REQUESTS,
    WATCHDOG,
    of_event,
)
from iotrial.store.event_records import (
    NOT_CUT,
    POWER_CUTS,
    continuations,
    power_cuts_of,
    time_spent_of,
    with_energy,
)
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
from iotrial.store.states import Measured, StateChange, duration_s, present

NOT_STORED = 0  # in place of a trial's number


def assembled(
    trial: StoredTrial, runs: tuple[RunRecord, ...], ends: tuple[BlockEnd, ...], events: Sequence[Event]
) -> TrialData:
    """Return a trial with everything measured. StoreError if an event with counts is damaged."""
    runs = with_energy(runs, events)
    by_block: dict[tuple[str, int], list[RunRecord]] = defaultdict(list)
    for run in runs:
        by_block[run.condition, run.block].append(run)
    accounted = [of_event(event.kind, event.text) for event in events if event.kind in (CALL, REQUESTS)]
    not_accounted, outside, unused, not_cut = (
        _texts(events, kind) for kind in (NOT_ACCOUNTED, OUTSIDE, NOT_USED, NOT_CUT)
    )
    return TrialData(
        trial,
        tuple(records.observed(end, by_block[end.condition, end.block]) for end in ends),
        runs,
        ends,
        tuple(record for record in accounted if isinstance(record, AccountedCall)),
        tuple(record for record in accounted if isinstance(record, AccountedRequests)),
        not_accounted,
        continuations(events),
        outside,
        unused,
        _texts(events, GUARD),
        _texts(events, WATCHDOG),
        tuple(power_cuts_of(event.text) for event in events if event.kind == POWER_CUTS),
        not_cut,
        time_spent_of(events),
    )


def unpacked(found: Iterable[PackedRecord | PackedEnd], *, source: str) -> TrialData:
    """Return a packed trial, read into memory and not stored. Raises what ``found`` raises: it has checked every record.

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
    tables = NumberTables()
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
    """Return the distinct texts of the events of one kind, oldest first."""
    return tuple(dict.fromkeys(event.text for event in events if event.kind == kind))


_Bins = dict[str, list[list[int]]]
_numbers = msgspec.json.Decoder(dict[str, float])
_labels = msgspec.json.Decoder(dict[str, str])
_indices = msgspec.json.Decoder(list[int])
_bins = msgspec.json.Decoder(_Bins)
_pairs = msgspec.json.Decoder(dict[str, list[tuple[int, int]]])
_checks = msgspec.json.Decoder(dict[str, Any])
_SHAPE = [str, int, int, str, str, str]
_FAILURE = (str, type(None))
_NONE: Mapping[str, Sequence[Sequence[int]]] = {}


class StoredHistograms(Mapping[str, Sequence[Sequence[int]]]):
    """Histograms by operation, decoded on access from a JSON text that is known to be valid."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def _read(self) -> _Bins:
        return _bins.decode(self._text)

    def __getitem__(self, operation: str) -> Sequence[Sequence[int]]:
        return self._read()[operation]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def items(self):  # type: ignore[no-untyped-def]
        """Return all at once, decoding once instead of once per operation."""
        return self._read().items()


def runs_of(rows: Iterable[records.Row]) -> tuple[RunRecord, ...]:
    """Return the runs in the columns of ``records.RUN_COLUMNS``, in order. StoreError if one is damaged."""
    reader = _Reader()
    with keeping_all():
        return tuple(map(reader.run, rows))


class _Reader:
    """Decodes runs one after the other."""

    def __init__(self) -> None:
        self._tables = NumberTables()
        self._treatments: dict[str, Mapping[str, str]] = {}
        self._words: dict[str, str] = {}

    def run(self, row: records.Row) -> RunRecord:
        try:
            return self._run(row)
        except (msgspec.DecodeError, RecursionError, ValueError, TypeError, OverflowError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"holds a damaged record: {str(error)[:200]}") from error

    def _run(self, row: records.Row) -> RunRecord:
        condition, block, slot, arm, kind, treatment, started_s, failure, *texts, files = row
        responses, evidence, histograms, checks = texts
        if [*map(type, row[:6])] != _SHAPE or not math.isfinite(started_s) or type(failure) not in _FAILURE:
            raise StoreError("holds a damaged record: a run of another shape")
        return RunRecord(
            condition=self._once(condition),
            block=block,
            slot=slot,
            arm=self._once(arm),
            kind=self._once(kind),
            treatment=self._treatment(treatment),
            started_s=started_s,
            failure=failure,
            responses=_numbers.decode(_sound(responses)),
            evidence=self._evidence(_sound(evidence)),
            histograms=_histograms(_sound(histograms)),
            checks=_checks.decode(_sound(checks)),
            files=None if files is None else tuple(_indices.decode(files)),
        )

    def _once(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def _treatment(self, text: str) -> Mapping[str, str]:
        found = self._treatments.get(text)
        if found is None:
            found = self._treatments[text] = _labels.decode(_sound(text))
        return found

    def _evidence(self, text: str) -> Mapping[str, float]:
        return self._tables.row(_numbers.decode(text))


def _histograms(text: str) -> Mapping[str, Sequence[Sequence[int]]]:
    return StoredHistograms(text) if _pairs.decode(text) else _NONE


def _sound(text: str) -> str:
    """Return the text unless it contains a lone surrogate, which cannot be printed."""
    if "\\" in text and "\\u" in text:  # searching for one character is ten times as fast as for two
        records.object_of(text)
    return text


Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]


class NumberTable:
    """Numbers by row and name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = {name: column for column, name in enumerate(names)}
        self.numbers = array("d")
        self.rows = 0

    def add(self, numbers: list[float]) -> NumbersOfRow:
        """Add a row."""
        self.numbers.fromlist(numbers)
        self.rows += 1
        return NumbersOfRow(self, self.rows - 1)


class NumberTables:
    """One table for each list of names."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, ...], NumberTable] = {}

    def row(self, numbers: Mapping[str, float]) -> NumbersOfRow:
        """Store the numbers as a row of the table for their names."""
        names = tuple(numbers)
        table = self._tables.get(names)
        if table is None:
            table = self._tables[names] = NumberTable(names)
        return table.add([*numbers.values()])


class NumbersOfRow(Mapping[str, float]):
    """One row of a table, by name."""

    __slots__ = ("row", "table")

    def __init__(self, table: NumberTable, row: int) -> None:
        self.table = table
        self.row = row

    def __getitem__(self, name: str) -> float:
        return self.table.numbers[self.row * len(self.table.columns) + self.table.columns[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.columns)

    def __len__(self) -> int:
        return len(self.table.columns)

    def __repr__(self) -> str:
        return repr(dict(self))


def shape_of(row: Mapping[str, float]) -> object:
    """Return a key that rows with the same names in the same order share; for a row of a table, quickly, the table."""
    return row.table if type(row) is NumbersOfRow else tuple(row)


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[Counts, Floats]]:
    """Return by name, in order of first appearance, the indices of the rows that have it and their values."""
    everywhere: Counts = np.arange(len(rows), dtype=np.intp)
    # compare types: isinstance would call the abstract base class for each of a hundred thousand rows
    kept = [row for row in rows if type(row) is NumbersOfRow]
    table = kept[0].table if kept and len(kept) == len(rows) else None
    if table is not None and all(row.table is table for row in kept):
        numbers = np.frombuffer(table.numbers, dtype=np.float64).reshape(table.rows, len(table.columns))
        own = numbers[[row.row for row in kept]]
        return {name: (everywhere, own[:, column].copy()) for name, column in table.columns.items()}
    names: dict[str, None] = {}
    shapes = {tuple(row): None for row in rows}
    if len(shapes) == 1:
        (same,) = shapes
        numbers = np.fromiter(
            chain.from_iterable(row.values() for row in rows), dtype=np.float64, count=len(rows) * len(same)
        ).reshape(len(rows), len(same))
        return {name: (everywhere, numbers[:, column].copy()) for column, name in enumerate(same)}
    for shape in shapes:
        names.update(dict.fromkeys(shape))
    found: dict[str, tuple[Counts, Floats]] = {}
    for name in names:
        places = [place for place, row in enumerate(rows) if name in row]
        values = [rows[place][name] for place in places]
        found[name] = np.array(places, dtype=np.intp), np.array(values, dtype=np.float64)
    return found


@contextmanager
def keeping_all() -> Iterator[None]:
    """Pause the garbage collector; cycles dropped inside are collected later, everything else is freed as usual."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
