"""One conductor a machine: a restore beside a trial, another user's trial, and locks that are not what they should be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from breaking import Trial, command_study, entries, iotrial, last_trial, nothing_left, send

from as_nobody import NOBODY
from iotrial.errors import IotrialError
from iotrial.lab.lock import Busy, MachineLock

pytestmark = pytest.mark.root

AS_NOBODY = str(Path(__file__).parents[1] / "as_nobody.py")


def test_beside_a_trial_restore_and_other_users_are_refused_and_change_nothing(
    state: Path, tmp_path: Path
) -> None:
    trial = Trial(
        state, command_study(tmp_path, ["test", "-n", "{word}"], lab="image", blocks=2000), "--no-stop"
    )
    trial.until_runs(4)
    before = {path: path.read_bytes() for path in entries(state)}
    assert before
    restore = iotrial("restore", "--json")
    assert {path: path.read_bytes() for path in entries(state)} == before
    folder = Path("/var/tmp") / f"iotrial-nobody-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    shutil.chown(folder, NOBODY, NOBODY)
    try:
        other = subprocess.run(
            [sys.executable, AS_NOBODY, "run", "files/permissions"],
            env={**os.environ, "XDG_STATE_HOME": str(folder), "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        left = [path for path in folder.rglob("*") if path.name != "iotrial" and "trials.db" not in path.name]
    finally:
        shutil.rmtree(folder)
    for refused in (restore.returncode, restore.stderr), (other.returncode, other.stderr):
        assert refused[0] == 1, refused[1]
        assert f"process {trial.process.pid}" in refused[1]
    assert left == []
    send(trial, signal.SIGTERM)
    assert trial.end()[0] == 128 + signal.SIGTERM
    assert last_trial()["state"] == "interrupted"
    nothing_left(state)


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "somewhere")


@pytest.mark.parametrize(
    "make", [_link, os.mkfifo, Path.mkdir], ids=["a symbolic link", "a FIFO", "a folder"]
)
def test_a_lock_that_is_no_file_is_refused_with_its_name(tmp_path: Path, make: object) -> None:
    path = tmp_path / "lock"
    make(path)  # type: ignore[operator]
    with pytest.raises(IotrialError, match=str(path)) as raised, MachineLock(path):
        pass
    assert raised.value.hint
    assert not (tmp_path / "somewhere").exists()


def test_a_lock_in_a_folder_that_is_not_there_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "lock"
    with pytest.raises(IotrialError, match=str(path)), MachineLock(path):
        pass


def test_a_lock_file_left_by_a_process_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("999999999\n")
    with MachineLock(path):
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(Busy, match=f"process {os.getpid()}"), MachineLock(path):
            pass


def test_a_lock_file_that_may_only_be_read_still_locks(tmp_path: Path) -> None:
    """Root's lock as another user sees it."""
    folder = Path("/var/tmp") / f"iotrial-lock-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    path = folder / "lock"
    path.write_text("1\n")
    path.chmod(0o444)
    program = (
        "import os, sys; from pathlib import Path; from iotrial.lab.lock import MachineLock\n"
        f"os.setuid({NOBODY})\n"
        f"with MachineLock(Path({str(path)!r})): print('held')\n"
    )
    try:
        free = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        with MachineLock(path):
            taken = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=False
            )
    finally:
        shutil.rmtree(folder)
    assert free.stdout == "held\n", free.stderr
    assert taken.returncode != 0
    assert "another iotrial is measuring" in taken.stderr
