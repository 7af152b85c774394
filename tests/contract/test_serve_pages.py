"""What the pages say: of many trials, of one, of a running one, of time; and of a store that is not what it was.

The second half is one server, under which each test puts another store.
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
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from store_examples import filled, header, planned_runs

from iotrial.report.progress import EffectLine, Progress
from iotrial.report.standing import standing_path, write_standing
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.store.packed import open_packed, read_packed
from serving import Served, served

INTEL = {
    "processor": "Intel Xeon",
    "processors": 4,
    "memory_bytes": 8 << 30,
    "kernel": "6.12.9",
    "system": "Debian 12",
}
EPYC = {
    "processor": "AMD EPYC",
    "processors": 2,
    "memory_bytes": 24 << 30,
    "kernel": "6.1.0",
    "system": "Debian 12",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of three trials of one study: two machines, two dates, one interrupted."""
    path = tmp_path_factory.mktemp("store") / "trials.db"
    with Store.open(path) as store:
        for n, host in enumerate((EPYC, INTEL, EPYC)):
            of = replace(header(f"{n}" * 32), host=host, started=f"2024-0{n + 1}-01T12:00:00Z")
            filled(store, of)
        store.set_state("2" * 32, TrialState.INTERRUPTED, "by <hand>")
    return path


@pytest.fixture(scope="module")
def server(whole: Path) -> Iterator[Served]:
    with served(whole) as running:
        yield running


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a file that tests put a store into."""
    with served(tmp_path_factory.mktemp("changing") / "trials.db") as running:
        yield running


@pytest.fixture
def path(whole: Path, changing: Served) -> Path:
    """The three trials, under the second server."""
    path = changing.store
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    standing_path(path).unlink(missing_ok=True)
    shutil.copy(whole, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    return path


def fresh(path: Path, *marks: str) -> None:
    """In place of the store another one, of trials that nobody has looked at."""
    made = path.with_suffix(".made")
    with Store.open(made) as store:
        for mark in marks:
            filled(store, header(mark * 32))
    made.replace(path)


def listed(server: Served, query: str = "") -> list[int]:
    found = re.findall(r'name="trials" value="(\d+)"', server.get(f"/?{query}").text)
    return [int(number) for number in found]


def test_the_list_has_every_trial_the_newest_first(server: Served) -> None:
    assert listed(server) == [3, 2, 1]
    text = server.get("/").text
    assert "3 trials" in text
    assert "Intel Xeon × 4, 8 GiB, Debian 12" in text
    assert "2024-03-01 12:00" in text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("study=EXAM", [3, 2, 1]), ("study=other", []), ("state=interrupted", [3]), ("state=done", [2, 1]),
        ("machine=xeon", [2]),
        ("machine=amd+debian", [3, 1]), ("machine=directory", [3, 2, 1]), ("kernel=6.12", [2]), ("since=2024-02-01",
        [3, 2]),
        ("until=2024-02-01", [2, 1]), ("since=2024-02-01&until=2024-02-01", [2]), ("since=2024-04-01", []),
        ("kernel=6.1&since=2024-03-01", [3]),
        ("study=%3Cb%3E", []),
    ],
)  # fmt: skip
def test_a_search_finds_what_it_says(server: Served, query: str, found: list[int]) -> None:
    assert listed(server, query) == found


@pytest.mark.long
def test_words_of_verdicts_are_searched_once_trials_have_been_looked_at(server: Served) -> None:
    for number in (1, 2, 3):
        assert server.settled(f"/trials/{number}").status == 200
    assert listed(server, "verdict=inconclusive") == [3, 2, 1]
    assert listed(server, "verdict=interrupted") == [3]
    assert listed(server, "verdict=nonsense") == []
    assert "not looked at yet" not in server.get("/").text


def test_a_report_is_the_file_with_ways_out_of_it(server: Served, whole: Path) -> None:
    page = server.settled("/trials/1").text
    assert page.count("<body") == 1
    assert "It is open whether f b is faster or slower than a" in page
    assert re.search(r'<body[^>]*>\s*<div class="top"><a href="/">All trials</a>', page)
    assert 'href="/trials/1/trial.iotrial"' in page


def test_what_is_saved_is_what_the_program_writes(server: Served, whole: Path, tmp_path: Path) -> None:
    told = json.loads(server.settled("/trials/2/report.json").body)
    assert (told["schema"], told["trial"]["number"], told["trial"]["id"]) == (1, 2, "1" * 32)
    assert server.settled("/trials/2/report.md").text.startswith("#")
    saved = server.settled("/trials/2/trial.iotrial")
    assert saved.headers["content-disposition"] == 'attachment; filename="2-example.iotrial"'
    file = tmp_path / "saved.iotrial"
    file.write_bytes(saved.body)
    with open_packed(file) as packed, Store.in_memory() as store:
        assert store.unpack(read_packed(packed, "it"), source="it").header.id == "1" * 32


def test_trials_side_by_side_are_the_page_that_compare_writes(server: Served) -> None:
    page = server.settled("/compare?trials=1&trials=2").text
    assert "2 trials compared" in page
    assert "machine: processor" in page
    told = json.loads(server.settled("/compare/report.json?trials=1,2").body)
    assert told["schema"] == 1
    saved = server.settled("/compare/report.md?trials=1,2")
    assert saved.headers["content-disposition"] == 'attachment; filename="compare-1-2.md"'
    assert "Name two or more" in server.get("/compare?trials=1").text
    assert 'value="1, 2"' in server.get("/compare?trials=1,2&choose=").text


def test_an_effect_over_time_is_told_by_machine_with_what_is_not_claimed(server: Served) -> None:
    page = server.settled("/history?study=example").text
    machines = re.findall(r"<h2>((?:AMD|Intel)[^<]*)</h2>", page)
    assert machines == [
        "AMD EPYC × 2, 24 GiB, Debian 12, lab directory",
        "Intel Xeon × 4, 8 GiB, Debian 12, lab directory",
    ]
    assert "too few trials, 2 of the 60" in page
    assert "nothing is randomised" in page
    (first, second) = page.split("<h2>Intel")
    assert re.findall(r'<td><a href="/trials/(\d)">', first) == ["1", "3"]
    assert re.findall(r'<td><a href="/trials/(\d)">', second) == ["2"]
    key = re.search(r'<option value="([0-9a-f]{12})"', page)
    assert key is not None
    assert "f b / a" in server.settled(f"/history?study=example&effect={key[1]}").text
    assert "There is no trial of that study" in server.get("/history?study=nothing").text


@pytest.mark.long
def test_what_is_looked_at_is_remembered_beside_the_store_and_the_store_is_not_touched(
    path: Path, changing: Served
) -> None:
    before = path.read_bytes()
    server = changing
    assert server.settled("/trials/1").status == 200
    assert path.read_bytes() == before
    assert path.with_suffix(".analysed").exists()


# -- a trial that runs


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
        assert "No word from it yet" in page
        assert '<meta http-equiv="refresh" content="2">' in page
        write_standing(standing_path(path), standing(number))
        page = server.get(f"/trials/{number}").text
        assert "30 s of 60 s" in page
        assert "12 complete blocks; 0 of 1 comparisons decided; 1 void; 2 runs failed; reading" in page
        assert "cache &lt;cold&gt;" in page
        assert "0.80 [0.70, 0.90]" in page
        assert 'http-equiv="refresh"' not in server.get(f"/trials/{number}?refresh=no").text
        write_standing(standing_path(path), standing(number + 1))
        assert "No word from it yet" in server.get(f"/trials/{number}").text
        standing_path(path).write_text("{half of it")
        assert "No word from it yet" in server.get(f"/trials/{number}").text

        beside = server.get("/trials/1")
        assert beside.status == 202
        assert "A trial is running" in beside.text
        assert "Nothing else is analysed" in server.get("/").text
        assert "a trial is running" in server.get("/history?study=example").text
        assert "a trial is running" in server.get("/compare?trials=1,2").text
        assert "still running" in server.get(f"/compare?trials=1,{number}").text
        assert server.get(f"/trials/{number}/report.json").status == 400

        runs, _ = next(planned_runs(running.header))
        store.append_run(running.header.id, runs[0])  # the file changes, the page does not mind
        assert "is running" in server.get(f"/trials/{number}").text
        store.set_state(running.header.id, TrialState.INTERRUPTED, "enough")
        end = time.monotonic() + 60
        while "is running" in (page := server.settled(f"/trials/{number}").text) and time.monotonic() < end:
            time.sleep(0.1)
        assert "iotrial report</title>" in page


def workers(server: Served) -> list[str]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    threads = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    return children + [word for thread in threads for word in thread.read_text().split()]


def test_a_trial_whose_process_was_killed_is_interrupted_and_has_a_report(
    path: Path, changing: Served
) -> None:
    code = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parents[1] / 'unit')!r})\n"
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
    assert "ended without a word" in server.settled(f"/trials/{number}").text


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
    assert "damaged record" in broken.text
    page = server.settled("/history?study=example").text
    assert "damaged record" in page
    assert re.findall(r'<td><a href="/trials/(\d)">', page) == ["2"]


# -- the verb


def test_a_port_that_is_taken_and_an_address_of_the_network_are_refused(server: Served) -> None:
    argv = [sys.executable, "-m", "iotrial", "serve", "--json"]
    environment = {**os.environ, "IOTRIAL_STORE": str(server.store)}
    taken = subprocess.run(
        [*argv, "--port", str(server.port)], capture_output=True, text=True, env=environment, check=False
    )
    assert taken.returncode == 1
    assert json.loads(taken.stderr)["error"]["code"] == "port_taken"
    assert not taken.stdout
    outside = subprocess.run(
        [*argv, "--host", "0.0.0.0"], capture_output=True, text=True, env=environment, check=False
    )
    assert outside.returncode == 2
    assert "ssh -L" in json.loads(outside.stderr)["error"]["hint"]


def test_only_this_machine_can_reach_it(server: Served) -> None:
    wanted = f":{server.port:04X}"
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[1].endswith(wanted) and line.split()[3] == "0A"
    ]
    assert listening == [f"{0x7F000001.to_bytes(4, sys.byteorder).hex().upper()}{wanted}"]


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
        port = json.loads(process.stdout.readline())["serve"]["port"]
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        Served(process, port, path).get("/trials/1")
        (worker, *_) = workers(Served(process, port, path))
        end = time.monotonic() + 60
        while os.sched_getscheduler(int(worker)) != os.SCHED_IDLE and time.monotonic() < end:
            time.sleep(0.05)
        assert os.sched_getscheduler(int(worker)) == os.SCHED_IDLE
        with Store.open(path) as store:
            store.create_trial(header("4" * 32))  # a trial begins
            Served(process, port, path).get("/")
            assert set(policies(process.pid)) == {os.SCHED_IDLE}
            store.set_state("4" * 32, TrialState.INTERRUPTED, "enough")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        while Path(f"/proc/{worker}/cmdline").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert not Path(f"/proc/{worker}/cmdline").exists()  # it ends with its server
    finally:
        process.kill()
        process.communicate()
