"""Rehearsals of failing work: their report, and that they leave nothing (studies that pass:
contract/test_catalogue.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from program import iotrial

FAILING = """
[study]
name = "failing"
question = "Does it run?"
[lab]
kind = "directory"
[[factor]]
name = "arm"
knob = "environment.variable"
variable = "ARM"
levels = ["one", "two"]
[[workload]]
name = "wrong"
kind = "command"
argv = ["cat", "/nowhere/at/all"]
[[workload]]
name = "right"
kind = "command"
argv = ["cat", "{file}"]
"""


def test_work_that_fails_is_told_with_its_words_and_nothing_is_stored(state: Path, tmp_path: Path) -> None:
    (tmp_path / "failing.toml").write_text(FAILING)
    done = iotrial("run", str(tmp_path / "failing.toml"), "--rehearse")
    assert done.returncode == 1, done.stderr
    assert "wrong: 2 runs, 2 failed: cat ended with status 1: cat: /nowhere/at/all" in done.stdout
    assert "right: 2 runs, all as expected" in done.stdout
    assert "The study cannot run here as it is." in done.stdout
    assert not (state / "trials.db").exists()
    assert not (state / "reports").exists()
    done = iotrial(
        "run", str(tmp_path / "failing.toml"), "--rehearse", "--json", "--condition", "workload=right"
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["rehearsal"]["failures"] == 0


def test_what_a_rehearsal_has_no_numbers_for_is_refused(state: Path) -> None:
    for words in (("--html", "page.html"), ("--fail-if", "slower"), ("--sample", "20ms")):
        done = iotrial("run", "mount/atime", "--rehearse", *words)
        assert done.returncode == 2
        assert f"--rehearse and {words[0]} exclude each other" in done.stderr


@pytest.mark.parametrize(("size", "flag"), [("1 MiB", "direct"), ("4 TiB", "nonblock")])
def test_blocks_that_would_all_be_void_are_predicted(
    state: Path, tmp_path: Path, size: str, flag: str
) -> None:
    """Of a warm work that reads past the page cache, and of one whose files are larger than any memory."""
    study = (
        FAILING[: FAILING.index("[[workload]]")]
        + f"""
[[workload]]
name = "read"
kind = "command"
files = 1
size = "{size}"
cache = "warm"
argv = ["dd", "if={{file}}", "of=/dev/null", "bs=64k", "iflag={flag}"]
"""
    )
    (tmp_path / "warm.toml").write_text(study)
    done = iotrial("run", str(tmp_path / "warm.toml"), "--rehearse")
    assert done.returncode == 6, done.stdout + done.stderr
    assert "would give no answer here: every block of read would be void" in done.stdout
    assert "--cache cold" in done.stdout
    assert not (state / "trials.db").exists()
