"""Whole trials on a simulated disk: its description in plan and report, and what is left if its server or the
conductor dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from breaking import Trial, children, eventually, last_trial, nothing_left
from running import iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

STUDY = """
[study]
name = "sticks"
question = "Is a stick slow to write at random?"
[lab]
kind = "image"
size = "64 MiB"
disk = { model = "disk-15000", queue = 1 }
[budget]
time = "60 s"
blocks = BLOCKS
[[factor]]
name = "position"
knob = "work.option"
option = "position"
levels = ["0 %", "75 %"]
[[workload]]
name = "device"
kind = "stream"
operation = "read"
on = "device"
direct = true
cache = "as-is"
block_size = "64 KiB"
volume = "256 KiB"
"""


def study(folder: Path, blocks: int) -> str:
    return write_study(folder, STUDY.replace("BLOCKS", str(blocks)))


@pytest.mark.long
def test_plan_and_report_say_that_the_disk_was_modelled_and_how(state: Path, tmp_path: Path) -> None:
    mine = study(tmp_path, 2)
    plan = iotrial("plan", mine).stdout
    for words in (
        "the disk is simulated",
        "disk-15000: turns_per_minute 15000",
        "queue 1,",
        "FUSE",
    ):
        assert words in plan
    report = run_json(mine, "--no-account")
    [place] = report["trial"]["lab_settings"].get("places", [{}])
    text = " ".join(iotrial("report", "last").stdout.split())
    assert "The disk is simulated: disk-15000" in text
    assert "disk-15000" in place.get("modelled", "disk-15000")
    for run in stored_runs(state):
        assert run["checks"]["bytes_read"] >= 256 << 10
    nothing_left(state)


def test_another_disk_or_none_is_asked_for_on_the_command_line(state: Path, tmp_path: Path) -> None:
    mine = study(tmp_path, 1)
    assert "usb-stick: read_latency" in iotrial("plan", mine, "--disk", "usb-stick").stdout
    assert "modelled" not in iotrial("plan", mine, "--disk", "none").stdout
    assert "known: disk-15000, disk-7200" in iotrial("plan", mine, "--disk", "disk-1", check=2).stderr


def server_of(trial: Trial) -> int:
    """Return the server of the simulated disk: the second child of the outer probe; the first is the worker."""
    trial.until(lambda: len(trial.probes()) >= 3, "a simulated disk")
    return children(trial.probes()[0])[1]


def test_a_disk_that_dies_ends_the_trial_as_a_failure_of_the_lab(state: Path, tmp_path: Path) -> None:
    trial = Trial(state, study(tmp_path, 1000), "--json")
    server = server_of(trial)
    trial.until_runs(3)
    os.kill(server, signal.SIGKILL)
    status, _, err = trial.end()
    assert status == 1, err
    assert last_trial()["state"] in ("failed", "interrupted")
    nothing_left(state)


@pytest.mark.alone  # its loop device must be free at restore
def test_a_conductor_that_is_killed_leaves_no_disk(state: Path, tmp_path: Path) -> None:
    trial = Trial(state, study(tmp_path, 1000), "--json")
    server = server_of(trial)
    trial.until_runs(3)
    trial.process.kill()
    trial.process.communicate()
    assert eventually(lambda: not Path(f"/proc/{server}").exists())
    iotrial("restore")
    nothing_left(state)
