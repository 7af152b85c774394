"""The watchdog of a live trial, on a real journal, lock and processes: what it undoes, and what it leaves alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iotrial.errors import LabError
from iotrial.lab.journal import Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.objects.path import LabPath
from iotrial.lab.target import Target
from iotrial.live import watchdog
from iotrial.live.watchdog import heartbeat_path, stand_by
from iotrial.probe.client import Probe
from iotrial.store.states import ProcessIdentity, identity
from iotrial.tune.watchdog import detach
from own_lock import a_lock_of_its_own

__all__ = ["a_lock_of_its_own"]
TRIAL = "0f" * 16
#: the watchdog as a process, with heartbeats and machine lock in the folder that is its first argument
IN_FOLDER = """
import sys
from pathlib import Path
from iotrial.lab.lock import MachineLock
from iotrial.live import watchdog

watchdog._FOLDER = Path(sys.argv.pop(1))
MachineLock.__init__.__defaults__ = (watchdog._FOLDER / "lock",)
watchdog.main()
"""


@pytest.fixture
def heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep heartbeats in a folder of the test: only root may write to /run."""
    monkeypatch.setattr(watchdog, "_FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def change(state: Path, disk_folder: Path) -> Iterator[Path]:
    """Yield a folder that the trial has made, which its journal undoes."""
    path = disk_folder / "iotrial-lab-0f"
    with Probe(isolate=False) as probe:
        LabPath().make_folder(Target(probe), Journal(state / "journal"), str(path), trial=TRIAL)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def dead(heartbeats: Path) -> ProcessIdentity:
    """Return a conductor that was killed, and has left its heartbeat."""
    process = subprocess.Popen(["sleep", "600"])
    conductor = identity(process.pid)
    process.kill()
    process.wait()
    heartbeat_path(TRIAL, conductor.pid).write_text(f"{time.monotonic() + 60:020.3f}\n")
    return conductor


def test_what_a_dead_trial_has_changed_is_undone(change: Path, dead: ProcessIdentity) -> None:
    stand_by(TRIAL, dead)
    assert not change.exists()
    assert not heartbeat_path(TRIAL, dead.pid).exists()


def test_a_full_run_folder_ends_the_trial_before_it_begins(heartbeats: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(LabError, match=r"\.heartbeat, which the watchdog reads: .*; nothing was changed"):
            watchdog.Watchdog(TRIAL).start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(heartbeats.iterdir()) == []


def test_the_changes_of_a_resumed_trial_are_left_alone(change: Path, dead: ProcessIdentity) -> None:
    """This process stands for the resumed trial: it has the lock, and a heartbeat of its own."""
    own = heartbeat_path(TRIAL, os.getpid())
    with MachineLock():
        own.write_text(f"{time.monotonic() + 60:020.3f}\n")
        stand_by(TRIAL, dead)
    assert change.exists()
    assert own.exists()
    assert not heartbeat_path(TRIAL, dead.pid).exists()


def test_a_lock_of_somebody_else_does_not_keep_the_changes(
    change: Path, dead: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_FREE_S", 0.5)
    with MachineLock():
        stand_by(TRIAL, dead)
    assert not change.exists()


@pytest.mark.slow
@pytest.mark.parametrize("held_up", [True, False])
def test_a_silent_trial_has_more_time_if_the_watchdog_was_held_up_too(
    heartbeats: Path, held_up: bool
) -> None:
    conductor = subprocess.Popen(["sleep", "600"])
    own = identity(conductor.pid)
    path = heartbeat_path(TRIAL, own.pid)
    silent_until = time.monotonic() + 3.0
    path.write_text(f"{silent_until:020.3f}\n")
    looking = subprocess.Popen(
        [sys.executable, "-c", IN_FOLDER, str(heartbeats), TRIAL, str(own.pid), own.pid_started],
        env={**os.environ, "XDG_STATE_HOME": str(heartbeats / "state")},
        stderr=subprocess.DEVNULL,
    )
    time.sleep(1.5)  # it has begun to look
    if held_up:
        looking.send_signal(signal.SIGSTOP)
    time.sleep(6.0)
    looking.send_signal(signal.SIGCONT)
    if held_up:
        time.sleep(3.0)
        assert conductor.poll() is None
        path.write_text(f"{time.monotonic() + 60:020.3f}\n")  # the trial goes on
        time.sleep(2.0)
        assert looking.poll() is None
        path.unlink()  # it has ended
        assert looking.wait(10) == 0
        assert conductor.poll() is None
        conductor.kill()
    assert conductor.wait(10) == -signal.SIGKILL
    looking.wait(30)


def test_a_watchdog_that_is_killed_is_started_again_until_it_ends_by_itself(tmp_path: Path) -> None:
    """The first two runs die of SIGKILL, as fast as they can; the third ends."""
    runs = tmp_path / "runs of it"
    script = f"echo run >> '{runs}'; [ $(wc -l < '{runs}') -ge 3 ] || kill -9 $$"
    detach(["/bin/sh", "-c", script])
    late = time.monotonic() + 20
    while not (runs.exists() and len(runs.read_text().splitlines()) == 3):
        assert time.monotonic() < late
        time.sleep(0.05)
    time.sleep(1.5)
    assert len(runs.read_text().splitlines()) == 3


def test_an_unreadable_heartbeat_is_no_end_of_the_trial(heartbeats: Path, change: Path) -> None:
    """A folder in its place: only whether the trial lives is known, and it does not."""
    process = subprocess.Popen(["sleep", "600"])
    conductor = identity(process.pid)
    heartbeat_path(TRIAL, conductor.pid).mkdir()
    assert watchdog._until(heartbeat_path(TRIAL, conductor.pid)) == float("inf")
    process.kill()
    process.wait()
    heartbeat_path(TRIAL, conductor.pid).rmdir()
    heartbeat_path(TRIAL, conductor.pid).touch()
    stand_by(TRIAL, conductor)
    assert not change.exists()


def test_what_fails_to_be_undone_is_tried_again_and_logged(
    change: Path, dead: ProcessIdentity, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(24, "Too many open files"), RuntimeError("unforeseen")]
    plain = watchdog.restore

    def restore(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return plain(*arguments)

    monkeypatch.setattr(watchdog, "restore", restore)
    stand_by(TRIAL, dead)
    assert not failures
    assert not change.exists()
    assert "has set today's settings again" in (state / "watchdog.log").read_text()
