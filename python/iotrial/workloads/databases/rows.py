"""The table of all databases: rows from closed forms, and the expected result of each test.

Row i (from 1) is (i, 7919 i mod 1000, 104729 i mod 3650, 15485863 i mod 1000000, "entry number i"): three
primes, so that neighbours differ in every column, and the values of a column are about equally frequent.
"""

from __future__ import annotations

from collections.abc import Iterator

TABLE = "entries"
INDEX = "by_three"
COLUMNS = ("account", "day", "amount")
#: multiplier and modulus of each column
FORMS = ((7919, 1000), (104729, 3650), (15485863, 1_000_000))
#: minimum size of one row in any engine
LEAST_ROW_BYTES = 20
#: maximum size of one row with table and one index, with a margin
MOST_ROW_BYTES = 220
BATCH = 100


def row(i: int) -> tuple[int, int, int, int, str]:
    """Return row ``i``."""
    account, day, amount = (i * factor % modulus for factor, modulus in FORMS)
    return i, account, day, amount, f"entry number {i}"


def lines(first: int, last: int, separator: str) -> str:
    """Return rows as a client prints them."""
    return "".join(separator.join(map(str, row(i))) + "\n" for i in range(first, last + 1))


def columns_sql(i: str, note: str) -> str:
    """Return SQL expressions for the columns of row ``i``; ``note``: the engine's expression for the text."""
    return ", ".join([i, *(f"({i} * {factor}) % {modulus}" for factor, modulus in FORMS), note])


def create_sql(identity: str, more: str = "") -> str:
    """Return SQL that creates the empty table. ``identity``: type of the first column."""
    return (
        f"CREATE TABLE {TABLE} (id {identity} PRIMARY KEY, account INTEGER NOT NULL, day INTEGER NOT NULL, "
        f"amount INTEGER NOT NULL, note VARCHAR(40) NOT NULL){more};"
    )


def index_sql() -> str:
    """Return SQL that creates the index over three columns."""
    return f"CREATE INDEX {INDEX} ON {TABLE} ({', '.join(COLUMNS)});\n"


def insert_sql(first: int, last: int, *, at_once: bool) -> str:
    """Return SQL that inserts rows: in one transaction, 100 per statement; or each in its own transaction."""
    if not at_once:
        return "".join(f"INSERT INTO {TABLE} VALUES {_values(i)};\n" for i in range(first, last + 1))
    statements = (
        f"INSERT INTO {TABLE} VALUES "
        + ",".join(map(_values, range(begin, min(begin + BATCH, last + 1))))
        + ";\n"
        for begin in range(first, last + 1, BATCH)
    )
    return "BEGIN;\n" + "".join(statements) + "COMMIT;\n"


def acknowledgement(item: str) -> str:
    """Return SQL that prints what the probe takes as an acknowledgement of the statements before it."""
    return f"SELECT 'acknowledged {item}';\n"


def update_sql(last: int, by: int) -> str:
    """Return SQL that adds ``by`` to the amount of the rows up to ``last``, in one transaction."""
    return f"UPDATE {TABLE} SET amount = amount + ({by}) WHERE id <= {last};\n"


def delete_sql(last: int) -> str:
    """Return SQL that deletes the rows up to ``last``, in one transaction."""
    return f"DELETE FROM {TABLE} WHERE id <= {last};\n"


def sort_sql() -> str:
    """Return SQL that sorts all rows by their text, without an index to help, and prints how many there are."""
    numbered = f"SELECT row_number() OVER (ORDER BY note DESC, id) AS n FROM {TABLE}"
    return f"SELECT max(n) FROM ({numbered}) AS sorted;\n"


def _values(i: int) -> str:
    *numbers, note = row(i)
    return f"({','.join(map(str, numbers))},'{note}')"


def amounts(first: int, last: int) -> int:
    """Return the sum of the ``amount`` column."""
    return sum(_amounts(first, last))


def _amounts(first: int, last: int) -> Iterator[int]:
    factor, modulus = FORMS[2]
    return (i * factor % modulus for i in range(first, last + 1))
