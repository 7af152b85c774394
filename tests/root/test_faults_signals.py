"""Signals at random times from the start of the process to its end: one, two, or to a whole group; and
readers that go away.

The times are drawn with a seed. Each counts from the moment when the program has installed its handlers
(SigCgt of proc_pid_status(5)): before that it is Python's own start.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from breaking import Trial, command_study, eventually, image_study, iotrial, nothing_left, report_of, send
from running import stored_runs

pytestmark = pytest.mark.root

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
QUICK = ["test", "-n", "{word}"]


def catches(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def has_handlers(trial: Trial) -> None:
    assert eventually(lambda: catches(trial.process.pid, signal.SIGTERM))


def study_for(lab: str, folder: Path) -> str:
    if lab == "image":
        return image_study(folder, blocks=10)
    return command_study(folder, QUICK, blocks=40)


def ended_well(trial: Trial, state: Path, number: int) -> None:
    status, out, err = trial.end()
    # -number: killed during the interpreter's own exit, when the handlers are gone; a shell sees the same 128
    # + number.
    assert status in (128 + number, -number, 0, 3), (status, err)
    for word in ("Traceback", "KeyboardInterrupt", "Exception ignored"):
        assert word not in err, err
    if out:
        assert report_of(out)["trial"]["state"] in ("interrupted", "done", "invalid")
    nothing_left(state)
    if (state / "trials.db").exists():
        with sqlite3.connect(f"file:{state / 'trials.db'}?mode=ro", uri=True) as store:
            states = [row[0] for row in store.execute("SELECT state FROM state ORDER BY sequence")]
        assert states[-1:] != ["running"]


def at_random_instants(state: Path, folder: Path, lab: str, how_often: int, seed: int) -> None:
    study = study_for(lab, folder)
    began = time.monotonic()
    trial = Trial(state, study, "--no-stop", "--json")
    has_handlers(trial)
    trial.end()
    length = time.monotonic() - began
    drawn = random.Random(seed)
    for _ in range(how_often):
        trial = Trial(state, study, "--no-stop", "--json")
        number = drawn.choice(NUMBERS)
        has_handlers(trial)
        time.sleep(drawn.uniform(0, length))
        send(trial, number)
        ended_well(trial, state, number)


@pytest.mark.long
@pytest.mark.parametrize(("lab", "how_often"), [("image", 1), ("directory", 3)])
def test_a_signal_at_any_instant_leaves_nothing_and_no_trace(
    state: Path, tmp_path: Path, lab: str, how_often: int
) -> None:
    at_random_instants(state, tmp_path, lab, how_often, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("lab", ["image", "directory"])
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_signal_at_one_of_many_instants_leaves_nothing_and_no_trace(
    state: Path, tmp_path: Path, lab: str, seed: int
) -> None:
    at_random_instants(state, tmp_path, lab, 25, seed)


@pytest.mark.parametrize("number", [signal.SIGQUIT, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_a_signal_of_the_terminal_puts_everything_back_as_ctrl_c_does(
    state: Path, tmp_path: Path, number: int
) -> None:
    trial = Trial(
        state, study_for("image", tmp_path), "--no-stop", "--json", "--blocks", "2000", start_new_session=True
    )
    trial.until_runs(2)
    os.killpg(trial.process.pid, number)
    status, out, err = trial.end()
    assert status == 128 + number, err
    assert report_of(out)["trial"]["state"] == "interrupted"
    nothing_left(state)


@pytest.mark.long
def test_the_same_signal_twice_and_another_while_it_puts_things_back(state: Path, tmp_path: Path) -> None:
    trial = Trial(state, study_for("image", tmp_path), "--no-stop", "--json", "--blocks", "2000")
    trial.until_runs(6)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        send(trial, number)
    status, out, err = trial.end()
    # the third signal may arrive while the report is being written: then it ends that; the lab is already
    # removed
    assert status in (128 + signal.SIGINT, 128 + signal.SIGTERM), err
    if out:
        assert report_of(out)["trial"]["state"] == "interrupted"
    nothing_left(state)


@pytest.mark.long
def test_a_ctrl_c_of_the_terminal_reaches_the_whole_group_and_ends_well(state: Path, tmp_path: Path) -> None:
    trial = Trial(
        state, study_for("image", tmp_path), "--no-stop", "--json", "--blocks", "2000", start_new_session=True
    )
    trial.until_runs(6)
    os.killpg(trial.process.pid, signal.SIGINT)
    status, out, err = trial.end()
    assert status == 128 + signal.SIGINT, err
    assert report_of(out)["trial"]["state"] == "interrupted"
    nothing_left(state)


@pytest.mark.long
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(state: Path, tmp_path: Path) -> None:
    """Run as under nohup."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    trial = Trial(state, study_for("directory", tmp_path), "--no-stop", "--json", preexec_fn=ignore)
    trial.until_runs(4)
    send(trial, signal.SIGHUP)
    status, out, err = trial.end()
    assert status in (0, 3, 6), err
    assert report_of(out)["trial"]["state"] in ("done", "invalid")


@pytest.mark.parametrize(
    "stream", ["stdout", *(pytest.param(one, marks=pytest.mark.long) for one in ("stderr", "both"))]
)
def test_a_reader_that_goes_away_ends_the_trial_and_everything_is_put_back(
    state: Path, tmp_path: Path, stream: str
) -> None:
    study = study_for("image", tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    streams = {} if stream == "both" else {"stdout": writing} if stream == "stdout" else {"stderr": writing}
    if stream == "both":
        streams = {"stdout": writing, "stderr": subprocess.STDOUT}
    trial = Trial(state, study, "--no-stop", **streams)
    os.close(writing)
    status, _, err = trial.end()
    assert status == 128 + signal.SIGPIPE, err
    nothing_left(state)
    if stream == "stdout":
        assert stored_runs(state)  # nobody read the output, but the runs are stored: `report` has them
        assert iotrial("report").returncode in (0, 3, 6)


@pytest.mark.long  # slow: a pipe gets a line every ten seconds
def test_a_reader_that_has_read_enough_ends_the_trial_as_a_signal_would(state: Path, tmp_path: Path) -> None:
    """Run as in ``iotrial run ... 2>&1 | head -1``."""
    trial = Trial(state, image_study(tmp_path, blocks=2000), "--no-stop")
    assert trial.process.stderr
    assert trial.process.stderr.readline()
    trial.until_runs(4)
    trial.process.stderr.close()
    trial.process.stderr = None
    status, out, _ = trial.end()
    assert status == 128 + signal.SIGPIPE
    assert "iotrial resume" in out or "interrupted" in out.lower()
    nothing_left(state)


@pytest.mark.parametrize("words", [["plan", "files/permissions", "--json"], ["knobs"], ["report", "--json"]])
def test_a_signal_ends_what_changes_nothing_at_once_and_without_a_trace(
    state: Path, tmp_path: Path, words: list[str]
) -> None:
    drawn = random.Random(5)
    for number in NUMBERS:
        trial = Trial(state, *words[1:], verb=words[0])
        has_handlers(trial)
        time.sleep(drawn.uniform(0, 0.3))
        send(trial, number)
        status, _, err = trial.end()
        assert status in (128 + number, -number, 0, 2), err
        assert "KeyboardInterrupt" not in err
