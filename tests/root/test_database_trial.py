"""Whole trials of databases: SQLite always, servers if they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

from iotrial.workloads.databases import engine

pytestmark = pytest.mark.root

ROWS = 20_000
AS_NOBODY = str(Path(__file__).parents[1] / "as_nobody.py")
STUDY = """
[study]
name = "starts"
question = "What does a start cost?"
account = false
[lab]
size = "SIZE"
[budget]
time = "60 s"
[[factor]]
name = "start"
knob = "cache.state"
levels = ["warm", "cold"]
"""


def workload(kind: str, test: str, more: str = "") -> str:
    return f'[[workload]]\nname = "{test}"\nkind = "database"\nengine = "{kind}"\ntest = "{test}"\nrows = {ROWS}\n{more}\n'


def needs(name: str) -> None:
    for program in engine(name).installed():
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install {engine(name).package}")


def trial(folder: Path, size: str, *workloads: str, more: tuple[str, ...] = ()) -> dict[str, object]:
    text = STUDY.replace("SIZE", size) + "".join(workloads)
    return run_json(write_study(folder, text), "--blocks", "1", "--lab", "image", "--no-controls", *more)


def judge(state: Path, tests: set[str]) -> None:
    """Check that nothing failed and that cold runs read at least the minimum size of the rows (void runs, in
    whole blocks, give their reason)."""
    assert failures_of(state) == []
    runs = [run for run in stored_runs(state) if run["responses"]]
    cold = [run for run in runs if run["checks"]["cache"] == "cold-files" and not run["checks"].get("void")]
    assert cold
    assert all(run["checks"]["bytes_read"] > 0 for run in cold)
    if {"count", "index"} & tests:
        assert max(run["checks"]["bytes_read"] for run in cold) >= 20 * ROWS
    assert all(run["responses"]["rate"] > 0 for run in runs)
    assert len(runs) >= 2 * len(tests)


def test_every_test_of_sqlite_comes_out_right(state: Path, tmp_path: Path) -> None:
    needs("sqlite")
    tests = ["count", "index", "insert-small", "fetch", "update", "delete", "sort"]
    trial(tmp_path, "64 MiB", *(workload("sqlite", test, "changed = 30") for test in tests))
    judge(state, set(tests))


def test_postgresql_is_served_counted_and_gone(state: Path, tmp_path: Path) -> None:
    needs("postgresql")
    trial(
        tmp_path,
        "400 MiB",
        workload("postgresql", "insert-bulk", 'buffer = "16 MiB"\nchanged = 500\nconnection = "loopback"'),
    )
    judge(state, {"insert-bulk"})
    runs = [run for run in stored_runs(state) if run["responses"]]
    assert all(run["responses"]["server_cpu"] > 0 for run in runs)
    assert all(run["responses"]["server_resident_bytes"] > 4 << 20 for run in runs)
    assert not processes_of("postgres")


@pytest.mark.long
def test_without_root_databases_are_the_users_own_and_cold_by_their_files(everybody: Path) -> None:
    needs("sqlite")
    home, probe = everybody / "home", everybody / "ioprobe"
    path = write_study(
        everybody,
        STUDY.replace("SIZE", "400 MiB") + workload("sqlite", "count"),
    )
    done = subprocess.run(
        [sys.executable, AS_NOBODY, "run", path, "--blocks", "1", "--no-controls"],
        env={**os.environ, "XDG_STATE_HOME": str(home), "HOME": str(home), "IOTRIAL_PROBE": str(probe)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 6), done.stderr
    state = home / "iotrial"
    assert failures_of(state) == []
    runs = [run for run in stored_runs(state) if run["responses"]]
    cold = [run for run in runs if run["checks"]["cache"] == "cold-data"]
    assert {run["condition"] for run in cold} == {"workload=count"}
    assert all(run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] for run in cold)
    assert not list(state.rglob("iotrial-lab-*"))


@pytest.mark.long
def test_every_test_of_postgresql_comes_out_right(state: Path, tmp_path: Path) -> None:
    needs("postgresql")
    tests = ["count", "index", "insert-bulk", "insert-small", "fetch", "update", "delete", "sort"]
    trial(tmp_path, "400 MiB", *(workload("postgresql", test, "changed = 200") for test in tests))
    judge(state, set(tests))
    assert {run["checks"].get("void") for run in stored_runs(state)} <= {None}


@pytest.mark.long
def test_mariadb_is_served_counted_and_gone(state: Path, tmp_path: Path) -> None:
    needs("mariadb")
    small = 'buffer = "16 MiB"\nchanged = 200'
    tests = ["count", "index", "insert-bulk", "insert-small", "fetch", "update", "delete", "sort"]
    trial(tmp_path, "512 MiB", *(workload("mariadb", test, small) for test in tests))
    judge(state, set(tests))
    assert not processes_of("mariadbd")


@pytest.mark.long
def test_a_server_that_remembers_its_pages_has_them_before_the_first_count(
    state: Path, tmp_path: Path
) -> None:
    needs("mariadb")
    text = STUDY.replace("SIZE", "512 MiB").replace("cache.state", "work.option")
    text = text.replace('levels = ["warm", "cold"]', 'option = "buffer_dump"\nlevels = [false, true]')
    text += workload("mariadb", "count", 'cache = "cold"')
    run_json(write_study(tmp_path, text), "--blocks", "2", "--lab", "image", "--no-controls")
    assert failures_of(state) == []
    read: dict[str, set[bool]] = {}
    for run in stored_runs(state):
        read.setdefault(str(run["treatment"]), set()).add(run["checks"]["bytes_read"] >= 20 * ROWS)
    assert sorted(map(sorted, read.values())) == [[False], [True]]


@pytest.mark.long
def test_log_and_temporary_files_are_written_on_the_second_place_where_the_study_says_so(
    state: Path, tmp_path: Path
) -> None:
    needs("mariadb")
    text = STUDY.replace("SIZE", "512 MiB").replace("cache.state", "work.option")
    text = text.replace('levels = ["warm", "cold"]', 'option = "separate_log"\nlevels = [false, true]')
    text += '[[place]]\nname = "log"\nholds = "files"\nsize = "256 MiB"\n'
    text += workload("mariadb", "insert-small", "changed = 100")
    run_json(write_study(tmp_path, text), "--blocks", "2", "--lab", "image", "--no-controls")
    assert failures_of(state) == []
    written: dict[str, set[bool]] = {}
    for run in stored_runs(state):
        # a hundred commits, each a write and a flush of the redo log
        found = run["evidence"].get("beside_log_flush_ios", 0) >= 100
        written.setdefault(str(run["treatment"]), set()).add(found)
    assert sorted(map(sorted, written.values())) == [[False], [True]]


def test_a_server_that_is_never_ready_ends_the_trial_with_its_words(state: Path, tmp_path: Path) -> None:
    programs = Path("/var/tmp") / f"iotrial-{tmp_path.name}"
    programs.mkdir(mode=0o755)
    try:
        for name, text in {
            "initdb": "exit 0",
            "psql": "exit 0",
            "postgres": "echo no luck today >&2; exit 3",
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        path = write_study(tmp_path, STUDY.replace("SIZE", "400 MiB") + workload("postgresql", "count"))
        done = iotrial("run", path, "--lab", "image", "--set", f"program={programs}", check=None)
        assert done.returncode not in (0, 2)
        assert "ended with status 3 before it was ready; its log: no luck today" in done.stderr.replace(
            "\n", " "
        )
        assert not list((state / "journal").glob("*.entry"))
        plan = json.loads(
            iotrial("plan", path, "--lab", "image", "--set", f"program={programs}", "--json").stdout
        )
        assert any(str(programs) in change for change in plan["changes"])
    finally:
        shutil.rmtree(programs)


def processes_of(name: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == name and str(Path("/run/iotrial")) in (
                entry / "cmdline"
            ).read_text():
                found.append(entry.name)
        except OSError:
            continue
    return found
