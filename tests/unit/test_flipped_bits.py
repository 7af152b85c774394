"""One bit flipped in each column of each table: every verb that reads it names the trial, or prints the same as before."""

from __future__ import annotations

import re
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from store_examples import filled, header

from iotrial import cli
from iotrial.store import Store, schema

Said = tuple[int, str, str]
VERBS = (
    ("trials", "--json"),
    ("report", "1", "--json"),
    ("report", "1", "--markdown", "-"),
    ("compare", "1", "2", "--json"),
    ("export", "1", "/dev/null", "--force"),
    ("resume", "1"),
    ("continue", "1", "--time", "1s"),
)
PLACE = "/nonexistent/lab"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of two trials, closed and without a write-ahead log."""
    path = tmp_path_factory.mktemp("sound") / "trials.db"
    with Store.open(path) as store:
        for number in "ab":
            of = header(number * 32, time_s=60.0, blocks=3, lab="directory", folder=PLACE)
            filled(store, of)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def columns() -> list[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.statements())
        return [
            (table, name)
            for table in schema.TABLES
            for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
        ]


def flipped(value: object) -> object:
    """Return the value with its lowest bit flipped; in a text, that of a character in the middle."""
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
    """Flip a bit in the newest row of trial 1 in this table, bypassing the store's triggers."""
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
        if column in ("sequence", "number", "slot"):  # adjacent numbers are taken
            new = int(str(value)) ^ 64
        changed = connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))
        assert changed.rowcount == 1
        connection.execute(made)


def said(words: tuple[str, ...]) -> Said:
    """Run the verb in this process. Return its status, standard output and standard error."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["iotrial", *words])
        status = cli._status()
    text = out.getvalue()
    if words[0] == "trials":  # a list reads no runs, from which the duration comes, and only stored analyses
        text = re.sub(r'"duration_s": [0-9.]+|"account": [^\n]+', "", text)
    return status, text, err.getvalue()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the path where the verbs look for their store."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOTRIAL_STORE", str(folder / "trials.db"))
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder / "trials.db"


@pytest.fixture(scope="module")
def before(sound: Path, path: Path) -> dict[tuple[str, ...], Said]:
    """Return the output of each verb for the undamaged store."""
    found = {}
    for words in VERBS:
        path.write_bytes(sound.read_bytes())
        found[words] = said(words)
    for words, (status, *_) in found.items():  # two blocks are no answer
        assert status == {"report": 6, "resume": 2, "continue": 2, "run": 2}.get(words[0], 0), (
            words,
            found[words],
        )
    return found


@pytest.mark.parametrize(("table", "column"), columns())
def test_a_bit_flipped_in_any_column_is_named_by_every_verb(
    sound: Path, path: Path, before: dict[tuple[str, ...], Said], table: str, column: str
) -> None:
    for words in VERBS:
        path.write_bytes(sound.read_bytes())
        flip(path, table, column)
        status, out, err = said(words)
        text = out + err
        if (status, out) == before[words][:2] and err == before[words][2]:
            continue
        assert "trial 1" in text or '"problem"' in text or "no trial is called" in text, (
            f"{words}: {text[:2000]}"
        )
        if words[0] == "trials":
            assert status == 0
        else:
            assert status in (1, 2), f"{words}: {status}"
            assert out == "", f"{words}: {text[:2000]}"


@pytest.mark.parametrize("table", ["state", "run", "block_end", "event"])
def test_the_number_of_a_record_is_covered_by_its_checksum(sound: Path, path: Path, table: str) -> None:
    path.write_bytes(sound.read_bytes())
    flip(path, table, "sequence")
    status, out, err = said(("report", "1", "--json"))
    assert (status, out) == (1, "")
    assert "trial 1 is damaged: " in err
    assert "checksum differs" in err


def test_a_trial_whose_options_are_lost_cannot_go_on(path: Path) -> None:
    path.unlink()
    with Store.open(path) as store:
        filled(store, header("c" * 32))
    status, out, err = said(("continue", "1", "--time", "1s"))
    assert (status, out) == (2, "")
    assert "trial 1 does not record how it was started (lab, time_s, blocks)" in err
