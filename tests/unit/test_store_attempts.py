"""State and duration of a trial, derived from its state changes; processes that live, are gone, or were replaced."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iotrial.store.model import TrialState
from iotrial.store.states import (
    ORPHANED,
    Measured,
    ProcessIdentity,
    StateChange,
    duration_s,
    identity,
    is_alive,
    present,
)

ME = ProcessIdentity(7, "boot/1")
RUNNING, DONE, INTERRUPTED = TrialState.RUNNING, TrialState.DONE, TrialState.INTERRUPTED


def _change(at_s: float, state: TrialState, process: ProcessIdentity | None = None) -> StateChange:
    return StateChange(at_s, state, None, process)


def test_running_counts_only_under_a_living_conductor() -> None:
    changes = [_change(0, RUNNING, ME)]
    assert present(changes, lambda process: process == ME) == (RUNNING, None)
    assert present(changes, lambda _: False) == (INTERRUPTED, ORPHANED)
    assert present([_change(0, RUNNING)], lambda _: True) == (INTERRUPTED, ORPHANED)
    assert present([*changes, _change(5, DONE)], lambda _: False) == (DONE, None)


def _runs(first_at_s: float, last_at_s: float, between_s: float) -> Measured:
    return Measured(first_at_s, last_at_s, between_s)


@pytest.mark.parametrize(
    ("changes", "runs", "now_s", "expected"),
    [
        ([_change(10, RUNNING), _change(15, DONE)], {}, None, 5),
        ([_change(10, RUNNING)], {}, 18, 8),
        ([_change(10, RUNNING)], {1: _runs(11, 13, 2)}, None, 3),
        ([_change(10, RUNNING)], {}, None, 0),
        # Killed after its last run at 13, resumed at 100, done at 107: the time between does not count.
        (
            [_change(10, RUNNING), _change(100, RUNNING), _change(107, DONE)],
            {1: _runs(11, 13, 2)},
            None,
            10,
        ),
        (
            [_change(10, RUNNING), _change(12, INTERRUPTED), _change(50, RUNNING)],
            {2: _runs(51, 51, 0)},
            None,
            3,
        ),
        # The clock was set back meanwhile: all that is known is that no time is negative.
        ([_change(10, RUNNING), _change(5, DONE)], {}, None, 0),
        # 100 s of runs, 1 s before them and 2 s after; the clock went back an hour between two of them,
        ([_change(4000, RUNNING), _change(503, DONE)], {1: _runs(4001, 501, 100)}, None, 103),
        # or forward a day,
        ([_change(4000, RUNNING), _change(90503, DONE)], {1: _runs(4001, 90501, 100)}, None, 103),
        # or back after the last run, or before the first.
        ([_change(4000, RUNNING), _change(503, DONE)], {1: _runs(4001, 4101, 100)}, None, 101),
        ([_change(4000, RUNNING), _change(503, DONE)], {1: _runs(401, 501, 100)}, None, 102),
    ],
)
def test_a_trial_lasts_as_long_as_it_ran_whatever_the_clock_does(
    changes: list[StateChange], runs: dict[int, Measured], now_s: float | None, expected: float
) -> None:
    assert duration_s(changes, runs.get, now_s=now_s) == expected


def _proc(
    root: Path, pid: int, *, state: str = "S", ticks: int = 4242, name: str = "python3", boot: str = "b-1"
) -> Path:
    (root / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (root / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    (root / str(pid)).mkdir(exist_ok=True)
    before, after = "1 1 1 0 -1 4194304 100 0 0 0 3 1 0 0 20 0 1 0", "10000 500 184467"
    (root / str(pid) / "stat").write_text(f"{pid} ({name}) {state} {before} {ticks} {after}\n")
    return root


def test_a_process_is_known_by_its_start_and_the_boot(tmp_path: Path) -> None:
    proc = _proc(tmp_path, 17)
    found = identity(17, proc=proc)
    assert found == ProcessIdentity(17, "b-1/4242")
    assert is_alive(found, proc=proc)
    assert is_alive(ProcessIdentity(17, "4242"), proc=proc)
    assert not is_alive(identity(18, proc=proc), proc=proc)
    assert not is_alive(found, proc=_proc(tmp_path, 17, ticks=4243))
    assert not is_alive(found, proc=_proc(tmp_path, 17, boot="b-2"))
    assert not is_alive(found, proc=_proc(tmp_path, 17, state="Z"))


@pytest.mark.parametrize("name", ["a b", "x) S 1 1", ") 9 (", ""])
def test_a_process_s_name_may_look_like_fields(tmp_path: Path, name: str) -> None:
    assert identity(17, proc=_proc(tmp_path, 17, name=name)).pid_started == "b-1/4242"


@pytest.mark.parametrize("text", ["", "17 (x", "17 (x) S 1", "\xff\xfe"])
def test_a_stat_that_says_nothing_is_no_living_process(tmp_path: Path, text: str) -> None:
    proc = _proc(tmp_path, 17)
    (proc / "17" / "stat").write_text(text)
    assert identity(17, proc=proc).pid_started == ""
    assert not is_alive(identity(17, proc=proc), proc=proc)


def test_a_real_process_lives_until_it_ends_and_is_not_its_successor() -> None:
    child = subprocess.Popen(["sleep", "60"])
    found = identity(child.pid)
    assert is_alive(found)
    assert is_alive(identity())
    assert identity().pid == os.getpid()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(found)  # a zombie
    child.wait()
    assert not is_alive(found)
