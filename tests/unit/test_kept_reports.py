"""Reports kept beside a store: the same text as anew, and never that of other rows, of a running or a damaged trial."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iotrial.cli.console import Console
from iotrial.cli.ending import conclude, say
from iotrial.errors import StoreError
from iotrial.report import kept_reports, opening
from iotrial.report.beside import beside
from iotrial.report.jsonreport import report_json
from iotrial.report.kept_reports import report_of
from iotrial.store import Store, records
from iotrial.store.checksums import checksum, numbered
from iotrial.store.model import TrialState
from iotrial.store.packed import open_packed, read_packed

PACKED = Path(__file__).parents[2] / "docs" / "catalogue" / "application" / "database-restart.iotrial"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of one trial that was really measured."""
    with open_packed(PACKED) as file, Store.open(tmp_path / "trials.db") as writer:
        writer.unpack(read_packed(file, "it"), source="it")
    return tmp_path / "trials.db"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The trials that were analysed."""
    refs: list[object] = []
    real = opening.document_of

    def noted(store: Store, ref: str | int, *, processes: int = 1) -> object:
        refs.append(ref)
        return real(store, ref, processes=processes)

    monkeypatch.setattr(opening, "document_of", noted)
    return refs


def said(path: Path) -> str:
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        return report.json()


@pytest.mark.parametrize("as_json", [True, False])
def test_the_report_at_the_end_of_a_trial_is_the_first_that_is_kept(
    as_json: bool, path: Path, asked: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    with Store.open(path) as store:
        assert conclude(store, "last", as_json=as_json, html=str(page), fail_if=(), signal=None) == 0
    assert asked
    asked.clear()
    out = capsys.readouterr().out
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        assert report.html() == page.read_text()
        say(report, as_json=as_json, html=page)
        assert report.outcome.valid
    assert capsys.readouterr().out == out != ""
    assert asked == []


def test_a_word_is_said_before_a_trial_is_analysed_and_none_where_its_report_is_kept(path: Path) -> None:
    told: list[int] = []
    with Store.open(path, read_only=True) as store:
        blocks = len(store.data("last").ends)
        for _ in range(2):
            with report_of(store, "last", told=told.append) as report:
                assert told in ([], [blocks])
                report.json()
    assert told == [blocks]


def test_the_oldest_texts_make_room_for_new_ones(
    path: Path, asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        report.html()
        report.json()
    with closing(sqlite3.connect(beside(path))) as connection:
        ((older, newer),) = connection.execute(
            "SELECT (SELECT length(text) FROM report WHERE number = 1), (SELECT length(text) FROM report WHERE number = 2)"
        )
    monkeypatch.setattr(kept_reports, "_ROOM", newer + older // 2)
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        report.markdown()
    asked.clear()
    said(path)
    assert asked == []
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        report.html()
    assert asked


def test_a_signal_gives_the_status_of_a_trial_that_it_ended(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        page = str(tmp_path / "page.html")
        assert conclude(store, "last", as_json=True, html=page, fail_if=("slower",), signal=15) == 143


def changed(path: Path, statement: str) -> None:
    """A change that the store itself would refuse."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


def test_what_is_asked_for_again_is_the_same_in_every_format_and_analyses_nothing(
    path: Path, asked: list[object]
) -> None:
    def all_formats() -> list[object]:
        terminal = io.StringIO()
        with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
            report.print(Console(file=terminal, width=90), html_path="page.html")
            return [report.html(), report.json(), report.markdown(), report.outcome, terminal.getvalue()]

    first = all_formats()
    assert asked
    asked.clear()
    assert all_formats() == first
    assert asked == []
    with Store.open(path, read_only=True) as store:
        document = opening.document_of(store, "last")
    assert first[1] == json.dumps(report_json(document), indent=1)
    assert first[3].valid is document.valid  # type: ignore[attr-defined]


def test_a_console_of_another_width_has_a_text_of_its_own(path: Path, asked: list[object]) -> None:
    lines = []
    for width in (70, 120):
        terminal = io.StringIO()
        with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
            report.print(Console(file=terminal, width=width), html_path=None)
        lines.append(terminal.getvalue())
    assert len(asked) == 2
    assert lines[0] != lines[1]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET responses = replace(responses, '1', '2') WHERE sequence = 3",
        "UPDATE run SET evidence = replace(evidence, '0', '3') WHERE sequence = 3",
        "UPDATE trial SET margin = 0.31",
        "INSERT INTO event (trial, at, kind, text) VALUES (1, '2026-01-01T00:00:00Z', 'other', 'x')",
        "UPDATE block_end SET gap = 1 WHERE sequence = 1",
    ],
)
def test_any_other_row_is_another_report(path: Path, asked: list[object], statement: str) -> None:
    said(path)
    asked.clear()
    changed(path, statement)
    sealed_again(path)
    said(path)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE run SET responses = replace(responses, '1', '2') WHERE sequence = 3", "run 3 "),
        ("UPDATE trial SET margin = 0.31", "its header "),
        (
            "INSERT INTO event (trial, at, kind, text) VALUES (1, '2026-01-01T00:00:00Z', 'other', 'x')",
            "event ",
        ),
        ("UPDATE block_end SET gap = 1 WHERE sequence = 1", "the end of block 0 "),
    ],
)
def test_a_row_that_was_changed_without_its_checksum_is_named_though_a_report_is_kept(
    path: Path, asked: list[object], statement: str, named: str
) -> None:
    said(path)
    asked.clear()
    changed(path, statement)
    with pytest.raises(StoreError, match=f"trial 1 is damaged: {named}"):
        said(path)


def sealed_again(path: Path) -> None:
    """Every row of the trial with the checksum that the store writes for what is in it now."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (trial,) = connection.execute("SELECT id FROM trial WHERE number = 1").fetchone()
        for table, columns, key in (
            ("trial", records.HEADER_COLUMNS, "number"),
            ("run", records.STORED_RUN_COLUMNS, "sequence"),
            ("block_end", records.END_COLUMNS, "sequence"),
            ("event", records.EVENT_COLUMNS, "sequence"),
        ):
            for number, *row in connection.execute(f"SELECT {key}, {columns} FROM {table}").fetchall():
                seal = numbered(checksum(table, trial, row), number)
                connection.execute(f"UPDATE {table} SET checksum = ? WHERE {key} = ?", (seal, number))


def test_a_trial_that_was_damaged_since_is_refused(path: Path) -> None:
    said(path)
    changed(path, "UPDATE run SET arm = 'another' WHERE sequence = 3")
    with pytest.raises(StoreError, match="damaged"):
        said(path)


def test_a_running_trial_is_neither_kept_nor_looked_up(path: Path, asked: list[object]) -> None:
    with Store.open(path) as store:
        trial = store.find("last")
        # this process conducts it, and lives
        store.set_state(trial.header.id, TrialState.RUNNING)
        for _ in range(2):
            with report_of(store, "last") as report:
                report.json()
    assert len(asked) == 2
    assert not beside(path).exists()


def test_nothing_is_kept_of_a_trial_that_was_written_to_meanwhile(path: Path, asked: list[object]) -> None:
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        assert report.document
        with Store.open(path) as other:
            other.note(other.find("last").header.id, "other", "x")
        report.json()
    with sqlite3.connect(beside(path)) as connection:
        assert connection.execute("SELECT count(*) FROM report").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE report SET text = substr(text, 1, length(text) - 9)",
        "UPDATE report SET text = x'78'",
        "UPDATE report SET digest = x'00'",
        # a sound text in the place of another
        "UPDATE report SET (digest, text) = (SELECT digest, text FROM report ORDER BY number LIMIT 1)",
    ],
)
def test_a_damaged_text_is_made_anew(path: Path, asked: list[object], damage: str) -> None:
    with Store.open(path, read_only=True) as store, report_of(store, "last") as report:
        report.markdown()
        first = report.json()
    asked.clear()
    with sqlite3.connect(beside(path)) as connection:
        connection.execute(damage)
    connection.close()
    assert said(path) == first
    assert len(asked) == 1


def test_another_version_of_the_program_makes_its_own(
    path: Path, asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(path)
    monkeypatch.setattr(kept_reports, "_drawn_by", lambda: "another")
    said(path)
    assert len(asked) == 2


def test_a_file_that_is_no_cache_keeps_nothing_and_hinders_nothing(path: Path) -> None:
    first = said(path)
    beside(path).write_bytes(b"no database" * 1000)
    assert said(path) == first


def test_runs_of_two_trials_that_were_stored_in_turn_are_those_of_each(path: Path) -> None:
    with Store.open(path, read_only=True) as store:
        whole, alone = store.data("last"), store.fingerprint("last")[1]
    # another trial's run between the two halves of this one's
    changed(path, "UPDATE run SET sequence = sequence + 100000 WHERE sequence > 20")
    sealed_again(path)
    with sqlite3.connect(path) as connection:
        names = [
            row[1] for row in connection.execute("PRAGMA table_info(trial)") if row[1] not in ("number", "id")
        ]
        columns = ", ".join(names)
        connection.execute(f"INSERT INTO trial (id, {columns}) SELECT 'other', {columns} FROM trial")
        names = [
            row[1]
            for row in connection.execute("PRAGMA table_info(run)")
            if row[1] not in ("sequence", "trial")
        ]
        columns = ", ".join(names)
        connection.execute(
            f"INSERT INTO run (sequence, trial, {columns}) SELECT 22, 2, {columns} FROM run WHERE sequence = 20"
        )
    connection.close()
    with Store.open(path, read_only=True) as store:
        assert store.data(1).runs == whole.runs
        assert store.fingerprint(1)[1] != alone  # their places are stored too
