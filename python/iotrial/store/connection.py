"""Opening a store's file: durable when written, careful when it is not what it should be.

WAL with ``synchronous = FULL``: a commit has reached the disk when it returns (SQLite documentation,
"Write-Ahead Logging", 3.2), one fsync each. Every complaint of SQLite becomes a StoreError that says what
to do.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from iotrial.errors import StoreError
from iotrial.store import schema

_WAIT_S = 30.0
_SETTINGS = "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA recursive_triggers = ON;"


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to the store of this file, made if it is missing; StoreError where that cannot be.

    Read-only, a missing file is an empty store, and nothing is created.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store of trials", hint="name a file by $IOTRIAL_STORE")
    with explained(path):
        if read_only:
            connection = _reading(path)
        else:
            _make_file(path)
            connection = sqlite3.connect(path.absolute(), timeout=_WAIT_S, isolation_level=None)
        try:
            _prepare(connection, path, read_only=read_only)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what SQLite and the system say inside into a StoreError with a hint."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"store {path}: refused: {error}") from error
    except sqlite3.Error as error:
        raise StoreError(f"store {path}: {error}", hint=_advice(error, path)) from error
    except OSError as error:
        raise StoreError(f"store {path}: {error.strerror or error}", hint=_WRITABLE) from error


_WRITABLE = "make the folder writable, or name another file by $IOTRIAL_STORE"


def _advice(error: sqlite3.Error, path: Path) -> str | None:
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"the file is damaged: keep a copy of it and of {path.name}-wal, save what can be read by "
            f"`sqlite3 {path} .recover`, and name a new file by $IOTRIAL_STORE to go on"
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _WRITABLE
    if primary == sqlite3.SQLITE_FULL:
        return "free some space on the disk; everything that was acknowledged before is stored"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process is writing to the store; try again when it is done"
    return None


def _make_file(path: Path) -> None:
    """The folder (mode 0700) and the file (mode 0600), so that neither is ever readable by others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _reading(path: Path) -> sqlite3.Connection:
    if not path.exists():
        return sqlite3.connect(":memory:", isolation_level=None)
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written SQLite cannot make the index of its log. Without a log, nobody is
        # writing and nothing is outstanding, so the file can be read as it is.
        connection.close()
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    connection.execute("BEGIN")  # one moment of the file: another process may be making it
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute("COMMIT")
    if empty and application == 0:
        _create(connection)
    elif application != schema.APPLICATION_ID:
        raise StoreError(
            f"store {path}: an SQLite file, but no store of trials",
            hint="name another file by $IOTRIAL_STORE",
        )
    elif version > schema.VERSION:
        raise StoreError(
            f"store {path}: written by a newer iotrial (schema {version}, this one knows {schema.VERSION})",
            hint="update iotrial, or name another file by $IOTRIAL_STORE; nothing was changed",
        )
    connection.executescript(_SETTINGS)
    if not read_only:
        mode = _write_ahead(connection)
        if mode != "wal":
            raise StoreError(
                f"store {path}: wanted a write-ahead log, SQLite keeps journal mode {mode}",
                hint="a file system without shared memory (such as NFS) cannot hold a store",
            )


def _create(connection: sqlite3.Connection) -> None:
    try:
        connection.executescript(schema.statements())
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        # Another process may have made the same tables in the meantime; then all is well.
        if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Turns the write-ahead log on. SQLite does not wait for other processes here, so this does."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.005)
