"""Whole trials on a stand-in for a disk: run, interrupted, restored, resumed; the disk is empty again after
each."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from running import SCHEMA, failures_of, stored_runs, were_warm, write_study

from program import forked
from study_texts import reading

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from stand_in import MIB, SERIAL, StandIn

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parent / "with_stand_ins.py"
QUEUE = ("scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec")
STUDY = """
[study]
name = "scheduling"
question = "Does the scheduler matter to reading?"
[lab]
kind = "device"
size = "24 MiB"
[budget]
time = "60 s"
blocks = BLOCKS
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none", "mq-deadline", "bfq"]
[[factor]]
name = "cache"
knob = "cache.state"
levels = ["cold", "warm"]
role = "condition"
""" + reading(cache=None)


@pytest.fixture
def disk(disk_folder: Path) -> Iterator[StandIn]:
    disk = StandIn(disk_folder, "disk.img", 64 * MIB)
    before = queue_of(disk)
    yield disk
    after, empty = queue_of(disk), disk.empty
    disk.detach()
    disk.file.unlink()
    assert after == before
    assert empty


def queue_of(disk: StandIn) -> dict[str, str]:
    return {name: Path(f"/sys/block/{disk.name}/queue/{name}").read_text() for name in QUEUE}


def command(disk: StandIn, *words: str) -> list[str]:
    return [sys.executable, str(PROGRAM), disk.named, *words]


def iotrial(disk: StandIn, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = forked(PROGRAM, disk.named, *words)
    assert done.returncode == status, done.stderr
    return done


def on(disk: StandIn) -> tuple[str, ...]:
    return ("--device", disk.path, "--erase", SERIAL.lower())


def test_a_trial_on_a_disk_measures_that_disk_and_leaves_it_empty(
    state: Path, disk: StandIn, disk_folder: Path
) -> None:
    study = write_study(disk_folder, STUDY.replace("BLOCKS", "2"))
    report = json.loads(iotrial(disk, "run", study, *on(disk), "--json", status=6).stdout)
    jsonschema.validate(report, SCHEMA)
    runs = stored_runs(state)
    assert failures_of(state) == []
    assert {one["rule"] for one in report["void"]} <= {"warm_was_not_warm"}
    assert {run["treatment"]["scheduler"] for run in runs} == {"none", "mq-deadline", "bfq"}
    for run in runs:
        if "cache=cold" in run["condition"]:
            assert run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] > 0
    assert were_warm([run for run in runs if "cache=cold" not in run["condition"]])
    assert not list((state / "journal").glob("*"))


def test_plan_says_what_is_overwritten_and_writes_nothing(
    state: Path, disk: StandIn, disk_folder: Path
) -> None:
    study = write_study(disk_folder, STUDY.replace("BLOCKS", "2"))
    said = iotrial(disk, "plan", study, *on(disk)).stdout
    assert f"on {disk.path}: stand-in, {SERIAL.lower()}" in said
    assert "67,108,864 bytes, of which the lab uses the first 25,165,824" in said
    assert "at the end those bytes are ZEROS" in said
    document = json.loads(iotrial(disk, "plan", study, *on(disk), "--json").stdout)
    assert document["disk"]["bytes"] == 64 * MIB
    assert disk.empty


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--erase", SERIAL), "--device is missing"),
        (("--device", "DISK"), "--erase is missing"),
        ((), "no disk given"),
        (("--device", "DISK", "--erase", "STANDIN-0002"), "not the serial number or WWN"),
        (("--device", "DISK", "--erase", SERIAL, "--lab", "image"), "this is a lab of kind image"),
    ],
)
def test_a_disk_that_is_not_named_twice_is_not_touched(
    words: tuple[str, ...], wanted: str, state: Path, disk: StandIn, disk_folder: Path
) -> None:
    study = write_study(disk_folder, STUDY.replace("BLOCKS", "2"))
    named = [disk.path if word == "DISK" else word for word in words]
    said = iotrial(disk, "run", study, *named, status=2).stderr
    assert wanted in said
    assert SERIAL in words or SERIAL not in said  # the serial number is not disclosed
    assert not list((state / "journal").glob("*"))


def test_a_value_of_a_study_cannot_name_a_disk(state: Path, disk: StandIn, disk_folder: Path) -> None:
    text = STUDY.replace("BLOCKS", "2").replace('size = "24 MiB"', f'device = "{disk.path}"')
    study = write_study(disk_folder, text)
    assert '[lab] has no key "device"' in iotrial(disk, "run", study, *on(disk), status=2).stderr


@pytest.mark.long
def test_after_sigkill_restore_empties_the_disk_and_resume_completes_the_trial(
    state: Path, disk: StandIn, disk_folder: Path
) -> None:
    study = write_study(disk_folder, STUDY.replace("BLOCKS", "40"))
    running = subprocess.Popen(
        command(disk, "run", study, *on(disk), "--no-stop"),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    _wait_for_runs(state, 8, running)
    running.kill()
    running.wait()
    kept = len(stored_runs(state))
    assert not disk.empty
    assert "left" in iotrial(disk, "run", study, *on(disk), status=1).stderr
    assert "lab.device on" in iotrial(disk, "restore").stdout
    assert disk.empty
    assert iotrial(disk, "restore").stdout == "Nothing to restore.\n"
    report = json.loads(iotrial(disk, "resume", "--json", "--time", "1 s").stdout)
    assert report["trial"]["state"] == "done"
    assert len(stored_runs(state)) > kept
    assert failures_of(state) == []


@pytest.mark.long
def test_resume_refuses_a_disk_that_has_been_used_since(
    state: Path, disk: StandIn, disk_folder: Path
) -> None:
    study = write_study(disk_folder, STUDY.replace("BLOCKS", "40"))
    disk.put(50 * MIB, b"old")  # beyond the lab
    words = command(disk, "run", study, *on(disk), "--no-stop", "--discard-contents")
    running = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _wait_for_runs(state, 10, running)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 130
    assert not disk.bytes_at(0, 24 * MIB + 4096).strip(b"\0")
    disk.put(20 * MIB, b"new")
    assert "there is data at byte 20,971,520" in iotrial(disk, "resume", status=2).stderr
    disk.put(20 * MIB, bytes(3))
    iotrial(disk, "resume", "--time", "1 s", status=6)
    assert disk.bytes_at(50 * MIB, 3) == b"old"
    disk.put(50 * MIB, bytes(3))


def _wait_for_runs(state: Path, number: int, running: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert running.poll() is None, "the trial ended before it could be cut off"
        if (state / "trials.db").exists():
            try:
                if len(stored_runs(state)) >= number:
                    return
            except sqlite3.OperationalError:  # the table is just being created
                pass
        time.sleep(0.05)
    raise AssertionError("the trial made no runs")
