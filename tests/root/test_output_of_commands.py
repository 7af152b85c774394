"""Where the output of a command goes: a pipe, /dev/null, iotrial's own output, or a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from running import stored_runs

import program

pytestmark = pytest.mark.root
WHERE = "where=$(readlink /proc/$$/fd/1); echo $where > {seen}; echo of-run-$$-{n}"


def attempt(tmp_path: Path, *words: str, command: str) -> tuple[int, str, str]:
    """Run a trial of two levels and one block; return its status and what it printed."""
    done = program.iotrial(
        "try",
        "-L",
        "n",
        "1,2",
        "--in",
        str(tmp_path),
        "--blocks",
        "1",
        "--time",
        "20 s",
        *words,
        "--",
        command,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "begins"),
    [((), "pipe:["), (("--output", "pipe"), "pipe:["), (("--output", "null"), "/dev/null")],
)
def test_the_command_sees_a_pipe_or_dev_null(
    state: Path, tmp_path: Path, words: tuple[str, ...], begins: str
) -> None:
    seen = tmp_path / "seen"
    _, stdout, stderr = attempt(tmp_path, *words, command=WHERE.replace("{seen}", str(seen)))
    assert seen.read_text().startswith(begins), stderr
    assert "of-run" not in stdout


def test_inherited_output_is_mixed_with_what_iotrial_prints(state: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    _, stdout, stderr = attempt(tmp_path, "--output", "inherit", command=WHERE.replace("{seen}", str(seen)))
    lines = [line for line in stdout.splitlines() if line.startswith("of-run-")]
    assert {line[-1] for line in lines} == {"1", "2"}, stderr
    assert len(set(lines)) == len(lines) >= 4  # two levels, two controls
    # the report comes after them, into the same output
    assert stdout.rindex("of-run-") < stdout.index("Trial ")


def test_a_file_holds_what_the_last_run_printed(state: Path, tmp_path: Path) -> None:
    seen, printed = tmp_path / "seen", tmp_path / "printed"
    printed.write_text("before\n" * 1000)
    _, stdout, stderr = attempt(
        tmp_path, "--output", str(printed), command=WHERE.replace("{seen}", str(seen))
    )
    assert seen.read_text() == f"{printed}\n", stderr
    assert len(printed.read_text().splitlines()) == 1
    assert printed.read_text().startswith("of-run-")
    assert "of-run" not in stdout
    new = tmp_path / "new"
    attempt(tmp_path, "--output", str(new), command="echo of-run-{n}")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("name", ["", "missing/file", "fifo"])
def test_output_goes_to_no_folder_and_no_fifo(state: Path, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    status, _, stderr = attempt(tmp_path, "--output", str(tmp_path / name), command="echo {n}")
    assert status == 2
    assert "not a regular file in a folder that exists" in stderr


STUDY = """
[study]
name = "own/prints"
question = "Where does it go?"
[lab]
kind = "directory"
[[factor]]
name = "n"
knob = "command.argument"
placeholder = "{n}"
levels = ["1", "2"]
[[workload]]
name = "prints"
kind = "command"
argv = [
  "/bin/sh", "-c",
  "echo {n}; test -f {out}/printed && test $(stat -L -c %i /proc/$$/fd/1) = $(stat -c %i {out}/printed)",
]
stdout = "{out}/printed"
"""


def test_a_study_names_a_file_in_its_output_folder(state: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    done = program.iotrial("run", str(study), "--trust", "--yes", "--blocks", "1")
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None] * len(runs) != [], done.stderr
    refused = STUDY.replace('stdout = "{out}/printed"', 'stdout = "printed"')
    study.write_text(refused)
    done = program.iotrial("run", str(study), "--trust", "--yes", "--blocks", "1")
    assert done.returncode == 2
    assert "expected pipe, null, inherit or a file" in done.stderr
