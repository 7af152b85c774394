"""Damaged stores: what can be read is shown, a reader changes nothing, a writer refuses."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from store_examples import filled, header, run

from iotrial.cli import cli
from iotrial.errors import IotrialError, StoreError
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of
from iotrial.store import Store

PAGE = 4096
CASES = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of three trials over a few dozen pages, closed and without a write-ahead log."""
    path = tmp_path_factory.mktemp("whole") / "trials.db"
    with Store.open(path) as store:
        for number in range(3):
            filled(store, header(f"{number}" * 16, controls=True), blocks=25)
    assert path.stat().st_size > 20 * PAGE
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "trials.db"))


def _contents(path: Path) -> tuple[bytes, bytes]:
    wal = path.with_name(path.name + "-wal")
    return path.read_bytes(), wal.read_bytes() if wal.exists() else b""


def _read_all(path: Path, *, analysed: bool) -> tuple[int, int]:
    """Return the number of trials that a reader can report, and of those named as damaged."""
    reported = 0
    with Store.open(path, read_only=True) as store:
        sound, damaged = store.listing()
        for trial in sound:
            try:
                if analysed:
                    json.dumps(report_json(document_of(store, trial.number)))
                else:
                    store.data(trial.number)
                store.events(trial.header.id)
            except IotrialError:
                continue
            reported += 1
    return reported, len(damaged)


@pytest.mark.parametrize(
    "seed",
    [
        seed if seed < CASES // 20 else pytest.param(seed, marks=pytest.mark.long)
        for seed in range(CASES // 10)
    ],
)
def test_bytes_flipped_on_random_pages_never_harm_a_reader_or_get_past_a_writer(
    path: Path, seed: int
) -> None:
    sound = path.read_bytes()
    draw = random.Random(seed)
    refused = 0
    for case in range(10):
        data = bytearray(sound)
        page = draw.randrange(len(data) // PAGE)
        for _ in range(draw.choice((1, 3, 30, 600))):
            data[page * PAGE + draw.randrange(PAGE)] = draw.randrange(256)
        path.write_bytes(data)
        try:
            _read_all(path, analysed=case == 0)
        except StoreError as error:
            assert error.hint  # noqa: PT017  nothing at all could be read, and it is said what to do
        assert path.read_bytes() == data
        try:
            with Store.open(path) as store:
                store.listing()
        except StoreError:
            refused += 1
            assert path.read_bytes() == data
    assert refused > 0


def test_a_trial_on_a_damaged_page_does_not_hide_the_others(path: Path) -> None:
    data = bytearray(path.read_bytes())
    found = data.rindex(
        b"1111111111111111{"
    )  # in the second trial's row of the trial table: its id and study
    data[found + 16 : found + 40] = b"\xff" * 24
    path.write_bytes(data)
    with Store.open(path, read_only=True) as store:
        sound, damaged = store.listing()
        assert [trial.number for trial in sound] == [1, 3]
        assert [lost.number for lost in damaged] == [2]
        assert len(store.data(3).blocks) == 25
        assert document_of(store, 1).valid
        with pytest.raises(StoreError):
            store.data(2)


@pytest.mark.parametrize(
    "index", ["state_of_trial", "run_of_attempt", "event_of_trial", "sqlite_autoindex_trial_1"]
)
def test_a_damaged_index_hides_nothing(path: Path, index: str) -> None:
    connection = sqlite3.connect(path)
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).fetchone()[0]
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = b"\xa5" * PAGE
    path.write_bytes(data)
    with Store.open(path, read_only=True) as store:
        assert "damaged" in store.warnings[0]
    assert _read_all(path, analysed=True) == (3, 0)


def test_a_value_changed_inside_its_cell_is_found_by_its_checksum(path: Path) -> None:
    """SQLite cannot detect it; the run is named."""
    data = path.read_bytes()
    old = b'treatment{"f":"a"}'
    assert old in data
    path.write_bytes(data.replace(old, b'treatment{"f":"b"}', 1))
    with Store.open(path, read_only=True) as store:
        assert store.warnings == ()
        outcomes = []
        for number in (1, 2, 3):
            try:
                outcomes.append(document_of(store, number).valid)
            except StoreError as error:
                assert re.search(r"run \d+ \(slot \d of block \d+ of .* its checksum differs", error.message)  # noqa: PT017
                outcomes.append("damaged")
    assert sorted(map(str, outcomes)) == ["True", "True", "damaged"]


@pytest.mark.parametrize("size", [0, 1, 15, 99, 100, 512, PAGE, PAGE + 1, 5 * PAGE, 20 * PAGE + 17])
def test_a_file_that_was_cut_off_is_an_empty_store_or_said_to_be_damaged(path: Path, size: int) -> None:
    os.truncate(path, size)
    before = path.read_bytes()
    if size == 0:
        assert _read_all(path, analysed=False) == (0, 0)
        Store.open(path).close()
        return
    try:
        with Store.open(path, read_only=True) as store:
            assert "damaged" in store.warnings[0]
            store.listing()
    except StoreError as error:
        assert "recover" in (error.hint or "")  # noqa: PT017
    assert path.read_bytes() == before
    with pytest.raises(StoreError):
        Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("header_bytes", [16, 60, 100])
def test_a_header_that_was_overwritten_is_said_and_left_alone(path: Path, header_bytes: int) -> None:
    data = b"\0" * header_bytes + path.read_bytes()[header_bytes:]
    path.write_bytes(data)
    for read_only in (True, False):
        with pytest.raises(StoreError) as caught:
            Store.open(path, read_only=read_only)
        assert "IOTRIAL_STORE" in (caught.value.hint or "")
    assert path.read_bytes() == data


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_log_costs_what_was_in_it_at_most(whole: Path, tmp_path: Path, seed: int) -> None:
    """Frames with a wrong checksum are not read (SQLite file format, 4.1): the reader sees an earlier state."""
    live = tmp_path / "live"
    live.mkdir()
    path = Path(shutil.copy(whole, live / "trials.db"))
    store = Store.open(path)
    store.create_trial(header("f" * 16))
    for block in range(20):
        store.append_run("f" * 16, run(block))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("trials.db", "trials.db-wal"):  # a log without its index, as in a copy made after a crash
        shutil.copy(live / name, copy)
    store.close()
    draw = random.Random(seed)
    wal = copy / "trials.db-wal"
    data = bytearray(wal.read_bytes())
    for _ in range(draw.choice((1, 50))):
        data[draw.randrange(len(data))] ^= 1 + draw.randrange(255)
    wal.write_bytes(data)
    before = _contents(copy / "trials.db")
    with Store.open(copy / "trials.db", read_only=True) as reader:
        sound, damaged = reader.listing()
        assert [trial.number for trial in sound][:3] == [1, 2, 3]
        assert not damaged
        if len(sound) == 4:
            blocks = [record.block for record in reader.data(4).runs]
            assert blocks == list(range(len(blocks)))
    assert _contents(copy / "trials.db") == before


def test_a_log_whose_file_is_missing_its_index_is_read_whole(whole: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(whole, tmp_path / "trials.db"))
    store = Store.open(path)
    filled(store, header("f" * 16), blocks=2)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("trials.db", "trials.db-wal"):
        shutil.copy(tmp_path / name, copy)
    store.close()
    assert _read_all(copy / "trials.db", analysed=True) == (4, 0)


# -- malicious files


def _changed(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    for table in ("trial", "state", "run", "block_end", "event"):
        connection.execute(f"DROP TRIGGER {table}_keeps_UPDATE")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_trigger_that_is_not_ours_is_never_fired(path: Path) -> None:
    _changed(
        path, "CREATE TRIGGER evil AFTER INSERT ON trial BEGIN INSERT INTO event SELECT 1, 1, '', '', ''; END"
    )
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not created by iotrial"):
        Store.open(path)
    assert path.read_bytes() == before
    assert _read_all(path, analysed=True) == (3, 0)


def test_a_view_in_the_place_of_a_table_is_refused_unread(path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT * FROM n"
    _changed(path, "DROP TABLE event", f"CREATE VIEW event AS {endless}")
    for read_only in (True, False):
        with pytest.raises(StoreError, match="event is not a table"):
            Store.open(path, read_only=read_only)


@pytest.mark.parametrize(
    "value",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[]",
        "1",
        "",
        "NaN",
        '{"wall": 1e999}',
        '{"wall": "x"}',
        '{"wall": ' + "9" * 5000 + "}",
        '{"wall": "\\ud800"}',
        '{"schema": 1, "study": {}}',
        '{"schema": 99}',
    ],
)
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("run", "responses"),
        ("run", "treatment"),
        ("run", "histograms"),
        ("trial", "study"),
        ("trial", "host"),
    ],
)
def test_json_that_is_no_record_is_an_error_of_the_store(
    path: Path, table: str, column: str, value: str
) -> None:
    key = "trial" if table == "run" else "number"
    connection = sqlite3.connect(path)
    connection.execute(f"DROP TRIGGER {table}_keeps_UPDATE")
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = 2", (value,))
    connection.commit()
    connection.close()
    with Store.open(path, read_only=True) as store:
        try:
            json.dumps(report_json(document_of(store, 2)), allow_nan=False).encode()
        except StoreError as error:
            said = f"{error.message} {error.hint}"
            assert any(word in said for word in ("damaged", "newer", "holds no study"))
        else:
            assert column in (
                "host",
                "histograms",
            )  # facts and bins may be few, and nothing is computed from them
        assert document_of(store, 1).valid
        assert document_of(store, 3).valid


def test_a_text_of_a_hundred_megabytes_is_not_read(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER trial_keeps_UPDATE")
    connection.execute("UPDATE trial SET host = hex(zeroblob(50000000)) WHERE number = 2")
    connection.commit()
    connection.close()
    with Store.open(path, read_only=True) as store:
        sound, damaged = store.listing()
    assert [trial.number for trial in sound] == [1, 3]
    assert "too big" in damaged[0].problem


# -- the verbs


@pytest.fixture
def verb(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., object]:
    monkeypatch.setenv("IOTRIAL_STORE", str(path))
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


def test_trials_lists_the_sound_and_names_the_damaged(
    path: Path, verb: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER trial_keeps_UPDATE")
    connection.execute("UPDATE trial SET study = '{' WHERE number = 2")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    verb("trials", "--json")
    out, err = capsys.readouterr()
    listed = json.loads(out)
    assert [trial["number"] for trial in listed["trials"]] == [1, 3]
    assert [lost["number"] for lost in listed["damaged"]] == [2]
    assert "trial 2 cannot be read" in err
    verb("report", "3", "--json")
    assert json.loads(capsys.readouterr().out)["trial"]["number"] == 3
    verb("export", "1")
    assert (path.parent / "1-example.iotrial").exists()
    assert path.read_bytes() == before


def test_a_newer_store_is_read_by_verbs_that_read_and_refused_by_those_that_write(
    path: Path, verb: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    verb("export", "1", "one.iotrial")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    before = path.read_bytes()
    for words in (("trials",), ("report", "2", "--json"), ("export", "2", "--force")):
        capsys.readouterr()
        verb(*words)
        assert "schema 7, this one knows 2): opened read-only" in capsys.readouterr().err
    for words in (("import", "one.iotrial"), ("resume", "1")):
        with pytest.raises(StoreError, match="newer iotrial") as caught:
            verb(*words)
        assert caught.value.exit_status == 1
    assert path.read_bytes() == before


def test_an_import_into_a_damaged_store_is_refused(
    path: Path, verb: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    verb("export", "1", "one.iotrial")
    data = bytearray(path.read_bytes())
    data[7 * PAGE : 8 * PAGE] = b"\xa5" * PAGE
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged") as caught:
        verb("import", "one.iotrial")
    assert "recover" in (caught.value.hint or "")
    assert path.read_bytes() == data
    capsys.readouterr()
    verb("trials")
    out, err = capsys.readouterr()
    assert "damaged" in err
    assert "example" in out
