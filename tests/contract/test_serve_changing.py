"""The pages of serve while the store changes: a running trial, and a store that is missing, replaced or
damaged.

All tests share one server and replace its store.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from serve_stores import three_trials
from store_examples import filled, header, planned_runs

from iotrial.report.opening import document_of
from iotrial.report.progress import EffectLine, Progress, WindowLine, progress_path, write_progress
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.web.store_view import StoreView
from serving import Served, listed, served

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return three_trials(tmp_path_factory.mktemp("store") / "trials.db")


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a server for a path at which the tests put a store."""
    with served(tmp_path_factory.mktemp("changing") / "trials.db") as running:
        yield running


@pytest.fixture
def path(whole: Path, changing: Served) -> Path:
    """Put a copy of the three trials in place of the server's store."""
    path = changing.store
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    progress_path(path).unlink(missing_ok=True)
    shutil.copy(whole, path.with_suffix(".new"))
    put_in_place(path.with_suffix(".new"), path)
    return path


def put_in_place(new: Path, path: Path) -> None:
    """Replace the store by a file with another inode number: for a second the server may take it for the same."""
    if path.exists():
        path.replace(path.with_suffix(".previous"))
    new.replace(path)


def fresh(path: Path, *marks: str) -> None:
    """Replace the store by one with trials that were not analysed yet."""
    made = path.with_suffix(".made")
    with Store.open(made) as store:
        for mark in marks:
            filled(store, header(mark * 32))
    put_in_place(made, path)


@pytest.mark.long
def test_an_analysis_is_stored_beside_the_store_which_is_not_touched(path: Path, changing: Served) -> None:
    before = path.read_bytes()
    server = changing
    assert server.settled("/trials/1").status == 200
    assert path.read_bytes() == before
    assert path.with_suffix(".analysed").exists()


# -- a trial that runs


def test_the_metric_of_a_running_live_trial_is_drawn_over_time(path: Path) -> None:
    fresh(path, "a")
    values = [("none", 2.0), ("bfq", 9.0), ("bfq", 8.0), ("none", 3.0)]
    windows = tuple(
        WindowLine(f"<{name}>", 30.0 * i, value, "ms", False) for i, (name, value) in enumerate(values)
    )
    with served(path) as server, Store.open(path) as store:
        number = store.create_trial(header("d" * 32)).number
        write_progress(progress_path(path), standing(number, windows=windows))
        page = server.get(f"/trials/{number}").text
    figure = page.split("Newest windows", 1)[1].split("</figure>", 1)[0]
    wide = figure.split("</svg>", 1)[0]
    assert wide.count('class="rule"') == 2  # none to bfq and back
    assert ">8 ms<" in wide
    assert "&lt;bfq&gt;" in wide
    line = re.search(r'class="line" d="M([^"]*)"', wide)
    assert line is not None
    heights = [float(point.split()[1]) for point in line[1].split("L")]
    assert len(heights) == 4
    assert heights[1] < heights[2] < heights[3] < heights[0]  # 9, 8, 3 and 2 ms


def test_beside_a_running_trial_the_stored_analysis_of_another_is_shown(path: Path, changing: Served) -> None:
    fresh(path, "b", "c")
    server = changing
    assert server.settled("/trials/1").status == 200
    with served(path) as other, Store.open(path) as store:  # nothing in its memory
        document = document_of(store, 1)
        store.create_trial(header("e" * 32))
        beside = other.get("/trials/1")
        assert beside.status == 200
        assert escape(document.summary.headline) in beside.text
        shown = [one for one in document.analysis.effects if one.primary or one.kind == "pooled"]
        rows = re.findall(r'<td class="n">([\d.]+) \[.*?</td><td class="n">(\d+)</td>', beside.text)
        assert [int(blocks) for _, blocks in rows] == [one.blocks for one in shown]
        assert [float(value) for value, _ in rows] == pytest.approx([one.value for one in shown], rel=0.05)
        assert other.get("/trials/2").status == 202


def test_a_store_that_replaces_another_under_its_inode_number_is_read(tmp_path: Path) -> None:
    """File systems give a number again. Here the new store is written over the old one."""

    def store_with(name: str, *marks: str) -> Path:
        path = tmp_path / name
        with Store.open(path) as store:
            for mark in marks:
                filled(store, header(mark * 32))
            store.create_trial(header("e" * 32))  # running, by this process
        return path

    path, other = store_with("trials.db", "b", "c"), store_with("other.db", "5", "6")
    view = StoreView(path, background=False)
    try:
        assert [one.id[0] for one in view.snapshot().trials] == ["e", "c", "b"]
        inode = path.stat().st_ino
        path.write_bytes(other.read_bytes())
        assert path.stat().st_ino == inode
        time.sleep(1.1)  # a snapshot counts for a second while a trial runs
        assert [one.id[0] for one in view.snapshot().trials] == ["e", "6", "5"]
        time.sleep(1.1)
        assert len(view.snapshot().running) == 1
    finally:
        view.close()


def standing(number: int, **changes: object) -> Progress:
    line = EffectLine("cache <cold>", "f", "b", "a", 0.8, 0.7, 0.9, 12)
    whole = Progress(
        number, "example", 30.0, 60.0, {"cache <cold>": 12}, 1, 2, (line,), "reading", margin=0.03
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_a_running_trial_is_followed_by_its_file_and_nothing_is_analysed_beside_it(
    path: Path, changing: Served
) -> None:
    fresh(path, "5", "6")
    server = changing
    with Store.open(path) as store:
        running = store.create_trial(header("f" * 32))  # by this process
        number = running.number
        page = server.get(f"/trials/{number}").text
        assert "No progress yet" in page
        assert '<meta http-equiv="refresh" content="2">' in page
        write_progress(progress_path(path), standing(number))
        page = server.get(f"/trials/{number}").text
        assert "30 s of 60 s" in page
        assert "12 complete blocks; 0 of 1 comparisons decided; 1 void; 2 runs failed; reading" in page
        assert "cache &lt;cold&gt;" in page
        assert "0.80 [0.70, 0.90]" in page
        assert 'http-equiv="refresh"' not in server.get(f"/trials/{number}?refresh=no").text
        write_progress(progress_path(path), standing(number + 1))
        assert "No progress yet" in server.get(f"/trials/{number}").text
        progress_path(path).write_text("{half of it")
        assert "No progress yet" in server.get(f"/trials/{number}").text

        beside = server.get("/trials/1")
        assert beside.status == 202
        assert "A trial is running" in beside.text
        assert "Nothing else is analysed" in server.get("/").text
        assert "a trial is running" in server.get("/history?study=example").text
        assert "A trial is running" in server.get("/compare?trials=1,2").text
        assert "still running" in server.get(f"/compare?trials=1,{number}").text
        assert server.get(f"/trials/{number}/report.json").status == 400

        runs, _ = next(planned_runs(running.header))
        store.append_run(running.header.id, runs[0])  # the store file changes, and the page still works
        assert "is running" in server.get(f"/trials/{number}").text
        store.set_state(running.header.id, TrialState.INTERRUPTED, "enough")
        end = time.monotonic() + 60
        while "is running" in (page := server.settled(f"/trials/{number}").text) and time.monotonic() < end:
            time.sleep(0.1)
        assert "iotrial report</title>" in page


def workers(server: Served) -> list[int]:
    """Return the server's child processes without the resource tracker of Python's multiprocessing."""
    threads = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [int(word) for thread in threads for word in thread.read_text().split()]
    return [one for one in children if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()]


def test_a_trial_whose_process_was_killed_is_interrupted_and_has_a_report(
    path: Path, changing: Served
) -> None:
    code = (
        f"import sys, time; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / 'unit')!r}]\n"
        "from store_examples import header\nfrom iotrial.store import Store\n"
        f"s = Store.open({str(path)!r}); t = s.create_trial(header('e' * 32)); print(t.number, flush=True); time.sleep(600)"
    )
    server = changing
    conductor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert conductor.stdout
    number = int(conductor.stdout.readline())
    assert "is running" in server.get(f"/trials/{number}").text
    conductor.kill()
    conductor.communicate()
    end = time.monotonic() + 60
    while server.get("/?state=running").text.count('class="tick"') and time.monotonic() < end:
        time.sleep(0.1)
    assert "ended without recording a reason" in server.settled(f"/trials/{number}").text


# -- a store that is not what it was


def test_a_store_that_is_missing_or_comes_later_is_no_error(path: Path, changing: Served) -> None:
    path.unlink()
    server = changing
    assert "There is no store in this file yet" in server.get("/").text
    assert server.get("/trials/1").status == 404
    with Store.open(path) as store:
        filled(store)
    assert listed(server) == [1]
    path.unlink()
    assert "There is no store in this file yet" in server.get("/").text


def test_a_store_that_is_replaced_is_the_other_one_at_once(path: Path, changing: Served) -> None:
    server = changing
    assert ' name="trials" value="3"' in server.get("/").text
    before = server.settled("/trials/1/report.json").text
    fresh(path, "9")
    assert listed(server) == [1]
    assert server.get("/trials/2").status == 404
    assert '"id": "' + "0" * 32 in before
    assert '"id": "' + "9" * 32 in server.settled("/trials/1/report.json").text


@pytest.mark.parametrize(
    "content", [b"no store at all\n" * 300, b"SQLite format 3\0" + b"\xff" * 5000], ids=["text", "header"]
)
def test_a_file_that_is_no_store_is_said_and_outlived(path: Path, changing: Served, content: bytes) -> None:
    whole = path.read_bytes()
    server = changing
    assert server.get("/").status == 200
    path.write_bytes(content)
    for page in ("/", "/trials/1", "/history", "/compare?trials=1,2", "/trials/1/trial.iotrial"):
        answer = server.get(page)
        assert answer.status == 503
        assert "The store cannot be read" in answer.text
    path.write_bytes(whole)
    assert listed(server) == [3, 2, 1]


def test_a_damaged_trial_hides_no_other(path: Path, changing: Served) -> None:
    data = bytearray(path.read_bytes())
    found = data.rindex(b"1" * 32 + b"{")
    data[found + 32 : found + 56] = b"\xff" * 24
    path.write_bytes(data)
    server = changing
    assert listed(server) == [3, 1]
    assert "Trial 2 cannot be read" in server.get("/").text
    damaged = server.get("/trials/2")
    assert damaged.status == 503
    assert "trial 2 cannot be read" in damaged.text
    assert server.settled("/trials/3").status == 200


def test_a_newer_store_is_shown_with_a_word(path: Path, changing: Served) -> None:
    server = changing
    assert "written by a newer" not in server.get("/").text
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    assert "written by a newer iotrial (schema 7" in server.get("/").text
    assert listed(server) == [3, 2, 1]


def test_runs_that_cannot_be_read_are_an_error_on_one_page(path: Path, changing: Served) -> None:
    fresh(path, "7", "8")
    connection = sqlite3.connect(path)
    connection.executescript("DROP TRIGGER run_keeps_UPDATE; UPDATE run SET responses = '{' WHERE trial = 1")
    connection.close()
    server = changing
    broken = server.settled("/trials/1")
    assert broken.status == 503
    assert "trial 1 is damaged: run 1 " in broken.text
    page = server.settled("/history?study=example").text
    assert "trial 1 is damaged: run 1 " in page
    assert re.findall(r'<td><a href="[^"]*/trials/(\d)">', page) == ["2"]


# -- the verb


def policies(pid: int) -> list[int]:
    return [os.sched_getscheduler(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()]


@pytest.mark.long
def test_it_stands_back_and_so_does_what_it_begins(path: Path) -> None:
    argv = [sys.executable, "-m", "iotrial", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "IOTRIAL_STORE": str(path)}
    )
    try:
        assert process.stdout
        address = json.loads(process.stdout.readline())["serve"]["address"]
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        Served(process, address, path).get("/trials/1")
        (worker, *_) = workers(Served(process, address, path))
        end = time.monotonic() + 60
        while os.sched_getscheduler(worker) != os.SCHED_IDLE and time.monotonic() < end:
            time.sleep(0.05)
        assert os.sched_getscheduler(worker) == os.SCHED_IDLE
        with Store.open(path) as store:
            store.create_trial(header("4" * 32))  # a trial begins
            Served(process, address, path).get("/")
            assert set(policies(process.pid)) == {os.SCHED_IDLE}
            store.set_state("4" * 32, TrialState.INTERRUPTED, "enough")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        while Path(f"/proc/{worker}/cmdline").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert not Path(f"/proc/{worker}/cmdline").exists()  # the worker ends with its server
    finally:
        process.kill()
        process.communicate()
