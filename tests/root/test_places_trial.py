"""Trials over several places: each run works where its level says, on separate devices, and everything is
removed again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

STUDY = """
[study]
name = "places"
question = "Is one place as fast as the other?"
account = false
[lab]
kind = "image"
size = "24 MiB"
[budget]
time = "60 s"
blocks = BLOCKS
[[place]]
name = "first"
text = "the one that was there before"
filesystem = "ext4"
[[place]]
name = "second"
filesystem = "btrfs"
[[place]]
name = "aside"
holds = "files"
[[factor]]
name = "device"
reference = "first"
levels = [
  { label = "first", set = [
    { knob = "lab.device", level = "first" },
    { knob = "command.argument", level = "ext2/ext3", placeholder = "{kind}" },
  ] },
  { label = "second", set = [
    { knob = "lab.device", level = "second" },
    { knob = "command.argument", level = "btrfs", placeholder = "{kind}" },
  ] },
]
[[workload]]
name = "read"
kind = "files"
files = 4
size = "16 KiB"
operations = ["open", "read-to-end", "close"]
cache = "cold"
[[workload]]
name = "where"
kind = "command"
files = 1
cache = "as-is"
argv = ["sh", "-c", "test $(stat -f -c %T {dir}) = {kind} && date > {place.aside}/now"]
"""


def test_every_run_is_at_the_place_of_its_level(state: Path, tmp_path: Path, disk_folder: Path) -> None:
    study = write_study(tmp_path, STUDY.replace("BLOCKS", "2"))
    elsewhere = Path(tempfile.mkdtemp(dir=disk_folder))
    report = run_json(study, "--trust", "--place", f"second={elsewhere}")
    runs = stored_runs(state)
    assert failures_of(state) == []  # the command fails on any other file system than its level's
    assert not any(run["checks"].get("void") for run in runs)
    assert {run["arm"] for run in runs} >= {"first", "second", "control:negative"}
    cold = [run for run in runs if "workload=read" in run["condition"]]
    assert all(run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] > 0 for run in cold)
    places = {place["place"]: place for place in report["trial"]["lab_settings"]["places"]}
    assert {name: place["filesystem"] for name, place in places.items()} == {
        "first": "ext4",
        "second": "btrfs",
        "aside": "ext4",
    }
    assert len({place["device"] for place in places.values()}) == 3
    (shared,) = report["trial"]["lab_settings"]["shared"]  # one disk under both folders
    assert shared["places"] == ["first", "second", "aside"]
    assert shared["compared"]
    words = {"1": "rotating", "0": "solid-state"}
    kernel = {
        disk: "nvme"
        if disk.startswith("nvme")
        else words[Path(f"/sys/block/{disk}/queue/rotational").read_text().strip()]
        for disk in shared["disks"]
    }
    kinds = report["trial"]["lab_settings"]["disks"]
    assert kinds == dict.fromkeys(("first", "second", "aside"), kernel)
    assert "this compares that disk with itself" in " ".join(iotrial("report").stdout.split())
    assert not list((state / "journal").glob("*"))
    assert not list(elsewhere.iterdir())


@pytest.mark.long
def test_a_trial_over_two_places_that_was_killed_is_restored_and_resumed(
    state: Path, tmp_path: Path, disk_folder: Path
) -> None:
    text = STUDY.replace("BLOCKS", "4").partition('[[workload]]\nname = "where"')[0]
    text = re.sub(r"    \{ knob = .command.argument.*\n", "", text)
    study = write_study(tmp_path, text)
    elsewhere = Path(tempfile.mkdtemp(dir=disk_folder))
    running = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "run", study, "--no-stop", "--place", f"second={elsewhere}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    deadline = time.monotonic() + 60
    while running.poll() is None and time.monotonic() < deadline:
        if (state / "trials.db").exists() and len(stored_runs(state)) >= 3:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    iotrial("restore")
    before = stored_runs(state)
    report = json.loads(iotrial("resume", "--json").stdout)
    runs = stored_runs(state)
    assert report["trial"]["state"] == "done"
    assert runs[: len(before)] == before
    assert {run["block"] for run in runs} == {0, 1, 2, 3}
    assert report["trial"]["options"]["places"] == {"second": {"folder": str(elsewhere)}}
    assert not list((state / "journal").glob("*"))


def test_places_are_folders_without_root_too(state: Path, tmp_path: Path, disk_folder: Path) -> None:
    text = STUDY.replace("BLOCKS", "2").replace('kind = "image"', 'kind = "directory"')
    text = re.sub(r'filesystem = ".*"\n', "", text).replace('cache = "cold"', 'cache = "warm"')
    text = text.replace("btrfs", "ext2/ext3").replace(
        "test $(stat -f -c %T {dir}) = {kind}", "test -d {dir} -a {kind}"
    )
    study = write_study(tmp_path, text)
    elsewhere = Path(tempfile.mkdtemp(dir=disk_folder))
    report = run_json(study, "--trust", "--place", f"second={elsewhere}", "--on", str(disk_folder))
    assert failures_of(state) == []
    folders = [place["folder"] for place in report["trial"]["lab_settings"]["places"] if "folder" in place]
    assert not folders or len(set(folders)) == 3
    assert not list(elsewhere.iterdir())
