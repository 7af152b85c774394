"""Flipped bits in the rows of a real trial: detected, or harmless to what is read. Old stores can still be read."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from store_examples import filled, header, run

from iotrial.cli import cli
from iotrial.errors import StoreError
from iotrial.store import Store, schema
from iotrial.store.model import RunRecord
from iotrial.store.packed import open_packed, read_packed

PACKED = Path(__file__).parents[2] / "docs" / "catalogue" / "application" / "database-restart.iotrial"
FLIPS = 200


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one trial that was measured, closed and without a write-ahead log."""
    path = tmp_path_factory.mktemp("real") / "trials.db"
    with Store.open(path) as store, open_packed(PACKED) as file:
        store.unpack(read_packed(file, "x.iotrial"), source="x.iotrial")
    return path


def said(store: Store) -> Any:
    data = store.data(1)
    facts = (data.trial.header, data.trial.state, data.ends, store.events(data.trial.header.id))
    return repr(facts), [
        repr([dict(value) if isinstance(value, Mapping) else value for value in astuple_of(run)])
        for run in data.runs
    ]


def astuple_of(run: RunRecord) -> list[object]:
    return [getattr(run, field.name) for field in fields(run)]


def places_of_runs(path: Path) -> list[int]:
    """Return the offsets of all bytes in pages that hold runs (SQLite file format: leaf pages of the run table)."""
    connection = sqlite3.connect(path)
    try:
        pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'run' AND pagetype = 'leaf'")
        numbers = [number for (number,) in pages]
    except sqlite3.OperationalError:  # an SQLite without dbstat: find them by the rows' first bytes
        data = path.read_bytes()
        numbers = [
            1 + at // 4096
            for at in range(0, len(data), 4096)
            if data[at] == 13 and b"workload=" in data[at : at + 4096]
        ]
    connection.close()
    return [(number - 1) * 4096 + at for number in numbers for at in range(4096)]


def test_every_drawn_bit_flipped_in_the_rows_of_runs_is_found_or_changes_nothing(
    real: Path, tmp_path: Path
) -> None:
    with Store.open(real, read_only=True) as store:
        wanted = said(store)
    sound = real.read_bytes()
    places = places_of_runs(real)
    assert len(places) > 10 * 4096
    draw = random.Random(16)
    path = tmp_path / "trials.db"
    path.write_bytes(sound)
    found = 0
    for _ in range(FLIPS):
        at, bit = draw.choice(places), 1 << draw.randrange(8)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), bytes([sound[at] ^ bit]), at)
        try:
            with Store.open(path, read_only=True, checked=False) as store:
                same = said(store) == wanted
        except StoreError:
            found += 1
        else:
            assert same, f"bit {bit} of byte {at}"
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), sound[at : at + 1], at)
    assert found > FLIPS // 2


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    for table in schema.TABLES:
        connection.execute(f"DROP TRIGGER {table}_keeps_UPDATE")
    assert connection.execute(statement).rowcount > 0
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (
            """UPDATE run SET responses = '{"wall":9.0}' WHERE sequence = 7""",
            "run 7 (slot 0 of block 2",
        ),
        ("UPDATE run SET started_s = started_s + 1 WHERE sequence = 3", "run 3 "),
        ("UPDATE run SET checksum = NULL WHERE sequence = 3", "run 3 "),
        ("UPDATE run SET sequence = sequence + 1000", "run 1 "),
        ("UPDATE block_end SET void = 'why not' WHERE block = 1", "the end of block 1 "),
        ("UPDATE trial SET alpha = 0.5", "its header"),
        ("UPDATE trial SET seed = replace(seed, '0', '1')", "its header"),
        ("UPDATE state SET state = 'invalid' WHERE state = 'done'", "state 2"),
        ("UPDATE event SET text = 'x'", "event 1"),
    ],
)
def test_each_kind_of_record_is_checked_and_named(tmp_path: Path, statement: str, named: str) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        filled(store)
    damage(path, statement)
    with Store.open(path, read_only=True) as store, pytest.raises(StoreError) as caught:
        store.data(1)
    assert caught.value.message.startswith("trial 1 is damaged: ")
    assert named in caught.value.message
    assert caught.value.exit_status == 1
    with Store.open(path, read_only=True) as store, pytest.raises(StoreError, match="damaged"):
        store.pack(1, (tmp_path / "out").open("wb"))


def test_a_damaged_trial_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        for number in "ab":
            filled(store, header(number * 16))
    damage(path, "UPDATE run SET started_s = 77 WHERE trial = 1 AND slot = 0")
    monkeypatch.setenv("IOTRIAL_STORE", str(path))
    for words in (["trials", "--json"], ["report", "2", "--json"]):
        cli.main(words, prog_name="iotrial", standalone_mode=False)
        assert json.loads(capsys.readouterr().out)
    with pytest.raises(StoreError, match="trial 1 is damaged: run 1 "):
        cli.main(["report", "1"], prog_name="iotrial", standalone_mode=False)


def test_a_store_without_checksums_is_read_as_before_and_gets_them_for_what_is_added(tmp_path: Path) -> None:
    """The old store has the first version of the tables, filled from the current one's rows."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    with Store.open(new) as store:
        filled(store)
        wanted = said(store)
    connection = sqlite3.connect(old, isolation_level=None)
    connection.executescript(schema.statements(version=1))
    connection.execute("ATTACH ? AS new", (str(new),))
    for table in ("trial", "state", "run", "event", "block_end"):
        names = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
        assert "checksum" not in names
        connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")
    connection.close()
    before = old.read_bytes()
    with Store.open(old, read_only=True) as store:
        assert said(store) == wanted
        assert store.warnings == ()
    assert old.read_bytes() == before
    copy = Path(shutil.copy(old, tmp_path / "copy.db"))
    with Store.open(copy) as store:
        assert said(store) == wanted
        store.create_trial(header("f" * 16))
        store.append_run("f" * 16, run())
    rows = sqlite3.connect(copy).execute("SELECT trial, checksum IS NULL FROM run GROUP BY 1, 2").fetchall()
    assert rows == [(1, 1), (2, 0)]
    with Store.open(copy) as store:  # its tables are those of a new store
        assert len(store.data(2).runs) == 1
