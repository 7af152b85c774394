"""Finds a trial in a file by its number or ID, and reads its rows even if an index of the file is damaged."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.store import records
from iotrial.store.checksums import Digest, Seals
from iotrial.store.model import StoredTrial, TrialState
from iotrial.store.schema import IMPORTED
from iotrial.store.states import Measured, ProcessIdentity, StateChange, duration_s, is_alive, present


def stored_trial(connection: sqlite3.Connection, number: int, digest: Digest | None = None) -> StoredTrial:
    """Return the trial of this number; StoreError if its records are damaged. ``digest`` is updated with them."""
    seals = Seals(connection, number, digest)
    query = f"SELECT {seals.columns(records.HEADER_COLUMNS, own='number')} FROM trial WHERE number = ?"
    header = next(seals.checked("trial", connection.execute(query, (number,))), None)
    if header is None:
        raise StoreError("its row cannot be found")
    seals.refuse_lost(("state",))
    changes = [
        StateChange(
            records.number_of(at),
            records.state_of(state),
            records.text_of(reason),
            ProcessIdentity(pid, str(started)) if isinstance(pid, int) else None,
        )
        for at, state, reason, pid, started in seals.checked(
            "state",
            rows(
                connection,
                f"SELECT {seals.columns(records.STATE_COLUMNS)} FROM state WHERE trial = ? ORDER BY sequence",
                number,
            ),
        )
    ]
    if not changes:
        raise StoreError("holds a damaged record: a trial without a state")
    state, reason = present(changes, is_alive)
    now_s = time.time() if state is TrialState.RUNNING else None
    duration = duration_s(changes, lambda attempt: _measured(connection, number, attempt), now_s=now_s)
    imported = next(
        rows(
            connection,
            "SELECT text FROM event WHERE trial = ? AND kind = ? ORDER BY sequence LIMIT 1",
            number,
            IMPORTED,
        ),
        None,
    )
    header_values = records.header_of(header)
    return StoredTrial(
        number, header_values, state, duration, reason, None if imported is None else str(imported[0])
    )


def number_meant(connection: sqlite3.Connection, ref: str, path: Path) -> int:
    """Return the number of the trial given by a number, an ID, a unique prefix of one, or ``last``.

    UnknownName if there is none, RequestError if the prefix is ambiguous; ``path`` names the file in errors.
    """
    try:
        listed = connection.execute("SELECT number, id FROM trial ORDER BY number").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        # a damaged row makes this query fail, but not that of ``numbers``
        listed = [(number, "") for number in numbers(connection)]
    if not listed:
        error = UnknownName("trial", ref, [], where=f"store {path} has no trials yet")
        error.hint = 'start one with "iotrial run STUDY"; "iotrial list" shows the studies'
        raise error
    if ref == "last":
        return int(listed[-1][0])
    known = {str(number): int(number) for number, _ in listed}
    if ref in known:
        return known[ref]
    found = [(int(number), name) for number, name in listed if ref and name.startswith(ref)]
    exact = [number for number, name in found if name == ref]
    if exact or len(found) == 1:
        return exact[0] if exact else found[0][0]
    if found:
        which = ", ".join(str(number) for number, _ in found[:8])
        raise RequestError(
            f'several trials begin with "{ref}": numbers {which}', hint="give more digits of the id"
        )
    raise UnknownName("trial", ref, [*list(known)[-8:], "last"], where=f"store {path}")


def _measured(connection: sqlite3.Connection, number: int, attempt: int) -> Measured | None:
    """Return the first and the last run of an attempt, in storage order."""
    ends = next(
        rows(
            connection,
            "SELECT min(sequence), max(sequence) FROM run WHERE trial = ? AND attempt = ?",
            number,
            attempt,
        )
    )
    if ends[0] is None:
        return None
    (first_at, first_s), (last_at, last_s) = (_times_of(connection, sequence) for sequence in ends)
    return Measured(first_at, last_at, last_s - first_s)


def _times_of(connection: sqlite3.Connection, sequence: int) -> tuple[float, float]:
    row = connection.execute("SELECT at, started_s FROM run WHERE sequence = ?", (sequence,)).fetchone()
    if row is None:
        raise StoreError("holds a damaged record: a run in the index that is not in the table")
    return records.number_of(row[0]), records.number_of(row[1])


_BY_INDEX = re.compile(r"\bFROM (\w+) WHERE (trial|id) = \?")


def rows(connection: sqlite3.Connection, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query of one trial; retry without the index if SQLite fails before the first row."""
    begun = False
    try:
        for row in connection.execute(query, values):
            begun = True
            yield row
        return
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        plain = _BY_INDEX.sub(r"FROM \1 NOT INDEXED WHERE \2 = ?", query)
        if begun or plain == query:
            raise
    yield from connection.execute(plain, values)


def runs_in_order(connection: sqlite3.Connection, columns: str, number: int) -> Iterator[tuple[Any, ...]]:
    """Yield a trial's runs in storage order.

    Runs that are contiguous in the table, as those of one conductor are, are read by a table scan: with an
    index, SQLite would have to sort them with all their texts.
    """
    query = f"SELECT {columns} FROM run WHERE trial = ? ORDER BY sequence"
    of_trial = "SELECT count(*), min(sequence), max(sequence) FROM run WHERE trial = ?"
    count, first, last = next(rows(connection, of_trial, number))
    if count == 0 or last - first + 1 != count:
        yield from rows(connection, query, number)
        return
    begun = False
    try:
        part = query.replace("WHERE trial = ?", "NOT INDEXED WHERE trial = ? AND sequence BETWEEN ? AND ?")
        for row in connection.execute(part, (number, first, last)):
            begun = True
            yield row
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        if begun:
            raise
        yield from rows(connection, query, number)


def numbers(connection: sqlite3.Connection) -> tuple[int, ...]:
    """Return the numbers of all trials; if a page is damaged, of those that some scan order still finds."""
    ways = (
        "SELECT number FROM trial ORDER BY number",
        "SELECT number FROM trial ORDER BY number DESC",
        "SELECT number FROM trial ORDER BY id",
    )
    found: set[int] = set()
    problem: Exception | None = None
    for way in ways:
        try:
            for (number,) in connection.execute(way):
                found.add(int(number))
            break
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            problem = error
    if problem is not None and not found:
        raise problem
    return tuple(sorted(found))
