"""The probe dies, stops, hangs, or sends garbage in the middle of a trial."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import (
    Trial,
    command_study,
    image_study,
    last_trial,
    nothing_left,
    resumes_to_the_end,
    send,
    stop,
)
from probe_between import install
from running import stored_runs

pytestmark = pytest.mark.root

QUICK = ["test", "-f", "{file}", "-a", "-n", "{word}"]
SAYS = {"garbage": "something like it", "half": "died", "hang-up": "died"}


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def failed_well(trial: Trial, state: Path, kept: int, says: str, *, resume: bool = True) -> None:
    status, _, err = trial.end()
    assert status == 1, err
    assert "the probe" in err
    assert says in err
    finished = stored_runs(state)
    assert len(finished) >= kept
    assert [run["failure"] for run in finished if run["failure"] is not None] == []
    assert last_trial()["state"] == "failed"
    nothing_left(state)
    if resume:
        resumes_to_the_end(state, finished)
        nothing_left(state)


@pytest.mark.parametrize(
    ("does", "says", "which"),
    [
        pytest.param(_kill, "died", 0, id="outer killed", marks=pytest.mark.long),
        pytest.param(_kill, "died", 1, id="inner killed"),
        pytest.param(stop, "stopped", 1, id="inner stopped", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("lab", [pytest.param("image", marks=pytest.mark.long), "directory"])
def test_a_probe_that_is_killed_or_stopped_fails_the_trial_and_keeps_its_runs(
    state: Path, tmp_path: Path, lab: str, does: Callable[[int], None], says: str, which: int
) -> None:
    study = image_study(tmp_path, blocks=60) if lab == "image" else command_study(tmp_path, QUICK, blocks=60)
    trial = Trial(state, study, "--no-stop")
    trial.until_runs(6)
    trial.worker()
    does(trial.probes()[which])
    failed_well(trial, state, 6, says, resume=lab == "image" or (does is _kill and which == 1))


@pytest.mark.long
@pytest.mark.parametrize("lab", ["image", pytest.param("directory", marks=pytest.mark.long)])
def test_the_outer_process_only_waits_so_that_stopping_it_hinders_nothing(
    state: Path, tmp_path: Path, lab: str
) -> None:
    trial = Trial(state, command_study(tmp_path, QUICK, lab=lab, blocks=20), "--no-stop")
    trial.until_runs(4)
    trial.worker()
    stop(trial.probes()[0])
    status, _, err = trial.end()
    assert status in (0, 3, 6), err
    assert len(stored_runs(state)) == 20 * 4  # two levels, a copy and a slowed run
    nothing_left(state)


@pytest.mark.parametrize(
    "does",
    [
        "garbage",
        pytest.param("half", marks=pytest.mark.long),
        pytest.param("hang-up", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_probe_that_talks_nonsense_or_hangs_up_fails_the_trial_and_keeps_its_runs(
    state: Path, tmp_path: Path, does: str
) -> None:
    study = command_study(tmp_path, QUICK, blocks=60)
    environment = install(tmp_path, verb="command", nth=20, does=does)
    trial = Trial(state, study, "--no-stop", env=environment)
    failed_well(trial, state, 6, SAYS[does])


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
@pytest.mark.long
def test_a_signal_ends_a_trial_whose_probe_is_stopped(state: Path, tmp_path: Path, number: int) -> None:
    trial = Trial(state, command_study(tmp_path, QUICK, blocks=2000), "--no-stop")
    trial.until_runs(6)
    stop(trial.worker())
    send(trial, number)
    status, _, err = trial.end()
    assert status == 128 + number, err
    assert last_trial()["state"] == "interrupted"
    nothing_left(state)
