"""One conductor per machine: a restore during a trial, other users' trials, other programs that hold locks,
and lock files that are not what they should be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from breaking import Trial, command_study, entries, eventually, iotrial, last_trial, nothing_left, send

from as_nobody import NOBODY
from iotrial.errors import IotrialError
from iotrial.lab import lock
from iotrial.lab.lock import Busy, MachineLock

pytestmark = [pytest.mark.root, pytest.mark.alone]  # other trials are refused meanwhile

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
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(Busy, match=f"process {os.getpid()} of user root"), MachineLock(path):
            pass


def as_nobody(program: str, *words: str, **popen: Any) -> subprocess.Popen[str]:
    """Start a Python program as user nobody, with permission to read the interpreter's own files."""
    begin = "import sys; from as_nobody import become_nobody; become_nobody()\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(AS_NOBODY).parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    argv = [sys.executable, "-c", begin + program, *words]
    return subprocess.Popen(argv, text=True, env=environment, **{**pipes, **popen})


HOLD = "from iotrial.lab.lock import MachineLock\nwith MachineLock(): print('held', flush=True); sys.stdin.read()\n"


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Yield a list of processes that are killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_no_other_user_can_hold_roots_lock_or_keep_a_restore_waiting(
    state: Path, tmp_path: Path, ended: list[subprocess.Popen[str]]
) -> None:
    with MachineLock():
        pass  # creates the lock file
    assert lock.ROOT_LOCK.stat().st_mode & 0o777 == 0o600
    stranger = ["flock", "--nonblock", str(lock.ROOT_LOCK), "true"]
    refused = subprocess.run(
        stranger, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False
    )
    assert "Permission denied" in refused.stderr
    own = as_nobody(HOLD)
    ended.append(own)
    assert first_line(own) == "held"
    restored = iotrial("restore")
    assert restored.returncode == 0, restored.stderr
    done = iotrial("run", command_study(tmp_path, ["test", "-n", "{word}"], blocks=1), "--on", str(tmp_path))
    assert done.returncode in (0, 3, 6), done.stderr
    assert own.poll() is None


def test_another_users_trial_that_is_at_work_is_named_with_user_and_command(
    ended: list[subprocess.Popen[str]],
) -> None:
    other = as_nobody(HOLD, "/somewhere/bin/iotrial", "run", "files/permissions")
    ended.append(other)
    assert first_line(other) == "held"
    assert lock.is_held()
    assert not lock.is_held_here()
    with (
        pytest.raises(Busy, match=f"process {other.pid} of user nobody .*python") as busy,
        MachineLock(),
    ):
        pass
    assert f"kill {other.pid}" in str(busy.value.hint)
    with MachineLock(restoring=True):
        pass
    again = as_nobody(HOLD, "/somewhere/bin/iotrial", "run")
    ended.append(again)
    _, err = again.communicate()
    assert f"process {other.pid} of user nobody" in err
    other.kill()
    other.wait()
    with MachineLock():
        pass
    assert not lock.is_held()


HAND_ON = (
    "import os\nfrom iotrial.lab.lock import MachineLock\nlock = MachineLock().__enter__()\n"
    "if os.fork(): os._exit(0)\nprint(os.getpid(), flush=True); sys.stdin.read()\n"
)


def test_a_lock_that_a_process_has_handed_on_is_not_blamed_on_who_has_its_number_now(
    ended: list[subprocess.Popen[str]],
) -> None:
    first = as_nobody(HAND_ON, "iotrial")
    holder = int(first_line(first))
    first.wait()
    innocent = with_number(first.pid, ended)
    try:
        with pytest.raises(Busy, match=f"process {holder} of user nobody") as busy, MachineLock():
            pass
        assert str(innocent) not in f"{busy.value.message} {busy.value.hint}"
    finally:
        os.kill(holder, signal.SIGKILL)


def with_number(pid: int, ended: list[subprocess.Popen[str]]) -> int:
    """Start a program called iotrial until it gets this process id, which is free."""
    for _ in range(100):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        ended.append(subprocess.Popen(["iotrial", "600"], executable="/bin/sleep", text=True))
        if ended[-1].pid == pid:
            break
        ended[-1].kill()
    assert ended[-1].pid == pid
    return pid


def test_roots_trial_keeps_other_users_trials_and_restores_waiting(
    ended: list[subprocess.Popen[str]],
) -> None:
    with MachineLock():
        for program in (HOLD, HOLD.replace("MachineLock()", "MachineLock(restoring=True)")):
            other = as_nobody(program)
            ended.append(other)
            _, err = other.communicate()
            assert other.returncode != 0
            assert f"process {os.getpid()} of user root" in err


def test_a_name_that_a_stranger_has_taken_keeps_no_user_from_a_lock(
    ended: list[subprocess.Popen[str]],
) -> None:
    taken = [folder / f"iotrial-{NOBODY}.lock" for folder in lock.SHARED_FOLDERS]
    there = [path for path in taken if path.exists()]
    for path in there:
        path.unlink()
    for path in taken:
        path.touch(0o666)
    try:
        for _ in range(2):
            other = as_nobody(HOLD, "iotrial")
            ended.append(other)
            line = first_line(other)
        assert line == "", "the second of the same user is refused by the first"
        assert f"process {ended[0].pid} of user nobody" in other.communicate()[1]
    finally:
        for folder in lock.SHARED_FOLDERS:
            for path in folder.glob(f"iotrial-{NOBODY}*.lock"):
                path.unlink()


def test_a_lock_held_by_what_is_no_trial_is_named_and_keeps_no_restore_waiting(
    ended: list[subprocess.Popen[str]],
) -> None:
    with MachineLock():
        pass
    holder = subprocess.Popen(["flock", "-n", "-o", str(lock.ROOT_LOCK), "sleep", "600"])
    try:
        assert eventually(lambda: lock.is_held(lock.ROOT_LOCK), 10)
        with (
            pytest.raises(Busy, match=f"process {holder.pid} of user root .flock .*not a trial"),
            MachineLock(),
        ):
            pass
        with MachineLock(restoring=True):
            pass
    finally:
        subprocess.run(["pkill", "-P", str(holder.pid), "sleep"], check=False)
        holder.wait()


def test_a_program_that_uses_the_library_keeps_a_restore_waiting_whatever_its_name(
    ended: list[subprocess.Popen[str]],
) -> None:
    program = "import sys\n" + HOLD
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    ended.append(holder)
    assert first_line(holder) == "held"
    for restoring in (False, True):
        with (
            pytest.raises(Busy, match=f"running .*process {holder.pid} of user root"),
            MachineLock(restoring=restoring),
        ):
            pass
    holder.kill()
    holder.wait()
    with MachineLock(restoring=True):
        pass
