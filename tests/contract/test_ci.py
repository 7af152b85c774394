"""``iotrial ci`` as a CI job runs it: two builds of a suite, files for the job, exit status, a trial on record.

The suites print times that they make up, so that the answer is known and no clock matters.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import iotrial
from program import iotrial as program

#: prints a time of about 1000 and one of about 5000 ns with a scatter of 1 %, each multiplied by its argument in percent, as
#: google-benchmark does; a third argument is the name of the file that it writes
SUITE = """\
#!/bin/bash
row() {
    echo '{"name": "'$1'", "run_name": "'$1'", "run_type": "iteration", "real_time": '$2', "time_unit": "ns"}'
}
{
    echo '{"context": {}, "benchmarks": ['
    row copy/4096 $(( $1 * (1000 + RANDOM % 10) / 100 ))
    echo ,
    row sort $(( $2 * (5000 + RANDOM % 50) / 100 ))
    echo "$more]}"
} >"${3-/dev/stdout}"
"""


@pytest.fixture
def folder(disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    suite = disk_folder / "suite"
    suite.write_text(SUITE)
    suite.chmod(0o755)
    return disk_folder


def test_a_slower_benchmark_fails_the_job_and_the_trial_is_on_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = folder / "summary.md"
    summary.write_text("An earlier step.\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = program(
        "ci", "--base", "./suite 100 100", "--head", "./suite 110 100", "--time", "60s", "--junit", "junit.xml",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 4, done.stdout + done.stderr
    assert re.search(r"head is slower in 1 of 2 benchmarks: copy/4096 \+(9|10)\.[0-9] %", done.stdout)
    text = summary.read_text()
    assert text.startswith("An earlier step.\n")
    assert re.search(r"\| copy/4096 \|.*\| slower \|", text)
    assert re.search(r"\| sort \|.*\| as fast \|", text)
    root = ElementTree.parse(folder / "junit.xml").getroot()
    failed = {case.get("name"): case.find("failure") is not None for case in root.iter("testcase")}
    assert failed == {"copy/4096": True, "sort": False}
    trial = iotrial.trial("last")
    assert (trial.valid, trial.alpha) == (True, 0.005)
    df = subprocess.run(
        ["df", "-B1", "--output=used,size", folder], capture_output=True, text=True, check=True
    ).stdout.split()
    used = trial.document.trial.header.lab["used"]["lab"]
    assert used == pytest.approx(int(df[2]) / int(df[3]), abs=0.05)
    # an ordinary trial: both builds and both controls in each block, in a drawn order
    runs = [run for run in trial.runs if run.counted]
    assert {run.treatment["build"] for run in runs} == {"base", "head"}
    assert {run.kind for run in runs} == {"treatment", "negative", "positive"}
    firsts = {run.treatment["build"] for run in runs if run.slot == 0}
    assert firsts == {"base", "head"}
    base = [
        run.responses["sort"] for run in runs if run.treatment["build"] == "base" and run.kind == "treatment"
    ]
    assert base
    assert all(5.0e-6 <= time <= 5.05e-6 for time in base)


def test_equal_builds_pass_and_too_few_blocks_are_no_answer(folder: Path) -> None:
    same = ("--base", "./suite 100 100", "--head", "./suite 100 100")
    passed = program("ci", *same, "--time", "60s", "--json", cwd=folder)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    found = json.loads(passed.stdout)["ci"]
    assert {one["answer"] for one in found["benchmarks"]} == {"as fast"}
    assert all(abs(one["ratio"] - 1) < 0.01 for one in found["benchmarks"])
    few = program("ci", *same, "--blocks", "2", cwd=folder)
    assert few.returncode == 6
    assert few.stdout.startswith("No answer for any of 2 benchmarks.")


def test_two_checkouts_are_compared_by_the_file_that_their_command_writes(folder: Path) -> None:
    for name, extra in (("old", "gone"), ("new", "added")):
        row = f', {{"name": "{extra}", "run_name": "{extra}", "run_type": "iteration", "real_time": 9, "time_unit": "ns"}}'
        (folder / name).mkdir()
        (folder / name / "bench.sh").write_text(f"more='{row}' exec ../suite 100 $(cat factor) $1\n")
        (folder / name / "factor").write_text("100" if name == "old" else "85")
    done = program(
        "ci", "--base", "old", "--head", "new", "--results", "{out}/b.json", "--time", "60s", "--save", "study.toml",
        "--", "sh", "bench.sh", "{out}/b.json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"sort .* faster", done.stdout)
    assert "only in base, not compared: gone" in done.stdout
    assert "only in head, not compared: added" in done.stdout
    # the study that was saved is the same trial again
    again = program("run", "study.toml", "--trust", "--blocks", "2", "--json", cwd=folder)
    assert {one["response"] for one in json.loads(again.stdout)["effects"] if one["primary"]} == {
        "copy-4096",
        "sort",
    }


def test_a_command_that_prints_no_benchmark_is_judged_by_its_time(folder: Path) -> None:
    done = program(
        "ci", "--base", "sleep 0.01", "--head", "sleep 0.05", "--time", "30s", "--json", cwd=folder
    )
    assert done.returncode == 4, done.stdout + done.stderr
    (one,) = json.loads(done.stdout)["ci"]["benchmarks"]
    assert one["name"] == "wall time"
    assert one["ratio"] > 2
