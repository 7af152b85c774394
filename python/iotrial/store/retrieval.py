"""Rows of a trial by its number, also where an index of the file is damaged and the table under it is not."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

_BY_INDEX = re.compile(r"\bFROM (\w+) WHERE (trial|id) = \?")


def rows(connection: sqlite3.Connection, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    """The rows of a query of one trial; asked again past the index where SQLite stumbles before the first row."""
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
    """A trial's runs in the order in which they were stored. Those that lie together in the table, as those of one conductor
    do, are read as they lie: through an index SQLite would have to sort them, texts and all."""
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
    """The numbers of all trials; where a page is damaged, of those that some way through the file still finds."""
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
