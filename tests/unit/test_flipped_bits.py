"""One bit flipped in each column of each table: every verb that reads it names the trial, or says what it said before."""

from __future__ import annotations

import re
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from store_examples import filled, header

import program
from iotrial.store import Store, schema

VERBS = (
    ("trials", "--json"),
    ("report", "1", "--json"),
    ("report", "1", "--markdown", "-"),
    ("compare", "1", "2", "--json"),
    ("export", "1", "/dev/null", "--force"),
    ("resume", "1"),
    ("continue", "1", "--time", "1s"),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two trials, closed and without a log."""
    path = tmp_path_factory.mktemp("sound") / "trials.db"
    with Store.open(path) as store:
        for number in "ab":
            filled(store, header(number * 32, time_s=60.0, blocks=3))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


OPEN = pytest.mark.xfail(
    reason="a record's number is in no checksum; resume or continue end in a trace", strict=False
)


def columns() -> list[object]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.statements())
        return [
            pytest.param(table, name, marks=OPEN) if name == "sequence" else (table, name)
            for table in schema.TABLES
            for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
        ]


def flipped(value: object) -> object:
    """With its lowest bit the other way; of a text that of a character in its middle."""
    if value is None:
        return 1
    if isinstance(value, int):
        return value ^ 1
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return struct.unpack("<d", struct.pack("<q", bits ^ 1))[0]
    text = str(value)
    middle = len(text) // 2
    return text[:middle] + chr(ord(text[middle : middle + 1] or "a") ^ 1) + text[middle + 1 :]


def flip(path: Path, table: str, column: str) -> None:
    """In the newest row of trial 1 in this table, as the store itself never would."""
    own = "number = 1" if table == "trial" else "trial = 1"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        trigger = f"{table}_keeps_UPDATE"
        (made,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchone()
        connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        row, value = connection.execute(
            f"SELECT rowid, {column} FROM {table} WHERE {own} ORDER BY rowid DESC LIMIT 1"
        ).fetchone()
        new = flipped(value)
        if column in ("sequence", "number", "slot"):  # the numbers next to it are taken
            new = int(str(value)) ^ 64
        changed = connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))
        assert changed.rowcount == 1
        connection.execute(made)


def said(words: tuple[str, ...]) -> tuple[int, str, str]:
    done = program.iotrial(*words)
    out = done.stdout
    if words[0] == "trials":  # how long a trial took is made of its runs, which a list does not read
        out = re.sub(r'"duration_s": [0-9.]+', "", out)
    return done.returncode, out, done.stderr


@pytest.mark.parametrize(("table", "column"), columns())
def test_a_bit_flipped_in_any_column_is_named_by_every_verb(
    sound: Path,
    tmp_path: Path,
    table: str,
    column: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "trials.db"
    monkeypatch.setenv("IOTRIAL_STORE", str(path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in VERBS:
        path.write_bytes(sound.read_bytes())
        before = said(words)
        path.write_bytes(sound.read_bytes())
        flip(path, table, column)
        status, out, err = said(words)
        text = out + err
        assert "Traceback" not in text
        if (status, out) == before[:2]:
            continue
        assert "trial 1" in text or '"problem"' in text or "no trial is called" in text, (
            f"{words}: {text[:2000]}"
        )
        assert status in (0 if words[0] == "trials" else 1, 1, 2), f"{words}: {status}"
        if words[0] != "trials":
            assert out == "", f"{words}: {text[:2000]}"
