"""A trial packed here and run again from its file: the plan is the same, and no foreign command runs without
consent."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from running import iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

READING = """
[study]
name = "reading"
question = "Is cat slower than true?"
[lab]
kind = "directory"
[budget]
time = "20 s"
blocks = 3
[[factor]]
name = "program"
knob = "command.argument"
placeholder = "{option}"
levels = ["-u", "-v"]
[[workload]]
name = "cat"
kind = "command"
cache = "as-is"
argv = ["cat", "{option}", "{file}"]
"""


@pytest.fixture
def packed(state: Path, disk_folder: Path) -> Path:
    """Return a packed trial of a study with a command, from a run on this machine."""
    run_json(write_study(disk_folder, READING), "--on", str(disk_folder))
    file = disk_folder / "reading.iotrial"
    iotrial("export", "last", str(file), "--force")
    return file


def test_the_plan_of_a_packed_trial_is_run_again_with_consent_only(
    packed: Path, state: Path, disk_folder: Path
) -> None:
    first = stored_runs(state)
    refused = iotrial("run", "--like", str(packed), check=2)
    assert "cat: cat {option} {file}" in refused.stderr
    assert "{option} = -u, -v" in refused.stderr
    assert "comes from elsewhere. Run its commands?" in refused.stderr
    assert "--trust" in refused.stderr
    assert stored_runs(state) == first
    (open_folder := disk_folder / "open").mkdir()  # they run as nobody, who must get there
    disk_folder.chmod(0o755)
    on = ("--on", str(open_folder))
    report = json.loads(iotrial("run", "--like", str(packed), "--trust", *on, "--json").stdout)
    again = stored_runs(state)[len(first) :]

    def planned(runs: list[dict[str, object]]) -> list[tuple[object, ...]]:
        return [
            (*tuple(run[key] for key in ("condition", "block", "slot", "arm")), str(run["files"]))
            for run in runs
        ]

    assert planned(again) == planned(first)
    assert report["trial"]["number"] == 2
    assert report["trial"]["seed_chosen"] is True
    other = json.loads(iotrial("plan", "--like", str(packed), "--seed", "7", "--json").stdout)
    assert other["seed"] == f"{7:032x}" != report["trial"]["seed"]


@pytest.mark.parametrize(
    ("typed", "status"), [pytest.param(b"yes\n", 0, marks=pytest.mark.long), (b"y\n", 2), (b"\n", 2)]
)
def test_on_a_terminal_the_word_yes_is_consent(
    packed: Path, state: Path, disk_folder: Path, typed: bytes, status: int
) -> None:
    before = len(stored_runs(state))
    (open_folder := disk_folder / "all").mkdir(
        exist_ok=True
    )  # the commands run as nobody, who must get there
    disk_folder.chmod(0o755)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "iotrial", "run", "--like", str(packed), "--blocks", "1"]
    command += ["--on", str(open_folder)]
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    while b"Type yes" not in said:
        said += os.read(ours, 4096)
    assert b"cat {option} {file}" in said
    assert len(stored_runs(state)) == before
    os.write(ours, typed)
    try:
        while os.read(ours, 4096):
            pass
    except OSError:  # EIO: the other side of the pty is closed
        pass
    os.close(ours)
    assert process.wait(60) in (status, 6 if status == 0 else status)
    assert (len(stored_runs(state)) > before) is (status == 0)


def test_a_study_from_a_file_shows_its_commands_before_it_begins(state: Path, disk_folder: Path) -> None:
    done = iotrial(
        "run", write_study(disk_folder, READING), "--on", str(disk_folder), "--blocks", "1", "--json"
    )
    assert done.stderr.index("cat: cat {option} {file}") >= 0
    assert "changes    none outside that folder" in done.stderr
    assert json.loads(done.stdout)["trial"]["state"] == "done"
