"""The store of trials: everything that was planned and measured, added and never changed.

Each run is one transaction, durable when ``append_run`` returns, so a killed conductor leaves only complete
runs. A block counts once its end is written. A (condition, block, slot) is measured once: resuming adds the
runs that an unfinished block still lacks, and such a block is marked as having a gap.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Self

from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.paths import store_path
from iotrial.store import checksums, records
from iotrial.store.accounted import (
    CALL,
    REQUESTS,
    Accounted,
    Repetition,
    event_of,
    of_event,
    repetition_of,
)
from iotrial.store.checksums import HINT, Digest, Seals, sealed
from iotrial.store.connection import connect, explained
from iotrial.store.event_records import (
    CONTINUED,
    POWER_CUTS,
    TIME_SPENT,
    continuation_text,
    power_cuts_of,
    power_cuts_text,
    time_spent_text,
)
from iotrial.store.exchange import Gathering, packed_records, take_in
from iotrial.store.finding import number_meant, numbers, rows, runs_in_order, stored_trial
from iotrial.store.loading import assembled, runs_of
from iotrial.store.model import (
    BlockEnd,
    Continuation,
    DamagedTrial,
    Event,
    PowerCuts,
    RunRecord,
    StoredTrial,
    TrialData,
    TrialHeader,
    TrialState,
)
from iotrial.store.packed import PackedEnd, PackedRecord, write_packed
from iotrial.store.schema import IMPORTED
from iotrial.store.states import ProcessIdentity, identity

MAX_RUNS = 5_000_000  # of one trial that is read into memory


class Store:
    """One file of trials. Close it, or use it as a context manager.

    ``warnings`` apply to the file as a whole: newer than this program, or damaged.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, warnings: tuple[str, ...] = ()) -> None:
        self._connection = connection
        self.path = path
        self.warnings = warnings
        self._numbers: dict[str, int] = {}
        self._attempts: dict[int, int] = {}

    @classmethod
    def open(cls, path: str | Path | None = None, *, read_only: bool = False, checked: bool = True) -> Self:
        """Open the store of this file (None: the default one), created if it is missing.

        StoreError for a file that is not a store or is in a place that cannot be written to. With
        ``read_only``, one that is damaged or of a newer schema is opened with a warning. Frequent readers may
        skip the check of the file (``checked``).
        """
        path = store_path() if path is None else Path(path)
        connection, warnings = connect(path, read_only=read_only, checked=checked)
        return cls(connection, path, warnings)

    @classmethod
    def in_memory(cls) -> Self:
        """Open an empty store that vanishes when it is closed, to read a packed trial without importing it."""
        connection, warnings = connect(None, read_only=False)
        return cls(connection, Path(":memory:"), warnings)

    def close(self) -> None:
        """Close the connection; the last one to close checkpoints the WAL into the file."""
        with explained(self.path):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- adding

    def create_trial(self, header: TrialHeader) -> StoredTrial:
        """Add a trial, in state ``running`` under this process; numbers count 1, 2, ..."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                number = checksums.insert_trial(self._connection, header)
                self._insert_state(header.id, number, TrialState.RUNNING, None, _conductor(header))
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        self._numbers[header.id] = number
        self._attempts[number] = 1
        return StoredTrial(number, header, TrialState.RUNNING, 0.0)

    def append_run(self, trial_id: str, run: RunRecord) -> None:
        """Add one run, durably; StoreError if this slot was measured before or its block is over."""
        number = self._number(trial_id)
        row = (self._attempt(number), time.time(), *records.run_row(run))
        with explained(self.path):
            self._connection.execute(checksums.INSERT_RUN, sealed("run", trial_id, number, row))

    def end_block(self, trial_id: str, end: BlockEnd) -> None:
        """Mark a block as complete; ``gap`` is set if two attempts measured its runs."""
        number = self._number(trial_id)
        with explained(self.path):
            attempts = self._connection.execute(
                "SELECT count(DISTINCT attempt) FROM run WHERE trial = ? AND condition = ? AND block = ?",
                (number, end.condition, end.block),
            ).fetchone()[0]
            if attempts == 0:
                raise StoreError(
                    f"store {self.path}: block {end.block} of {end.condition} has no runs to end"
                )
            row = records.end_row(replace(end, gap=end.gap or attempts > 1))
            self._connection.execute(checksums.INSERT_END, sealed("block_end", trial_id, number, row))

    def set_state(self, trial_id: str, state: TrialState, reason: str | None = None) -> None:
        """Add a change of state. ``running`` begins an attempt (a resume) under this process."""
        number = self._number(trial_id)
        process = identity() if state is TrialState.RUNNING else None
        with explained(self.path):
            self._insert_state(trial_id, number, state, reason, process)
        self._attempts.pop(number, None)

    def continue_trial(self, trial_id: str, further: Continuation) -> None:
        """Begin a new attempt of a trial that had ended, under this process, with its new limits.

        Both are stored in one transaction, so that a trial that is cut off can be resumed to these limits.
        """
        number = self._number(trial_id)
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                event = sealed("event", trial_id, number, (further.at, CONTINUED, continuation_text(further)))
                self._connection.execute(checksums.INSERT_EVENT, event)
                self._insert_state(trial_id, number, TrialState.RUNNING, None, identity())
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        self._attempts.pop(number, None)

    def note(self, trial_id: str, kind: str, text: str) -> None:
        """Add an event: something that happened and is not an observation."""
        self._append_events(trial_id, [(kind, text)])

    def append_accounted(self, trial_id: str, found: Sequence[Accounted]) -> None:
        """Add what one accounted repetition found, all or none."""
        self._append_events(trial_id, map(event_of, found))

    def append_power_cuts(self, trial_id: str, record: PowerCuts) -> None:
        """Add what power cuts left of one run of an arm."""
        self._append_events(trial_id, [(POWER_CUTS, power_cuts_text(record))])

    def append_time_spent(self, trial_id: str, spent_s: Mapping[str, float]) -> None:
        """Add where the time of an attempt went: seconds by part."""
        self._append_events(trial_id, [(TIME_SPENT, time_spent_text(spent_s))])

    def power_cuts(self, trial_id: str) -> tuple[PowerCuts, ...]:
        """Return what a trial already has of power cuts."""
        number = self._number(trial_id)
        with explained(self.path):
            events = self._events(number)
        return tuple(power_cuts_of(event.text) for event in events if event.kind == POWER_CUTS)

    def note_all(self, trial_id: str, kind: str, texts: Iterable[str]) -> None:
        """Add several events of one kind, all or none."""
        self._append_events(trial_id, ((kind, text) for text in texts))

    def _append_events(self, trial_id: str, events: Iterable[tuple[str, str]]) -> None:
        number = self._number(trial_id)
        at = checksums.now()
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for kind, text in events:
                    row = sealed("event", trial_id, number, (at, kind, text))
                    self._connection.execute(checksums.INSERT_EVENT, row)
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise

    def unpack(self, found: Iterable[PackedRecord | PackedEnd], *, source: str) -> StoredTrial:
        """Add a packed trial, all or nothing, marked as imported from the file called ``source``.

        If ``found`` raises, nothing is stored. RequestError if the store has this trial already, or if
        a trial is running: its conductor would have to wait in the middle of a block.
        """
        for trial in self.listing()[0]:
            if trial.state is TrialState.RUNNING:
                raise RequestError(
                    f"trial {trial.number} is running, and an import would delay it",
                )
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                name = take_in(self._connection, found, source=source)
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        return self.find(name)

    def gathering(self) -> Gathering:
        """Return an object that adds trials of a fleet's hosts, in parts."""
        return Gathering(self._connection, self.path)

    # -- reading

    def trials(self) -> tuple[StoredTrial, ...]:
        """Return all trials by number; StoreError if one of them unreadable."""
        trials, damaged = self.listing()
        if damaged:
            raise StoreError(f"store {self.path}: trial {damaged[0].number}: {damaged[0].problem}")
        return trials

    def listing(self) -> tuple[tuple[StoredTrial, ...], tuple[DamagedTrial, ...]]:
        """Return all readable trials by number, and separately the damaged ones with their problems."""
        sound: list[StoredTrial] = []
        damaged: list[DamagedTrial] = []
        with explained(self.path):
            for number in numbers(self._connection):
                try:
                    with explained(self.path):
                        sound.append(stored_trial(self._connection, number))
                except StoreError as error:
                    damaged.append(DamagedTrial(number, error.message))
        return tuple(sound), tuple(damaged)

    def pack(self, ref: str | int, file: BinaryIO) -> str:
        """Write one trial to a file as a packed trial; return the digest. RequestError if it is still running."""
        with explained(self.path):
            self._connection.execute("BEGIN")
            try:
                trial = self.find(ref)
                if trial.state is TrialState.RUNNING:
                    raise RequestError(
                        f"trial {trial.number} is still running",
                        hint="wait until it ends, or interrupt it: an interrupted trial can be exported",
                    )
                found = packed_records(self._connection, trial)
                return write_packed(file, found, imported=trial.imported is not None)
            finally:
                self._rollback()

    def find(self, ref: str | int, digest: Digest | None = None) -> StoredTrial:
        """Return the trial of this number, ID, unique prefix of an ID, or ``last``; UnknownName if there is none."""
        with explained(self.path):
            number = number_meant(self._connection, str(ref).strip(), self.path)
            return stored_trial(self._connection, number, digest)

    def data(self, ref: str | int) -> TrialData:
        """Return a trial with every run; ``blocks`` holds those with an end, in the order in which they ended."""
        return self.data_and_digest(ref)[0]

    def data_and_digest(self, ref: str | int) -> tuple[TrialData, bytes]:
        """Return the trial's data, and a digest of all rows read: changing any value gives another digest."""
        digest = hashlib.sha256()
        with explained(self.path):
            self._connection.execute("BEGIN")  # a snapshot, even while a conductor adds to it
            try:
                trial = self.find(ref, digest)
                (count,) = next(self._rows("SELECT count(*) FROM run WHERE trial = ?", trial.number))
                if count > MAX_RUNS:
                    raise StoreError(
                        f"store {self.path}: trial {trial.number} has {count:,} runs, too many to read"
                    )
                events = self._events(trial.number, digest)
                seals = Seals(self._connection, trial.number, digest)
                seals.refuse_lost()
                columns = seals.columns(records.STORED_RUN_COLUMNS)
                stored = seals.checked("run", runs_in_order(self._connection, columns, trial.number))
                runs = runs_of(row[2:] for row in stored)
                if len(runs) != count:
                    raise StoreError(
                        f"trial {trial.number} is damaged: {count - len(runs)} of its {count} runs cannot be found",
                        hint=HINT,
                    )
                found = self._sealed("block_end", records.END_COLUMNS, trial.number, digest)
                ends = tuple(map(records.end_of, found))
            finally:
                self._rollback()
        return assembled(trial, runs, ends, events), digest.digest()

    def ids(self) -> dict[int, str]:
        """Return the ID of each trial, by number."""
        with explained(self.path):
            return dict(self._rows("SELECT number, id FROM trial"))

    def measured_here(self) -> dict[int, str]:
        """Return the ID of each trial that was neither imported nor gathered from a fleet's host, by number."""
        query = """
        SELECT number, id FROM trial
        WHERE CASE WHEN json_valid(options) THEN json_type(options, '$.fleet') END IS NULL
            AND NOT EXISTS (SELECT 1 FROM event WHERE event.trial = trial.number AND event.kind = ?)
        ORDER BY number
        """
        with explained(self.path):
            return dict(self._rows(query, IMPORTED))

    def mark(self, number: int) -> str:
        """Return a text that changes when an attempt, to which all its runs belong, or an event is added to a trial."""
        query = "SELECT (SELECT max(sequence) FROM state WHERE trial = ?), (SELECT max(sequence) FROM event WHERE trial = ?)"
        with explained(self.path):
            attempt, event = next(self._rows(query, number, number))
            return f"{attempt} {event}"

    def runs_of(self, trial_id: str, condition: str, block: int) -> tuple[RunRecord, ...]:
        """Return the runs of one block in the order they were made, finished or not."""
        number = self._number(trial_id)
        with explained(self.path):
            return self._runs("WHERE trial = ? AND condition = ? AND block = ?", number, condition, block)

    def events(self, trial_id: str) -> tuple[Event, ...]:
        """Return the events of a trial, oldest first."""
        number = self._number(trial_id)
        with explained(self.path):
            return self._events(number)

    def accounted(self, trial_id: str) -> frozenset[Repetition]:
        """Return the accounted repetitions that a trial already has."""
        number = self._number(trial_id)
        with explained(self.path):
            return frozenset(map(repetition_of, self._accounted(number)))

    # -- inside

    def _accounted(self, number: int) -> tuple[Accounted, ...]:
        kinds = (CALL, REQUESTS)
        return tuple(
            of_event(event.kind, event.text) for event in self._events(number) if event.kind in kinds
        )

    def _events(self, number: int, digest: Digest | None = None) -> tuple[Event, ...]:
        return tuple(map(records.event_of, self._sealed("event", records.EVENT_COLUMNS, number, digest)))

    def _sealed(
        self, table: str, columns: str, number: int, digest: Digest | None = None
    ) -> Iterator[records.Row]:
        seals = Seals(self._connection, number, digest)
        query = f"SELECT {seals.columns(columns)} FROM {table} WHERE trial = ? ORDER BY sequence"
        return seals.checked(table, self._rows(query, number))

    def _runs(self, where: str, *values: object) -> tuple[RunRecord, ...]:
        found = self._rows(f"SELECT {records.RUN_COLUMNS} FROM run {where} ORDER BY sequence", *values)
        return tuple(map(records.run_of, found))

    def _rows(self, query: str, *values: object) -> Iterator[records.Row]:
        return rows(self._connection, query, *values)

    def _insert_state(
        self,
        trial_id: str,
        number: int,
        state: TrialState,
        reason: str | None,
        process: ProcessIdentity | None,
    ) -> None:
        pid, started = (None, None) if process is None else (process.pid, process.pid_started)
        row = (time.time(), state.value, reason, pid, started)
        self._connection.execute(checksums.INSERT_STATE, sealed("state", trial_id, number, row))

    def _rollback(self) -> None:
        """Roll back, unless SQLite has already done so (as it does on a full disk)."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _number(self, trial_id: str) -> int:
        number = self._numbers.get(trial_id)
        if number is None:
            with explained(self.path):
                row = next(self._rows("SELECT number FROM trial WHERE id = ?", trial_id), None)
            if row is None:
                raise UnknownName("trial", trial_id, [], where=f"store {self.path}")
            number = self._numbers[trial_id] = int(row[0])
        return number

    def _attempt(self, number: int) -> int:
        attempt = self._attempts.get(number)
        if attempt is None:
            with explained(self.path):
                attempt = self._connection.execute(
                    "SELECT count(*) FROM state WHERE trial = ? AND state = 'running'", (number,)
                ).fetchone()[0]
            self._attempts[number] = attempt
        return attempt


def _conductor(header: TrialHeader) -> ProcessIdentity:
    """Return the conductor's process of a new trial: from its options, else this one."""
    pid, started = header.options.get("pid"), header.options.get("pid_started")
    if isinstance(pid, int) and started is not None:
        return ProcessIdentity(pid, str(started))
    return identity()
