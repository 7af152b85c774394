"""Settings that another program changes while a trial runs: each such run makes its block void, and somebody is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import iotrial, stored_runs, write_study
from test_in_place import mounted, queue_of, shown_commit

pytestmark = pytest.mark.root

__all__ = ["mounted"]  # a fixture

OTHER = Path(__file__).with_name("setting_back.py")
#: a command that takes longer than the other program waits
SLOW = ("--", "sh", "-c", "cat f000 > /dev/null; sleep 0.12")


@contextmanager
def another_program(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    other = subprocess.Popen([sys.executable, str(OTHER), *words])
    try:
        yield other
    finally:
        other.kill()
        other.wait()


def refused(*words: str) -> dict[str, str]:
    """Return the error of a trial that is ended: status 1, or 5 where a foreign value is found then and left alone."""
    done = iotrial("try", *words, "--json", *SLOW, check=None)
    assert done.returncode in (1, 5), done.stderr
    error: dict[str, str] = json.loads(done.stderr.splitlines()[-1])["error"]
    return error


def test_no_run_counts_in_which_another_program_set_read_ahead_back(state: Path, mounted: Path) -> None:
    ahead = queue_of(mounted) / "read_ahead_kb"
    with another_program(str(ahead), "512", "0.05") as other:
        error = refused(
            "block.read_ahead_kb=16,1024", "--in", str(mounted), "--yes", "--blocks", "8", "--no-stop"
        )
        assert "block.read_ahead_kb" in error["message"]
        assert "changed by something else" in error["message"]
        assert f"setting_back.py ({other.pid})" in error["message"] + error["hint"]
    runs = stored_runs(state)
    # every run was longer than the other program waits, so the foreign value was in force in each
    assert {run["checks"].get("void") for run in runs} == {"setting_changed"}
    assert all('"512"' in run["checks"]["problem"] for run in runs)


def test_a_sysctl_that_another_program_sets_back_is_found(state: Path, mounted: Path) -> None:
    file = Path("/proc/sys/vm/vfs_cache_pressure")
    before = file.read_text()
    try:
        with another_program(str(file), "77", "0.05"):
            words = ("vm.vfs_cache_pressure=50,200", "--in", str(mounted), "--yes", "--blocks", "8")
            error = refused(*words, "--no-stop")
        assert "vfs_cache_pressure" in error["message"]
        assert {run["checks"].get("void") for run in stored_runs(state)} == {"setting_changed"}
    finally:
        iotrial("restore", "--accept", "all", check=None)
        file.write_text(before)


@pytest.mark.parametrize("levels", ["default,commit=30", "commit=30,commit=40"])
def test_an_option_that_another_program_changes_by_a_remount_is_found(
    state: Path, mounted: Path, levels: str
) -> None:
    shown = f"/proc/fs/ext4/{queue_of(mounted).resolve().parent.name}/options"
    with another_program(f"mount:{mounted}", shown, "commit=19", "0.05"):
        error = refused(f"mount.option={levels}", "--in", str(mounted), "--yes", "--blocks", "8", "--no-stop")
    assert "commit=19" in error["message"]
    # the first runs may have today's option, before the other program has seen any change
    changed = [run for run in stored_runs(state) if run["treatment"]["option"] != "default"]
    assert {run["checks"].get("void") for run in changed} == {"setting_changed"}


@pytest.mark.parametrize(
    ("foreign", "did"),
    [
        ("764", "this is the original value"),
        ("2048", 'the original "764" is set again'),
        ("512", "it is left alone"),
    ],
)
def test_what_is_found_at_the_end_is_told_with_what_was_done(
    state: Path, mounted: Path, foreign: str, did: str
) -> None:
    """764 is the original value, 2048 another of the trial's, 512 is nobody's that the trial knows."""
    with another_program(str(queue_of(mounted) / "read_ahead_kb"), foreign, "0.05"):
        done = iotrial(
            "try", "block.read_ahead_kb=16,1024,2048", "--in", str(mounted), "--yes", "--blocks", "1", "--no-stop",
            *SLOW, check=None,
        )  # fmt: skip
    assert done.returncode == (5 if foreign == "512" else 6), done.stderr
    told = [line for line in done.stderr.splitlines() if "found at the end" in line]
    # nothing is to be told where the last run had set the foreign value itself
    assert told or foreign == "2048"
    for line in told:
        assert f'kernel reports "{foreign}"' in line
        assert line.rstrip().endswith(did)


def test_without_another_program_nothing_is_void(state: Path, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,commit=17", str(mounted)], check=True)
    iotrial(
        "try", "block.read_ahead_kb=16,1024", "mount.option=default,commit=30", "--in", str(mounted), "--yes",
        "--blocks", "4", "--no-stop", "--", "cat", "f000",
    )  # fmt: skip
    assert {run["checks"].get("void") for run in stored_runs(state)} == {None}
    assert shown_commit(mounted) == "commit=17"


def test_the_neutral_mount_at_the_end_is_not_reported_as_a_foreign_change(
    state: Path, tmp_path: Path
) -> None:
    """Files are verified on a neutral mount, here right after the last run: no requests are to be counted."""
    study = write_study(
        tmp_path,
        """
        [study]
        name = "neutral"
        question = "Does commit= change the time of a read?"
        account = false
        [budget]
        blocks = 2
        [[factor]]
        name = "commit"
        knob = "mount.option"
        levels = ["commit=17", "commit=30"]
        [[workload]]
        name = "read"
        kind = "files"
        files = 4
        operations = ["open", "read", "close"]
        """,
    )
    done = iotrial("run", str(study), "--no-stop", check=None)
    assert done.returncode in (0, 6), done.stderr
    assert "something else" not in done.stderr
