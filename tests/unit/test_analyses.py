"""Cached analyses: computed once, equal to a fresh analysis, never used for other rows, another version or a damaged file."""

from __future__ import annotations

import json
import shutil
import sqlite3
import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iotrial.cli.finish import Outputs, conclude
from iotrial.errors import StoreError
from iotrial.report import analyses, opening
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses, cache_path
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of, packed_document, packed_summary, summary_of
from iotrial.report.render import html_report
from iotrial.runner.start import Ended
from iotrial.stats.model import FinalAnalysis
from iotrial.store import Store, records
from iotrial.store.checksums import checksum, numbered
from iotrial.store.model import TrialState
from iotrial.store.packed import open_packed, read_packed

CATALOGUE = Path(__file__).parents[2] / "docs" / "catalogue"
PACKED = CATALOGUE / "application" / "database-restart.iotrial"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one trial that was really measured."""
    path = tmp_path_factory.mktemp("store") / "trials.db"
    with open_packed(PACKED) as file, Store.open(path) as writer:
        writer.unpack(read_packed(file, "it"), source="it")
    return path


@pytest.fixture
def path(imported: Path, tmp_path: Path) -> Path:
    shutil.copy(imported, tmp_path / "trials.db")
    return tmp_path / "trials.db"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collect the levels (alpha) of the analyses that were actually computed."""
    levels: list[float] = []
    real: Callable[..., Any] = opening.analyse

    def noted(spec: Any, *args: Any, **how: Any) -> Any:
        levels.append(spec.alpha)
        return real(spec, *args, **how)

    monkeypatch.setattr(opening, "analyse", noted)
    return levels


def said(path: Path) -> str:
    with Store.open(path, read_only=True) as store:
        document = document_of(store, "last")
    return json.dumps(report_json(document)) + html_report(document)


def summary(path: Path, *, share: int = 1) -> Analysed:
    with Store.open(path, read_only=True) as store:
        return summary_of(store, "last", share=share)


def changed(path: Path, statement: str) -> None:
    """Change a row in a way that the store itself would refuse."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


def sealed_again(path: Path) -> None:
    """Recompute the checksum of every row of the trial, so that it matches the current contents."""
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


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(cache_path(path))) as connection:
        return connection.execute(query).fetchall()


def test_a_second_report_is_the_same_and_computes_no_analysis(path: Path, computed: list[float]) -> None:
    before = path.read_bytes()
    first = said(path)
    assert len(computed) == 1
    assert said(path) == first
    assert len(computed) == 1
    assert path.read_bytes() == before
    assert cache_path(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["application/database-restart", "block/position", "matrix/devices"])
def test_a_stored_analysis_is_the_computed_one_field_by_field(name: str, tmp_path: Path) -> None:
    packed, store = CATALOGUE / f"{name}.iotrial", tmp_path / "trials.db"
    Store.open(store).close()
    data, key = opening._read_packed(packed)
    with Analyses(store) as stored:
        document = opening._document(data, key, stored)
        found = stored.analysis(key)
        assert found == document.analysis
        assert stored.summary(key) == opening.analysed(document)


def test_the_end_of_a_trial_stores_its_analysis(
    path: Path, computed: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    with Store.open(path) as store:
        ended = Ended(store.find("last"), TrialState.DONE)
        assert conclude(store, ended, Outputs(as_json=True, html=str(page))) == 0
        assert len(computed) == 1
        document = document_of(store, "last")
        conclude(store, ended, Outputs(as_json=True))
    assert len(computed) == 1
    assert html_report(document) == page.read_text()
    assert json.loads(capsys.readouterr().out.split("\n}\n", 1)[0] + "\n}") == json.loads(
        json.dumps(report_json(document))
    )


def test_a_signal_gives_the_status_of_a_trial_that_it_ended(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        page = str(tmp_path / "page.html")
        ended = Ended(store.find("last"), TrialState.INTERRUPTED, signal=15)
        assert conclude(store, ended, Outputs(as_json=True, html=page, fail_if=("slower",))) == 143


def test_an_analysis_from_the_end_of_the_trial_is_used_only_for_the_blocks_that_are_stored(
    path: Path, computed: list[float]
) -> None:
    with Store.open(path) as store:
        expected = document_of(store, "last")
        assert len(computed) == 1
        data, other = expected.data, replace(expected.analysis, valid=False)
        without_remarks = replace(other, notes=other.notes[len(data.remarks) :])
        cache_path(path).unlink()
        last = data.blocks[-1]
        for blocks in (data.blocks[:-1], (*data.blocks[:-1], replace(last, gap=not last.gap))):
            of_others = document_of(store, "last", final=FinalAnalysis(blocks, data.unused, without_remarks))
            assert of_others.analysis == expected.analysis
            cache_path(path).unlink()
        assert len(computed) == 3
        final = FinalAnalysis(tuple(data.blocks), data.unused, without_remarks)
        assert document_of(store, "last", final=final).analysis == other
        assert len(computed) == 3


def test_a_packed_trial_is_analysed_once_where_there_is_a_store(
    path: Path, computed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "store_path", lambda: path)
    first = report_json(packed_document(PACKED))
    assert len(computed) == 1
    assert report_json(packed_document(PACKED)) == first
    assert packed_summary(PACKED).number == 0
    assert len(computed) == 1
    summary(path)  # the same trial, imported again
    assert len(computed) == 2


def test_a_packed_trial_leaves_nothing_where_there_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "store_path", lambda: tmp_path / "trials.db")
    packed_document(PACKED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET responses = replace(responses, '1', '2') WHERE sequence = 3",
        "UPDATE run SET evidence = replace(evidence, '0', '3') WHERE sequence = 3",
        "UPDATE trial SET margin = 0.31",
        "UPDATE trial SET alpha = 0.04",
        "INSERT INTO event (trial, at, kind, text) VALUES (1, '2026-01-01T00:00:00Z', 'other', 'x')",
        "UPDATE block_end SET gap = 1 WHERE sequence = 1",
    ],
)
def test_any_other_row_is_another_analysis(path: Path, computed: list[float], statement: str) -> None:
    said(path)
    summary(path)
    assert len(computed) == 1
    changed(path, statement)
    sealed_again(path)
    said(path)
    assert len(computed) == 2


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE run SET responses = replace(responses, '1', '2') WHERE sequence = 3", "run 3 "),
        ("UPDATE trial SET margin = 0.31", "its header "),
        ("UPDATE block_end SET gap = 1 WHERE sequence = 1", "the end of block 0 "),
    ],
)
@pytest.mark.parametrize("read", [said, summary])
def test_a_row_that_was_changed_without_its_checksum_is_named_though_an_analysis_is_stored(
    path: Path, statement: str, named: str, read: Callable[[Path], object]
) -> None:
    said(path)
    changed(path, statement)
    with pytest.raises(StoreError, match=f"trial 1 is damaged: {named}"):
        read(path)


def test_a_trial_that_was_damaged_since_is_refused(path: Path) -> None:
    said(path)
    changed(path, "UPDATE run SET arm = 'another' WHERE sequence = 3")
    with pytest.raises(StoreError, match="damaged"):
        said(path)


def test_a_running_trial_is_neither_stored_nor_found(path: Path, computed: list[float]) -> None:
    with Store.open(path) as store:
        # this process conducts it and is alive
        store.set_state(store.find("last").header.id, TrialState.RUNNING)
        for _ in range(2):
            document_of(store, "last")
    assert len(computed) == 2
    assert rows(path, "SELECT count(*) FROM analysis") == [(0,)]


@pytest.mark.parametrize("before", [True, False], ids=["just before", "just after"])
def test_an_analysis_of_what_was_there_before_something_was_added_is_not_found_for_what_is_there_now(
    path: Path, computed: list[float], monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    real = Store.data_and_digest

    def meanwhile(store: Store, ref: str | int) -> Any:
        found = None if before else real(store, ref)
        with Store.open(path) as other:
            other.note(other.find(ref).header.id, "other", "x")
        return found or real(store, ref)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "data_and_digest", meanwhile)
        said(path)
    with Store.open(path) as store, Analyses(path) as stored:
        assert stored.newest_summary(store.find(1).header.id, store.mark(1)) is None
    said(path)
    assert len(computed) == 2


@pytest.mark.parametrize("column", ["summary", "analysis"])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE analysis SET {0} = substr({0}, 1, length({0}) - 9)",
        "UPDATE analysis SET {0} = x'78'",
        "UPDATE analysis SET {0} = CAST(x'00' || substr({0}, 2) AS BLOB)",
        # valid contents in the wrong place
        "UPDATE analysis SET summary = analysis, analysis = summary",
        "UPDATE analysis SET key = randomblob(32)",
        "UPDATE analysis SET method = '0 0'",
    ],
)
def test_a_damaged_analysis_is_computed_again(
    path: Path, computed: list[float], column: str, damage: str
) -> None:
    first, one = said(path), summary(path)
    assert len(computed) == 1
    with closing(sqlite3.connect(cache_path(path))) as connection, connection:
        connection.execute(damage.format(column))
    for _ in range(2):  # the second time from the repaired cache
        assert summary(path) == one
        assert said(path) == first
        assert len(computed) == 1 + ("{0}" not in damage or column == "analysis")


def test_the_mark_and_the_level_of_a_summary_are_sealed_too(path: Path) -> None:
    one = summary(path)
    with Store.open(path, read_only=True) as store:
        mark = store.mark(1)
    for column, value in (("mark", "'9 9'"), ("share", "7"), ("trial", "'other'")):
        with closing(sqlite3.connect(cache_path(path))) as connection, connection:
            connection.execute(f"UPDATE analysis SET {column} = {value}")
        wanted = {"mark": mark, "share": 1, "trial": one.id, column: value.strip("'")}
        with Analyses(path) as stored:
            found = stored.newest_summary(wanted["trial"], wanted["mark"], share=int(wanted["share"]))
            assert found is None
        cache_path(path).unlink()
        summary(path)


def test_another_version_of_the_method_computes_its_own(
    path: Path, computed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(path)
    monkeypatch.setattr(analyses, "VERSION", "another")
    said(path)
    assert len(computed) == 2


def test_a_page_finds_a_summary_without_reading_rows_until_something_is_added(path: Path) -> None:
    one, half = summary(path), summary(path, share=2)
    with Store.open(path) as store, Analyses(path) as stored:
        assert stored.newest_summary(one.id, store.mark(1)) == one
        assert stored.newest_summary(one.id, store.mark(1), share=2) == half
        assert stored.newest_summary(one.id, store.mark(1), share=3) is None
        assert stored.newest_summary("another", store.mark(1)) is None
        store.note(one.id, "energy", "{}")
        assert stored.newest_summary(one.id, store.mark(1)) is None


def test_the_oldest_make_room_for_new_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary(path, share=2)
    ((newer,),) = rows(path, "SELECT length(summary) + length(analysis) FROM analysis WHERE share = 2")
    assert len(rows(path, "SELECT 1 FROM analysis")) == 2
    monkeypatch.setattr(analyses, "_ROOM", newer + 50)
    summary(path, share=3)
    assert rows(path, "SELECT share FROM analysis") == [(3,)]


def test_tables_of_earlier_versions_go(path: Path) -> None:
    with closing(sqlite3.connect(cache_path(path))) as connection, connection:
        connection.execute("CREATE TABLE report (number INTEGER PRIMARY KEY, text BLOB)")
        connection.execute("CREATE TABLE summed_up (trial TEXT)")
    said(path)
    names = {name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert names == {"analysis"}


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + bytes(4000), b""])
def test_a_file_that_is_none_of_ours_stores_nothing_and_hinders_nothing(path: Path, content: bytes) -> None:
    first = said(path)
    cache_path(path).write_bytes(content)
    assert said(path) == first
    cache_path(path).unlink()
    cache_path(path).mkdir()
    assert said(path) == first


def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_packed(PACKED) as file, Store.in_memory() as store:
        store.unpack(read_packed(file, "it"), source="it")
        document_of(store, "last")
    assert list(tmp_path.iterdir()) == []


# -- contents of a summary


def test_effects_are_those_of_the_report_and_medians_those_of_the_runs(path: Path) -> None:
    with Store.open(path, read_only=True) as store:
        document = document_of(store, 1)
    found = summary(path)
    assert [effect for effect in found.effects if effect.primary] == [row.effect for row in document.primary]
    assert found.headline == document.summary.headline
    assert (found.runs, found.blocks) == (len(document.data.runs), len(document.data.ends))
    assert found.levels
    sound = {(b.condition, b.index) for b in document.data.blocks if b.void is None}
    for level in found.levels:
        values = [
            run.responses[level.response]
            for run in document.data.runs
            if (run.condition, run.block) in sound
            and (run.arm, run.failure) == (level.arm, None)
            and document.conditions.of_key(run.condition).workload == level.workload
            and document.conditions.of_key(run.condition).levels == level.condition
        ]
        assert level.runs == len(values)
        assert level.median == pytest.approx(statistics.median(values), rel=1e-12)
        for bound in (level.low, level.high):
            assert bound is None or bound in values
        assert level.low is None or level.low <= level.median
        assert level.high is None or level.high >= level.median
    assert any(level.low is not None and level.high is not None for level in found.levels)


def test_a_share_of_the_level_gives_wider_intervals(path: Path) -> None:
    whole, half = summary(path), summary(path, share=2)
    pairs = list(zip(whole.effects, half.effects, strict=True))
    assert all(other.family_alpha == one.family_alpha / 2 for one, other in pairs)
    known = [(one, other) for one, other in pairs if one.low is not None and other.low is not None]
    assert known
    for one, other in known:
        assert other.low <= one.low <= one.high <= other.high  # type: ignore[operator]
    assert any(other.low < one.low for one, other in known)  # type: ignore[operator]


def test_runs_of_two_trials_that_were_stored_in_turn_are_those_of_each(path: Path) -> None:
    with Store.open(path, read_only=True) as store:
        whole, alone = store.data_and_digest("last")
    # put another trial's run between the two halves of this one
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
        data, digest = store.data_and_digest(1)
        assert data.runs == whole.runs
        assert digest != alone  # the sequence numbers are stored too
