"""From an application to its replay: recorded, shown, replayed by fio, and held against the application in a trial."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, write_study

pytestmark = pytest.mark.root

#: 30 reads of 4 KiB in order, 20 writes of 8 KiB to a new file, an fsync after each tenth
APPLICATION = """
import os
old = os.open("old", os.O_RDONLY)
for _ in range(30):
    os.read(old, 4096)
new = os.open("new", os.O_WRONLY | os.O_CREAT, 0o644)
for place in range(20):
    os.pwrite(new, b"x" * 8192, place * 8192)
    if place % 10 == 9:
        os.fsync(new)
"""
ARGV = [sys.executable, "-I", "-S", "work.py"]


def prepared(folder: Path) -> Path:
    """Fill and return the application's folder."""
    folder.mkdir()
    (folder / "work.py").write_text(APPLICATION)
    (folder / "old").write_bytes(b"o" * 200_000)
    return folder


def recorded(tmp_path: Path) -> Path:
    """Record the application on a copy of its folder, and return the trace."""
    trace, copy = tmp_path / "app.iotrace", tmp_path / "copy"
    shutil.copytree(prepared(tmp_path / "state"), copy)
    iotrial("record", "-o", str(trace), "--", *ARGV, cwd=copy)
    return trace


def test_a_recorded_application_is_shown_with_what_it_did(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    shown = json.loads(iotrial("show", str(trace), "--json").stdout)["trace"]
    files = {one["path"]: one for one in shown["files"]["hottest"]}
    old, new = files["old"], files["new"]
    assert (old["read_bytes"], old["operations"], old["existed"]) == (30 * 4096, 30, True)
    assert (new["written_bytes"], new["operations"], new["existed"]) == (20 * 8192, 20, False)
    assert (shown["lost"], shown["complete"], shown["syncs"]["operations"]) == (0, True, 2)
    assert shown["syncs"]["writes_between"]["max"] == 10
    assert shown["write"]["positional"] == 20


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_replays_a_recording_with_its_bytes_and_operations(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    shown = json.loads(iotrial("show", str(trace), "--json").stdout)["trace"]
    log = iotrial("show", str(trace), "--as", "iolog", "--files", str(tmp_path / "files")).stdout
    (tmp_path / "app.log").write_text(log)
    argv = ["fio", "--name=replay", "--ioengine=psync", "--read_iolog=../app.log", "--output-format=json"]
    done = subprocess.run(argv, cwd=tmp_path / "files", capture_output=True, text=True, check=True)
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    moving = sum(one["operations"] for one in shown["read"]["sizes"] if one["up_to"])
    assert (job["read"]["io_bytes"], job["read"]["total_ios"]) == (shown["read"]["bytes"], moving)
    assert (job["write"]["io_bytes"], job["write"]["total_ios"]) == (20 * 8192, 20)
    assert job["sync"]["lat_ns"]["N"] == 2


def test_a_trial_holds_a_replay_against_its_application(state: Path, tmp_path: Path) -> None:
    recorded(tmp_path)
    study = f"""
[study]
name = "app"
question = "Does the replay lead to the same verdict?"
margin = "50 %"
account = false
[lab]
kind = "image"
size = "96 MiB"
[budget]
time = "60 s"
blocks = 4
[[factor]]
name = "data"
knob = "mount.option"
option = "data"
levels = ["data=ordered", "data=journal"]
[[workload]]
name = "application"
kind = "command"
files = 1
cache = "as-is"
run_as = "root"
cwd = "{{out}}"
prepare = ["cp", "-a", "{tmp_path}/state/.", "{{out}}"]
argv = {json.dumps(ARGV)}
[[workload]]
name = "replay"
kind = "replay"
trace = "app.iotrace"
stands_for = "application"
cache = "as-is"
"""
    report = run_json(write_study(tmp_path, study), "--trust", "--no-stop", "--blocks", "4")
    assert failures_of(state) == []
    (found,) = report["stand_ins"]
    (compared,) = found["comparisons"]
    assert (found["application"], found["stand_in"]) == ("application", "replay")
    assert compared["application"]["blocks"] == compared["stand_in"]["blocks"] == 4
    amounts = {(one["treatment"], one["metric"]): one for one in found["amounts"]}
    written = amounts["data=ordered", "work_written_bytes"]
    assert written["stand_in"] == written["application"] == 20 * 8192
    flushes = amounts["data=ordered", "device_flush_ios"]
    assert flushes["stand_in"] == flushes["application"] > 0
    assert "Does the replay stand for the application?" in iotrial("report", "--full").stdout
