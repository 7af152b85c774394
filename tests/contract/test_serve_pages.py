"""The pages of serve: the list of trials, one trial, an effect over time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from serve_stores import three_trials

from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from serving import Served, listed, served


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return three_trials(tmp_path_factory.mktemp("store") / "trials.db")


@pytest.fixture(scope="module")
def server(whole: Path) -> Iterator[Served]:
    with served(whole) as running:
        yield running


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
    assert listed(server, "verdict=undecided") == [3, 2, 1]
    assert listed(server, "verdict=interrupted") == [3]
    assert listed(server, "verdict=nonsense") == []
    assert "not analysed yet" not in server.get("/").text


def test_a_report_is_the_file_with_ways_out_of_it(server: Served, whole: Path) -> None:
    page = server.settled("/trials/1").text
    assert page.count("<body") == 1
    assert "F b vs a: undecided." in page
    assert re.search(rf'<body[^>]*>\s*<div class="top"><a href="{server.root}/">All trials</a>', page)
    assert f'href="{server.root}/trials/1/trial.iotrial"' in page


def test_what_is_saved_is_what_the_program_writes(server: Served, whole: Path, tmp_path: Path) -> None:
    report = json.loads(server.settled("/trials/2/report.json").body)
    assert (report["schema"], report["trial"]["number"], report["trial"]["id"]) == (1, 2, "1" * 32)
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
    report = json.loads(server.settled("/compare/report.json?trials=1,2").body)
    assert report["schema"] == 1
    saved = server.settled("/compare/report.md?trials=1,2")
    assert saved.headers["content-disposition"] == 'attachment; filename="compare-1-2.md"'
    assert "Enter two or more" in server.get("/compare?trials=1").text
    assert 'value="1, 2"' in server.get("/compare?trials=1,2&choose=").text


def test_an_effect_over_time_is_told_by_machine_with_what_is_not_claimed(server: Served) -> None:
    page = server.settled("/history?study=example").text
    machines = re.findall(r"<h2>((?:AMD|Intel)[^<]*)</h2>", page)
    assert machines == [
        "AMD EPYC × 2, 24 GiB, Debian 12, lab directory",
        "Intel Xeon × 4, 8 GiB, Debian 12, lab directory",
    ]
    assert "too few trials, 2 of the 60" in page
    assert "Nothing is randomised between trials" in page
    (first, second) = page.split("<h2>Intel")
    assert re.findall(r'<td><a href="[^"]*/trials/(\d)">', first) == ["1", "3"]
    assert re.findall(r'<td><a href="[^"]*/trials/(\d)">', second) == ["2"]
    key = re.search(r'<option value="([0-9a-f]{12})"', page)
    assert key is not None
    assert "f b / a" in server.settled(f"/history?study=example&effect={key[1]}").text
    assert "There are no trials of that study" in server.get("/history?study=nothing").text


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
