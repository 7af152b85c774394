"""Whole trials of programs that print their own numbers, with or without a server; and fio clients of fio
servers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

PRINTS = r"""
[study]
name = "prints"
question = "?"
account = false
[lab]
size = "32 MiB"
[budget]
blocks = 2
[[factor]]
name = "rate"
knob = "command.argument"
placeholder = "{rate}"
levels = ["200", "300"]
[[workload]]
name = "w"
kind = "command"
argv = ["sh", "-c", '''
echo began; echo '{"rate": {rate}}'; echo waited 5 ms >&2; echo waited 7 ms >&2; echo ext4 > $0/kind''', "{out}"]
[[workload.output]]
name = "rate"
json = "rate"
unit = "MB/s"
[[workload.output]]
name = "waited"
from = "stderr"
regex = "waited ([0-9]+) ms"
take = "sum"
unit = "ms"
[[workload.output]]
name = "kind"
from = "{out}/kind"
regex = "(.+)"
fact = true
"""
PLAIN = ("--trust", "--no-stop", "--no-controls")


def test_what_a_program_prints_is_its_response_and_its_words_are_facts(
    state: Path, disk_folder: Path
) -> None:
    study = write_study(state.parent, PRINTS)
    report = run_json(study, "--lab", "image", "--on", str(disk_folder), *PLAIN)
    assert failures_of(state) == []
    for run in stored_runs(state):
        assert run["responses"]["rate"] == 1e6 * int(run["treatment"]["rate"])
        assert run["responses"]["waited"] == pytest.approx(0.012)
    primary = [effect for effect in report["effects"] if effect["response"] == "rate"]
    assert [round(effect["ratio"], 9) for effect in primary] == [1.5]
    [table] = report["trial"]["facts"]
    assert table["rows"] == {"kind": ["ext4", "ext4"]}


def test_a_value_that_one_level_does_not_print_is_a_failure_of_that_level(
    state: Path, disk_folder: Path
) -> None:
    text = PRINTS.replace('levels = ["200", "300"]', 'levels = ["200", "none"]')
    run_json(write_study(state.parent, text), "--lab", "directory", "--on", str(disk_folder), *PLAIN)
    runs = stored_runs(state)
    assert {run["treatment"]["rate"] for run in runs if run["failure"]} == {"none"}
    assert all('output "rate"' in run["failure"] for run in runs if run["failure"])
    assert {run["treatment"]["rate"] for run in runs if not run["failure"]} == {"200"}


def test_a_program_that_prints_no_such_value_at_all_begins_no_trial(state: Path, disk_folder: Path) -> None:
    study = write_study(state.parent, PRINTS.replace('json = "rate"', 'json = "rates"'))
    done = iotrial("run", study, "--lab", "directory", "--on", str(disk_folder), *PLAIN, check=None)
    assert done.returncode == 2
    assert "no rates in the JSON of stdout (similar: rate)" in done.stderr
    assert stored_runs(state) == []


SERVED = """
[study]
name = "served"
question = "?"
account = false
[lab]
size = "32 MiB"
[budget]
blocks = 1
[[factor]]
name = "pages"
knob = "command.argument"
placeholder = "{pages}"
levels = ["2", "4"]
[[workload]]
name = "load"
kind = "command"
argv = ["curl", "--silent", "--fail", "--output", "/dev/null", "--write-out", '%{size_download}\\n', "http://{address}/file?[1-{pages}]"]
warmup = 1
serve = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "{site}", "{port}"]
make = ["dd", "if=/dev/zero", "of=file", "bs=1000", "count=3"]
[[workload.output]]
name = "received"
regex = '^([0-9]+)$'
take = "sum"
unit = "bytes"
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_command_asks_a_server_of_its_own_whose_processor_time_is_known(
    state: Path, disk_folder: Path
) -> None:
    run_json(write_study(state.parent, SERVED), "--lab", "image", "--on", str(disk_folder), *PLAIN)
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None, None]
    for run in runs:
        assert run["responses"]["received"] == 3000 * int(run["treatment"]["pages"])
        assert run["responses"]["server_cpu"] > 0
        assert run["responses"]["server_resident_bytes"] > 1e6


def test_a_page_that_is_not_there_is_a_failure(state: Path, disk_folder: Path) -> None:
    study = write_study(state.parent, SERVED.replace("/file?", "/other?"))
    run_json(study, "--lab", "image", "--on", str(disk_folder), *PLAIN)
    assert all("curl ended with status 22" in failure for failure in failures_of(state))
    assert len(failures_of(state)) == 2
