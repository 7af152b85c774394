"""A question without an answer is not a success: the command fails, or no comparison has an interval."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from running import stored_runs, write_study

import program

pytestmark = pytest.mark.root
#: by docs/command-line.md
NO_ANSWER = 6

FAILS = """
[study]
name = "fails"
question = "Does it matter to a command that always fails?"
[[factor]]
name = "n"
knob = "command.argument"
placeholder = "{n}"
levels = ["1", "2"]
[[workload]]
name = "fails"
kind = "command"
argv = ["sh", "-c", "exit {n}"]
"""


def attempt(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return program.iotrial("try", "-L", "n", "1,2", "--in", str(folder), "--time", "20 s", *words)


@pytest.mark.parametrize("fails", ["1", "2", "1|2"])
def test_a_command_that_fails_in_its_first_runs_stops_at_once_with_its_error_output(
    state: Path, tmp_path: Path, fails: str
) -> None:
    script = f"case {{n}} in {fails}) echo no such table >&2; exit 3 ;; esac"
    done = attempt(tmp_path, "--", script)
    assert done.returncode == NO_ANSWER, done.stderr
    assert "ended with status 3: no such table" in done.stderr
    # one block: two levels and two controls
    assert len(stored_runs(state)) <= 4


def test_a_failure_can_be_ignored(state: Path, tmp_path: Path) -> None:
    done = attempt(tmp_path, "--ignore-failure", "--blocks", "30", "--", "sleep 0.00{n}; exit 3")
    assert done.returncode == 0, done.stderr
    assert all(run["failure"] is None for run in stored_runs(state))


@pytest.mark.parametrize("wanted", [(), ("--fail-if", "slower")])
def test_a_trial_without_an_interval_has_a_status_of_its_own(
    state: Path, tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    assert attempt(tmp_path, "--blocks", "1", *wanted, "--", "sleep 0.00{n}").returncode == NO_ANSWER
    study = write_study(tmp_path, FAILS)
    assert program.iotrial("run", study, "--lab", "directory", *wanted).returncode == NO_ANSWER
    assert program.iotrial("report", "last", *wanted).returncode == NO_ANSWER
