"""The store of trials: everything that was planned and measured, added and never changed.

Each run is one transaction, durable when ``append_run`` returns; what a killed conductor leaves behind is
whole. A block counts once its end is written. A (condition, block, slot) is measured once: to resume is to
add the runs that an unfinished block still lacks, and such a block is marked as having a gap.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.paths import store_path
from iotrial.store import records
from iotrial.store.attempts import StateChange, duration_s, present
from iotrial.store.connection import connect, explained
from iotrial.store.liveness import ProcessIdentity, identity, is_alive
from iotrial.store.model import (
    BlockEnd,
    Event,
    RunRecord,
    StoredTrial,
    TrialData,
    TrialHeader,
    TrialState,
)

_INSERT_RUN = (
    f"INSERT INTO run (trial, attempt, at, {records.RUN_COLUMNS}) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Store:
    """One file of trials. Close it, or use it as a context."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        self._numbers: dict[str, int] = {}
        self._attempts: dict[int, int] = {}

    @classmethod
    def open(cls, path: str | Path | None = None, *, read_only: bool = False) -> Self:
        """The store of this file (None: the default one), made where it is missing.

        StoreError for a file that is damaged, no store, of a newer schema, or in a place that cannot be
        written.
        """
        path = store_path() if path is None else Path(path)
        return cls(connect(path, read_only=read_only), path)

    def close(self) -> None:
        """Ends the connection; the last one to close folds the log into the file."""
        with explained(self.path):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- adding

    def create_trial(self, header: TrialHeader) -> StoredTrial:
        """A new trial, in state ``running`` under this process; numbers count 1, 2, ..."""
        columns = records.HEADER_COLUMNS
        marks = ", ".join("?" * len(columns.split(",")))
        row = records.header_row(header)
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                cursor = self._connection.execute(f"INSERT INTO trial ({columns}) VALUES ({marks})", row)
                number = cursor.lastrowid
                assert number is not None
                self._insert_state(number, TrialState.RUNNING, None, _conductor(header))
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        self._numbers[header.id] = number
        self._attempts[number] = 1
        return StoredTrial(number, header, TrialState.RUNNING, 0.0)

    def append_run(self, trial_id: str, run: RunRecord) -> None:
        """Adds one run, durably; StoreError where this slot was measured before or its block is over."""
        number = self._number(trial_id)
        row = (number, self._attempt(number), time.time(), *records.run_row(run))
        with explained(self.path):
            self._connection.execute(_INSERT_RUN, row)

    def end_block(self, trial_id: str, end: BlockEnd) -> None:
        """Declares a block complete; ``gap`` is added where two attempts measured its runs."""
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
            self._connection.execute(
                f"INSERT INTO block_end (trial, {records.END_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (number, *row),
            )

    def set_state(self, trial_id: str, state: TrialState, reason: str | None = None) -> None:
        """A change of state. ``running`` begins an attempt (a resume) under this process."""
        number = self._number(trial_id)
        process = identity() if state is TrialState.RUNNING else None
        with explained(self.path):
            self._insert_state(number, state, reason, process)
        self._attempts.pop(number, None)

    def note(self, trial_id: str, kind: str, text: str) -> None:
        """Something that happened and is no observation."""
        number = self._number(trial_id)
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with explained(self.path):
            self._connection.execute(
                "INSERT INTO event (trial, at, kind, text) VALUES (?, ?, ?, ?)", (number, at, kind, text)
            )

    # -- reading

    def trials(self) -> tuple[StoredTrial, ...]:
        """All trials by number."""
        with explained(self.path):
            rows = self._connection.execute(
                f"SELECT number, {records.HEADER_COLUMNS} FROM trial ORDER BY number"
            ).fetchall()
            return tuple(self._stored(row) for row in rows)

    def find(self, ref: str | int) -> StoredTrial:
        """The trial of this number, id, unique beginning of an id, or ``last``; UnknownName where there is none."""
        with explained(self.path):
            number = self._resolved(str(ref).strip())
            row = self._connection.execute(
                f"SELECT number, {records.HEADER_COLUMNS} FROM trial WHERE number = ?", (number,)
            ).fetchone()
            return self._stored(row)

    def data(self, ref: str | int) -> TrialData:
        """A trial with every run; ``blocks`` holds what has an end, in the order in which blocks ended."""
        with explained(self.path):
            self._connection.execute("BEGIN")  # one moment of the file, also while a conductor adds to it
            try:
                trial = self.find(ref)
                runs = self._runs("WHERE trial = ?", trial.number)
                ends = tuple(
                    records.end_of(row)
                    for row in self._connection.execute(
                        f"SELECT {records.END_COLUMNS} FROM block_end WHERE trial = ? ORDER BY sequence",
                        (trial.number,),
                    )
                )
            finally:
                self._connection.execute("ROLLBACK")
        by_block: dict[tuple[str, int], list[RunRecord]] = defaultdict(list)
        for run in runs:
            by_block[run.condition, run.block].append(run)
        blocks = tuple(records.observed(end, by_block[end.condition, end.block]) for end in ends)
        return TrialData(trial, blocks, runs, ends)

    def runs_of(self, trial_id: str, condition: str, block: int) -> tuple[RunRecord, ...]:
        """The runs of one block in the order they were made, whether or not it is over."""
        number = self._number(trial_id)
        with explained(self.path):
            return self._runs("WHERE trial = ? AND condition = ? AND block = ?", number, condition, block)

    def events(self, trial_id: str) -> tuple[Event, ...]:
        """What was noted of a trial, oldest first."""
        number = self._number(trial_id)
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT at, kind, text FROM event WHERE trial = ? ORDER BY sequence", (number,)
            )
            return tuple(Event(*row) for row in rows)

    # -- inside

    def _runs(self, where: str, *values: object) -> tuple[RunRecord, ...]:
        rows = self._connection.execute(
            f"SELECT {records.RUN_COLUMNS} FROM run {where} ORDER BY sequence", values
        )
        return tuple(records.run_of(row) for row in rows)

    def _insert_state(
        self, number: int, state: TrialState, reason: str | None, process: ProcessIdentity | None
    ) -> None:
        pid, started = (None, None) if process is None else (process.pid, process.pid_started)
        self._connection.execute(
            "INSERT INTO state (trial, at, state, reason, pid, pid_started) VALUES (?, ?, ?, ?, ?, ?)",
            (number, time.time(), state.value, reason, pid, started),
        )

    def _stored(self, row: records.Row) -> StoredTrial:
        number, *header = row
        changes = [
            StateChange(at, TrialState(state), reason, None if pid is None else ProcessIdentity(pid, started))
            for at, state, reason, pid, started in self._connection.execute(
                "SELECT at, state, reason, pid, pid_started FROM state WHERE trial = ? ORDER BY sequence",
                (number,),
            )
        ]
        state, reason = present(changes, is_alive)

        def last_run_s(attempt: int) -> float | None:
            query = "SELECT max(at) FROM run WHERE trial = ? AND attempt = ?"
            found: float | None = self._connection.execute(query, (number, attempt)).fetchone()[0]
            return found

        now_s = time.time() if state is TrialState.RUNNING else None
        duration = duration_s(changes, last_run_s, now_s=now_s)
        return StoredTrial(number, records.header_of(tuple(header)), state, duration, reason)

    def _number(self, trial_id: str) -> int:
        number = self._numbers.get(trial_id)
        if number is None:
            with explained(self.path):
                row = self._connection.execute(
                    "SELECT number FROM trial WHERE id = ?", (trial_id,)
                ).fetchone()
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

    def _resolved(self, ref: str) -> int:
        """The number of the trial that is meant."""
        rows = self._connection.execute("SELECT number, id FROM trial ORDER BY number").fetchall()
        if not rows:
            error = UnknownName("trial", ref, [], where=f"store {self.path} holds no trial yet")
            error.hint = 'begin one with "iotrial run STUDY"; "iotrial list" shows the studies'
            raise error
        if ref == "last":
            return int(rows[-1][0])
        numbers = {str(number): int(number) for number, _ in rows}
        if ref in numbers:
            return numbers[ref]
        found = [(int(number), name) for number, name in rows if ref and name.startswith(ref)]
        exact = [number for number, name in found if name == ref]
        if exact or len(found) == 1:
            return exact[0] if exact else found[0][0]
        if found:
            which = ", ".join(str(number) for number, _ in found[:8])
            raise RequestError(
                f'several trials begin with "{ref}": numbers {which}', hint="give more of the id"
            )
        raise UnknownName("trial", ref, [*list(numbers)[-8:], "last"], where=f"store {self.path}")


def _conductor(header: TrialHeader) -> ProcessIdentity:
    """The process that conducts a new trial: as its options say, else this one."""
    pid, started = header.options.get("pid"), header.options.get("pid_started")
    if isinstance(pid, int) and started is not None:
        return ProcessIdentity(pid, str(started))
    return identity()
