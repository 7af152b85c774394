"""Database workloads: rows checked against SQLite's own arithmetic, invalid keys, and programs by path."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from iotrial.errors import MissingTool, RequestError, StudyError, UnsupportedLevel
from iotrial.lab import registry
from iotrial.runner.refusals import check_programs
from iotrial.study.model import Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.schema import Problem
from iotrial.study.select import select
from iotrial.study.work import work_of
from iotrial.workloads.database import DatabaseWork
from iotrial.workloads.databases import engine, rows

STUDY = """
[study]
name = "commits"
question = "What does waiting cost?"
[[factor]]
name = "commit"
knob = "work.option"
option = "durable"
levels = [true, false]
[[workload]]
name = "count"
kind = "database"
engine = "sqlite"
[[workload]]
name = "grep"
kind = "command"
argv = ["true"]
default = false
[[claim]]
source = "somebody"
text = "it costs"
level = "false"
"""


def study() -> Study:
    return read_study(STUDY, "x.toml", trusted=False)


def database(work: DatabaseWork) -> sqlite3.Connection:
    """Fill a database with the engine's SQL, in a different program than the one that runs use."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(engine("sqlite").before(work) + engine("sqlite").filling(work))
    return connection


def test_rows_are_what_a_database_makes_of_their_closed_form() -> None:
    work = DatabaseWork(engine="sqlite", rows=5000, changed=321)
    found = database(work).execute(f"SELECT * FROM {rows.TABLE} ORDER BY id").fetchall()
    assert found == [rows.row(i) for i in range(1, 5001)]
    printed = "".join("|".join(map(str, row)) + "\n" for row in found[:7])
    assert rows.lines(1, 7, "|") == printed


@pytest.mark.parametrize("at_once", [True, False])
def test_inserted_rows_follow_the_table_and_go_again(at_once: bool) -> None:
    work = DatabaseWork(engine="sqlite", rows=1000, changed=321)
    connection = database(work)
    connection.executescript(rows.insert_sql(1001, 1321, at_once=at_once))
    query = f"SELECT count(*), sum(amount), min(id), max(id) FROM {rows.TABLE} WHERE id > 1000"
    assert connection.execute(query).fetchone() == (321, rows.amounts(1001, 1321), 1001, 1321)
    connection.executescript(engine("sqlite").deletion(work))
    assert connection.execute(f"SELECT count(*), max(id) FROM {rows.TABLE}").fetchone() == (1000, 1000)


def test_updated_and_deleted_rows_are_restored_by_the_undoing_statements() -> None:
    connection = database(DatabaseWork(engine="sqlite", rows=1000))
    whole = connection.execute(f"SELECT * FROM {rows.TABLE} ORDER BY id").fetchall()
    connection.executescript(rows.update_sql(321, 1))
    changed = connection.execute(f"SELECT id, amount FROM {rows.TABLE} ORDER BY id").fetchall()
    assert changed == [(row[0], row[3] + (row[0] <= 321)) for row in whole]
    connection.executescript(rows.update_sql(321, -1) + rows.delete_sql(321))
    assert connection.execute(f"SELECT * FROM {rows.TABLE} ORDER BY id").fetchall() == whole[321:]
    connection.executescript(rows.insert_sql(1, 321, at_once=True))
    assert connection.execute(f"SELECT * FROM {rows.TABLE} ORDER BY id").fetchall() == whole


def test_a_sort_numbers_every_row_and_needs_a_sorting_step() -> None:
    connection = database(DatabaseWork(engine="sqlite", rows=1000))
    assert connection.execute(rows.sort_sql()).fetchall() == [(1000,)]
    steps = connection.execute(f"EXPLAIN QUERY PLAN {rows.sort_sql()}").fetchall()
    assert any("USE TEMP B-TREE FOR ORDER BY" in step[3] for step in steps)


def test_an_index_is_seen_to_be_there_and_goes_again() -> None:
    connection = database(DatabaseWork(engine="sqlite", rows=1000))
    before = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.executescript(rows.index_sql())
    assert connection.execute(engine("sqlite").index_query()).fetchone() == (1,)
    connection.executescript(engine("sqlite").drop_index())
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == before
    with pytest.raises(sqlite3.OperationalError):
        connection.execute(engine("sqlite").index_query())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"engine": "sqlite", "huge_pages": True}, "an engine with a server"),
        ({"engine": "sqlite", "connection": "loopback"}, "an engine with a server"),
        ({"engine": "postgresql", "buffer_dump": True}, "is only for MariaDB"),
        ({"engine": "sqlite", "test": "fetch", "rows": 1000, "changed": 1001}, "at most 1,000 rows"),
        ({"engine": "mariadb", "test": "delete", "rows": 1000, "changed": 1001}, "at most 1,000 rows"),
        ({"engine": "sqlite", "separate_log": False}, "an engine with a server"),
        ({"engine": "postgresql", "separate_temporary": True}, "is only for MariaDB"),
    ],
)
def test_keys_that_cannot_work_together_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(Problem, match=message):
        work_of(DatabaseWork, keys)


def test_a_cold_run_must_read_its_rows_unless_the_server_has_read_them_back() -> None:
    count = DatabaseWork(engine="mariadb", rows=10_000)
    assert count.reads_bytes(4096, 1) == 200_000
    remembering = DatabaseWork(engine="mariadb", rows=10_000, buffer_dump=True)
    assert remembering.reads_bytes(4096, 1) == 0


def test_one_path_is_pinned_and_several_are_compared() -> None:
    one = select(study(), sets={"program": ["/opt/a/bin"]})
    assert Setting("program.path", "/opt/a/bin") in one.fixed
    assert [factor.name for factor in one.factors] == ["commit"]
    assert len(one.claims) == 1
    two = select(study(), sets={"program": ["/opt/a/bin", "/opt/b/bin"]})
    [factor] = two.factors
    assert (factor.name, factor.reference) == ("program", "/opt/a/bin")
    assert [level.settings for level in factor.levels] == [
        (Setting("program.path", "/opt/a/bin"),),
        (Setting("program.path", "/opt/b/bin"),),
    ]
    assert two.fixed == (Setting("work.option", "true", (("option", "durable"),)),), "at its reference"
    assert two.claims == ()
    assert [workload.name for workload in two.workloads] == ["count"]
    both = select(study(), sets={"program": ["/opt/a/bin", "/opt/b/bin"], "commit": ["all"]})
    assert [factor.name for factor in both.factors] == ["program", "commit"]


def test_a_study_cannot_name_a_program_by_its_path() -> None:
    for table in (
        '[[fixed]]\nknob = "program.path"\nlevel = "/tmp/x"\n',
        '[[factor]]\nname = "p"\nknob = "program.path"\nlevels = ["/a", "/b"]\n',
    ):
        with pytest.raises(StudyError, match="cannot name programs"):
            read_study(STUDY + table, "x.toml", trusted=True)
    plain = STUDY.replace('kind = "database"\nengine = "sqlite"', 'kind = "command"\nargv = ["true", "{x}"]')
    plain = plain.replace(
        'knob = "work.option"\noption = "durable"', 'knob = "command.argument"\nplaceholder = "{x}"'
    )
    with pytest.raises(RequestError, match="no workload of the study"):
        select(read_study(plain, "x.toml", trusted=False), sets={"program": ["/opt/a"]})


@pytest.mark.parametrize("path", ["bin", "/opt/../etc", "/opt/a/", "/a:/b", "//x", "/a\nb", ""])
def test_a_path_of_programs_is_plain_and_absolute(path: str) -> None:
    with pytest.raises(UnsupportedLevel):
        registry.knob("program.path").parse(Setting("program.path", path))


def test_programs_that_others_can_write_to_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "sqlite3"

    def looked_at(path: Path) -> None:
        check_programs(select(study(), sets={"program": [str(path)]}))

    with pytest.raises(MissingTool, match="sqlite3 is not in"):
        looked_at(folder)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    looked_at(folder)
    looked_at(program)
    (tmp_path / "link").symlink_to(folder)
    looked_at(tmp_path / "link")
    program.chmod(0o757)
    with pytest.raises(RequestError, match="is writable by everybody"):
        looked_at(folder)
    program.chmod(0o755)
    folder.chmod(0o777)
    for path in (folder, program, tmp_path / "link"):
        with pytest.raises(RequestError, match="is writable by everybody"):
            looked_at(path)
    folder.chmod(0o755)
    program.chmod(0o644)
    with pytest.raises(RequestError, match="found neither"):
        looked_at(program)
    with pytest.raises(RequestError, match="No such file"):
        looked_at(folder / "nothing")
    if os.geteuid() == 0:
        program.chmod(0o755)
        os.chown(folder, 65534, 65534)
        with pytest.raises(RequestError, match="belongs to user 65534"):
            looked_at(folder)
