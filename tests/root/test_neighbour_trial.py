"""Trials of work with a neighbour: both work at once on the lab's disk, each has its response, and nothing is left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

from iotrial.polling import attempts
from left_behind import host_state, left_by_tests

MIB = 1 << 20
STUDY = """
[study]
name = "mode-and-writer"
question = "Does the mode matter to a reader while another writes?"
account = false
[lab]
kind = "image"
size = "256 MiB"
[budget]
time = "1 min"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0644"]
[[workload]]
name = "pages"
kind = "random"
size = "16 MiB"
operations = 100
rate = 200.0
direct = true
stall = "100 ms"
[workload.neighbour]
lead_in = "100 ms"
NEIGHBOUR
"""
WRITES = 'argv = ["dd", "if=/dev/zero", "of={neighbour}/x", "bs=1M", "count=16", "oflag=direct"]'


def changed_since(before: dict[str, str]) -> list[str]:
    """Return what has changed on this machine but loop devices, which other tests attach at the same time."""
    return [key for key in left_by_tests(before, host_state()) if not key.startswith("loop")]


def study(folder: Path, neighbour: str) -> str:
    return write_study(folder, STUDY.replace("NEIGHBOUR", neighbour))


def test_what_the_neighbour_moves_is_what_the_disk_has_written(state: Path, disk_folder: Path) -> None:
    before = host_state()
    run_json(study(disk_folder, WRITES), "--blocks", "2")
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert len(runs) == 2 * 4
    for run in runs:
        numbers = {**run["evidence"], **run["responses"]}
        moved = numbers["neighbour_rate"] * numbers["wall"]
        # the kernel's own counts of the loop device, for the same timed part; the work itself writes nothing
        assert moved == pytest.approx(numbers["device_write_bytes"], rel=0.25, abs=4 * MIB)
        assert moved > 0
        assert 0 <= numbers["read_stalls"] <= 100
    assert not changed_since(before)
    assert not list(state.rglob("*.entry"))


def test_a_neighbour_that_works_once_is_waited_for(state: Path, disk_folder: Path) -> None:
    run_json(study(disk_folder, 'argv = ["sleep", "1.5"]\nrounds = "once"'), "--blocks", "1")
    assert failures_of(state) == []
    for run in stored_runs(state):
        assert 1.5 <= {**run["evidence"], **run["responses"]}["neighbour_time"] < 5
        assert {**run["evidence"], **run["responses"]}["wall"] < 1.4


def test_a_neighbour_that_fails_is_a_failure_of_the_run_with_its_words(
    state: Path, disk_folder: Path
) -> None:
    iotrial("run", study(disk_folder, 'argv = ["cat", "{neighbour}/nothing"]'), "--blocks", "1", check=None)
    failures = failures_of(state)
    assert failures
    assert all("cat" in one and "No such file" in one for one in failures)


def test_one_that_takes_too_long_fails_the_run(state: Path, disk_folder: Path) -> None:
    slow = 'argv = ["sleep", "1000"]\nrounds = "once"\ntimeout = "1 s"'
    iotrial("run", study(disk_folder, slow), "--blocks", "1", check=None)
    failures = failures_of(state)
    assert failures
    assert all(one.startswith("neighbour sleep did not end in time") for one in failures)


def running(mark: str) -> list[int]:
    """Return the processes with this text among their arguments, but those of iotrial itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (folder / "cmdline").read_bytes().split(b"\0")
            if argv[:1] == [b"sleep"] and mark.encode() in argv:
                found.append(int(folder.name))
    return found


def test_a_neighbour_ends_with_an_iotrial_that_is_killed(state: Path, disk_folder: Path) -> None:
    before, mark = host_state(), "54321.25"
    path = study(disk_folder, f'argv = ["sleep", "{mark}"]')
    conductor = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "run", path, "--yes"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert any(running(mark) for _ in attempts(60, every_s=0.05)), "it has begun"
    finally:
        conductor.kill()
        conductor.wait()
    assert any(not running(mark) for _ in attempts(20, every_s=0.05)), "it has ended"
    iotrial("restore", check=None)
    assert not changed_since(before)
    assert not list(state.rglob("*.entry"))


LIMITED = """
[study]
name = "limited"
question = "Is the limit obeyed?"
account = false
[lab]
kind = "guest"
size = "192 MiB"
[budget]
time = "5 min"
[[factor]]
name = "limit"
knob = "io.max"
key = "neighbour"
levels = ["none", "wbps=2MiB"]
[[workload]]
name = "pages"
kind = "random"
size = "8 MiB"
operations = 60
rate = 20.0
direct = true
[workload.neighbour]
argv = ["dd", "if=/dev/zero", "of={neighbour}/x", "bs=256k", "count=64", "oflag=direct"]
"""


def test_the_limit_of_a_neighbour_is_obeyed_by_the_count_of_the_disk(
    state: Path, disk_folder: Path, guests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    run_json(write_study(disk_folder, LIMITED), "--blocks", "2")
    assert failures_of(state) == []
    written: dict[bool, list[float]] = {False: [], True: []}
    for run in stored_runs(state):
        numbers = {**run["evidence"], **run["responses"]}
        written["wbps=2MiB" in run["treatment"].values()].append(
            numbers["device_write_bytes"] / numbers["wall"]
        )
    assert max(written[True]) < 2.5 * MIB
    assert min(written[False]) > 2 * 2.5 * MIB
    assert not list(state.rglob("*.entry"))


HERE = LIMITED.replace('kind = "guest"', 'kind = "image"')


@pytest.mark.skipif(
    any("io" in one.read_text().split() for one in Path("/sys/fs/cgroup").glob("**/cgroup.controllers")),
    reason="this machine has the io controller in version 2",
)
def test_a_machine_without_the_controller_refuses_the_limit_and_is_left_as_it_was(
    state: Path, disk_folder: Path
) -> None:
    before = host_state()
    done = iotrial("run", write_study(disk_folder, HERE), "--blocks", "1", check=None)
    assert done.returncode not in (0, 6)
    assert "knob io.max: the control groups of version 2" in done.stderr
    assert "no io controller" in done.stderr
    assert not changed_since(before)
